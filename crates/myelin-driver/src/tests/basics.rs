//! What a cluster does when nothing goes wrong.

use super::world::{World, seconds, workers};

#[test]
fn three_nodes_become_ready() {
    let mut world = World::new([workers(3)]);
    let took = world.settle(seconds(60));
    assert_eq!(took, seconds(7), "{}", world.cluster());
    assert_eq!(world.provider.n_leases_ever, 3);
    insta::assert_snapshot!(world.story());
}
