use super::*;

/// Returns what a source names, one finding a line.
fn check(text: &str) -> String {
    check_as(Strictness::Pure, text)
}

fn check_as(strictness: Strictness, text: &str) -> String {
    let named = check_text(text, strictness);
    let lines: Vec<_> = named.iter().map(|(line, what)| format!("{line}: {what}")).collect();
    lines.join("\n")
}

#[test]
fn each_kind_of_impurity_is_named() {
    insta::assert_snapshot!(check(
        "use std::time::{Duration, SystemTime, Instant};
        fn clock() { SystemTime::now(); Now::now(); then.elapsed(); }
        use std::{fmt, fs::{self, File}};
        fn file(path: &Path) -> bool { path.exists() }
        use std::net::TcpStream;
        fn environment() { std::env::var(\"HOME\"); }
        fn thread() { ::std::thread::spawn(|| {}); }
        use std::process::Command;
        use std::collections::{BTreeMap, HashMap, HashSet};
        fn random() { getrandom::fill(&mut seed); let r = rand::random(); }
        async fn runtime() { tokio::spawn(x); }
        fn print() { println!(\"x\"); }
        use std::*;
        use std::{net::*};
        fn raw() { std::r#fs::read(x); }"
    ), @r"
    1: names a clock: std::time::Instant
    2: names a clock: SystemTime::now
    2: names a clock: Now::now
    2: names a clock: .elapsed
    3: names a file: std::fs::self
    3: names a file: std::fs::File
    4: names a file: .exists
    5: names a socket: std::net::TcpStream
    6: names the environment: std::env::var
    7: names a thread: std::thread::spawn
    8: names a process: std::process::Command
    9: names a hash map: std::collections::HashMap
    9: names a hash map: std::collections::HashSet
    10: names a random source: getrandom::fill
    10: names a random source: rand::random
    11: names a runtime: tokio::spawn
    12: names the terminal: println
    13: names all of std: std::*
    14: names a socket: std::net::*
    15: names a file: std::fs::read
    ");
}

#[test]
fn comments_docs_and_strings_name_nothing() {
    let text = r##"
        //! Never calls `SystemTime::now`, see std::fs.
        /// Not a HashMap, and no Instant.
        // std::env::var("X")
        /* std::net::TcpStream /* nested HashSet */ */
        const TEXT: &str = "std::thread and HashMap";
        const RAW: &str = r#"tokio::spawn " getrandom"#;
    "##;
    assert_eq!(check(text), "");
}

#[test]
fn what_only_resembles_impurity_passes() {
    let text = "
        use std::{collections::{BTreeMap, BTreeSet}, path::PathBuf, time::{Duration, SystemTime}};
        enum SecretRef { Env(String), File(PathBuf) }
        fn decide(now: SystemTime) { let elapsed = now.duration_since(start); self.now; env!(\"CARGO_PKG_NAME\"); }
        struct Command { process: u32, rand: u8, fs: u8, thread: Thread }
        fn a(x: u8) -> u8 { x.now() * x.metadata }
    ";
    assert_eq!(check(text), "");
}

#[test]
fn a_synchronous_crate_may_hash_but_has_no_clock() {
    let text = "use std::{collections::HashMap, time::Instant};";
    insta::assert_snapshot!(check_as(Strictness::Synchronous, text), @"1: names a clock: std::time::Instant");
}

#[test]
fn what_cannot_be_read_as_rust_is_a_finding() {
    assert!(check("fn open( {").contains("is no Rust source"));
}
