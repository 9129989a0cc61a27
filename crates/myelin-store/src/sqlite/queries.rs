//! Questions about history. Each has a connection of its own, so that it never waits for a commit nor the other way.

use myelin_shape::{NodeAttemptId, OperationId};
use myelin_state::{DriverEvent, OperationKind};
use sqlx::{Row as _, query, sqlite::SqliteRow};

use crate::{
    EventQuery, OperationEnd, OperationQuery, Options, StoreError, StoredEvent, StoredOperation,
    checksum::Sum,
    sqlite::connection::{Place, connect_read_only, from_nanos},
};

const EVENTS: &str = "SELECT seq, at, node, attempt, body, checksum FROM event_rows WHERE seq > ? ORDER BY seq DESC LIMIT ?";

const EVENTS_OF_NODE: &str = "SELECT seq, at, node, attempt, body, checksum FROM event_rows WHERE seq > ? AND node = ? \
                              ORDER BY seq DESC LIMIT ?";

const OPERATIONS: &str = "SELECT attempt, sequence, node, kind, dispatched_at, expired_at, ended_at, outcome, error \
                          FROM operations WHERE (?1 IS NULL OR node = ?1) AND (?2 IS NULL OR attempt = ?2) \
                          ORDER BY seq DESC LIMIT ?3";

pub(crate) async fn events(
    place: &Place,
    options: &Options,
    asked: EventQuery,
) -> Result<Vec<StoredEvent>, StoreError> {
    let mut connection = connect_read_only(&place.database(), options).await?;
    let EventQuery { after, node, limit } = asked;
    let statement = match node {
        None => query(EVENTS).bind(after.cast_signed()),
        Some(node) => query(EVENTS_OF_NODE).bind(after.cast_signed()).bind(node.to_string()),
    };
    let rows = statement.bind(i64::from(limit)).fetch_all(&mut connection).await;
    let rows = rows.map_err(|error| place.failed(error))?;
    super::close(connection, place).await?;
    rows.iter().rev().map(|row| event(row, place)).collect()
}

fn event(row: &SqliteRow, place: &Place) -> Result<StoredEvent, StoreError> {
    let failed = |error| place.failed(error);
    let seq: i64 = row.try_get(0).map_err(failed)?;
    let node: Option<String> = row.try_get(2).map_err(failed)?;
    let attempt: Option<i64> = row.try_get(3).map_err(failed)?;
    let body: &str = row.try_get(4).map_err(failed)?;
    let checksum: &str = row.try_get(5).map_err(failed)?;
    if Sum::of(&["events", body]).to_string() != checksum {
        return Err(place.damaged(format!("the checksum of event {seq} is wrong")));
    }
    let unreadable = |error| place.damaged(format!("event {seq} cannot be read: {error}"));
    let event = DriverEvent {
        at: from_nanos(row.try_get(1).map_err(failed)?, place)?,
        node: node.map(Into::into),
        attempt: attempt.map(|attempt| NodeAttemptId(attempt.cast_unsigned())),
        kind: serde_json::from_str(body).map_err(unreadable)?,
    };
    Ok(StoredEvent { seq: seq.cast_unsigned(), event })
}

pub(crate) async fn operations(
    place: &Place,
    options: &Options,
    asked: OperationQuery,
) -> Result<Vec<StoredOperation>, StoreError> {
    let mut connection = connect_read_only(&place.database(), options).await?;
    let OperationQuery { node, attempt, limit } = asked;
    let statement = query(OPERATIONS)
        .bind(node.map(|node| node.to_string()))
        .bind(attempt.map(|attempt| attempt.0.cast_signed()))
        .bind(i64::from(limit));
    let rows = statement.fetch_all(&mut connection).await.map_err(|error| place.failed(error))?;
    super::close(connection, place).await?;
    rows.iter().rev().map(|row| operation(row, place)).collect()
}

fn operation(row: &SqliteRow, place: &Place) -> Result<StoredOperation, StoreError> {
    let failed = |error| place.failed(error);
    let number = |column| row.try_get::<i64, _>(column).map(i64::cast_unsigned).map_err(failed);
    let time = |column| {
        let nanos: Option<i64> = row.try_get(column).map_err(failed)?;
        nanos.map(|nanos| from_nanos(nanos, place)).transpose()
    };
    let id = OperationId { attempt: NodeAttemptId(number(0)?), sequence: number(1)? };
    let damaged = || place.damaged(format!("the events of operation {id} do not fit together"));
    let kind: &str = row.try_get(3).map_err(failed)?;
    let outcome: Option<&str> = row.try_get(7).map_err(failed)?;
    let error: Option<String> = row.try_get(8).map_err(failed)?;
    let end = match (outcome, error) {
        (None, _) => None,
        (Some("succeeded"), _) => Some(OperationEnd::Succeeded),
        (Some(_), Some(error)) => Some(OperationEnd::Failed(error.into())),
        (Some(_), None) => return Err(damaged()),
    };
    Ok(StoredOperation {
        id,
        node: row.try_get::<String, _>(2).map_err(failed)?.into(),
        kind: parse_kind(kind).ok_or_else(damaged)?,
        dispatched_at: time(4)?.ok_or_else(damaged)?,
        expired_at: time(5)?,
        ended: time(6)?.zip(end),
    })
}

fn parse_kind(text: &str) -> Option<OperationKind> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}
