//! The rows of the store, and its mark.

use myelin_driver::{ClusterDriver, Desired, Options};
use myelin_state::EventKind;
use myelin_store::{
    Loaded,
    raw::{self, Rows},
};

/// Begins an input that is a slot of a mark.
const MARK: &[u8] = b"mark ";

/// Reads rows, one a line: the table, the id and the JSON, with a space between; or, after `mark `, a slot of a mark.
///
/// # Panics
///
/// What is read does not read back as it is written, or a driver cannot go on from it.
pub fn store_rows(bytes: &[u8]) {
    if let Some(slot) = bytes.strip_prefix(MARK) {
        check_mark(slot);
    } else if let Ok(text) = str::from_utf8(bytes) {
        check_events(text);
        check_rows(&rows(text));
    }
}

/// A slot is filled up with spaces, which an input is spared.
fn check_mark(line: &[u8]) {
    let mut slot = line.to_vec();
    slot.resize(raw::SLOT - 1, b' ');
    slot.push(b'\n');
    if let Some(written) = raw::rewrite_mark(&slot) {
        assert_eq!(written, slot);
    }
}

fn rows(text: &str) -> Rows {
    let mut rows = Rows::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ' ').map(str::to_owned);
        if let (Some(table), Some(id), Some(body)) = (parts.next(), parts.next(), parts.next()) {
            rows.insert((table, id), body);
        }
    }
    rows
}

fn check_rows(rows: &Rows) {
    let Ok(loaded) = raw::decode(rows) else { return };
    let written = raw::encode(&loaded).expect("what was stored can be stored");
    let again = raw::decode(&written).expect("what is written can be read");
    assert_eq!(again, loaded);
    assert_eq!(raw::encode(&again).expect("as before"), written);
    go_on(loaded);
}

/// A driver shows what was read, and goes on from it for as long as it wants to be woken.
fn go_on(loaded: Loaded) {
    let Loaded { state, desired, mut now, .. } = loaded;
    let options = || Options { max_nodes: 100 };
    let desired = desired.map(|it| Desired { shape: it.shape, retry: it.retry });
    let shown = ClusterDriver::show(options(), state.clone(), desired.clone(), now);
    if let Ok(shown) = &shown {
        let _ = shown.convergence();
        for id in shown.state().nodes.keys() {
            let _ = shown.explain(id);
        }
    }
    let Some(desired) = desired else { return };
    let resumed = ClusterDriver::resume(options(), state, desired, now);
    assert_eq!(resumed.is_ok(), shown.is_ok(), "what cannot be gone on from cannot be shown");
    let Ok(mut driver) = resumed else { return };
    for _ in 0..8 {
        let Some(wake_at) = driver.run(now).wake_at else { return };
        assert!(wake_at > now, "it wants to be woken at once, again and again");
        now = wake_at;
    }
}

/// Events are in a table of their own, each for itself.
fn check_events(text: &str) {
    let bodies = text.lines().filter_map(|line| line.strip_prefix("event_rows "));
    for event in bodies.filter_map(|body| serde_json::from_str::<EventKind>(body).ok()) {
        let written = serde_json::to_string(&event).expect("an event is JSON");
        let again: EventKind = serde_json::from_str(&written).expect("what is written can be read");
        assert_eq!(again, event);
    }
}
