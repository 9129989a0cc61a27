//! Which explanations explain.

use myelin_decider::{Explanation, Held, HeldReason, Trigger, Until};

use super::fixture::{NOW, at, node, state};
use crate::is_explained;

fn held(until: Until) -> Explanation {
    Explanation::Held(Held { reason: HeldReason::Backoff { failures: 1 }, until })
}

#[test]
fn a_reason_says_what_ends_it() {
    let mut state = state();
    let mut check =
        |index, explanation| is_explained(node(&mut state, index), &explanation, at(NOW));
    let (ready, other) = (0, 1);
    assert!(check(ready, Explanation::Steady));
    assert!(!check(other, Explanation::Steady), "what is not ready is not as desired");
    assert!(check(other, held(Until::At(at(NOW + 1)))));
    assert!(!check(other, held(Until::At(at(NOW)))), "its time has come");
    assert!(check(other, held(Until::On(Trigger::Operator))));
    assert!(check(other, Explanation::Missing));
    assert!(!check(other, Explanation::Unknown), "it is managed");
}
