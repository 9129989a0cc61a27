//! The cluster's row: the scalars of the state, and how many commits led to it.

use std::time::SystemTime;

use myelin_state::{BrakeRecord, ClusterState};
use sqlx::{Row as _, SqliteConnection, query};

use crate::{
    StoreError,
    checksum::Sum,
    sqlite::connection::{Place, from_nanos, to_nanos},
};

/// The row, as it is or is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) sequence: u64,
    pub(crate) observed_generation: u64,
    pub(crate) acted_generation: u64,
    pub(crate) next_attempt_id: u64,
    pub(crate) last_event: u64,
    pub(crate) now: SystemTime,
    pub(crate) paused: bool,
    pub(crate) brake: BrakeRecord,
}

const READ: &str = "SELECT sequence, observed_generation, acted_generation, next_attempt_id, last_event, now, paused, \
                    brake, digest, checksum FROM cluster_row";

const UPDATE: &str = "UPDATE cluster_row SET sequence = ?, observed_generation = ?, acted_generation = ?, \
                      next_attempt_id = ?, last_event = ?, now = ?, paused = ?, brake = ?, digest = ?, checksum = ? \
                      WHERE sequence = ?";

const INSERT: &str = "INSERT INTO cluster_row (sequence, observed_generation, acted_generation, next_attempt_id, \
                      last_event, now, paused, brake, digest, checksum, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)";

impl Head {
    /// Returns the row of a store that was just made.
    pub(crate) fn first(now: SystemTime) -> Self {
        Self {
            sequence: 1,
            observed_generation: 0,
            acted_generation: 0,
            next_attempt_id: 0,
            last_event: 0,
            now,
            paused: false,
            brake: BrakeRecord::default(),
        }
    }

    /// Returns the row after a commit of a state.
    pub(crate) fn next(
        &self,
        state: &ClusterState,
        now: SystemTime,
        desired_generation: u64,
    ) -> Self {
        Self {
            sequence: self.sequence + 1,
            observed_generation: state.observed_generation,
            acted_generation: self
                .acted_generation
                .max(state.observed_generation)
                .max(desired_generation),
            next_attempt_id: state.next_attempt_id,
            last_event: self.last_event,
            now,
            paused: state.paused,
            brake: state.brake,
        }
    }

    /// Reads the row with the digest it claims and its own checksum.
    pub(crate) async fn read(
        connection: &mut SqliteConnection,
        place: &Place,
    ) -> Result<(Self, String, Sum), StoreError> {
        let failed = |error| place.failed(error);
        let rows = query(READ).fetch_all(connection).await.map_err(failed)?;
        let [row] = &rows[..] else {
            return Err(place.damaged(format!("cluster has {} rows, not 1", rows.len())));
        };
        let number = |column| row.try_get::<i64, _>(column).map(i64::cast_unsigned).map_err(failed);
        let text = |column| row.try_get::<String, _>(column).map_err(failed);
        let damaged = |error: serde_json::Error| place.damaged(format!("the brake: {error}"));
        let head = Self {
            sequence: number(0)?,
            observed_generation: number(1)?,
            acted_generation: number(2)?,
            next_attempt_id: number(3)?,
            last_event: number(4)?,
            now: from_nanos(row.try_get(5).map_err(failed)?, place)?,
            paused: number(6)? != 0,
            brake: serde_json::from_str(&text(7)?).map_err(damaged)?,
        };
        let digest = text(8)?;
        let sum = head.sum(place, &digest)?;
        if sum.to_string() != text(9)? {
            return Err(place.damaged("the checksum of the cluster's row is wrong".to_owned()));
        }
        Ok((head, digest, sum))
    }

    /// Writes the row over that of the commit before; returns whether that one was there.
    pub(crate) async fn update(
        &self,
        connection: &mut SqliteConnection,
        place: &Place,
        digest: Sum,
        before: u64,
    ) -> Result<bool, StoreError> {
        self.write(connection, place, digest, UPDATE, Some(before)).await
    }

    /// Writes the first row.
    pub(crate) async fn insert(
        &self,
        connection: &mut SqliteConnection,
        place: &Place,
        digest: Sum,
    ) -> Result<(), StoreError> {
        self.write(connection, place, digest, INSERT, None).await.map(drop)
    }

    async fn write(
        &self,
        connection: &mut SqliteConnection,
        place: &Place,
        digest: Sum,
        sql: &'static str,
        before: Option<u64>,
    ) -> Result<bool, StoreError> {
        let digest = digest.to_string();
        let checksum = self.sum(place, &digest)?.to_string();
        let mut statement = query(sql)
            .bind(self.sequence.cast_signed())
            .bind(self.observed_generation.cast_signed())
            .bind(self.acted_generation.cast_signed())
            .bind(self.next_attempt_id.cast_signed())
            .bind(self.last_event.cast_signed())
            .bind(to_nanos(self.now, place)?)
            .bind(i64::from(self.paused))
            .bind(self.brake_text())
            .bind(digest)
            .bind(checksum);
        if let Some(before) = before {
            statement = statement.bind(before.cast_signed());
        }
        let done = statement.execute(connection).await.map_err(|error| place.failed(error))?;
        Ok(done.rows_affected() == 1)
    }

    fn brake_text(&self) -> String {
        serde_json::to_string(&self.brake).expect("a brake is flags")
    }

    pub(crate) fn sum(&self, place: &Place, digest: &str) -> Result<Sum, StoreError> {
        let text = format!(
            "{} {} {} {} {} {} {} {}",
            self.sequence,
            self.observed_generation,
            self.acted_generation,
            self.next_attempt_id,
            self.last_event,
            to_nanos(self.now, place)?,
            self.paused,
            self.brake_text(),
        );
        Ok(Sum::of(&["cluster", &text, digest]))
    }
}
