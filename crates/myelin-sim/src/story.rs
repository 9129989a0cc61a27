//! What happened, for people to read.

use std::{cmp::Reverse, fmt::Write as _, time::Duration};

use myelin_executor::fake::CallKind;

use crate::{Outcome, script};

/// What is written down while a scenario is played.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) all: Vec<String>,
    /// What of it a reader wants to know.
    pub(crate) told: Vec<String>,
}

impl Trace {
    pub(crate) fn write(&mut self, at: Duration, line: &str, is_told: bool) {
        self.all.push(format!("{:>10} {line}", clock(at)));
        if is_told {
            self.told.push(format!("{:>8.1} {line}", at.as_secs_f64()));
        }
    }

    /// Writes down what a call did: in the story on the line of the call, if nothing but calls came after it.
    pub(crate) fn write_effect(&mut self, at: Duration, call: &str, effect: &str, is_told: bool) {
        let of_call = format!("{:>8.1} > {call}: ", at.as_secs_f64());
        let call_line = self.last_calls().find(|line| is_told && line.starts_with(&of_call));
        let is_new = is_told && call_line.is_none();
        if let Some(line) = call_line {
            line.push_str(" = ");
            line.push_str(effect);
        }
        self.write(at, &format!("= {call}: {effect}"), is_new);
    }

    /// Returns the lines at the end that are of calls and of what goes wrong with them, the last first.
    fn last_calls(&mut self) -> impl Iterator<Item = &mut String> {
        let is_call = |line: &&mut String| matches!(line.as_bytes().get(9), Some(b'>' | b'!'));
        self.told.iter_mut().rev().take_while(is_call)
    }
}

/// Renders a time since the start in seconds.
pub(crate) fn clock(at: Duration) -> String {
    format!("{:.3}", at.as_secs_f64())
}

impl Outcome {
    /// Tells what happened: the trace of a scenario that was traced, without sweeps and what else repeats itself, and how it
    /// ended.
    ///
    /// Lines with `!` are what goes wrong or is asked for, those with `>` calls, and what comes after `=` is what they do;
    /// what is indented is what the control plane makes of it. Times are in seconds since the start.
    pub fn story(&self) -> String {
        let mut text = String::new();
        for line in without_repetition(&self.told) {
            writeln!(text, "{line}").expect("a string takes everything");
        }
        let calls = self.counts.calls.iter().filter(|(kind, _)| !is_of_sweeps(**kind));
        let calls = calls.map(|(kind, n)| format!("{} {n}", script::call_name(*kind)));
        let [calls, machines] = [calls.collect::<Vec<_>>(), self.end.keys().cloned().collect()]
            .map(|items| if items.is_empty() { "none".to_owned() } else { items.join(", ") });
        writeln!(text, "\nend: {}\ncalls: {calls}\nmachines: {machines}", self.ending())
            .expect("a string takes everything");
        for step in &self.missed {
            writeln!(text, "did nothing: {}", script::line(step))
                .expect("a string takes everything");
        }
        text
    }

    fn ending(&self) -> String {
        match (&self.breach, self.converged_after) {
            (Some(breach), _) => format!("a rule is broken, {breach}"),
            (None, Some(after)) => {
                format!("as desired {:.1} s after everything worked", after.as_secs_f64())
            }
            (None, None) => "not as desired".to_owned(),
        }
    }
}

/// Returns whether such calls are made by sweeps, which find nothing most of the time.
pub(crate) fn is_of_sweeps(kind: CallKind) -> bool {
    matches!(kind, CallKind::Identity | CallKind::List)
}

/// Leaves out what repeats itself, numbers aside: of many times, the first two and the last one remain.
fn without_repetition(lines: &[String]) -> Vec<String> {
    let shapes: Vec<_> = lines.iter().map(|line| shape(line)).collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let (length, times) = repetition(&shapes[at..]);
        let end = at + length * times;
        if times < SOME_TIMES {
            kept.push(lines[at].clone());
            at += 1;
            continue;
        }
        kept.extend_from_slice(&lines[at..at + 2 * length]);
        kept.push(format!("       … {} times more", times - 3));
        kept.extend_from_slice(&lines[end - length..end]);
        at = end;
    }
    kept
}

/// Fewer times are told one by one.
const SOME_TIMES: usize = 5;

/// No more lines than this repeat themselves together.
const LONGEST: usize = 8;

/// Returns how many lines repeat themselves at the beginning, and how many times they are there.
fn repetition(shapes: &[String]) -> (usize, usize) {
    let times = |length: usize| {
        let first = &shapes[..length];
        shapes.chunks_exact(length).take_while(|next| *next == first).count()
    };
    let lengths = 1..=LONGEST.min(shapes.len());
    let all = lengths.map(|length| (length, times(length))).filter(|(_, it)| *it >= SOME_TIMES);
    all.max_by_key(|&(length, times)| (length * times, Reverse(length))).unwrap_or((1, 1))
}

/// Returns a line without its numbers.
fn shape(line: &str) -> String {
    line.chars().filter(|it| !it.is_ascii_digit()).collect::<String>().trim_start().to_owned()
}

#[cfg(test)]
mod tests;
