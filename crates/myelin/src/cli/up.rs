//! `up`: the loop in this process.

use std::{collections::BTreeSet, future, sync::Arc, time::Duration};

use myelin_executor::Provider;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    control::Source,
    file::ClusterFile,
    host::{self, Host},
    runtime::{self, Handle},
    state_dir::StateDir,
};

use super::{
    NOT_CONVERGED, Outcome,
    args::{Globals, UpArgs},
    connect,
    down::{LIST_DEADLINE, is_or_are, listing, machines},
    failure::Failure,
    output::{self, Style, note},
    progress, read, table, time,
};

/// How long `--until-converged` waits by default: twice what a machine has to become ready.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// How long a removal may take before we leave without it.
const REMOVAL_DEADLINE: Duration = Duration::from_mins(5);

/// How often it is looked whether only a person can help.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many kinds of trouble are explained when nodes did not converge.
const MAX_EXPLAINED: usize = 5;

/// What ends the wait.
enum Ending {
    Converged,
    TimedOut,
    /// Nothing gets further without a person.
    Stuck,
    Signal(&'static str),
    /// Somebody said `down`, and nothing is left.
    TakenDown,
    /// The loop has ended by itself, which only a defect can do.
    Broken,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None when we were started so that a closed terminal does not concern us, as by `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "asked to end",
            _ = hangup => "the terminal was closed",
        }
    }
}

/// Returns whether this process was started with the signal of a closed terminal ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    mask.is_some_and(|mask| mask & 1 == 1)
}

pub(super) async fn up(globals: &Globals, args: UpArgs) -> Outcome {
    let path = connect::file(args.file.file.clone())?;
    let (_, file) = Source::read(&path)?;
    runtime::check_providers(&file, &host::kinds())?;
    let mut state = connect::state_of(globals, file.run)?;
    state.create()?;
    let lock = state.lock()?;
    // From here on a signal cannot end us without cleanup.
    let mut signals = Signals::new()?;
    if state.is_begun() {
        warn_of_leftovers(&state, &host::providers_for_cleanup(&state)?).await?;
    }
    let options = host::Options { listen: args.listen, agent: file.agent.clone() };
    let host = Host::start(&state, file.run, options).await?;
    let down_command = down_command(globals, &state, &file);
    let outcome = drive(&host, file, &args, &mut signals, &state, &down_command).await;
    host.stop().await;
    drop(lock);
    outcome
}

/// Machines of an earlier `up` are strangers to this one: it says so, and leaves them alone.
pub(super) async fn warn_of_leftovers(
    state: &StateDir,
    providers: &[Arc<dyn Provider>],
) -> Result<(), Failure> {
    let clusters: Vec<_> = state.clusters()?.into_iter().map(|it| it.cluster).collect();
    match timeout(LIST_DEADLINE, host::list_leases(providers, &clusters)).await {
        Ok(Ok(left)) if left.is_empty() => state.forget_clusters(&clusters)?,
        Ok(Ok(left)) => note(format!(
            "note: {} of an earlier `up` {are} still there and {are} not taken over; `myelin down` removes what both have leased",
            machines(left.len()),
            are = is_or_are(left.len())
        )),
        // Forgotten now, they would never be found again.
        Ok(Err(_)) | Err(_) => note(
            "note: it is not known whether machines of an earlier `up` are still there; `myelin down` looks again",
        ),
    }
    Ok(())
}

/// Returns the command that removes what this `up` leaves.
fn down_command(globals: &Globals, state: &StateDir, file: &ClusterFile) -> String {
    match &globals.state_dir {
        Some(_) => format!("myelin down --state-dir {}", quoted(&state.path().to_string_lossy())),
        None => format!("myelin down --run {}", file.run),
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

async fn drive(
    host: &Host,
    file: ClusterFile,
    args: &UpArgs,
    signals: &mut Signals,
    state: &StateDir,
    down_command: &str,
) -> Outcome {
    let handle = &host.handle;
    handle.apply(file, None, true).await?;
    let live = progress::is_live();
    let shown = CancellationToken::new();
    let shower = tokio::spawn(progress::show(handle.clone(), live, shown.clone()));
    let ending = wait(handle, args, signals).await;
    let quiet = async || {
        shown.cancel();
        let _ = timeout(LIST_DEADLINE, shower).await;
    };
    match ending {
        Ending::Converged => {
            quiet().await;
            report(handle, down_command).await?;
            Ok(0)
        }
        Ending::TimedOut | Ending::Stuck => {
            quiet().await;
            let why = if matches!(ending, Ending::Stuck) {
                "not converged, and only a person can help"
            } else {
                "not converged in time"
            };
            not_converged(host, state, why, down_command).await
        }
        Ending::TakenDown => {
            quiet().await;
            finish(host, state, "taken down by `myelin down`").await
        }
        Ending::Broken => {
            quiet().await;
            Err(left_behind(host, "the loop has ended by itself", down_command).await)
        }
        Ending::Signal(why) => {
            let n = handle.pulse().borrow().n_nodes;
            note(format!("{why}: removing {} (again: leave at once)", machines(n)));
            let removed = remove(handle, signals).await;
            quiet().await;
            match removed {
                Ok(()) if args.until_converged => {
                    finish(host, state, &format!("{why} before it had converged")).await?;
                    Ok(1)
                }
                Ok(()) => finish(host, state, why).await,
                Err(why) => Err(left_behind(host, why, down_command).await),
            }
        }
    }
}

async fn wait(handle: &Handle, args: &UpArgs, signals: &mut Signals) -> Ending {
    let deadline = time::deadline(args.timeout.unwrap_or(DEFAULT_TIMEOUT));
    let mut pulse = handle.pulse();
    let mut looks = interval(LOOK_EVERY);
    loop {
        let now = *pulse.borrow_and_update();
        if now.leaving && now.n_nodes == 0 {
            return Ending::TakenDown;
        }
        if args.until_converged && now.converged && !now.leaving {
            return Ending::Converged;
        }
        tokio::select! {
            why = signals.next() => return Ending::Signal(why),
            changed = pulse.changed() => if changed.is_err() {
                return Ending::Broken;
            },
            () = sleep_until(deadline), if args.until_converged => return Ending::TimedOut,
            _ = looks.tick(), if args.until_converged => {
                if handle.is_stuck().await.unwrap_or(false) {
                    return Ending::Stuck;
                }
            }
        }
    }
}

/// Takes the cluster down; the error says why that was given up.
async fn remove(handle: &Handle, signals: &mut Signals) -> Result<(), &'static str> {
    let deadline = Instant::now() + REMOVAL_DEADLINE;
    handle.down().await.map_err(|_| "the loop has ended by itself")?;
    let mut pulse = handle.pulse();
    loop {
        if pulse.borrow_and_update().n_nodes == 0 {
            return Ok(());
        }
        tokio::select! {
            _ = signals.next() => return Err("left at once"),
            () = sleep_until(deadline) => return Err("the removal took too long"),
            changed = pulse.changed() => changed.map_err(|_| "the loop has ended by itself")?,
        }
    }
}

/// Ends when nothing is left by the providers' own word.
async fn finish(host: &Host, state: &StateDir, why: &str) -> Outcome {
    match timeout(LIST_DEADLINE, host.leases()).await {
        Ok(Ok(left)) if left.is_empty() => {
            state.forget_clusters(&[host.cluster])?;
            let _ = output::print(&format!("{why}: all machines are removed\n"));
            Ok(0)
        }
        Ok(Ok(left)) => {
            note(listing(&left));
            let are = is_or_are(left.len());
            Err(Failure::new(format!(
                "{} {are} left that nobody drove any more",
                machines(left.len())
            ))
            .hint(format!("myelin down --state-dir {}", quoted(&state.path().to_string_lossy()))))
        }
        Ok(Err(_)) | Err(_) => {
            Err(Failure::new("the providers do not say whether anything is left")
                .hint("`myelin down` looks again"))
        }
    }
}

/// Names what is left, and how to remove it.
async fn left_behind(host: &Host, why: &str, down_command: &str) -> Failure {
    let (what, them) = match timeout(LIST_DEADLINE, host.leases()).await {
        Ok(Ok(left)) if left.is_empty() => ("nothing is left".to_owned(), "what may still appear"),
        Ok(Ok(left)) => {
            note(listing(&left));
            match left.len() {
                1 => ("1 machine is left".to_owned(), "it"),
                n => (format!("{n} machines are left"), "them"),
            }
        }
        Ok(Err(_)) | Err(_) => ("what is left is not known".to_owned(), "what there is"),
    };
    Failure::new(format!("{why}: {what}")).hint(format!("remove {them} with `{down_command}`"))
}

async fn report(handle: &Handle, down_command: &str) -> Result<(), Failure> {
    let nodes = handle.nodes().await?;
    output::print(&table::nodes(&nodes, Style::stdout()))?;
    output::print(&format!(
        "\nconverged: {} ready. They stay; remove them with\n\n    {down_command}\n",
        machines(nodes.len())
    ))
}

async fn not_converged(host: &Host, state: &StateDir, why: &str, down_command: &str) -> Outcome {
    let handle = &host.handle;
    let nodes = handle.nodes().await?;
    let style = Style::stdout();
    output::print(&table::nodes(&nodes, style))?;
    let waiting: Vec<_> = nodes.iter().filter(|node| node.why.code != "steady").collect();
    // Nodes with the same trouble are explained by one of them.
    let mut told = BTreeSet::new();
    let distinct = waiting.iter().filter(|node| told.insert((&node.state, &node.why.text)));
    for node in distinct.take(MAX_EXPLAINED) {
        let view = handle.explain(node.node.as_str().into()).await?;
        output::print(&format!("\n{}", read::explain_text(&view, style)))?;
    }
    let left = timeout(LIST_DEADLINE, host.leases()).await;
    let hint = match left {
        Ok(Ok(left)) if left.is_empty() => {
            state.forget_clusters(&[host.cluster])?;
            "nothing is leased; mend the file and try again".to_owned()
        }
        _ => format!("what is leased stays; remove it with `{down_command}`"),
    };
    let are = is_or_are(waiting.len());
    let message = format!("{why}: {} of {} nodes {are} not ready", waiting.len(), nodes.len());
    Err(Failure::new(message).hint(hint).code(NOT_CONVERGED))
}
