//! Rules about calls that are dropped midway.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::time::timeout;

use super::trial::{Suite, Verdict, same};
use crate::Presence;

/// After how many polls, and after how long, calls are dropped. Polls hit every early await point of any call, times
/// those of calls that wait for the world.
const DROPS: [Drop; 10] = [
    Drop::AtOnce,
    Drop::Polls(1),
    Drop::Polls(2),
    Drop::Polls(3),
    Drop::Polls(4),
    Drop::Polls(8),
    Drop::Millis(1),
    Drop::Millis(5),
    Drop::Millis(25),
    Drop::Millis(100),
];

#[derive(Clone, Copy)]
enum Drop {
    AtOnce,
    Polls(u32),
    Millis(u64),
}

pub(super) async fn dropped_create_leaves_at_most_one_lease(suite: &Suite<'_>) -> Verdict {
    for drop in DROPS {
        let request = suite.request();
        for _ in 0..2 {
            interrupt(drop, suite.provider.create(&request)).await;
        }
        let made = suite.create(&request).await?;
        let found = suite.find_settled(&request.key).await?;
        let n_found = found.len();
        for lease in &found {
            suite.destroy(&lease.lease).await?;
        }
        same("leases after dropped creates", &n_found, &1)?;
        same("the one", &found[0].lease.lease_id, &made.lease_id)?;
    }
    Ok(true)
}

pub(super) async fn dropped_destroy_can_be_repeated(suite: &Suite<'_>) -> Verdict {
    for drop in DROPS {
        let made = suite.create(&suite.request()).await?;
        interrupt(drop, suite.provider.destroy(&made)).await;
        suite.destroy(&made).await?;
        same("afterwards", &suite.presence(&made).await?, &Presence::Absent)?;
    }
    Ok(true)
}

pub(super) async fn dropped_start_leaves_at_most_one_session(suite: &Suite<'_>) -> Verdict {
    for drop in DROPS {
        let start = suite.start_request(&suite.request()).await?;
        for _ in 0..2 {
            interrupt(drop, suite.bootstrap.start(&start)).await;
        }
        let session = suite.call("start", suite.bootstrap.start(&start)).await?;
        let again = suite.call("start", suite.bootstrap.start(&start)).await?;
        same("the repeated start answered", &again, &session)?;
        suite.call("cancel", suite.bootstrap.cancel(session)).await?;
        let runs = suite.harness.runs_anything_on(&start.lease).await;
        same("something runs beside the one session", &runs, &false)?;
        suite.destroy(&start.lease).await?;
    }
    Ok(true)
}

/// Starts a call and drops it, unless it is done before.
async fn interrupt<T>(drop: Drop, call: impl Future<Output = T>) {
    match drop {
        Drop::AtOnce => {}
        Drop::Polls(n_polls) => poll_at_most(n_polls, call).await,
        Drop::Millis(millis) => {
            timeout(Duration::from_millis(millis), call).await.ok();
        }
    }
}

async fn poll_at_most<T>(n_polls: u32, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    let mut left = n_polls;
    poll_fn(|context| {
        let done = call.as_mut().poll(context).is_ready();
        left -= 1;
        if done || left == 0 {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}
