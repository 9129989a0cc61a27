//! The one writer: a connection, what it knows the database to hold, and how a commit goes.

use std::sync::{Arc, LazyLock};

use sqlx::{AssertSqlSafe, SqliteConnection, query};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    Batch, Identity, Loaded, Options, Setting, StoreError,
    checksum::Sum,
    mark::MarkFile,
    sqlite::{
        close,
        connection::{Place, connect, run, to_nanos},
        encode::{Digests, Encoder, EventRow, Writes},
        head::Head,
        load::{self, Access, Check, Contents, mark_of},
        meta,
        rows::{self, Held, Table, list, pieces},
    },
};

/// How many events a statement writes at most.
const MOST_EVENTS: usize = 128;

/// History is cut after so many events, so that it costs little for each.
const PRUNE_EVERY: u64 = 512;

/// A connection with what is known of the database behind it.
#[derive(Debug)]
struct Session {
    connection: SqliteConnection,
    is_full: bool,
    head: Head,
    held: Held,
    identity: Identity,
    digests: Digests,
    mark: MarkFile,
    /// When history is cut again, as the number of an event.
    prune_at: u64,
}

/// A commit whose outcome may never have been told.
#[derive(Clone, Copy, Debug)]
struct Unresolved {
    /// The checksum of the cluster's row, which no other commit has.
    sum: Sum,
    n_events: usize,
}

/// Commits, one after the other.
///
/// After any failure, also a call that was dropped half-way, the connection is given up and the next call reads
/// everything anew: nothing is assumed of a database that did not answer.
#[derive(Debug)]
pub(crate) struct Writer {
    session: Option<Session>,
    /// The last commit that is known to be in the database.
    sequence: Option<u64>,
    unresolved: Option<Unresolved>,
    /// How many events of the caller's next batch are in the database already.
    n_landed: usize,
    /// Durable writes of this process.
    n_writes: u64,
    /// A mark that is being written, also when the call that began it was given up.
    marking: Option<JoinHandle<Result<MarkFile, StoreError>>>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            session: None,
            sequence: None,
            unresolved: None,
            n_landed: 0,
            n_writes: 0,
            marking: None,
        }
    }

    /// Counts a durable write and tells the hook.
    pub(crate) fn written(&mut self, options: &Options) {
        self.n_writes += 1;
        if let Some(hook) = &options.after_commit {
            hook(self.n_writes);
        }
    }

    pub(crate) async fn load(
        &mut self,
        place: &Place,
        options: &Options,
    ) -> Result<Loaded, StoreError> {
        self.close(place).await?;
        let (session, loaded) = self.open(place, options, Check::Pages).await?;
        self.session = Some(session);
        Ok(loaded)
    }

    async fn open(
        &mut self,
        place: &Place,
        options: &Options,
        check: Check,
    ) -> Result<(Session, Loaded), StoreError> {
        self.await_mark().await;
        place.check_present()?;
        let mut connection = connect(&place.database(), options).await?;
        match self.examine(&mut connection, place, options, check).await {
            Ok((contents, mark)) => {
                let session = Session {
                    connection,
                    is_full: false,
                    head: contents.head,
                    held: contents.held.clone(),
                    identity: contents.identity.clone(),
                    digests: Digests::new(&contents.templates),
                    mark,
                    prune_at: 0,
                };
                Ok((session, contents.into_loaded()))
            }
            Err(error) => {
                // Whoever puts other files here next must not meet the end of this connection.
                let _ = close(connection, place).await;
                Err(error)
            }
        }
    }

    async fn examine(
        &mut self,
        connection: &mut SqliteConnection,
        place: &Place,
        options: &Options,
        check: Check,
    ) -> Result<(Contents, MarkFile), StoreError> {
        let contents = load::read(connection, place, Access::Write, check).await?;
        self.judge(place, options, &contents)?;
        self.resolve(place, contents.head.sequence, contents.sum)?;
        Ok((contents, MarkFile::open(&place.mark())?))
    }

    /// Refuses a database that is behind its mark.
    fn judge(
        &mut self,
        place: &Place,
        options: &Options,
        contents: &Contents,
    ) -> Result<(), StoreError> {
        let found = contents.mark();
        match MarkFile::read(&place.mark())? {
            Some(mark) if mark.cluster != found.cluster => Err(StoreError::OtherCluster {
                path: place.mark(),
                expected: found.cluster,
                found: mark.cluster,
            }),
            Some(mark) => match found.behind(&mark) {
                Some(behind) => Err(StoreError::Behind { path: place.database(), behind }),
                None => Ok(()),
            },
            // It ended between its first two writes, and nothing was acted on.
            None if found.sequence == 1 => {
                MarkFile::create(&place.mark(), &found)?;
                self.written(options);
                Ok(())
            }
            None => Err(StoreError::MarkLost(place.mark())),
        }
    }

    /// Finds out whether a commit whose outcome was not told is in the database.
    fn resolve(&mut self, place: &Place, found: u64, sum: Sum) -> Result<(), StoreError> {
        let expected = self.sequence.unwrap_or(found);
        match self.unresolved.take() {
            Some(unresolved) if unresolved.sum == sum => self.n_landed = unresolved.n_events,
            _ if expected == found => {}
            _ => return Err(StoreError::OtherWriter { path: place.database(), expected, found }),
        }
        self.sequence = Some(found);
        Ok(())
    }

    pub(crate) async fn commit(
        &mut self,
        place: &Place,
        options: &Options,
        batch: Batch<'_>,
    ) -> Result<(), StoreError> {
        let mut session = self.take(place, options).await?;
        let n_landed = self.n_landed.min(batch.events.len());
        let events = &batch.events[n_landed..];
        let encoder = Encoder::new(place, &session.held, &mut session.digests);
        let writes = encoder.encode(&batch, events, session.head.last_event)?;
        let generation = batch.desired.map_or(0, |desired| desired.shape.generation);
        let mut head = session.head.next(batch.state, batch.now, generation);
        head.last_event += events.len() as u64;
        let sum = session.expect(place, &head, &writes)?;
        self.unresolved = Some(Unresolved { sum, n_events: batch.events.len() });
        session.write(place, options, head, writes, batch.barrier).await?;
        self.sequence = Some(head.sequence);
        self.written(options);
        if batch.barrier {
            session.mark = self.write_mark(&session, place).await?;
            self.written(options);
        }
        self.unresolved = None;
        self.n_landed = 0;
        self.session = Some(session);
        Ok(())
    }

    pub(crate) async fn set(
        &mut self,
        place: &Place,
        options: &Options,
        setting: Setting,
    ) -> Result<(), StoreError> {
        let mut session = self.take(place, options).await?;
        let head = Head { sequence: session.head.sequence + 1, ..session.head };
        let rows = vec![(Table::Meta, vec![meta::setting_row(setting)])];
        let writes = Writes { rows, ..Writes::default() };
        let sum = session.expect(place, &head, &writes)?;
        self.unresolved = Some(Unresolved { sum, n_events: self.n_landed });
        session.write(place, options, head, writes, true).await?;
        self.sequence = Some(head.sequence);
        self.unresolved = None;
        self.written(options);
        self.session = Some(session);
        Ok(())
    }

    /// Writes the mark of a commit, on a thread that may wait for the disk.
    async fn write_mark(
        &mut self,
        session: &Session,
        place: &Place,
    ) -> Result<MarkFile, StoreError> {
        let (mark, path) = (mark_of(&session.head, &session.identity), place.mark());
        let mut file = session.mark.clone();
        let write = move || file.write(&mark, &path).map(|()| file);
        let written = self.marking.insert(spawn_blocking(write)).await;
        self.marking = None;
        written.expect("writing a mark does not panic")
    }

    /// Waits for a mark that a call which was given up has left behind: written later, it would cover a newer one.
    async fn await_mark(&mut self) {
        if let Some(marking) = &mut self.marking {
            // Whatever came of it is read from the file.
            let _ = marking.await;
            self.marking = None;
        }
    }

    /// Takes the connection; whoever fails does not put it back.
    async fn take(&mut self, place: &Place, options: &Options) -> Result<Session, StoreError> {
        match self.session.take() {
            Some(session) => Ok(session),
            None => Ok(self.open(place, options, Check::Rows).await?.0),
        }
    }

    /// Ends the connection, which puts everything into one file.
    pub(crate) async fn close(&mut self, place: &Place) -> Result<(), StoreError> {
        match self.session.take() {
            Some(session) => close(session.connection, place).await,
            None => Ok(()),
        }
    }
}

impl Session {
    /// Takes note of what is about to be written; returns the checksum of the cluster's row then.
    fn expect(&mut self, place: &Place, head: &Head, writes: &Writes) -> Result<Sum, StoreError> {
        self.held.apply(writes);
        head.sum(place, &self.held.digest.to_string())
    }

    /// Writes one transaction. After a failure the session knows nothing any more and is given up.
    async fn write(
        &mut self,
        place: &Place,
        options: &Options,
        head: Head,
        writes: Writes,
        barrier: bool,
    ) -> Result<(), StoreError> {
        self.make_full(place, barrier).await?;
        run(&mut self.connection, place, "BEGIN IMMEDIATE").await?;
        if !head.update(&mut self.connection, place, self.held.digest, self.head.sequence).await? {
            return Err(self.other_writer(place).await);
        }
        let failed = |error| place.failed(error);
        for (table, rows) in writes.rows {
            rows::write(&mut self.connection, table, rows).await.map_err(failed)?;
        }
        for (table, ids) in writes.gone {
            rows::remove(&mut self.connection, table, ids).await.map_err(failed)?;
        }
        write_events(&mut self.connection, writes.events).await.map_err(failed)?;
        let prune = head.last_event >= self.prune_at && head.last_event > self.head.last_event;
        if prune {
            prune_events(&mut self.connection, place, options, &head).await?;
            self.prune_at = head.last_event + PRUNE_EVERY;
        }
        run(&mut self.connection, place, "COMMIT").await?;
        self.head = head;
        Ok(())
    }

    async fn other_writer(&mut self, place: &Place) -> StoreError {
        match Head::read(&mut self.connection, place).await {
            Ok((found, ..)) => StoreError::OtherWriter {
                path: place.database(),
                expected: self.head.sequence,
                found: found.sequence,
            },
            Err(error) => error,
        }
    }

    async fn make_full(&mut self, place: &Place, full: bool) -> Result<(), StoreError> {
        if self.is_full != full {
            let sql =
                if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            run(&mut self.connection, place, sql).await?;
            self.is_full = full;
        }
        Ok(())
    }
}

async fn write_events(
    connection: &mut SqliteConnection,
    events: Vec<EventRow>,
) -> Result<(), sqlx::Error> {
    for (size, events) in pieces(events, MOST_EVENTS) {
        let sql = Arc::clone(&INSERT_EVENTS[size]);
        let mut statement = query(AssertSqlSafe(sql));
        for event in events {
            statement = statement
                .bind(event.seq)
                .bind(event.at)
                .bind(event.node)
                .bind(event.attempt)
                .bind(event.code)
                .bind(event.operation)
                .bind(event.body)
                .bind(event.checksum);
        }
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Statements by the exponent of their number of rows.
static INSERT_EVENTS: LazyLock<[Arc<str>; MOST_EVENTS.ilog2() as usize + 1]> = LazyLock::new(
    || {
        std::array::from_fn(|size| {
            let mut sql = "INSERT INTO event_rows (seq, at, node, attempt, code, operation, body, checksum) VALUES ".to_owned();
            list(&mut sql, "(?, ?, ?, ?, ?, ?, ?, ?)", 1 << size);
            sql.into()
        })
    },
);

/// Removes events that are too old or too many, some at a time.
async fn prune_events(
    connection: &mut SqliteConnection,
    place: &Place,
    options: &Options,
    head: &Head,
) -> Result<(), StoreError> {
    let failed = |error| place.failed(error);
    let oldest = head.last_event.saturating_sub(options.max_events);
    let too_old = head.now.checked_sub(options.max_age).and_then(|time| to_nanos(time, place).ok());
    let sql = "DELETE FROM event_rows WHERE seq IN (SELECT seq FROM event_rows ORDER BY seq LIMIT 4096) \
               AND (seq <= ? OR at < ?)";
    let statement = query(sql).bind(oldest.cast_signed()).bind(too_old.unwrap_or(0));
    statement.execute(connection).await.map(drop).map_err(failed)
}
