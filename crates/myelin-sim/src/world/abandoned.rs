//! What an operator has said is gone, whether or not it is.

use myelin_shape::{AttemptKey, LogicalNodeId};

use super::{CLUSTER, RUN, World};

impl World {
    /// Lets an operator abandon what a slot has. If it is there all the same, it is a stray, which a sweep has to find; that
    /// the slot gets another machine meanwhile is what the operator asked for.
    pub(crate) fn abandon(&mut self, node: &LogicalNodeId) {
        if let Some(recorded) = self.recorded.get(node) {
            let (node, attempt) = (node.clone(), recorded.attempt);
            self.abandoned.insert(AttemptKey { cluster: CLUSTER, run: RUN, node, attempt });
        }
    }

    pub(super) fn is_abandoned(&self, key: &AttemptKey) -> bool {
        self.abandoned.contains(key)
    }
}
