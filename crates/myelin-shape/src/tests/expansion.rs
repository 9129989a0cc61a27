use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use super::strategies::valid_id;
use crate::{
    ClusterShape, LogicalNodeId, LogicalNodeSpec, RunId, RunNodeGroupSpec, SecretRef,
    expand_node_group, validate::check_unique_slots,
};

fn group(id: &str, count: u32) -> RunNodeGroupSpec {
    RunNodeGroupSpec::new(RunId(1), id, count, "process")
}

fn shape(groups: impl IntoIterator<Item = RunNodeGroupSpec>) -> ClusterShape {
    ClusterShape::new(RunId(1), 1, groups)
}

#[test]
fn a_group_expands_by_index() {
    let slots: Vec<_> = expand_node_group(&group("worker", 11)).collect();
    let indices: Vec<_> = slots.iter().map(|slot| slot.index).collect();
    assert_eq!(indices, (0..11).collect::<Vec<_>>());
    assert_eq!(slots[10].logical_node_id.as_str(), "worker-10");
}

#[test]
fn a_shape_expands_to_slots_in_order_of_their_ids() {
    let expanded = shape([group("b", 2), group("a", 11), group("none", 0)]).expand().unwrap();
    let ids: Vec<_> = expanded.keys().map(LogicalNodeId::as_str).collect();
    insta::assert_snapshot!(ids.join(" "), @"a-0 a-1 a-10 a-2 a-3 a-4 a-5 a-6 a-7 a-8 a-9 b-0 b-1");
    for (id, slot) in &expanded {
        assert_eq!(*id, slot.logical_node_id);
    }
}

#[test]
fn nodes_of_a_group_share_one_template() {
    let expanded = shape([group("a", 3), group("b", 1)]).expand().unwrap();
    let of = |id: &str| &expanded[id].template;
    assert!(Arc::ptr_eq(of("a-0"), of("a-2")));
    assert!(!Arc::ptr_eq(of("a-0"), of("b-0")));
}

#[test]
fn a_slot_carries_what_its_group_says() {
    let mut group = group("gpu", 1);
    group.shape.image = "cuda".into();
    group.swarm_join.join_token_ref = SecretRef::Env("TOKEN".into());
    let slot = expand_node_group(&group).next().unwrap();
    assert_eq!(*slot.template, group.template());
    assert_eq!(slot.group_id(), &group.group_id);
    assert_eq!(slot.provider(), &group.provider);
    let join = slot.swarm_join();
    assert_eq!(join.expected_logical_node_id.as_str(), "gpu-0");
    assert_eq!(join.join_token_ref.to_string(), "env:TOKEN");
}

#[test]
fn policy_and_count_are_no_part_of_a_template() {
    let before = group("a", 1);
    let mut after = group("a", 9);
    after.policy.max_in_flight_creates = 1;
    assert_eq!(before.template(), after.template());
    assert_eq!(before.template().digest(), after.template().digest());
}

#[test]
fn a_changed_template_has_another_digest() {
    let before = group("a", 1);
    let mut after = before.clone();
    after.boot.env = [("A".into(), "b".into())].into();
    assert_ne!(before.template().digest(), after.template().digest());
    assert_eq!(before.template().digest().len(), 32);
}

#[test]
fn the_digest_of_a_template_stays_what_it_is() {
    // Leases that exist carry it; another digest for the same template would orphan them.
    insta::assert_snapshot!(group("worker", 1).template().digest(), @"27bba65fd210b9a847ef48d3346f822c");
}

#[test]
fn a_thousand_million_nodes_are_refused_before_anything_is_made() {
    let huge = shape([group("a", 1_000_000_000), group("b", u32::MAX)]);
    insta::assert_snapshot!(huge.expand().unwrap_err(), @"groups[0].count: 1000000000 nodes wanted, at most 100000 are allowed");
}

#[test]
fn the_ceiling_is_the_callers() {
    let shape = shape([group("a", 4)]);
    assert_eq!(shape.expand_up_to(4).unwrap().len(), 4);
    assert!(shape.expand_up_to(3).is_err());
}

#[test]
fn slots_that_meet_are_reported_once_each() {
    let slots = [group("b", 2), group("a", 3), group("a", 1), group("b", 2), group("b", 1)];
    let slots = slots.iter().flat_map(expand_node_group);
    insta::assert_snapshot!(check_unique_slots(slots).unwrap_err(), @r#"groups expand to "a-0" twice; groups expand to "b-0" twice; groups expand to "b-1" twice"#);
}

#[test]
fn equality_of_slots_looks_at_content() {
    let slot =
        |group: &RunNodeGroupSpec| -> LogicalNodeSpec { expand_node_group(group).next().unwrap() };
    let mut other = group("a", 1);
    assert_eq!(slot(&group("a", 1)), slot(&other));
    other.shape.disk_gb = 1;
    assert_ne!(slot(&group("a", 1)), slot(&other));
    let [first, second] = expand_node_group(&group("a", 2)).collect::<Vec<_>>().try_into().unwrap();
    assert!(first.same_template(&second));
    assert_ne!(first, second);
}

proptest! {
    #[test]
    fn groups_with_different_ids_never_share_a_slot(
        // Few letters, so that one id is often the beginning of another.
        ids in proptest::collection::btree_set("[a01](-?[a01-]{0,3}[a01])?", 2..6),
        counts in proptest::collection::vec(1..120_u32, 6),
    ) {
        let groups: Vec<_> = ids.iter().zip(&counts).map(|(id, count)| group(id, *count)).collect();
        let wanted: u32 = groups.iter().map(|group| group.count).sum();
        let slots: BTreeSet<_> = groups
            .iter()
            .flat_map(expand_node_group)
            .map(|slot| slot.logical_node_id)
            .collect();
        prop_assert_eq!(slots.len(), wanted as usize);
        prop_assert_eq!(shape(groups).expand().unwrap().len(), wanted as usize);
    }

    #[test]
    fn every_slot_of_a_valid_group_has_a_valid_id(id in valid_id(1..=60), count in 1..100_u32) {
        let expanded = shape([group(&id, count)]).expand().unwrap();
        for slot in expanded.keys() {
            prop_assert_eq!(crate::check_id(slot.as_str()), Ok(()));
        }
    }
}
