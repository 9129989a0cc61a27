//! Ends every process of a lease or a session, and proves it.

use std::{collections::BTreeSet, io, time::Duration};

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::{
    proc::{Family, Stat},
    scan::Scanner,
};

/// How long killed processes may take to disappear. Only one that hangs in the kernel needs more than milliseconds.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A process in the middle of replacing itself shows no environment: one look at nothing proves nothing.
pub(crate) const N_LOOKS: u32 = 2;

/// Between two looks at what should end soon.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Why processes are not known to have ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndError {
    #[error("cannot read /proc: {0}")]
    Proc(#[from] io::Error),
    #[error("processes {0:?} do not end")]
    Stuck(Vec<i32>),
}

/// Asks the members to end, kills them after `grace`, and returns once `/proc` shows none.
pub(crate) async fn end(
    scanner: &Scanner,
    mut family: Family,
    grace: Duration,
) -> Result<(), EndError> {
    let start = Instant::now();
    let mut asked = BTreeSet::new();
    let mut n_quiet = 0;
    loop {
        let running = family.running(&*scanner.look().await?);
        n_quiet = if running.is_empty() { n_quiet + 1 } else { 0 };
        if n_quiet == N_LOOKS {
            return Ok(());
        }
        if n_quiet == 0 && start.elapsed() > grace + KILL_LIMIT {
            let pids = running.iter().map(|stat| stat.pid).collect();
            return Err(EndError::Stuck(pids));
        }
        if start.elapsed() < grace {
            ask(&running, &mut asked);
        } else {
            for stat in &running {
                stat.signal(&[Signal::KILL]);
            }
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// Asks each member once. A stopped one must be continued to hear it.
fn ask(running: &[Stat], asked: &mut BTreeSet<(i32, u64)>) {
    for stat in running {
        if asked.insert((stat.pid, stat.start_time)) {
            stat.signal(&[Signal::TERM, Signal::CONT]);
        }
    }
}
