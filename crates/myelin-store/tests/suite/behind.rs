use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use myelin_shape::ClusterUid;
use myelin_store::{Doubt, Identity, SqliteStore, Store, StoreError};

use crate::fixture::{commit, create, identity, load, look, options, restore, state};

/// Makes a store with an early backup and a barrier after it.
pub(crate) async fn store_with_backup(dir: &Path) -> std::path::PathBuf {
    let live = dir.join("live");
    fs::create_dir(&live).unwrap();
    let store = create(&live).await;
    commit(&store, 1, &state(1), true).await;
    let backup = dir.join("backup.db");
    store.backup(&backup).await.unwrap();
    commit(&store, 2, &state(3), true).await;
    store.close().await.unwrap();
    live
}

#[tokio::test]
async fn an_older_backup_is_noticed_shown_and_can_be_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    restore(&live, &dir.path().join("backup.db")).await.unwrap();
    let error = load(&live).await.unwrap_err();
    let StoreError::Behind { behind, .. } = error else { panic!("{error}") };
    insta::assert_snapshot!(behind, @"commit 2 is older than 3, next attempt 1 is older than 3");
    let shown = look(&live).await.unwrap();
    assert_eq!((shown.state, shown.doubt), (state(1), Some(Doubt::Behind(behind))));
    let accepted = SqliteStore::accept_behind(&live, &options()).await.unwrap();
    assert_eq!((accepted.next_attempt_id, accepted.acted_generation), (1_000_003, 1_000_001));
    let loaded = load(&live).await.unwrap();
    assert_eq!(loaded.state.next_attempt_id, 1_000_003);
    assert_eq!(loaded.state.nodes, state(1).nodes);
    let store = SqliteStore::open(&live, options()).await.unwrap();
    commit(&store, 3, &loaded.state, true).await;
    assert_eq!(load(&live).await.unwrap().acted_generation, 1_000_001);
}

#[tokio::test]
async fn the_latest_backup_is_as_good_as_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    let before = load(&live).await.unwrap();
    let backup = dir.path().join("latest.db");
    SqliteStore::open_read_only(&live, options()).await.unwrap().backup(&backup).await.unwrap();
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(live.join("state.db"), "gone").unwrap();
    restore(&live, &backup).await.unwrap();
    assert_eq!(load(&live).await.unwrap(), before);
}

#[tokio::test]
async fn a_backup_never_replaces_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    let store = SqliteStore::open(&live, options()).await.unwrap();
    let path = dir.path().join("mine");
    fs::write(&path, "mine").unwrap();
    let error = store.backup(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists(_)), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    let error = store.backup(&dir.path().join("no/such/directory")).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
}

#[tokio::test]
async fn a_backup_that_is_damaged_or_of_another_cluster_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    let before = load(&live).await.unwrap();
    let backup = dir.path().join("backup.db");
    let mut bytes = fs::read(&backup).unwrap();
    let at = bytes.windows(8).position(|window| window == b"worker-0").unwrap();
    bytes[at] ^= 1;
    let damaged = dir.path().join("damaged.db");
    fs::write(&damaged, bytes).unwrap();
    let error = restore(&live, &damaged).await.unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { path, .. } if *path == damaged), "{error}");

    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let identity = Identity { cluster: ClusterUid([0xcd; 16]), ..identity() };
    SqliteStore::create(&other, &identity, options()).await.unwrap().close().await.unwrap();
    let foreign = other.join("state.db");
    let error = restore(&live, &foreign).await.unwrap_err();
    assert!(matches!(error, StoreError::OtherCluster { .. }), "{error}");
    assert_eq!(load(&live).await.unwrap(), before);
    assert!(!live.join("state.db.new").exists());

    fs::copy(&foreign, live.join("state.db")).unwrap();
    for error in [
        load(&live).await.unwrap_err(),
        SqliteStore::accept_behind(&live, &options()).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::OtherCluster { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_log_that_is_gone_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    let store = SqliteStore::open(&live, options()).await.unwrap();
    commit(&store, 3, &state(4), true).await;
    let copy = dir.path().join("copy");
    crate::fixture::copy_files(&live, &copy);
    assert_eq!(load(&copy).await.unwrap().state, state(4));
    crate::fixture::copy_files(&live, &dir.path().join("cut"));
    let cut = dir.path().join("cut");
    for suffix in ["wal", "shm"] {
        fs::remove_file(cut.join(format!("state.db-{suffix}"))).unwrap();
    }
    let error = load(&cut).await.unwrap_err();
    assert!(matches!(error, StoreError::Behind { .. }), "{error}");
}

#[tokio::test]
async fn one_torn_slot_of_the_mark_is_fine_and_two_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    let mark = live.join("state.mark");
    let sound = fs::read(&mark).unwrap();
    for slots in [[0].as_slice(), &[4096], &[0, 4096]] {
        let mut bytes = sound.clone();
        for slot in slots {
            bytes[slot + 20] ^= 1;
        }
        fs::write(&mark, bytes).unwrap();
        match load(&live).await {
            Ok(loaded) => assert_eq!((slots.len(), loaded.state), (1, state(3))),
            Err(StoreError::MarkLost(_)) => assert_eq!(slots.len(), 2),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(look(&live).await.unwrap().doubt, Some(Doubt::MarkLost));
    SqliteStore::accept_behind(&live, &options()).await.unwrap();
    assert_eq!(load(&live).await.unwrap().state.nodes, state(3).nodes);
}
