//! Rules about what a new process of ours finds.

use super::{
    lease::ids,
    trial::{Suite, Verdict, same},
};

pub(super) async fn identity_outlives_a_restart(suite: &Suite<'_>) -> Verdict {
    let before = suite.call("identity", suite.provider.identity()).await?;
    let again = suite.call("identity", suite.provider.identity()).await?;
    same("the identity asked for again", &again, &before)?;
    let Some((provider, _)) = suite.harness.reopened() else {
        return Ok(false);
    };
    let after = suite.call("identity", provider.identity()).await?;
    same("the identity afterwards", &after, &before)
}

pub(super) async fn leases_and_sessions_outlive_a_restart(suite: &Suite<'_>) -> Verdict {
    let (start, session) = suite.running().await?;
    suite.settle().await;
    let Some((provider, bootstrap)) = suite.harness.reopened() else {
        suite.destroy(&start.lease).await?;
        return Ok(false);
    };
    let leases = suite.call("find", provider.find(&start.key)).await?;
    same("the leases found", &ids(&leases), &vec![start.lease.lease_id.to_string()])?;
    let sessions = suite.call("find", bootstrap.find(&start.key, &start.lease)).await?;
    same("the session found", &sessions.map(|found| found.session), &Some(session))?;
    let runs = suite.harness.runs_anything_on(&start.lease).await;
    same("something still runs", &runs, &true)?;
    suite.call("cancel", bootstrap.cancel(session)).await?;
    let runs = suite.harness.runs_anything_on(&start.lease).await;
    same("something runs after a cancel", &runs, &false)?;
    suite.call("destroy", provider.destroy(&start.lease)).await?;
    Ok(true)
}
