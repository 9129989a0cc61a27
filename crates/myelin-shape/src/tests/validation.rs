use proptest::prelude::*;

use crate::{ClusterShape, Limit, Mount, RunId, RunNodeGroupSpec, SecretRef, validate};

/// Returns a group that breaks no rule.
fn group(id: &str) -> RunNodeGroupSpec {
    RunNodeGroupSpec::new(RunId(1), id, 3, "process")
}

/// Returns everything that is wrong with a run of these groups, one error a line.
fn check(groups: impl IntoIterator<Item = RunNodeGroupSpec>) -> String {
    check_shape(&ClusterShape::new(RunId(1), 1, groups))
}

fn check_shape(shape: &ClusterShape) -> String {
    match validate(shape, 100) {
        Ok(()) => String::new(),
        Err(errors) => errors.to_string().replace("; ", "\n"),
    }
}

#[test]
fn a_shape_that_breaks_no_rule_passes() {
    assert_eq!(check([]), "");
    assert_eq!(check([group("worker"), group("gpu")]), "");
}

#[test]
fn all_errors_of_a_shape_are_reported_together() {
    let mut first = group("Worker");
    first.run_id = RunId(2);
    first.role = "".into();
    first.shape.min_reliability = Some(1.5);
    let mut second = group("gpu");
    second.count = 1000;
    second.shape.provider_labels = [("Myelin.run".into(), "1".into())].into();
    let third = group("gpu");
    let shape = ClusterShape::new(RunId(1), 1, [first, second, third]);
    insta::assert_snapshot!(check_shape(&shape), @r#"
    groups[0].run_id: belongs to run 2, but the shape is of run 1
    groups[0].group_id: "Worker" is no id: may hold only a-z, 0-9 and inner '-', not 'W'
    groups[0].role: "" is no id: must not be empty
    groups[0].shape.min_reliability: must be a number from 0 to 1, not 1.5
    groups[1].shape.provider_labels: label "Myelin.run" begins with "myelin.", which is reserved
    groups[1].count: 1003 nodes wanted, at most 100 are allowed
    groups[2].group_id: group "gpu" is already declared by groups[1]
    "#);
    let errors = validate(&shape, 100).unwrap_err();
    let paths: Vec<_> = errors.0.iter().map(crate::ShapeError::path).collect();
    insta::assert_snapshot!(paths.join("\n"), @r"
    groups[0].run_id
    groups[0].group_id
    groups[0].role
    groups[0].shape.min_reliability
    groups[1].shape.provider_labels
    groups[1].count
    groups[2].group_id
    ");
}

#[test]
fn a_group_of_another_run_is_refused() {
    let mut foreign = group("worker");
    foreign.run_id = RunId(9);
    insta::assert_snapshot!(check([foreign]), @"groups[0].run_id: belongs to run 9, but the shape is of run 1");
}

#[test]
fn a_group_that_is_declared_twice_is_refused() {
    insta::assert_snapshot!(check([group("a"), group("b"), group("a"), group("a")]), @r#"
    groups[2].group_id: group "a" is already declared by groups[0]
    groups[3].group_id: group "a" is already declared by groups[0]
    "#);
}

#[test]
fn ids_outside_the_grammar_are_refused() {
    let mut role = group("a");
    role.role = "Head Node".into();
    let mut provider = group("b");
    provider.provider = "".into();
    insta::assert_snapshot!(check([role, provider, group("-c"), group("d_e")]), @r#"
    groups[0].role: "Head Node" is no id: may hold only a-z, 0-9 and inner '-', not 'H'
    groups[1].provider: "" is no id: must not be empty
    groups[2].group_id: "-c" is no id: may hold only a-z, 0-9 and inner '-', not '-'
    groups[2].role: "-c" is no id: may hold only a-z, 0-9 and inner '-', not '-'
    groups[3].group_id: "d_e" is no id: may hold only a-z, 0-9 and inner '-', not '_'
    groups[3].role: "d_e" is no id: may hold only a-z, 0-9 and inner '-', not '_'
    "#);
}

#[test]
fn an_id_is_shown_cut() {
    let message = check([group(&"é".repeat(100_000))]);
    assert!(message.len() < 1000, "{} bytes", message.len());
}

#[test]
fn the_last_slot_of_a_group_must_have_an_id_too() {
    let of = |n_bytes: usize, count| {
        let mut group = group(&"a".repeat(n_bytes));
        group.role = "worker".into();
        group.count = count;
        check([group])
    };
    assert_eq!(of(61, 10), "");
    assert_eq!(of(63, 0), "");
    insta::assert_snapshot!(of(61, 11), @r#"groups[0].group_id: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-10" is no id: has 64 bytes, at most 63 are allowed"#);
}

#[test]
fn numbers_that_are_not_finite_or_out_of_range_are_refused() {
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5] {
        let mut group = group("a");
        group.shape.min_down_mbps = Some(wrong);
        group.shape.min_up_mbps = Some(wrong);
        group.shape.min_reliability = Some(wrong);
        assert_eq!(check([group]).lines().count(), 3, "{wrong}");
    }
    let mut rates = group("a");
    rates.shape.min_down_mbps = Some(f64::NAN);
    rates.shape.min_up_mbps = Some(f64::INFINITY);
    rates.shape.min_reliability = Some(1.01);
    insta::assert_snapshot!(check([rates]), @r"
    groups[0].shape.min_down_mbps: must be a finite number, 0 or more, not NaN
    groups[0].shape.min_up_mbps: must be a finite number, 0 or more, not inf
    groups[0].shape.min_reliability: must be a number from 0 to 1, not 1.01
    ");
}

#[test]
fn numbers_at_the_ends_of_their_ranges_pass() {
    for reliability in [0.0, -0.0, 1.0] {
        let mut group = group("a");
        group.shape.min_reliability = Some(reliability);
        group.shape.min_up_mbps = Some(f64::MAX);
        assert_eq!(check([group]), "");
    }
}

#[test]
fn more_nodes_than_the_ceiling_are_refused_once() {
    let of = |counts: &[u32]| {
        let groups = counts.iter().zip('a'..);
        check(
            groups.map(|(count, id)| RunNodeGroupSpec { count: *count, ..group(&id.to_string()) }),
        )
    };
    assert_eq!(of(&[100]), "");
    assert_eq!(of(&[60, 40]), "");
    insta::assert_snapshot!(of(&[60, 41, 1000]), @"groups[1].count: 101 nodes wanted, at most 100 are allowed");
    insta::assert_snapshot!(of(&[u32::MAX, u32::MAX]), @"groups[0].count: 4294967295 nodes wanted, at most 100 are allowed");
}

#[test]
fn labels_of_ours_are_refused_in_any_case() {
    let mut labelled = group("a");
    let labels = [
        "myelin.run",
        "MYELIN.x",
        "mYeLiN.",
        "myelin",
        "myeline.x",
        "my",
        "",
        "x.myelin.",
        "myelin-x",
        "é.myelin",
        "myelié",
        "myelin\u{301}.x",
        "ＭＹＥＬＩＮ.x",
    ];
    labelled.shape.provider_labels = labels.map(|label| (label.into(), String::new())).into();
    insta::assert_snapshot!(check([labelled]), @r#"
    groups[0].shape.provider_labels: label "MYELIN.x" begins with "myelin.", which is reserved
    groups[0].shape.provider_labels: label "mYeLiN." begins with "myelin.", which is reserved
    groups[0].shape.provider_labels: label "myelin.run" begins with "myelin.", which is reserved
    "#);
}

#[test]
fn limits_beyond_all_nodes_are_refused() {
    let mut group = group("a");
    group.policy.max_unavailable = Some(Limit::Percent(101));
    group.policy.max_unhealthy = Limit::Percent(255);
    group.policy.max_in_flight_creates = 0;
    let mut shape = ClusterShape::new(RunId(1), 1, [group]);
    shape.policy.max_unhealthy = Limit::Percent(200);
    insta::assert_snapshot!(check_shape(&shape), @r"
    policy.max_unhealthy: must be at most 100%, not 200%
    groups[0].policy.max_unavailable: must be at most 100%, not 101%
    groups[0].policy.max_unhealthy: must be at most 100%, not 255%
    groups[0].policy.max_in_flight_creates: must be 1 or more, not 0
    ");
}

#[cfg(unix)]
#[test]
fn paths_that_cannot_be_kept_are_refused() {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

    let broken = || PathBuf::from(OsString::from_vec(b"/tmp/\xff".into()));
    let mut group = group("a");
    group.boot.stdout_sources = vec!["/fine".into(), broken()];
    group.boot.stderr_sources = vec![broken()];
    group.boot.mounts = vec![Mount { source: "/fine".into(), target: broken(), read_only: false }];
    group.swarm_join.join_token_ref = SecretRef::File(broken());
    insta::assert_snapshot!(check([group]), @r#"
    groups[0].boot: "/tmp/�" is not UTF-8
    groups[0].boot: "/tmp/�" is not UTF-8
    groups[0].boot.mounts: "/tmp/�" is not UTF-8
    groups[0].swarm_join.join_token_ref: "/tmp/�" is not UTF-8
    "#);
}

proptest! {
    #[test]
    fn a_label_is_refused_exactly_if_it_begins_with_our_prefix(label in "([mM][yY][eE][lL][iI][nNñ])?[.é]?.{0,4}") {
        let ours = label.chars().take(7).collect::<String>().eq_ignore_ascii_case("myelin.");
        let mut group = group("a");
        group.shape.provider_labels = [(label, String::new())].into();
        prop_assert_eq!(!check([group]).is_empty(), ours);
    }

    #[test]
    fn any_number_is_either_in_range_or_refused(value in proptest::num::f64::ANY) {
        let mut group = group("a");
        group.shape.min_reliability = Some(value);
        prop_assert_eq!(check([group]).is_empty(), (0.0..=1.0).contains(&value));
    }
}
