use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use myelin_api::{JoinFile, JoinSecret, WireKey};
use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};

use crate::{Error, Options, Pace, backoff::Backoff, options::agent_key};

fn join_file(directory: &Path) -> JoinFile {
    let key = AttemptKey {
        cluster: ClusterUid([7; 16]),
        run: RunId(1),
        node: "worker-0".into(),
        attempt: NodeAttemptId(1),
    };
    JoinFile {
        address: "127.0.0.1:1".into(),
        key: WireKey::from(&key),
        token: JoinSecret::new([1; 32]).token(&key),
        state_dir: directory.join("agent"),
    }
}

/// Reads a join file with that text and mode, and returns what is wrong with it.
fn check(text: &str, mode: u32) -> Result<Options, Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("join.json");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    Options::from_join_file(&path)
}

#[test]
fn a_join_file_says_everything() {
    let directory = tempfile::tempdir().unwrap();
    let file = join_file(directory.path());
    let options = check(&serde_json::to_string(&file).unwrap(), 0o600).unwrap();
    assert_eq!(options.address, "127.0.0.1:1");
    assert_eq!(WireKey::from(&options.key), file.key);
    assert_eq!(options.state_dir, directory.path().join("agent"));
}

#[test]
fn a_join_file_that_is_none_is_an_error_and_so_is_an_open_one() {
    let file = join_file(Path::new("/tmp"));
    let text = serde_json::to_string(&file).unwrap();
    assert!(matches!(check(&text, 0o644), Err(Error::OpenJoinFile { mode: 0o644, .. })));
    for text in [
        "",
        "{}",
        "[]",
        &text[1..],
        &text.replace("worker-0", "../x"),
        &text.replace("address", "addr"),
    ] {
        let error = check(text, 0o600).unwrap_err();
        assert!(matches!(error, Error::ParseJoinFile { .. } | Error::Key(_)), "{error}");
    }
    let missing = Options::from_join_file(Path::new("/nonexistent/join.json"));
    assert!(matches!(missing, Err(Error::ReadJoinFile { .. })));
}

#[test]
fn an_agent_key_is_minted_once_and_private() {
    let directory = tempfile::tempdir().unwrap();
    let state_dir = directory.path().join("agent");
    let key = agent_key(&state_dir).unwrap();
    assert_eq!(agent_key(&state_dir).unwrap(), key);
    let path = state_dir.join("agent-key");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&state_dir).unwrap().count(), 1, "nothing is left beside it");
    fs::write(&path, "not a key").unwrap();
    assert!(matches!(agent_key(&state_dir), Err(Error::ParseAgentKey { .. })));
}

#[test]
fn pauses_double_up_to_the_cap_and_are_spread_over_half_of_it() {
    let mut backoff = Backoff::new(Pace::default());
    let mut pauses = |random| [(); 8].map(|()| backoff.next(random).as_millis());
    assert_eq!(pauses(u32::MAX), [200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    let mut backoff = Backoff::new(Pace::default());
    assert_eq!(backoff.next(0), Duration::from_millis(100));
    for _ in 0..100 {
        assert!(backoff.next(0) <= Duration::from_millis(2500));
    }
    backoff.reset();
    assert_eq!(backoff.next(u32::MAX), Duration::from_millis(200));
}

#[test]
fn no_pause_is_longer_than_the_heartbeat_interval_nor_shorter_than_the_first() {
    let check = |heartbeat_every, expected: [u128; 5]| {
        let mut backoff = Backoff::new(Pace::default());
        backoff.heartbeat_every(heartbeat_every);
        assert_eq!([(); 5].map(|()| backoff.next(u32::MAX).as_millis()), expected);
    };
    check(Duration::from_millis(10), [200; 5]);
    check(Duration::from_millis(500), [200, 400, 500, 500, 500]);
    check(Duration::from_secs(2), [200, 400, 800, 1600, 2000]);
    check(Duration::from_mins(1), [200, 400, 800, 1600, 3200]);
}
