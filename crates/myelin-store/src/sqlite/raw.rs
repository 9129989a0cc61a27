//! The rows of a store and the slots of its mark as plain data, for programs that check how they are read.
//!
//! [`decode`] and [`encode`] are what [`SqliteStore`](crate::SqliteStore) does between its database and a state, without the
//! database: no file is touched. Checksums are left out, since they hide from a check what is behind them.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use myelin_shape::LogicalNodeId;

use crate::{
    Batch, Loaded, Setting, Settings, StoreError,
    checksum::Sum,
    mark::{self, Mark},
    sqlite::{
        connection::Place,
        encode::{Digests, Encoder},
        head::Head,
        load::Assembly,
        meta::{identity_rows, setting_row},
        rows::{Held, Row, Table},
    },
};

/// The JSON of rows by the name of their table and their id.
pub type Rows = BTreeMap<(String, String), String>;

/// The size of a slot of the mark, in bytes.
pub const SLOT: usize = mark::SLOT;

/// Returns what rows say. Those of other tables are not looked at, and what the cluster's own row says is as in a new
/// store.
///
/// # Errors
///
/// [`StoreError::Damaged`]: a row cannot be read, names a template that is not there, or is missing.
pub fn decode(rows: &Rows) -> Result<Loaded, StoreError> {
    let place = Place::nowhere();
    let mut assembly = Assembly::default();
    for table in Table::ALL {
        let own = rows.iter().filter(|((name, _), _)| name == table.name());
        for ((_, id), body) in own {
            assembly.take(&place, table, Row::new(table, id.into(), body.clone()))?;
        }
    }
    let contents = assembly.finish(&place, Head::first(UNIX_EPOCH), Sum::default())?;
    Ok(contents.into_loaded())
}

/// Returns the rows that say it; [`decode`] reads them.
///
/// # Errors
///
/// [`StoreError::Unstorable`]: a time is out of range.
pub fn encode(loaded: &Loaded) -> Result<Rows, StoreError> {
    let place = Place::nowhere();
    let (held, mut digests) = (Held::default(), Digests::default());
    let nodes: Vec<LogicalNodeId> = loaded.state.nodes.keys().cloned().collect();
    let desired = loaded.desired.as_ref();
    let all =
        Batch { nodes: &nodes, cluster: true, desired, ..Batch::new(loaded.now, &loaded.state) };
    let mut writes = Encoder::new(&place, &held, &mut digests).encode(&all, &[], 0)?.rows;
    writes.push((Table::Meta, identity_rows(&loaded.identity, &place)?));
    writes.push((Table::Meta, settings(&loaded.settings).map(setting_row).collect()));
    let named = |(table, row): (Table, Row)| ((table.name().into(), row.id.into()), row.body);
    let rows =
        writes.into_iter().flat_map(|(table, rows)| rows.into_iter().map(move |row| (table, row)));
    Ok(rows.map(named).collect())
}

fn settings(settings: &Settings) -> impl Iterator<Item = Setting> {
    let Settings { address, providers, unasked } = settings.clone();
    let providers = providers.into_iter().map(|(kind, identity)| Setting::Provider(kind, identity));
    let unasked = (!unasked.is_empty()).then_some(Setting::Unasked(unasked));
    address.map(Setting::Address).into_iter().chain(providers).chain(unasked)
}

/// Reads a slot of a mark, and returns the slot that would be written of it; `None` if it cannot be read.
pub fn rewrite_mark(slot: &[u8]) -> Option<Vec<u8>> {
    Mark::parse(slot).map(|mark| mark.slot())
}

#[cfg(test)]
mod tests;
