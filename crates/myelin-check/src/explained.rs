//! That a node which is not as desired says why (`spec 1.2`).

use std::time::SystemTime;

use myelin_decider::{Explanation, Until};
use myelin_state::ManagedNode;

/// Returns whether a managed node is ready, has a step next, or is held for a reason with what ends it.
///
/// An empty plan and a stuck plan look the same without it. The explanation is that of a settled state at `now`, so what was
/// held until a time that has passed is not explained.
pub fn is_explained(node: &ManagedNode, explanation: &Explanation, now: SystemTime) -> bool {
    match explanation {
        Explanation::Steady => node.is_ready(),
        Explanation::Held(held) => match held.until {
            Until::At(time) => time > now,
            Until::On(_) => true,
        },
        Explanation::Next(_) | Explanation::Missing => true,
        Explanation::Unknown => false,
    }
}
