//! A line taken word by word, and what is wrong with it.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use humantime::format_duration;

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

/// Where something was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    line: usize,
    column: usize,
}

impl Place {
    pub(super) fn error(self, what: String) -> ScriptError {
        ScriptError { line: self.line, column: self.column, what }
    }
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

    /// Returns where the last word is.
    pub(super) fn place(&self) -> Place {
        Place { line: self.number, column: self.text[..self.last].chars().count() + 1 }
    }

    pub(super) fn error(&self, what: impl Into<String>) -> ScriptError {
        self.place().error(what.into())
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

    /// Returns the next word as the number of one of those that are counted from 1.
    pub(super) fn nth(&mut self, what: &str) -> Result<u32, ScriptError> {
        let nth = self.number(what)?;
        if nth == 0 { Err(self.error(format!("{what} is counted from 1"))) } else { Ok(nth) }
    }

    pub(super) fn duration(
        &mut self,
        what: &str,
        within: RangeInclusive<Duration>,
    ) -> Result<Duration, ScriptError> {
        let word = self.word(what)?;
        self.duration_in(word, what, within)
    }

    pub(super) fn duration_in(
        &self,
        word: &str,
        what: &str,
        within: RangeInclusive<Duration>,
    ) -> Result<Duration, ScriptError> {
        let time = humantime::parse_duration(word).map_err(|_| {
            self.error(format!("{what} is a time like 90s or 5m, not {}", shown(word)))
        })?;
        let (least, most) = within.into_inner();
        if time < least {
            return Err(self.error(format!("{what} is at least {}", format_duration(least))));
        }
        if time > most {
            return Err(self.error(format!("{what} is at most {}", format_duration(most))));
        }
        Ok(time)
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
