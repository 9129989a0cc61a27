//! Scripts as people write them, and as they should not.

use super::{parse, render};
use crate::scenario;

#[test]
fn what_is_rendered_reads_back() {
    for seed in 0..500 {
        let drawn = scenario(seed);
        let text = render(&drawn);
        let read = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(read.steps, drawn.steps, "seed {seed}\n{text}");
        assert_eq!(read.config, drawn.config, "seed {seed}\n{text}");
        assert_eq!(read.calm_at, drawn.calm_at, "seed {seed}");
    }
}

fn check(text: &str, expected: &str) {
    let found = match parse(text) {
        Ok(scenario) => render(&scenario),
        Err(error) => error.to_string(),
    };
    assert_eq!(found.trim_end(), expected, "{text}");
}

#[test]
fn errors_have_a_place_and_a_hint() {
    check("at 5 pause", "line 1, column 4: when is a time like 90s or 5m, not \"5\"");
    check(
        "\nat 5s puase",
        "line 2, column 7: there is no happening \"puase\"; did you mean pause?",
    );
    check("call create", "line 1, column 12: which call is missing");
    check("call create 1 fails", "line 1, column 20: the class of the failure is missing");
    check("at 0s want a", "line 1, column 12: \"a\" is not of the form group:count");
    check("at 0s want a:1 a:2", "line 1, column 16: group a is there already");
    check("at 0s want a:1001", "line 1, column 12: a group has at most 1000 nodes here");
    check("at 0s pause now", "line 1, column 13: \"now\" is one word too many");
    check(
        "retry lost-after=soon",
        "line 1, column 7: lost-after is a time like 90s or 5m, not \"soon\"",
    );
    check(
        "calm 99999999999999999999y",
        "line 1, column 6: when everything works again is a time like 90s or 5m, not \"99999999999999999999y\"",
    );
    check("limits concurrency=0", "line 1, column 8: concurrency is a number above 0, not \"0\"");
}

#[test]
fn comments_and_empty_lines_are_nothing() {
    check("# a comment\n\n  calm 1m # and another", "calm 1m");
}
