use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use myelin_shape::ClusterUid;
use myelin_state::EventKind;
use myelin_store::{
    Batch, EventQuery, Fault, Identity, MemoryStore, Options, SqliteStore, Store, StoreError,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use sqlx::Connection as _;

use crate::{
    fixture::{at, commit, create, event, identity, ids, load, look, options, state, whole},
    raw,
};

/// Returns an error's text with the directory's path cut out.
fn words(dir: &Path, error: &StoreError) -> String {
    let dir = dir.canonicalize().unwrap();
    error.to_string().replace(&*dir.to_string_lossy(), "…")
}

#[tokio::test]
async fn an_empty_directory_has_no_store_and_one_without_its_database_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(dir.path()).await.unwrap_err();
    insta::assert_snapshot!(words(dir.path(), &error), @"… holds no state");
    assert!(matches!(error, StoreError::NotFound(_)));
    create(dir.path()).await.close().await.unwrap();
    fs::write(dir.path().join("state.db"), "").unwrap();
    let error = load(dir.path()).await.unwrap_err();
    insta::assert_snapshot!(words(dir.path(), &error), @"…/state.db is damaged: it is empty; nothing was changed; restore a backup, or keep the file for a repair by hand");
    fs::remove_file(dir.path().join("state.db")).unwrap();
    let error = load(dir.path()).await.unwrap_err();
    insta::assert_snapshot!(words(dir.path(), &error), @"…/state.db is damaged: it is missing beside …/state.mark; nothing was changed; restore a backup, or keep the file for a repair by hand");
    let error = SqliteStore::create(dir.path(), &identity(), options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_store_is_not_made_twice_and_is_its_owners_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    commit(&store, 1, &state(1), true).await;
    let error = SqliteStore::create(dir.path(), &identity(), options()).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists(_)), "{error}");
    for name in ["state.db", "state.db-wal", "state.mark"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_newer_format_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path()).await.close().await.unwrap();
    raw::run(dir.path(), "PRAGMA user_version = 9").await;
    let before = fs::read(dir.path().join("state.db")).unwrap();
    let error = load(dir.path()).await.unwrap_err();
    insta::assert_snapshot!(words(dir.path(), &error), @"…/state.db has format 9, this program reads up to 1; nothing was changed; use the newer program");
    assert_eq!(fs::read(dir.path().join("state.db")).unwrap(), before);
}

/// Changes a sound store behind its back; returns what a load says then.
async fn damage(sql: &'static str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    commit(&store, 1, &state(2), true).await;
    store.close().await.unwrap();
    raw::run(dir.path(), sql).await;
    let error = load(dir.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    words(dir.path(), &error).split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_row_that_was_changed_removed_or_brought_back_is_noticed() {
    insta::assert_snapshot!(damage("UPDATE node_rows SET body = replace(body, 'new', 'failed')").await, @r#"…/state.db is damaged: the checksum of node_rows "worker-0" is wrong"#);
    insta::assert_snapshot!(damage("DELETE FROM node_rows WHERE id = 'worker-1'").await, @"…/state.db is damaged: a row is missing, or is one of another time");
    insta::assert_snapshot!(damage("DELETE FROM template_rows").await, @r#"…/state.db is damaged: node_rows "worker-0" names the unknown template 3703b425b5a92f409d5818335198db11"#);
    insta::assert_snapshot!(damage("UPDATE cluster_row SET next_attempt_id = 0").await, @"…/state.db is damaged: the checksum of the cluster's row is wrong");
    insta::assert_snapshot!(damage("DELETE FROM cluster_row").await, @"…/state.db is damaged: cluster has 0 rows, not 1");
    insta::assert_snapshot!(damage("DROP TABLE group_rows").await, @"…/state.db is damaged: no such table: group_rows");
    insta::assert_snapshot!(damage("PRAGMA application_id = 1").await, @"…/state.db is damaged: its application id is 0x1, not 0x4d594c4e");
}

#[tokio::test]
async fn a_stale_row_with_a_sound_checksum_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let mut state = state(2);
    commit(&store, 1, &state, false).await;
    raw::run(dir.path(), "CREATE TABLE old AS SELECT * FROM node_rows").await;
    state.nodes.values_mut().for_each(|node| node.recovering = true);
    commit(&store, 2, &state, true).await;
    store.close().await.unwrap();
    raw::run(dir.path(), "UPDATE node_rows SET (body, checksum) = (SELECT body, checksum FROM old WHERE old.id = node_rows.id)").await;
    let error = load(dir.path()).await.unwrap_err();
    assert!(error.to_string().contains("a row is missing, or is one of another time"), "{error}");
}

#[tokio::test]
async fn a_full_disk_fails_commits_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let limit = Arc::new(AtomicU32::new(u32::MAX - 1));
    let options = Options { page_limit: Some(Arc::clone(&limit)), ..options() };
    create(dir.path()).await.close().await.unwrap();
    let store = SqliteStore::open(dir.path(), options).await.unwrap();
    let small = state(1);
    commit(&store, 1, &small, true).await;
    // Read again at the next opening, which a reload is.
    limit.store(1, Ordering::Relaxed);
    store.load().await.unwrap();
    let large = state(500);
    let nodes = ids(&large);
    for _ in 0..2 {
        let error = store.commit(whole(2, &large, &nodes)).await.unwrap_err();
        assert!(matches!(error, StoreError::Full(_)) && error.is_temporary(), "{error}");
        assert_eq!(look(dir.path()).await.unwrap().state, small);
    }
    limit.store(u32::MAX - 1, Ordering::Relaxed);
    store.commit(whole(3, &large, &nodes)).await.unwrap();
    assert_eq!(look(dir.path()).await.unwrap().state, large);
}

#[tokio::test]
async fn a_locked_database_fails_commits_until_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    commit(&store, 1, &state(1), true).await;
    let mut other = raw::open(dir.path()).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let two = state(2);
    let nodes = ids(&two);
    for _ in 0..2 {
        let error = store.commit(whole(2, &two, &nodes)).await.unwrap_err();
        assert!(matches!(error, StoreError::Locked(_)) && error.is_temporary(), "{error}");
    }
    assert_eq!(look(dir.path()).await.unwrap().state, state(1));
    other.close().await.unwrap();
    store.commit(whole(2, &two, &nodes)).await.unwrap();
    assert_eq!(look(dir.path()).await.unwrap().state, two);
}

/// Runs something on a thread that file permissions bind, also if the process is root's.
fn without_privileges(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        sets.permitted = sets.effective;
        set_capabilities(None, sets).unwrap();
        run();
    });
    thread.join().unwrap();
}

#[test]
fn a_read_only_directory_is_read_and_not_written_until_it_may_be() {
    without_privileges(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let store = create(dir.path()).await;
            let one = state(1);
            commit(&store, 1, &one, true).await;
            store.close().await.unwrap();
            let set = |dir_mode, file_mode| {
                for name in ["state.db", "state.mark"] {
                    fs::set_permissions(
                        dir.path().join(name),
                        fs::Permissions::from_mode(file_mode),
                    )
                    .unwrap();
                }
                fs::set_permissions(dir.path(), fs::Permissions::from_mode(dir_mode)).unwrap();
            };
            set(0o500, 0o400);
            assert_eq!(look(dir.path()).await.unwrap().state, one);
            let error = load(dir.path()).await.unwrap_err();
            assert!(matches!(error, StoreError::ReadOnly(_)) && error.is_temporary(), "{error}");
            set(0o700, 0o600);
            assert_eq!(load(dir.path()).await.unwrap().state, one);
        });
    });
}

#[tokio::test]
async fn a_store_that_is_open_for_reading_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path()).await.close().await.unwrap();
    let store = SqliteStore::open_read_only(dir.path(), options()).await.unwrap();
    let error = store.commit(Batch::new(at(1), &state(1))).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error}");
}

#[tokio::test]
async fn two_writers_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let first = create(dir.path()).await;
    commit(&first, 1, &state(1), true).await;
    let second = SqliteStore::open(dir.path(), options()).await.unwrap();
    second.load().await.unwrap();
    commit(&first, 2, &state(2), true).await;
    let three = state(3);
    for _ in 0..2 {
        let error = second.commit(Batch::new(at(3), &three)).await.unwrap_err();
        assert!(matches!(error, StoreError::OtherWriter { .. }), "{error}");
    }
    assert_eq!(look(dir.path()).await.unwrap().state, state(2));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path()).await.close().await.unwrap();
    let patient = Options {
        busy_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let store = SqliteStore::open(dir.path(), patient).await.unwrap();
    commit(&store, 1, &state(1), true).await;
    let mut other = raw::open(dir.path()).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let two = state(2);
    let nodes = ids(&two);
    let first = event(&nodes[0], two.nodes[&nodes[0]].attempt, EventKind::Ready);
    let second = event(&nodes[1], two.nodes[&nodes[1]].attempt, EventKind::Ready);
    let events = [first, second];
    let batch = Batch { events: &events[..1], barrier: true, ..whole(2, &two, &nodes) };
    let error = store.commit(batch).await.unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }) && error.is_temporary(), "{error}");
    other.close().await.unwrap();
    let again = || store.commit(Batch { events: &events, ..batch });
    while let Err(error) = again().await {
        assert!(error.is_temporary(), "{error}");
    }
    assert_eq!(look(dir.path()).await.unwrap().state, two);
    let stored = store.events(EventQuery::default()).await.unwrap();
    assert_eq!(stored.into_iter().map(|stored| stored.event).collect::<Vec<_>>(), events);
}

#[tokio::test]
async fn a_commit_without_its_mark_is_no_success_and_is_not_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (mark, away) = (dir.path().join("state.mark"), dir.path().join("away"));
    let store = create(dir.path()).await;
    store.load().await.unwrap();
    let one = state(1);
    let nodes = ids(&one);
    let happened = [event(&nodes[0], one.nodes[&nodes[0]].attempt, EventKind::Ready)];
    let batch = Batch { events: &happened, barrier: true, ..whole(1, &one, &nodes) };
    let (taken, path) = (away.clone(), mark.clone());
    let hook = move |n| {
        if n == 1 {
            fs::rename(&path, &taken).unwrap();
        }
    };
    drop(store);
    let store =
        SqliteStore::open(dir.path(), Options { after_commit: Some(Arc::new(hook)), ..options() })
            .await
            .unwrap();
    // The mark goes away right after the database's commit.
    let error = store.commit(batch).await.unwrap_err();
    assert!(matches!(error, StoreError::MarkLost(_)), "{error}");
    let error = store.commit(batch).await.unwrap_err();
    assert!(matches!(error, StoreError::MarkLost(_)), "{error}");
    fs::rename(&away, &mark).unwrap();
    store.commit(batch).await.unwrap();
    store.close().await.unwrap();
    let loaded = load(dir.path()).await.unwrap();
    assert_eq!((loaded.events_last, loaded.state), (1, one));
}

#[tokio::test]
async fn the_store_in_memory_fails_as_it_is_told() {
    let identity = Identity { cluster: ClusterUid([1; 16]), ..identity() };
    let store = MemoryStore::new(identity);
    store.script([Some(Fault::Full), Some(Fault::AnswerLost), None, Some(Fault::Damaged)]);
    let one = state(1);
    let nodes = ids(&one);
    let happened = [event(&nodes[0], one.nodes[&nodes[0]].attempt, EventKind::Ready)];
    let batch = Batch { events: &happened, barrier: true, ..whole(1, &one, &nodes) };
    assert!(store.commit(batch).await.unwrap_err().is_temporary());
    assert!(store.load().await.unwrap().state.nodes.is_empty());
    assert!(store.commit(batch).await.unwrap_err().is_temporary());
    assert_eq!(store.load().await.unwrap().state, one);
    store.commit(batch).await.unwrap();
    assert_eq!(store.events(EventQuery::default()).await.unwrap().len(), 1);
    assert!(!store.commit(batch).await.unwrap_err().is_temporary());
    assert_eq!((store.n_commits(), store.n_barriers()), (2, 2));
}
