//! What people ask a control plane for, in the order in which they do.

use myelin_driver::{Event, Target};
use myelin_shape::{LogicalNodeId, RunNodeGroupSpec};
use myelin_state::OperatorRequest;

use super::Stage;

/// What a person asks for.
#[derive(Debug)]
pub(super) enum Asked {
    /// These groups and no others.
    Want(Vec<RunNodeGroupSpec>),
    /// Something else.
    Word(Event),
}

impl Asked {
    pub(super) fn of(target: Target, request: OperatorRequest) -> Self {
        Self::Word(Event::Operator { target, request })
    }
}

impl Stage<'_> {
    /// Tells the control plane what is asked for, one after the other. What it does not acknowledge is asked again.
    pub(super) fn deliver(&mut self) {
        let Some(control) = &mut self.control else { return };
        while let Some(asked) = self.waiting.front() {
            let is_heard = match asked {
                Asked::Want(groups) => control.want(groups),
                Asked::Word(event) => {
                    if let Some(node) = abandoned(event) {
                        self.world.lock().excuse(node.clone());
                    }
                    control.hear(event)
                }
            };
            if !is_heard {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

/// Returns whose machine an operator says is gone, with this word.
fn abandoned(word: &Event) -> Option<&LogicalNodeId> {
    if let Event::Operator { target: Target::Node(node), request: OperatorRequest::Abandon } = word
    {
        Some(node)
    } else {
        None
    }
}
