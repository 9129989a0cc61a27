use std::fmt::Write as _;

use super::{schema::place_of, suggest::suggest, yaml::plain};

#[test]
fn unquoted_scalars_are_what_yaml_1_2_says() {
    let texts = [
        "",
        "~",
        "null",
        "nil",
        "true",
        "False",
        "yes",
        "no",
        "on",
        "0",
        "-7",
        "+7",
        "010",
        "0x1F",
        "0o17",
        "0b1",
        "1_000",
        "1.",
        ".5",
        "1e3",
        "-1.5E-2",
        ".inf",
        "-.INF",
        ".nan",
        "nan",
        "inf",
        "1.2.3",
        "12:30",
        "2020-01-01",
        "170141183460469231731687303715884105728",
    ];
    let mut table = String::new();
    for text in texts {
        writeln!(table, "{text:?} is {}", plain(text)).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_near_miss_is_suggested_and_nothing_else() {
    let known = ["id", "role", "count", "provider", "shape", "boot", "join", "policy"];
    let check = |text: &str, expected: Option<&str>| {
        let expected = expected.map(|word| format!("did you mean {word:?}?"));
        assert_eq!(suggest(text, known), expected, "{text}");
    };
    check("cuont", Some("count"));
    check("Count", Some("count"));
    check("providers", Some("provider"));
    check("policies", Some("policy"));
    check("ids", Some("id"));
    check("image", None);
    check("x", None);
    check(&"count".repeat(100), None);
}

#[test]
fn a_key_of_another_section_is_shown_its_place() {
    let places = ["max_nodes", "args", "heartbeat", "keep_for", "nowhere"].map(place_of);
    let places = places.map(Option::unwrap_or_default);
    insta::assert_snapshot!(places.join("\n"), @r#"
    "max_nodes" belongs at the top of the file
    "args" belongs under "groups.boot"
    "heartbeat" belongs under "agent"
    "keep_for" belongs under "groups.policy"
    "#);
}
