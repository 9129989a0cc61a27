use myelin_shape::{ClusterUid, RunId};

use super::*;
use crate::{
    Identity, Options, Secret, SqliteStore, Store as _,
    sqlite::{connection::connect, prepare},
};

/// A later format: a table more, and a step that uses it.
const LATER: [&str; 3] =
    [STEPS[0], "CREATE TABLE notes (text TEXT) STRICT", "INSERT INTO notes VALUES ('kept')"];

/// A later format with a step that cannot be taken.
const BROKEN: [&str; 3] =
    [STEPS[0], "CREATE TABLE notes (text TEXT) STRICT", "INSERT INTO note VALUES ('lost')"];

async fn store(dir: &std::path::Path) -> Place {
    let identity = Identity {
        cluster: ClusterUid([1; 16]),
        run: RunId(1),
        begun_at: std::time::UNIX_EPOCH,
        secret: Secret([2; 32]),
    };
    SqliteStore::create(dir, &identity, Options::default()).await.unwrap();
    Place::new(dir).unwrap()
}

#[tokio::test]
async fn a_store_of_the_first_format_takes_every_later_step_once() {
    let dir = tempfile::tempdir().unwrap();
    let place = store(dir.path()).await;
    let before =
        SqliteStore::open(dir.path(), Options::default()).await.unwrap().load().await.unwrap();
    for _ in 0..2 {
        prepare(&place, &Options::default(), &LATER).await.unwrap();
        let mut connection = connect(&place.database(), &Options::default()).await.unwrap();
        assert_eq!(format(&mut connection, &place, &LATER).await.unwrap(), 3);
        assert_eq!(number(&mut connection, &place, "SELECT count(*) FROM notes").await.unwrap(), 1);
        let error = format(&mut connection, &place, STEPS).await.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 3, supported: 1, .. }), "{error}");
        let head = crate::sqlite::head::Head::read(&mut connection, &place).await.unwrap().0;
        assert_eq!(head.sequence, before.sequence);
    }
}

#[tokio::test]
async fn a_step_that_fails_leaves_the_format_before() {
    let dir = tempfile::tempdir().unwrap();
    let place = store(dir.path()).await;
    prepare(&place, &Options::default(), &BROKEN).await.unwrap_err();
    let mut connection = connect(&place.database(), &Options::default()).await.unwrap();
    assert_eq!(format(&mut connection, &place, &BROKEN).await.unwrap(), 2);
}
