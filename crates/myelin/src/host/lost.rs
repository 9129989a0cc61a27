//! Machines in a state directory that holds no state any more.

use std::{collections::BTreeMap, fs};

use myelin_shape::ClusterUid;

use crate::state_dir::StateDir;

/// Returns how many machines of which clusters are in a directory where no run was begun: the state that knew of them is
/// gone. A directory that cannot be read is for the provider to report, and a state that cannot be looked for is not lost.
pub fn lost(state: &StateDir) -> BTreeMap<ClusterUid, usize> {
    let mut lost = BTreeMap::new();
    if state.is_begun().unwrap_or(true) {
        return lost;
    }
    for entry in fs::read_dir(state.leases()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let uid = name.to_str().and_then(|name| name.split('.').next()?.parse().ok());
        if let Some(cluster) = uid {
            *lost.entry(cluster).or_default() += 1;
        }
    }
    lost
}
