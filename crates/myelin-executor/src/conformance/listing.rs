//! Rules about all leases of a cluster, and those of others.

use super::{
    lease::ids,
    trial::{Suite, Verdict, same},
};
use crate::Presence;

pub(super) async fn list_shows_every_lease_of_a_cluster(suite: &Suite<'_>) -> Verdict {
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(suite.create(&suite.request()).await?);
    }
    suite.settle().await;
    let list = suite.provider.list(suite.clusters[0]);
    let listed = ids(&suite.call("list", list).await?);
    for lease in &made {
        if !listed.iter().any(|id| *id == lease.lease_id.as_str()) {
            return Err(format!("{} is missing in {listed:?}", lease.lease_id));
        }
        suite.destroy(lease).await?;
    }
    Ok(true)
}

pub(super) async fn list_shows_no_lease_of_another_cluster(suite: &Suite<'_>) -> Verdict {
    let ours = suite.create(&suite.request()).await?;
    let foreign = suite.create(&suite.foreign_request()).await?;
    suite.settle().await;
    for (cluster, stranger) in suite.clusters.into_iter().zip([&foreign, &ours]) {
        let listed = suite.call("list", suite.provider.list(cluster)).await?;
        if ids(&listed).iter().any(|id| *id == stranger.lease_id.as_str()) {
            return Err(format!("{} of another cluster is listed", stranger.lease_id));
        }
    }
    suite.destroy(&ours).await?;
    suite.destroy(&foreign).await?;
    Ok(true)
}

pub(super) async fn destroying_spares_other_leases(suite: &Suite<'_>) -> Verdict {
    let made = suite.create(&suite.request()).await?;
    let sibling = suite.create(&suite.request()).await?;
    let foreign = suite.create(&suite.foreign_request()).await?;
    suite.destroy(&made).await?;
    let sibling_after = suite.presence(&sibling).await?;
    same("another attempt's lease", &sibling_after, &Presence::Present)?;
    let foreign_after = suite.presence(&foreign).await?;
    same("another cluster's lease", &foreign_after, &Presence::Present)?;
    suite.destroy(&sibling).await?;
    suite.destroy(&foreign).await?;
    Ok(true)
}
