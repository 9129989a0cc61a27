//! Scripts as people write them, and as they should not.

use super::{parse, render, split};
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
    check("at 0s want a:101", "line 1, column 12: 101 nodes wanted, at most 100 are allowed");
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
fn what_could_not_be_wanted_is_refused() {
    check(
        "at 0s want a:1,in-flight=0",
        "line 1, column 12: in-flight is a number above 0, not \"0\"",
    );
    check(
        "at 0s want a:1,max-unavailable=0",
        "line 1, column 12: max-unavailable is at least 1 or 1%, not \"0\"",
    );
    let long = "x".repeat(64);
    let error = parse(&format!("at 0s want a:1 {long}:1")).expect_err("no id is so long");
    assert_eq!((error.line, error.column), (1, 16), "{error}");
    assert!(error.what.contains("is no id"), "{error}");
    check(
        "at 0s want a:60\nat 9s want a:60 b:60",
        "line 2, column 17: 120 nodes wanted, at most 100 are allowed",
    );
    check("at 5s retry a", "line 1, column 13: a node is named like a-0, not \"a\"");
    check("at 5s machine-dies A-0", "line 1, column 20: a node is named like a-0, not \"A-0\"");
}

#[test]
fn what_would_not_be_over_in_time_is_refused() {
    let refused =
        "the image of a is refused for good; the last thing wanted must be one that can be had";
    check("at 0s want a:1,image=refused", &format!("line 1, column 1: {refused}"));
    check("at 9s want a:1,image=refused\nat 0s want a:1", &format!("line 1, column 1: {refused}"));
    check("calm 5d", "line 1, column 6: when everything works again is at most 1day");
    check("sweep 0s", "line 1, column 7: the sweep interval is at least 1s");
    check("at 5s crash 5h", "line 1, column 13: how long it is down is at most 1h");
    check("retry operation-timeout=0s", "line 1, column 7: operation-timeout is at least 1s");
    check(
        "retry lost-after=1s",
        "line 1, column 1: lost-after is 1s, and must be 6s here, so that something gets done",
    );
    check("retry jitter-percent=101", "line 1, column 7: jitter-percent is at most 100");
    check(
        "latency 5s\nretry operation-timeout=9s",
        "line 2, column 1: operation-timeout is 9s, and must be 10s here, so that something gets done",
    );
    check(
        "limits calls-per-second=1\nretry operation-timeout=9s",
        "line 2, column 1: operation-timeout is 9s, and must be 10s here, so that something gets done",
    );
    check(
        "boot-time 1m\nretry bootstrap-timeout=1m",
        "line 2, column 1: bootstrap-timeout is 1m, and must be 1m 5s here, so that something gets done",
    );
    check(
        "limits calls-per-second=1 concurrency=1\nretry ready-timeout=1m\nat 5s want a:30",
        "line 3, column 1: for 30 nodes, what is called and booted takes too long here",
    );
}

#[test]
fn what_would_never_happen_is_refused() {
    check(
        "at 10m want a:3",
        "line 1, column 1: nothing happens later than 5m; `calm TIME` says until when it does",
    );
    check("call create 0 hangs", "line 1, column 13: which call is counted from 1");
    check("report 0 late 5s", "line 1, column 8: which report is counted from 1");
}

#[test]
fn comments_and_empty_lines_are_nothing() {
    check("# a comment\n\n  calm 1m # and another", "calm 1m");
}

#[test]
fn a_script_ends_at_a_line_of_dashes() {
    let text = "at 0s pause\n";
    assert_eq!(split("at 0s pause\n----\nthe story"), (text, Some("the story")));
    assert_eq!(split("at 0s pause\n----"), (text, Some("")));
    assert_eq!(split("at 0s pause\r\n----\r\n\r\n"), ("at 0s pause\r\n", Some("\r\n")));
    assert_eq!(split("# a ---- b\n-----\n"), ("# a ---- b\n-----\n", None));
    check("at 0s pause\r\ncalm 1m\r\n", "at 0s pause\ncalm 1m");
}
