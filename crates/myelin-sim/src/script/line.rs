//! A line taken word by word, and what is wrong with it.

use std::{str::FromStr, time::Duration};

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ScriptError {
    /// Which line, from 1.
    pub line: usize,
    /// Which character of it, from 1.
    pub column: usize,
    /// What.
    pub what: String,
}

/// The words of a line that are still to be read.
#[derive(Debug)]
pub(super) struct Line<'a> {
    number: usize,
    text: &'a str,
    /// Where the rest begins, in bytes.
    at: usize,
    /// Where the last word began.
    last: usize,
}

/// No word of a script is longer; a file is not a word because it has no space.
const LONGEST_SHOWN: usize = 40;

impl<'a> Line<'a> {
    /// Returns a line without its comment.
    pub(super) fn new(number: usize, text: &'a str) -> Self {
        let end = text.find('#').unwrap_or(text.len());
        Self { number, text: &text[..end], at: 0, last: 0 }
    }

    pub(super) fn error(&self, what: impl Into<String>) -> ScriptError {
        let column = self.text[..self.last].chars().count() + 1;
        ScriptError { line: self.number, column, what: what.into() }
    }

    /// Returns the next word, if there is one.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let begin = self.at + rest.find(|it: char| !it.is_whitespace())?;
        let word = &self.text[begin..];
        let length = word.find(char::is_whitespace).unwrap_or(word.len());
        (self.last, self.at) = (begin, begin + length);
        Some(&self.text[begin..begin + length])
    }

    /// Returns the next word, of which an error says what it should be.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, ScriptError> {
        if let Some(word) = self.next() {
            return Ok(word);
        }
        self.last = self.text.trim_end().len();
        Err(self.error(format!("{what} is missing")))
    }

    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Result<T, ScriptError> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.error(format!("{what} is a number, not {}", shown(word))))
    }

    pub(super) fn duration(&mut self, what: &str) -> Result<Duration, ScriptError> {
        let word = self.word(what)?;
        self.duration_in(word, what)
    }

    pub(super) fn duration_in(&self, word: &str, what: &str) -> Result<Duration, ScriptError> {
        let time = humantime::parse_duration(word);
        let limit = Duration::from_hours(24 * 365);
        match time {
            Ok(time) if time <= limit => Ok(time),
            Ok(_) => Err(self.error(format!("{what} is at most a year"))),
            Err(_) => {
                let what = format!("{what} is a time like 90s or 5m, not {}", shown(word));
                Err(self.error(what))
            }
        }
    }

    /// Returns the error about a word that is none of those known here.
    pub(super) fn unknown(&self, what: &str, word: &str, known: &[&str]) -> ScriptError {
        let near = known.iter().map(|it| (strsim::osa_distance(it, word), *it)).min();
        // Nearer than half of its letters, or it is another word.
        let near = near.filter(|(distance, _)| word.len() <= 40 && distance * 2 <= word.len());
        let hint = match near {
            Some((_, near)) => format!("; did you mean {near}?"),
            None => format!("; known: {}", known.join(", ")),
        };
        self.error(format!("there is no {what} {}{hint}", shown(word)))
    }

    /// Makes sure that nothing is left.
    pub(super) fn end(&mut self) -> Result<(), ScriptError> {
        match self.next() {
            Some(word) => Err(self.error(format!("{} is one word too many", shown(word)))),
            None => Ok(()),
        }
    }
}

/// Renders a word for an error, cut short.
pub(super) fn shown(word: &str) -> String {
    let short: String = word.chars().take(LONGEST_SHOWN).collect();
    let dots = if short.len() < word.len() { "…" } else { "" };
    format!("{short:?}{dots}")
}
