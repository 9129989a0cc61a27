//! The tables whose rows are an id, JSON and a checksum, and what is known of their rows without reading them.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use smol_str::SmolStr;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection, query};

use crate::{StoreError, checksum::Sum, sqlite::connection::Place};

/// How many rows a statement writes at most. Each costs two switches between threads, so more is faster, up to about
/// this.
const MOST_ROWS: usize = 128;

/// The rows of a page of [`read_page`].
const PAGE: usize = 2048;

/// A table of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Meta,
    Templates,
    Desired,
    Groups,
    Nodes,
}

impl Table {
    pub(crate) const ALL: [Self; 5] =
        [Self::Meta, Self::Templates, Self::Desired, Self::Groups, Self::Nodes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta_rows",
            Self::Templates => "template_rows",
            Self::Desired => "desired_rows",
            Self::Groups => "group_rows",
            Self::Nodes => "node_rows",
        }
    }
}

/// A row as it is written or was read.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: SmolStr,
    pub(crate) body: String,
    pub(crate) sum: Sum,
}

impl Row {
    pub(crate) fn new(table: Table, id: SmolStr, body: String) -> Self {
        let sum = Sum::of(&[table.name(), &id, &body]);
        Self { id, body, sum }
    }
}

/// What the database holds: the checksum of every row, and the digest over them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    sums: [HashMap<SmolStr, Sum>; Table::ALL.len()],
    pub(crate) digest: Sum,
}

impl Held {
    pub(crate) fn sum(&self, table: Table, id: &str) -> Option<Sum> {
        self.sums[table as usize].get(id).copied()
    }

    pub(crate) fn len(&self, table: Table) -> usize {
        self.sums[table as usize].len()
    }

    /// Returns the ids of rows that are not among some.
    pub(crate) fn others(&self, table: Table, kept: &HashSet<&str>) -> Vec<SmolStr> {
        let mut others: Vec<_> = self.sums[table as usize]
            .keys()
            .filter(|id| !kept.contains(id.as_str()))
            .cloned()
            .collect();
        others.sort_unstable();
        others
    }

    pub(crate) fn put(&mut self, table: Table, id: SmolStr, sum: Sum) {
        self.digest.add(sum);
        if let Some(before) = self.sums[table as usize].insert(id, sum) {
            self.digest.remove(before);
        }
    }

    pub(crate) fn take(&mut self, table: Table, id: &str) {
        if let Some(before) = self.sums[table as usize].remove(id) {
            self.digest.remove(before);
        }
    }
}

/// Statements by size, so that each is made and prepared once.
struct Statements {
    upsert: [Arc<str>; SIZES],
    delete: [Arc<str>; SIZES],
}

/// The sizes of statements are the powers of two up to [`MOST_ROWS`].
const SIZES: usize = MOST_ROWS.ilog2() as usize + 1;

static STATEMENTS: LazyLock<[Statements; Table::ALL.len()]> = LazyLock::new(|| {
    Table::ALL.map(|table| Statements {
        upsert: std::array::from_fn(|size| upsert(table.name(), 1 << size)),
        delete: std::array::from_fn(|size| delete(table.name(), 1 << size)),
    })
});

fn upsert(table: &str, n_rows: usize) -> Arc<str> {
    let mut sql = format!("INSERT INTO {table} (id, body, checksum) VALUES ");
    list(&mut sql, "(?, ?, ?)", n_rows);
    sql.push_str(
        " ON CONFLICT (id) DO UPDATE SET body = excluded.body, checksum = excluded.checksum",
    );
    sql.into()
}

fn delete(table: &str, n_rows: usize) -> Arc<str> {
    let mut sql = format!("DELETE FROM {table} WHERE id IN (");
    list(&mut sql, "?", n_rows);
    sql.push(')');
    sql.into()
}

pub(crate) fn list(sql: &mut String, item: &str, n_items: usize) {
    for n in 0..n_items {
        let separator = if n == 0 { "" } else { ", " };
        write!(sql, "{separator}{item}").expect("writing to a string succeeds");
    }
}

/// Cuts a list into pieces whose sizes are powers of two, the largest first. Yields each with the exponent.
pub(crate) fn pieces<T>(items: Vec<T>, most: usize) -> impl Iterator<Item = (usize, Vec<T>)> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let size = items.len().min(most).checked_ilog2()? as usize;
        Some((size, items.by_ref().take(1 << size).collect()))
    })
}

/// Writes rows over those with the same ids.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    table: Table,
    rows: Vec<Row>,
) -> Result<(), sqlx::Error> {
    for (size, rows) in pieces(rows, MOST_ROWS) {
        let sql = Arc::clone(&STATEMENTS[table as usize].upsert[size]);
        let mut statement = query(AssertSqlSafe(sql));
        for row in rows {
            statement =
                statement.bind(String::from(row.id)).bind(row.body).bind(row.sum.to_string());
        }
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Removes rows.
pub(crate) async fn remove(
    connection: &mut SqliteConnection,
    table: Table,
    ids: Vec<SmolStr>,
) -> Result<(), sqlx::Error> {
    for (size, ids) in pieces(ids, MOST_ROWS) {
        let sql = Arc::clone(&STATEMENTS[table as usize].delete[size]);
        let mut statement = query(AssertSqlSafe(sql));
        for id in ids {
            statement = statement.bind(String::from(id));
        }
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Reads every row of a table in the order of ids, some at a time, and checks each against its checksum.
pub(crate) async fn read(
    connection: &mut SqliteConnection,
    place: &Place,
    table: Table,
    mut each: impl FnMut(Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after: Option<SmolStr> = None;
    loop {
        let rows = read_page(connection, place, table, after.as_deref()).await?;
        let is_last = rows.len() < PAGE;
        for row in rows {
            // An index that leads to a row twice, or in another order, is no index.
            if after.as_deref().is_some_and(|after| after >= row.id.as_str()) {
                return Err(place.damaged(format!(
                    "{} {:?} is out of order",
                    table.name(),
                    row.id
                )));
            }
            after = Some(row.id.clone());
            each(row)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn read_page(
    connection: &mut SqliteConnection,
    place: &Place,
    table: Table,
    after: Option<&str>,
) -> Result<Vec<Row>, StoreError> {
    let name = table.name();
    let condition = if after.is_some() { "WHERE id > ?" } else { "" };
    let sql = format!("SELECT id, body, checksum FROM {name} {condition} ORDER BY id LIMIT {PAGE}");
    let mut statement = query(AssertSqlSafe(sql));
    if let Some(after) = after {
        statement = statement.bind(after.to_owned());
    }
    let rows = statement.fetch_all(connection).await.map_err(|error| place.failed(error))?;
    rows.iter().map(|row| check(place, table, row)).collect()
}

fn check(place: &Place, table: Table, row: &sqlx::sqlite::SqliteRow) -> Result<Row, StoreError> {
    let failed = |error| place.failed(error);
    let id: &str = row.try_get(0).map_err(failed)?;
    let body: &str = row.try_get(1).map_err(failed)?;
    let checksum: &str = row.try_get(2).map_err(failed)?;
    let row = Row::new(table, id.into(), body.into());
    if row.sum.to_string() != checksum {
        return Err(place.damaged(format!("the checksum of {} {id:?} is wrong", table.name())));
    }
    Ok(row)
}
