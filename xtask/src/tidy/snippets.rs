//! Snippets: a block of code that a page takes from a file stands in that file.
//!
//! A page says so by `<!-- from PATH -->` in the line above the block. Indentation may differ, and a line `// …` stands for
//! lines that are left out.

use super::Files;

/// Checks the snippets of a page.
pub(super) fn check(path: &str, text: &str, files: &Files, findings: &mut Vec<String>) {
    let lines: Vec<_> = text.lines().collect();
    for (number, line) in (1..).zip(&lines) {
        let Some(source) = source(line) else { continue };
        let wrong = match (files.get(source), block(&lines[number..])) {
            (None, _) => format!("{source} is no file"),
            (Some(_), None) => "no block of code follows".into(),
            (Some(file), Some(block)) if stands_in(block, file) => continue,
            (Some(_), Some(_)) => format!("the block does not stand in {source}"),
        };
        findings.push(format!("{path}:{number}: {wrong}"));
    }
}

fn source(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- from ")?.strip_suffix(" -->")
}

/// Returns the lines of the block that begins at once.
fn block<'a, 'b>(lines: &'b [&'a str]) -> Option<&'b [&'a str]> {
    let (first, rest) = lines.split_first()?;
    let end = rest.iter().position(|line| *line == "```")?;
    first.starts_with("```").then_some(&rest[..end])
}

fn stands_in(block: &[&str], file: &str) -> bool {
    let file: Vec<_> = file.lines().collect();
    let mut rest = file.as_slice();
    for part in block.split(|line| line.trim() == "// …") {
        let Some(at) = (0..=rest.len()).find(|&at| begins_with(&rest[at..], part)) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

/// Returns whether lines begin with others, all of which may be indented by as much more or less.
fn begins_with(lines: &[&str], part: &[&str]) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let pairs = || lines.iter().zip(part);
    let same_text = pairs().all(|(line, wanted)| line.trim_start() == wanted.trim_start());
    let mut shifts = pairs()
        .filter(|(line, _)| !line.is_empty())
        .map(|(line, wanted)| indent(line).cast_signed() - indent(wanted).cast_signed());
    let first = shifts.next();
    lines.len() >= part.len() && same_text && shifts.all(|shift| Some(shift) == first)
}
