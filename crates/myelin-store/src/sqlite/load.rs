//! Reading a whole database, checked row by row and as a whole.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use myelin_shape::{LogicalNodeId, NodeTemplate};
use myelin_state::ClusterState;
use serde::de::DeserializeOwned;
use smol_str::SmolStr;
use sqlx::{Row as _, SqliteConnection, query};

use crate::{
    Identity, Loaded, Settings, StoreError, StoredDesired,
    checksum::Sum,
    mark::Mark,
    record::{GroupRow, NodeRow},
    sqlite::{
        connection::{Place, run},
        head::Head,
        meta,
        rows::{self, Held, Row, Table},
    },
};

/// How thoroughly a database is checked beside its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Every page.
    Pages,
    /// No more than what is read.
    Rows,
}

/// What the connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Waits until an earlier connection of a writer has ended its transaction, one way or the other.
    Write,
}

/// Everything of a database.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) head: Head,
    /// The checksum of the cluster's row, which tells one commit from another.
    pub(crate) sum: Sum,
    pub(crate) held: Held,
    pub(crate) identity: Identity,
    settings: Settings,
    state: ClusterState,
    desired: Option<StoredDesired>,
    pub(crate) templates: Templates,
}

/// Templates by digest.
pub(crate) type Templates = HashMap<Arc<str>, Arc<NodeTemplate>>;

impl Contents {
    /// Returns what the database says of how far it is.
    pub(crate) fn mark(&self) -> Mark {
        mark_of(&self.head, &self.identity)
    }

    pub(crate) fn into_loaded(self) -> Loaded {
        Loaded {
            identity: self.identity,
            settings: self.settings,
            state: self.state,
            desired: self.desired,
            now: self.head.now,
            acted_generation: self.head.acted_generation,
            sequence: self.head.sequence,
            events_last: self.head.last_event,
            doubt: None,
        }
    }
}

pub(crate) fn mark_of(head: &Head, identity: &Identity) -> Mark {
    Mark {
        sequence: head.sequence,
        next_attempt_id: head.next_attempt_id,
        generation: head.acted_generation,
        cluster: identity.cluster,
    }
}

/// Reads everything in one transaction.
///
/// # Errors
///
/// It cannot be read, or a page, a row or the whole is not as it was written.
pub(crate) async fn read(
    connection: &mut SqliteConnection,
    place: &Place,
    access: Access,
    check: Check,
) -> Result<Contents, StoreError> {
    let begin = if access == Access::Write { "BEGIN IMMEDIATE" } else { "BEGIN" };
    run(connection, place, begin).await?;
    if check == Check::Pages {
        check_pages(connection, place).await?;
    }
    let contents = read_tables(connection, place).await?;
    run(connection, place, "COMMIT").await?;
    Ok(contents)
}

async fn check_pages(connection: &mut SqliteConnection, place: &Place) -> Result<(), StoreError> {
    let statement = query("PRAGMA integrity_check(1)");
    let row = statement.fetch_one(connection).await.map_err(|error| place.failed(error))?;
    let answer: String = row.try_get(0).map_err(|error| place.failed(error))?;
    if answer == "ok" { Ok(()) } else { Err(place.damaged(answer.replace('\n', " "))) }
}

async fn read_tables(
    connection: &mut SqliteConnection,
    place: &Place,
) -> Result<Contents, StoreError> {
    let (head, digest, sum) = Head::read(connection, place).await?;
    let mut assembly = Assembly::default();
    for table in Table::ALL {
        rows::read(connection, place, table, |row| assembly.take(place, table, row)).await?;
    }
    if assembly.held.digest.to_string() != digest {
        return Err(place.damaged("a row is missing, or is one of another time".to_owned()));
    }
    assembly.finish(place, head, sum)
}

/// What the rows say, as they come: table by table in the order of [`Table::ALL`].
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    held: Held,
    meta_rows: BTreeMap<SmolStr, String>,
    templates: Templates,
    desired: Option<StoredDesired>,
    state: ClusterState,
}

impl Assembly {
    /// Takes the next row, whose checksum is right.
    pub(crate) fn take(&mut self, place: &Place, table: Table, row: Row) -> Result<(), StoreError> {
        let Row { id, body, sum } = row;
        let find = |digest: &str| self.templates.get(digest).cloned();
        let lost = |digest: Arc<str>| {
            place.damaged(format!("{} {id:?} names the unknown template {digest}", table.name()))
        };
        match table {
            Table::Meta => drop(self.meta_rows.insert(id.clone(), body)),
            Table::Templates => {
                let template: NodeTemplate = parse(place, table, &id, &body)?;
                self.templates.insert(id.as_str().into(), Arc::new(template));
            }
            Table::Desired => self.desired = Some(parse(place, table, &id, &body)?),
            Table::Groups => {
                let row: GroupRow<'_> = parse(place, table, &id, &body)?;
                let group = row.into_group(&find).map_err(lost)?;
                self.state.groups.insert(id.as_str().into(), group);
            }
            Table::Nodes => {
                let row: NodeRow<'_> = parse(place, table, &id, &body)?;
                let node = LogicalNodeId::new(id.clone());
                let record = row.into_node(&node, &find).map_err(lost)?;
                self.state.nodes.insert(node, record);
            }
        }
        self.held.put(table, id, sum);
        Ok(())
    }

    /// Adds what the cluster's row says.
    pub(crate) fn finish(
        self,
        place: &Place,
        head: Head,
        sum: Sum,
    ) -> Result<Contents, StoreError> {
        let Self { held, meta_rows, templates, desired, state } = self;
        let state = ClusterState {
            observed_generation: head.observed_generation,
            next_attempt_id: head.next_attempt_id,
            brake: head.brake,
            paused: head.paused,
            ..state
        };
        let (identity, settings) = meta::read(&meta_rows, place)?;
        Ok(Contents { head, sum, held, identity, settings, state, desired, templates })
    }
}

fn parse<T: DeserializeOwned>(
    place: &Place,
    table: Table,
    id: &SmolStr,
    body: &str,
) -> Result<T, StoreError> {
    let damaged = |error| place.damaged(format!("{} {id:?} cannot be read: {error}", table.name()));
    serde_json::from_str(body).map_err(damaged)
}
