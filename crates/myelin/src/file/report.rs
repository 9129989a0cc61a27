//! Problems of a file: collected, sorted by place, and shown as a compiler shows them.

use std::fmt::{self, Write as _};

use crate::printable::printable;

use super::node::Span;

/// How many problems are shown: more than a person mends before reading the file again.
const MAX_SHOWN: usize = 20;

/// How many problems are kept to be sorted; further ones are only counted.
const MAX_KEPT: usize = 200;

/// How many characters a message has at most; what people write in a file can be longer than a screen.
const MAX_MESSAGE: usize = 400;

/// How many characters of a line are shown on each side of the place.
const MARGIN: usize = 60;

/// The hint below problems that have none of their own.
const LAST_HINT: &str = "`myelin schema` describes every key";

/// One thing that is wrong with the text.
#[derive(Debug)]
pub(super) struct Problem {
    span: Span,
    message: String,
    note: Option<(Span, &'static str)>,
    hint: Option<String>,
}

impl Problem {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: cut(&message.into()), note: None, hint: None }
    }

    /// Adds what to do about it.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(cut(&hint.into()));
        self
    }

    /// Adds another place that belongs to it.
    pub(super) fn note(mut self, span: Span, note: &'static str) -> Self {
        self.note = Some((span, note));
        self
    }
}

/// The problems found so far in one text.
#[derive(Debug)]
pub(super) struct Problems<'t> {
    text: &'t str,
    kept: Vec<Problem>,
    n_dropped: usize,
}

impl<'t> Problems<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, kept: Vec::new(), n_dropped: 0 }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.push_with(|| problem);
    }

    /// Adds a problem that costs something to make; beyond what is kept it is only counted.
    pub(super) fn push_with(&mut self, problem: impl FnOnce() -> Problem) {
        if self.kept.len() < MAX_KEPT {
            self.kept.push(problem());
        } else {
            self.n_dropped += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Gives a hint to every problem since `from` that has none.
    pub(super) fn hint_since(&mut self, from: usize, hint: impl Fn() -> String) {
        for problem in &mut self.kept[from..] {
            problem.hint.get_or_insert_with(&hint);
        }
    }

    /// Returns where each problem begins.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        self.kept.iter().map(|problem| problem.span.start)
    }

    /// Returns the byte at a line and a column in bytes, both from 1.
    pub(super) fn offset(&self, line: usize, column: usize) -> usize {
        let lines = self.text.split_inclusive('\n');
        let before: usize = lines.take(line.saturating_sub(1)).map(str::len).sum();
        let offset = (before + column.saturating_sub(1)).min(self.text.len());
        self.text.floor_char_boundary(offset)
    }

    /// Renders what is to be shown; nothing of the text is kept but that.
    pub(super) fn into_errors(mut self, origin: &str) -> FileErrors {
        self.kept.sort_by_key(|problem| problem.span.start);
        let n_errors = self.kept.len() + self.n_dropped;
        let source = Source::new(origin, self.text);
        let shown = self.kept.iter().take(MAX_SHOWN);
        let shown = shown.map(|problem| source.render(problem)).collect();
        FileErrors { shown, n_errors }
    }
}

/// Everything that is wrong with a cluster file, ready to be printed; never empty.
///
/// At most 20 errors are shown, then how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors {
    shown: Vec<FileError>,
    n_errors: usize,
}

/// One error of a cluster file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Line and column in characters, both from 1; none if the file as a whole is meant.
    pub place: Option<(usize, usize)>,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    rendered: String,
}

impl FileErrors {
    /// Returns an error about the file as a whole.
    pub(super) fn whole(origin: &str, message: impl Into<String>, hint: &str) -> Self {
        let message = message.into();
        let error = FileError {
            place: None,
            rendered: format!("{}: {message}\n", printable(origin)),
            message,
            hint: Some(hint.to_owned()),
        };
        Self { shown: vec![error], n_errors: 1 }
    }

    /// Returns the errors that are shown, in the order of the text.
    pub fn shown(&self) -> &[FileError] {
        &self.shown
    }

    /// Returns how many errors there are in all.
    pub fn n_errors(&self) -> usize {
        self.n_errors
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.shown.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", error.rendered)?;
            if let Some(hint) = &error.hint {
                writeln!(f, "hint: {hint}")?;
            }
        }
        let n_more = self.n_errors - self.shown.len();
        if n_more > 0 {
            writeln!(f, "\nand {n_more} more")?;
        }
        let hinted = self.shown.last().is_some_and(|error| error.hint.is_some());
        if n_more > 0 || !hinted {
            writeln!(f, "hint: {LAST_HINT}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FileErrors {}

/// A text in which offsets are looked up.
struct Source<'a> {
    origin: String,
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    fn new(origin: &str, text: &'a str) -> Self {
        let after_break = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            origin: printable(origin),
            text,
            line_starts: std::iter::once(0).chain(after_break).collect(),
        }
    }

    fn render(&self, problem: &Problem) -> FileError {
        let mut rendered = String::new();
        let place = self.show(&mut rendered, &problem.span, &problem.message);
        if let Some((span, note)) = &problem.note {
            self.show(&mut rendered, span, &format!("note: {note}"));
        }
        FileError {
            place: Some(place),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
            rendered,
        }
    }

    /// Appends a message with the line it is about; returns the place.
    fn show(&self, out: &mut String, span: &Span, message: &str) -> (usize, usize) {
        let start = self.text.floor_char_boundary(span.start.min(self.text.len()));
        let line = self.line_starts.partition_point(|&begin| begin <= start);
        let begin = self.line_starts[line - 1];
        let text = self.text[begin..].lines().next().unwrap_or_default();
        let before = self.text[begin..start].chars().count();
        let end =
            self.text.ceil_char_boundary(span.end.clamp(start, begin.max(start) + 4 * MARGIN));
        let end = end.min(self.text.len());
        let marked = self.text[start..end].lines().next().unwrap_or_default();

        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        let skipped = before.saturating_sub(MARGIN);
        let cut = if skipped > 0 { "…" } else { "" };
        let excerpt: String = text.chars().skip(skipped).take(2 * MARGIN).collect();
        let excerpt = printable(&excerpt);
        let indent = " ".repeat(before - skipped + cut.chars().count());
        let carets = "^".repeat(marked.chars().count().clamp(1, MARGIN));
        let origin = &self.origin;
        let column = before + 1;
        let shown = format!("{number} | {cut}{excerpt}");
        let shown = shown.trim_end();
        let written = writeln!(
            out,
            "{origin}:{line}:{column}: {message}\n{gutter} |\n{shown}\n{gutter} | {indent}{carets}",
        );
        written.expect("writing to a string never fails");
        (line, column)
    }
}

/// Makes one printable line of bounded length.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        None => printable(text.trim_end()),
        Some((end, _)) => printable(&text[..end]) + "…",
    }
}
