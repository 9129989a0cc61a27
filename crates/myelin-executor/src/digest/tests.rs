use std::sync::Arc;

use myelin_shape::{RunId, RunNodeGroupSpec};

use super::Digests;

#[test]
fn equal_templates_have_one_digest_and_gone_ones_take_no_memory() {
    let digests = Digests::default();
    let group = RunNodeGroupSpec::new(RunId(1), "worker", 1, "fake");
    let first = Arc::new(group.template());
    let expected = digests.of(&first);
    for _ in 0..1000 {
        let again = Arc::new(group.template());
        assert_eq!(digests.of(&again), expected);
    }
    assert!(digests.len() < 40, "{} templates are remembered", digests.len());
    assert!(Arc::ptr_eq(&digests.of(&first), &expected), "computed once");
}
