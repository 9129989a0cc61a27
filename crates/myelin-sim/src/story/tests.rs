//! What is left out, and what is not.

use std::time::Duration;

use super::{Trace, without_repetition};

fn check(lines: &[&str], expected: &[&str]) {
    let lines: Vec<_> = lines.iter().map(|&line| line.to_owned()).collect();
    assert_eq!(without_repetition(&lines), expected);
}

#[test]
fn few_times_are_told_one_by_one() {
    check(&["1 a", "2 a", "3 a", "4 a"], &["1 a", "2 a", "3 a", "4 a"]);
    check(&[], &[]);
}

#[test]
fn of_many_times_the_first_two_and_the_last_remain() {
    let lines = ["0 z", "1 a", "2 a", "3 a", "4 a", "5 a", "6 a", "7 b"];
    check(&lines, &["0 z", "1 a", "2 a", "       … 3 times more", "6 a", "7 b"]);
}

#[test]
fn several_lines_repeat_themselves_together() {
    let lines: Vec<_> = (0..20).map(|n| format!("{n} {}", ["a", "b"][n % 2])).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let kept = ["0 a", "1 b", "2 a", "3 b", "       … 7 times more", "18 a", "19 b"];
    check(&lines, &kept);
}

#[test]
fn what_a_call_does_is_on_its_line_unless_something_came_between() {
    let mut trace = Trace::default();
    let (now, later) = (Duration::from_secs(1), Duration::from_secs(2));
    trace.write(now, "> create 1: a-0#0", true);
    trace.write(now, "> create 2: a-1#1", true);
    trace.write(now, "> list 1: every machine", false);
    trace.write_effect(now, "list 1", "[]", false);
    trace.write_effect(now, "create 1", "machine-3", true);
    trace.write_effect(later, "create 2", "machine-4", true);
    let told = ["     1.0 > create 1: a-0#0 = machine-3", "     1.0 > create 2: a-1#1"];
    assert_eq!(trace.told[..2], told);
    assert_eq!(trace.told[2..], ["     2.0 = create 2: machine-4"]);
    assert_eq!(trace.all.len(), 6);
    assert_eq!(trace.all[4], "     1.000 = create 1: machine-3");
}
