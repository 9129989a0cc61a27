//! Every input that is kept is tried again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use myelin_fuzz::TARGETS;

/// What a clone of the repository may cost for it, in files of one target and in bytes of all.
const MOST_FILES: usize = 200;
const MOST_BYTES: usize = 1024 * 1024;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the inputs that are kept for a target, with their names; there is at least one.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = fuzz().join("corpus").join(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        paths.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect();
    files.sort_unstable();
    assert!(!files.is_empty(), "{} is empty", dir.display());
    files
}

/// Tries every input of a target; what a test prints is shown when it fails, so the last name is that of the culprit.
#[expect(clippy::print_stdout, reason = "names the input that fails")]
fn replay(target: &str) {
    let (_, check) = TARGETS.into_iter().find(|(name, _)| *name == target).unwrap();
    for (name, bytes) in corpus(target) {
        println!("{name}");
        check(&bytes);
    }
}

#[test]
fn the_corpus_of_cluster_file_holds() {
    replay("cluster_file");
}

#[test]
fn the_corpus_of_store_rows_holds() {
    replay("store_rows");
}

#[test]
fn the_corpus_of_agent_messages_holds() {
    replay("agent_messages");
}

#[test]
fn the_corpus_of_controller_messages_holds() {
    replay("controller_messages");
}

#[test]
fn the_corpus_of_control_requests_holds() {
    replay("control_requests");
}

#[test]
fn the_corpus_of_sim_script_holds() {
    replay("sim_script");
}

#[test]
fn every_target_has_a_corpus_and_a_fuzzer_and_there_are_no_others() {
    let names = |dir: &str| {
        let entries = fs::read_dir(fuzz().join(dir)).unwrap();
        let names = entries.map(|entry| entry.unwrap().path());
        let mut names: Vec<_> =
            names.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    };
    let mut targets = TARGETS.map(|(name, _)| name.to_owned());
    targets.sort_unstable();
    assert_eq!(names("corpus"), targets);
    assert_eq!(names("fuzz_targets"), targets);
}

#[test]
fn the_corpus_stays_small() {
    let corpora = TARGETS.map(|(name, _)| corpus(name));
    assert!(corpora.iter().all(|files| files.len() <= MOST_FILES));
    let n_bytes: usize = corpora.iter().flatten().map(|(_, bytes)| bytes.len()).sum();
    assert!(n_bytes < MOST_BYTES, "{n_bytes} bytes");
}
