//! Names that sources of pure crates may not hold.
//!
//! A source is read as tokens, so comments, docs and strings don't count. Groups of a `use` are multiplied out:
//! `use std::{fs, time::SystemTime}` names `std::fs` and `std::time::SystemTime`. Tests (`tests.rs`, `tests/`) are free.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// How much is forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Everything in [`BANS`].
    Pure,
    /// Everything but hash maps, which a crate may use if it never iterates over them.
    Synchronous,
}

/// Consecutive segments of a path, and what they stand for. A first segment of `.` means a method call.
const BANS: &[(&[&str], &str)] = &[
    (&["Instant"], CLOCK),
    (&["SystemTime", "now"], CLOCK),
    (&["SystemTime", "elapsed"], CLOCK),
    (&[".", "elapsed"], CLOCK),
    (&["std", "fs"], FILE),
    (&["std", "io"], FILE),
    (&["std", "os"], FILE),
    (&["OpenOptions"], FILE),
    (&[".", "canonicalize"], FILE),
    (&[".", "exists"], FILE),
    (&[".", "try_exists"], FILE),
    (&[".", "is_dir"], FILE),
    (&[".", "is_file"], FILE),
    (&[".", "is_symlink"], FILE),
    (&[".", "read_dir"], FILE),
    (&[".", "read_link"], FILE),
    (&[".", "metadata"], FILE),
    (&[".", "symlink_metadata"], FILE),
    (&["TcpStream"], SOCKET),
    (&["TcpListener"], SOCKET),
    (&["UdpSocket"], SOCKET),
    (&["UnixStream"], SOCKET),
    (&["UnixListener"], SOCKET),
    (&["UnixDatagram"], SOCKET),
    (&["ToSocketAddrs"], SOCKET),
    (&[".", "to_socket_addrs"], SOCKET),
    (&["std", "net"], SOCKET),
    (&["std", "env"], "the environment"),
    (&["std", "thread"], "a thread"),
    (&["std", "process"], "a process"),
    (&["HashMap"], HASH),
    (&["HashSet"], HASH),
    (&["hash_map"], HASH),
    (&["hash_set"], HASH),
    (&["RandomState"], RANDOM),
    (&["thread_rng"], RANDOM),
    (&["OsRng"], RANDOM),
    (&["println"], TERMINAL),
    (&["eprintln"], TERMINAL),
    (&["std", "*"], "all of std"),
];

/// Crates that may not begin a path, and what they stand for.
const BANNED_CRATES: &[(&str, &str)] = &[
    ("async_std", RUNTIME),
    ("chrono", CLOCK),
    ("fastrand", RANDOM),
    ("getrandom", RANDOM),
    ("jiff", CLOCK),
    ("libc", RUNTIME),
    ("mio", RUNTIME),
    ("nix", RUNTIME),
    ("rand", RANDOM),
    ("rustix", RUNTIME),
    ("smol", RUNTIME),
    ("tokio", RUNTIME),
    ("uuid", RANDOM),
];

const CLOCK: &str = "a clock";
const FILE: &str = "a file";
const SOCKET: &str = "a socket";
const HASH: &str = "a hash map";
const RANDOM: &str = "a random source";
const RUNTIME: &str = "a runtime";
const TERMINAL: &str = "the terminal";

/// A path as written, with the line it begins on.
#[derive(Clone, Debug, Default)]
struct NamedPath {
    segments: Vec<String>,
    line: usize,
}

/// Checks every source of a crate that is not a test.
pub(super) fn check_sources(dir: &Path, strictness: Strictness, findings: &mut Vec<String>) {
    let mut files = Vec::new();
    if let Err(error) = list_sources(&dir.join("src"), &mut files) {
        findings.push(format!("{}: cannot be read: {error}", dir.display()));
    }
    files.sort();
    for file in files {
        let named = match fs::read_to_string(&file) {
            Ok(text) => check_text(&text, strictness),
            Err(error) => vec![(0, format!("cannot be read: {error}"))],
        };
        let file = file.display();
        findings.extend(named.into_iter().map(|(line, what)| format!("{file}:{line}: {what}")));
    }
}

/// Lists Rust sources, leaving out what only tests are made of.
fn list_sources(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            list_sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns what a source names that it may not, by line.
fn check_text(text: &str, strictness: Strictness) -> Vec<(usize, String)> {
    let tokens: TokenStream = match text.parse() {
        Ok(tokens) => tokens,
        Err(error) => return vec![(0, format!("is no Rust source: {error}"))],
    };
    let mut paths = Vec::new();
    collect(tokens, &[], &mut paths);
    let mut named = Vec::new();
    for NamedPath { segments, line } in paths {
        if let Some(what) = banned(&segments, strictness) {
            let path = segments.join("::").replace(".::", ".");
            named.push((line, format!("names {what}: {path}")));
        }
    }
    named
}

fn banned(segments: &[String], strictness: Strictness) -> Option<&'static str> {
    let (first, rest) = segments.split_first()?;
    let crates = BANNED_CRATES.iter().filter(|_| !rest.is_empty());
    let whole_crate = crates.filter(|(name, _)| name == first).map(|(_, what)| *what);
    let names = |ban: &[&str]| segments.windows(ban.len()).any(|window| window == ban);
    let part = BANS.iter().filter(|(ban, _)| names(ban)).map(|(_, what)| *what);
    // Whatever a type with a `now` is called, it is a clock.
    let any_now = (first != "." && rest.last().is_some_and(|last| last == "now")).then_some(CLOCK);
    whole_crate
        .chain(part)
        .chain(any_now)
        .find(|what| strictness == Strictness::Pure || *what != HASH)
}

/// Collects every path of the tokens. Inside a group of a `use`, `prefix` is what stands before it.
fn collect(tokens: TokenStream, prefix: &[String], paths: &mut Vec<NamedPath>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(_) => at = collect_path(&tokens, at, prefix, paths),
            TokenTree::Group(group) => {
                collect(group.stream(), &[], paths);
                at += 1;
            }
            TokenTree::Punct(punct) if punct.as_char() == '*' && !prefix.is_empty() => {
                paths.push(NamedPath {
                    segments: [prefix, &["*".to_owned()]].concat(),
                    line: punct.span().start().line,
                });
                at += 1;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => at += 1,
        }
    }
}

/// Collects the path that begins at an identifier, and returns where it ends.
fn collect_path(
    tokens: &[TokenTree],
    start: usize,
    prefix: &[String],
    paths: &mut Vec<NamedPath>,
) -> usize {
    let mut path = NamedPath { segments: prefix.to_vec(), line: tokens[start].span().start().line };
    let is_call = matches!(tokens.get(start + 1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    if is_call && start > 0 && is_punct(&tokens[start - 1], '.') {
        path.segments.push(".".to_owned());
    }
    path.segments.push(segment(&tokens[start]));
    let mut at = start + 1;
    while at + 2 < tokens.len() && is_punct(&tokens[at], ':') && is_punct(&tokens[at + 1], ':') {
        match &tokens[at + 2] {
            TokenTree::Ident(_) => path.segments.push(segment(&tokens[at + 2])),
            TokenTree::Punct(punct) if punct.as_char() == '*' => path.segments.push("*".to_owned()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                collect(group.stream(), &path.segments, paths);
                return at + 3;
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => break,
        }
        at += 3;
    }
    paths.push(path);
    at
}

/// Returns an identifier without the mark of a raw one.
fn segment(token: &TokenTree) -> String {
    let text = token.to_string();
    text.strip_prefix("r#").unwrap_or(&text).to_owned()
}

fn is_punct(token: &TokenTree, expected: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == expected)
}

#[cfg(test)]
mod tests;
