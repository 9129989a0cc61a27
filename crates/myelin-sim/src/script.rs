//! Histories as text: one line a setting or a step, in words.
//!
//! ```text
//! # The answer to a create is lost: the machine is found again.
//! settle-window 10s
//! at 0s want a:2 b:1,image=v2
//! call create 1 loses-reply
//! at 90s agent-stops a-0 20s
//! calm 5m
//! ```
//!
//! Settings come in any order and have the defaults of [`Config`](crate::Config); steps of one time happen in the order of
//! the lines. What cannot end well, whatever the control plane does, is refused. Times are written as `90s`, `5m` or `1m30s`. What is rendered reads back as what it was.
//!
//! Reading order: [`split`], [`parse`], [`render`].

mod check;
mod fates;
mod groups;
mod line;
mod read;
mod write;

use myelin_executor::fake::CallKind;

pub(crate) use self::{
    check::problem,
    write::{happening, time},
};
pub use self::{
    line::ScriptError,
    read::parse,
    write::{line, render},
};

/// Splits a file into its script and, after a line `----`, what somebody expects of it.
pub fn split(text: &str) -> (&str, Option<&str>) {
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        if line.trim() == "----" {
            return (&text[..begin], Some(&text[end..]));
        }
        begin = end;
    }
    (text, None)
}

/// Returns the word that a kind of call has in a script.
pub fn call_name(kind: CallKind) -> &'static str {
    fates::CALLS.iter().find(|(_, it)| *it == kind).map_or("call", |(name, _)| name)
}

#[cfg(test)]
mod tests;
