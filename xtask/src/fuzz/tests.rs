use super::*;

#[test]
fn the_targets_are_those_that_have_a_corpus() {
    let root = root().expect("xtask is in the repository");
    let targets = targets(&root).expect("there are targets");
    assert!(!targets.is_empty());
    for target in targets {
        assert!(root.join("fuzz/corpus").join(&target).is_dir(), "{target} has no corpus");
    }
}
