//! The database as a person or another program sees it.

use std::path::Path;

use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions,
};

pub(crate) async fn open(dir: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(dir.join("state.db")).connect().await.unwrap()
}

pub(crate) async fn run(dir: &Path, sql: &'static str) {
    let mut connection = open(dir).await;
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

pub(crate) async fn number(dir: &Path, sql: &'static str) -> i64 {
    let mut connection = open(dir).await;
    sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0)
}

pub(crate) async fn text(dir: &Path, sql: &'static str) -> String {
    let mut connection = open(dir).await;
    sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0)
}
