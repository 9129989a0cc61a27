//! Rules about bootstraps.

use std::time::Duration;

use tokio::time::sleep;

use myelin_shape::BootstrapSessionId;

use super::trial::{Suite, Verdict, same};

/// A session nobody was ever given.
const UNKNOWN: BootstrapSessionId = BootstrapSessionId(u64::MAX);

/// How long something that should not end is watched.
const WATCH: Duration = Duration::from_millis(300);

pub(super) async fn repeated_start_answers_the_same_session(suite: &Suite<'_>) -> Verdict {
    let (start, first) = suite.running().await?;
    let second = suite.call("start", suite.bootstrap.start(&start)).await?;
    same("the second start answered", &second, &first)?;
    let find = suite.bootstrap.find(&start.key, &start.lease);
    let found = suite.call("find", find).await?;
    let found = found.map(|found| found.session);
    same("the session found", &found, &Some(first))?;
    suite.destroy(&start.lease).await?;
    Ok(true)
}

pub(super) async fn concluded_session_leaves_the_agent_running(suite: &Suite<'_>) -> Verdict {
    let (start, session) = suite.running().await?;
    suite.call("conclude", suite.bootstrap.conclude(session)).await?;
    suite.call("conclude again", suite.bootstrap.conclude(session)).await?;
    sleep(WATCH).await;
    let runs = suite.harness.runs_anything_on(&start.lease).await;
    same("something runs afterwards", &runs, &true)?;
    suite.destroy(&start.lease).await?;
    Ok(true)
}

pub(super) async fn cancelled_session_leaves_nothing_running(suite: &Suite<'_>) -> Verdict {
    let (start, session) = suite.running().await?;
    suite.call("cancel", suite.bootstrap.cancel(session)).await?;
    let runs = suite.harness.runs_anything_on(&start.lease).await;
    same("something runs afterwards", &runs, &false)?;
    suite.destroy(&start.lease).await?;
    Ok(true)
}

pub(super) async fn cancelling_twice_succeeds(suite: &Suite<'_>) -> Verdict {
    let (start, session) = suite.running().await?;
    suite.call("cancel", suite.bootstrap.cancel(session)).await?;
    suite.call("cancel again", suite.bootstrap.cancel(session)).await?;
    suite.destroy(&start.lease).await?;
    Ok(true)
}

pub(super) async fn cancelling_an_unknown_session_succeeds(suite: &Suite<'_>) -> Verdict {
    suite.call("cancel", suite.bootstrap.cancel(UNKNOWN)).await?;
    Ok(true)
}

pub(super) async fn concluding_an_unknown_session_succeeds(suite: &Suite<'_>) -> Verdict {
    suite.call("conclude", suite.bootstrap.conclude(UNKNOWN)).await?;
    Ok(true)
}

pub(super) async fn destroying_ends_what_runs_on_the_lease(suite: &Suite<'_>) -> Verdict {
    let (start, session) = suite.running().await?;
    suite.destroy(&start.lease).await?;
    let runs = suite.harness.runs_anything_on(&start.lease).await;
    same("something runs afterwards", &runs, &false)?;
    suite.call("cancel", suite.bootstrap.cancel(session)).await?;
    Ok(true)
}
