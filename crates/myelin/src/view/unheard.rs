//! Agents of a run that was taken up and that were not heard since: what counts as ready but was not seen to be.

use std::{collections::BTreeMap, time::SystemTime};

use myelin_shape::LogicalNodeId;

use super::{GroupView, NodeView, UnheardView, Why, build::order, stamp};

/// Nodes that count as ready and whose agents are not heard yet, with the time after which each counts as silent.
pub(crate) type Unheard = BTreeMap<LogicalNodeId, Option<SystemTime>>;

/// Takes nodes that were not heard for what they are.
pub(crate) fn correct_nodes(nodes: &mut [NodeView], unheard: &Unheard) {
    for node in nodes {
        if let Some(&until) = unheard.get(node.node.as_str()) {
            (node.ready, node.ready_since) = (false, None);
            "unheard".clone_into(&mut node.state);
            node.why = why(until);
        }
    }
}

fn why(until: Option<SystemTime>) -> Why {
    Why {
        code: "unheard".to_owned(),
        text: "it was ready, and its agent is not heard since the run was taken up".to_owned(),
        until: until.map(stamp),
        until_event: None,
    }
}

/// Counts nodes that were not heard as such, and not as ready.
pub(crate) fn correct_groups(groups: &mut [GroupView], unheard: &Unheard) {
    for node in unheard.keys() {
        let (group, ..) = order(node.as_str());
        if let Some(view) = groups.iter_mut().find(|view| view.group == group) {
            view.ready = view.ready.saturating_sub(1);
            *view.moving.entry("unheard".to_owned()).or_default() += 1;
        }
    }
}

/// Returns how many are not heard, and when that is over at the latest.
pub(crate) fn unheard_view(unheard: &Unheard) -> Option<UnheardView> {
    let until = unheard.values().copied().flatten().max();
    (!unheard.is_empty()).then(|| UnheardView { agents: unheard.len(), until: until.map(stamp) })
}
