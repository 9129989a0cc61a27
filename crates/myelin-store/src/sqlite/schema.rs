//! The format of the database and how an older one becomes the current one.

use sqlx::{AssertSqlSafe, SqliteConnection, raw_sql};

use crate::{
    StoreError,
    sqlite::connection::{Place, number},
};

/// "MYLN": the file is a store of ours and nothing else's.
pub(crate) const APPLICATION_ID: i64 = 0x4d59_4c4e;

/// The step at position `n` makes format `n + 1` from format `n`; format 0 is an empty database.
pub(crate) const STEPS: &[&str] = &[include_str!("schema_1.sql")];

/// Returns the latest format of some steps.
pub(crate) fn latest(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).expect("there are few steps")
}

/// Returns the format of a database, unless it is none of ours or too new.
///
/// # Errors
///
/// It cannot be read, or must not be used.
pub(crate) async fn format(
    connection: &mut SqliteConnection,
    place: &Place,
    steps: &[&str],
) -> Result<i64, StoreError> {
    let application = number(connection, place, "PRAGMA application_id").await?;
    if application != APPLICATION_ID {
        return Err(place
            .damaged(format!("its application id is {application:#x}, not {APPLICATION_ID:#x}")));
    }
    let found = number(connection, place, "PRAGMA user_version").await?;
    let supported = latest(steps);
    if found > supported {
        return Err(StoreError::Newer { path: place.database(), found, supported });
    }
    if found < 1 {
        return Err(place.damaged(format!("its format is {found}")));
    }
    Ok(found)
}

/// Takes every step that is left, each in a transaction of its own.
///
/// # Errors
///
/// A step failed; the database is at the step before.
pub(crate) async fn migrate(
    connection: &mut SqliteConnection,
    place: &Place,
    from: i64,
    steps: &[&str],
) -> Result<(), StoreError> {
    let done = usize::try_from(from).expect("a format is no negative number");
    for (step, version) in steps.iter().zip(1..).skip(done) {
        let sql = format!("BEGIN IMMEDIATE; {step}; PRAGMA user_version = {version}; COMMIT;");
        raw_sql(AssertSqlSafe(sql))
            .execute(&mut *connection)
            .await
            .map_err(|error| place.failed(error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
