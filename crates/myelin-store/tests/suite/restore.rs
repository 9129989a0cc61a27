use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use myelin_state::ClusterState;
use myelin_store::{Options, SqliteStore, Store, StoreError};

use crate::{
    behind::store_with_backup,
    fixture::{commit, copy_files, create, load, look, options, restore, state},
};

/// Makes a store whose last commit is in its log only, and a backup of before.
async fn killed_with_backup(dir: &Path) -> (PathBuf, PathBuf) {
    let live = dir.join("live");
    fs::create_dir(&live).unwrap();
    let store = create(&live).await;
    commit(&store, 1, &state(1), true).await;
    let backup = dir.join("backup.db");
    store.backup(&backup).await.unwrap();
    commit(&store, 2, &state(3), true).await;
    let killed = dir.join("killed");
    copy_files(&live, &killed);
    (killed, backup)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_a_restore_replaces_is_kept_with_its_log_and_can_be_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, backup) = killed_with_backup(dir.path()).await;
    let kept = restore(&killed, &backup).await.unwrap().unwrap();
    assert_eq!(kept, killed.canonicalize().unwrap().join("replaced-1"));
    assert_eq!(names(&kept), ["state.db", "state.db-wal"]);
    assert_eq!(look(&killed).await.unwrap().state, state(1));
    let again = restore(&killed, &kept.join("state.db")).await.unwrap().unwrap();
    assert!(again.ends_with("replaced-2"), "{}", again.display());
    assert_eq!(load(&killed).await.unwrap().state, state(3));
}

#[tokio::test]
async fn nothing_acts_on_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, backup) = killed_with_backup(dir.path()).await;
    let kept = restore(&killed, &backup).await.unwrap().unwrap();
    let error = load(&kept).await.unwrap_err();
    assert!(matches!(error, StoreError::MarkLost(_)), "{error}");
}

#[tokio::test]
async fn what_cannot_be_read_is_kept_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    fs::write(live.join("state.db"), "damaged").unwrap();
    let kept = restore(&live, &dir.path().join("backup.db")).await.unwrap().unwrap();
    assert_eq!(fs::read_to_string(kept.join("state.db")).unwrap(), "damaged");
}

#[tokio::test]
async fn a_restore_that_is_given_up_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, backup) = killed_with_backup(dir.path()).await;
    let before = names(&killed);
    let restore = SqliteStore::restore(&killed, &backup, &options()).await.unwrap();
    assert_eq!(restore.loaded().state, state(1));
    drop(restore);
    assert_eq!(names(&killed), before);
    assert_eq!(load(&killed).await.unwrap().state, state(3));
}

#[tokio::test]
async fn nothing_is_replaced_when_the_note_of_it_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, backup) = killed_with_backup(dir.path()).await;
    let restore = SqliteStore::restore(&killed, &backup, &options()).await.unwrap();
    let full = || Err(StoreError::Full(PathBuf::from("restored")));
    assert!(matches!(restore.put_in_place(full), Err(StoreError::Full(_))));
    assert_eq!(load(&killed).await.unwrap().state, state(3));
}

/// Returns what can be read in a directory and in those below it, which a person would look into.
async fn readable(dir: &Path) -> Vec<ClusterState> {
    let mut states = Vec::new();
    for dir in [dir.to_owned(), dir.join("replaced-1")] {
        if let Ok(loaded) = look(&dir).await {
            states.push(loaded.state);
        }
    }
    states
}

#[tokio::test]
async fn a_restore_killed_after_any_step_loses_nothing_and_goes_on_when_it_is_asked_for_again() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, backup) = killed_with_backup(dir.path()).await;
    let (album, photos) = (dir.path().to_owned(), Arc::new(Mutex::new(Vec::new())));
    let (live, taken) = (killed.clone(), Arc::clone(&photos));
    let hook = move |n: u64| {
        let photo = album.join(format!("photo-{n}"));
        copy_files(&live, &photo);
        copy_files(&live.join("replaced-1"), &photo.join("replaced-1"));
        taken.lock().unwrap().push(photo);
    };
    let watched = Options { after_commit: Some(Arc::new(hook)), ..options() };
    let restore_watched = SqliteStore::restore(&killed, &backup, &watched).await.unwrap();
    restore_watched.put_in_place(|| Ok::<_, StoreError>(())).unwrap();
    let photos = photos.lock().unwrap().clone();
    assert_eq!(photos.len(), 3);
    for photo in photos {
        let found = readable(&photo).await;
        assert!(found.contains(&state(3)), "{} holds {} states", photo.display(), found.len());
        restore(&photo, &backup).await.unwrap();
        assert_eq!(look(&photo).await.unwrap().state, state(1));
        restore(&photo, &photo.join("replaced-1/state.db")).await.unwrap();
        assert_eq!(load(&photo).await.unwrap().state, state(3));
    }
}

#[tokio::test]
async fn a_half_kept_copy_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, backup) = killed_with_backup(dir.path()).await;
    fs::create_dir(killed.join("replaced.new")).unwrap();
    fs::write(killed.join("replaced.new/state.db"), "half").unwrap();
    let kept = restore(&killed, &backup).await.unwrap().unwrap();
    assert!(!killed.join("replaced.new").exists());
    assert_eq!(look(&kept).await.unwrap().state, state(3));
}

#[tokio::test]
async fn a_directory_or_a_pipe_is_no_backup_and_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let live = store_with_backup(dir.path()).await;
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
        let error = restore(&live, path).await.unwrap_err();
        let StoreError::Io { what: "read", path: named, .. } = error else { panic!("{error}") };
        assert_eq!(named, path);
    }
    assert_eq!(load(&live).await.unwrap().state, state(3));
}
