use proptest::prelude::*;

use super::strategies::limit;
use crate::{FirstNode, GroupPolicy, Limit};

#[test]
fn percent_is_rounded_up() {
    let table = [
        (Limit::Percent(0), 10, 0),
        (Limit::Percent(1), 1, 1),
        (Limit::Percent(40), 3, 2),
        (Limit::Percent(40), 5, 2),
        (Limit::Percent(40), 6, 3),
        (Limit::Percent(100), 7, 7),
        (Limit::Percent(100), u32::MAX, u32::MAX),
        (Limit::Percent(255), u32::MAX, u32::MAX),
        (Limit::Percent(40), 0, 0),
        (Limit::Count(3), 1, 3),
        (Limit::Count(0), 9, 0),
    ];
    for (limit, total, expected) in table {
        assert_eq!(limit.of(total), expected, "{limit} of {total}");
    }
}

#[test]
fn limits_as_text() {
    let texts = [
        "0",
        "3",
        "4294967295",
        "0%",
        "40%",
        "40 %",
        "100%",
        "",
        "%",
        " 3",
        "3 ",
        "+3",
        "-3",
        "+40%",
        "-1%",
        "101%",
        "256%",
        "40%%",
        "4.5%",
        "4294967296",
        "all",
        "４",
    ];
    let answer = |text: &&str| match text.parse::<Limit>() {
        Ok(limit) => format!("{text:?}: {limit:?}"),
        Err(error) => format!("{text:?}: {error}"),
    };
    let answers: Vec<_> = texts.iter().map(answer).collect();
    insta::assert_snapshot!(answers.join("\n"), @r#"
    "0": Count(0)
    "3": Count(3)
    "4294967295": Count(4294967295)
    "0%": Percent(0)
    "40%": Percent(40)
    "40 %": Percent(40)
    "100%": Percent(100)
    "": expected a number of nodes or a percentage from 0% to 100%
    "%": expected a number of nodes or a percentage from 0% to 100%
    " 3": expected a number of nodes or a percentage from 0% to 100%
    "3 ": expected a number of nodes or a percentage from 0% to 100%
    "+3": expected a number of nodes or a percentage from 0% to 100%
    "-3": expected a number of nodes or a percentage from 0% to 100%
    "+40%": expected a number of nodes or a percentage from 0% to 100%
    "-1%": expected a number of nodes or a percentage from 0% to 100%
    "101%": expected a number of nodes or a percentage from 0% to 100%
    "256%": expected a number of nodes or a percentage from 0% to 100%
    "40%%": expected a number of nodes or a percentage from 0% to 100%
    "4.5%": expected a number of nodes or a percentage from 0% to 100%
    "4294967296": expected a number of nodes or a percentage from 0% to 100%
    "all": expected a number of nodes or a percentage from 0% to 100%
    "４": expected a number of nodes or a percentage from 0% to 100%
    "#);
}

#[test]
fn limits_as_json() {
    let texts = [
        "3",
        "\"3\"",
        "\"40%\"",
        "-1",
        "4294967296",
        "1.5",
        "\"101%\"",
        "true",
        "null",
        "[]",
        "{}",
    ];
    let answer = |text: &&str| match serde_json::from_str::<Limit>(text) {
        Ok(limit) => format!("{text}: {limit:?}"),
        Err(error) => format!("{text}: {error}"),
    };
    let answers: Vec<_> = texts.iter().map(answer).collect();
    insta::assert_snapshot!(answers.join("\n"), @r#"
    3: Count(3)
    "3": Count(3)
    "40%": Percent(40)
    -1: invalid value: integer `-1`, expected a number of nodes or a percentage from 0% to 100% at line 1 column 2
    4294967296: invalid value: integer `4294967296`, expected a number of nodes or a percentage from 0% to 100% at line 1 column 10
    1.5: invalid type: floating point `1.5`, expected a number of nodes or a percentage from 0% to 100% at line 1 column 3
    "101%": invalid value: string "101%", expected a number of nodes or a percentage from 0% to 100% at line 1 column 6
    true: invalid type: boolean `true`, expected a number of nodes or a percentage from 0% to 100% at line 1 column 4
    null: invalid type: null, expected a number of nodes or a percentage from 0% to 100% at line 1 column 4
    []: invalid type: sequence, expected a number of nodes or a percentage from 0% to 100% at line 1 column 2
    {}: invalid type: map, expected a number of nodes or a percentage from 0% to 100% at line 1 column 2
    "#);
}

#[test]
fn groups_of_five_or_more_start_with_a_canary() {
    let policy = GroupPolicy::default();
    for (count, expected) in [(0, FirstNode::All), (4, FirstNode::All), (5, FirstNode::Canary)] {
        assert_eq!(policy.first_node(count), expected, "{count}");
    }
    let all = GroupPolicy { first_node: Some(FirstNode::All), ..policy };
    assert_eq!(all.first_node(100), FirstNode::All);
}

#[test]
fn the_default_policy() {
    let policy = serde_json::to_string_pretty(&GroupPolicy::default()).unwrap();
    insta::assert_snapshot!(policy, @r#"
    {
      "max_unhealthy": "40%",
      "max_in_flight_creates": 50,
      "on_failure": "replace",
      "keep_limit": 1,
      "keep_for": "1day"
    }
    "#);
}

proptest! {
    #[test]
    fn a_limit_is_read_back_from_its_text(limit in limit()) {
        prop_assert_eq!(limit.to_string().parse(), Ok(limit));
    }

    #[test]
    fn percent_is_the_least_number_that_is_not_below_the_share(percent in 0..=100_u8, total: u32) {
        let slots = u64::from(Limit::Percent(percent).of(total));
        let share = u64::from(percent) * u64::from(total);
        prop_assert!(slots * 100 >= share);
        prop_assert!(slots == 0 || (slots - 1) * 100 < share);
    }
}
