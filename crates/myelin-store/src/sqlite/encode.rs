//! From a batch to rows: what of the named records differs from what the database holds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use myelin_shape::{NodeGroupId, NodeTemplate};
use myelin_state::{ClusterState, DriverEvent, EventKind};
use serde::Serialize;
use smol_str::SmolStr;

use crate::{
    Batch, StoreError,
    checksum::Sum,
    record::{GroupRow, NodeRow},
    sqlite::{
        connection::{Place, to_nanos},
        load::Templates,
        rows::{Held, Row, Table},
    },
};

/// So many templates are kept beside those in use before they are looked through.
const SPARE_TEMPLATES: usize = 16;

/// Digests of templates by where they are in memory. Holds them, so that no other can be there.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    by_address: HashMap<usize, (Arc<NodeTemplate>, Arc<str>)>,
    /// When the database holds so many, those that nothing names are removed.
    collect_at: usize,
}

impl Digests {
    /// More distinct places than templates in use mean a caller that copies them; nothing is gained by holding those.
    const MOST: usize = 4096;

    pub(crate) fn new(templates: &Templates) -> Self {
        let mut digests = Self::default();
        #[expect(clippy::iter_over_hash_type, reason = "goes into another map")]
        for (digest, template) in templates {
            digests.insert(template, digest);
        }
        digests
    }

    fn insert(&mut self, template: &Arc<NodeTemplate>, digest: &Arc<str>) {
        let entry = (Arc::clone(template), Arc::clone(digest));
        self.by_address.insert(Arc::as_ptr(template).addr(), entry);
    }

    fn of(&mut self, template: &Arc<NodeTemplate>) -> Arc<str> {
        if let Some((_, digest)) = self.by_address.get(&Arc::as_ptr(template).addr()) {
            return Arc::clone(digest);
        }
        if self.by_address.len() >= Self::MOST {
            self.by_address.clear();
        }
        let digest = template.digest().into();
        self.insert(template, &digest);
        digest
    }
}

/// An event's row.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) node: Option<String>,
    pub(crate) attempt: Option<i64>,
    pub(crate) code: &'static str,
    pub(crate) operation: Option<i64>,
    pub(crate) body: String,
    pub(crate) checksum: String,
}

/// What a commit writes.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) rows: Vec<(Table, Vec<Row>)>,
    pub(crate) gone: Vec<(Table, Vec<SmolStr>)>,
    pub(crate) events: Vec<EventRow>,
}

impl Held {
    /// Takes note of what is being written.
    pub(crate) fn apply(&mut self, writes: &Writes) {
        for (table, rows) in &writes.rows {
            for row in rows {
                self.put(*table, row.id.clone(), row.sum);
            }
        }
        for (table, ids) in &writes.gone {
            for id in ids {
                self.take(*table, id);
            }
        }
    }
}

/// Turns batches into rows.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    pub(crate) place: &'a Place,
    pub(crate) held: &'a Held,
    pub(crate) digests: &'a mut Digests,
    /// Templates that are in no row yet.
    templates: Vec<Row>,
    named: HashSet<Arc<str>>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(place: &'a Place, held: &'a Held, digests: &'a mut Digests) -> Self {
        Self { place, held, digests, templates: Vec::new(), named: HashSet::new() }
    }

    /// Returns the writes of a batch; `last_event` is the number before that of its first event.
    pub(crate) fn encode(
        mut self,
        batch: &Batch<'_>,
        events: &[DriverEvent],
        last_event: u64,
    ) -> Result<Writes, StoreError> {
        let mut writes = Writes::default();
        self.nodes(batch, &mut writes)?;
        if batch.cluster {
            self.groups(batch.state, &mut writes)?;
        }
        if let Some(desired) = batch.desired {
            let row = Row::new(Table::Desired, "1".into(), self.json(desired, "a desired shape")?);
            writes.rows.push((Table::Desired, vec![row]));
        }
        writes.gone.push((Table::Templates, self.unused_templates(batch.state)));
        writes.rows.push((Table::Templates, std::mem::take(&mut self.templates)));
        for (seq, event) in (last_event + 1..).zip(events) {
            writes.events.push(self.event(seq, event)?);
        }
        Ok(writes)
    }

    fn nodes(&mut self, batch: &Batch<'_>, writes: &mut Writes) -> Result<(), StoreError> {
        let (mut rows, mut gone) = (Vec::with_capacity(batch.nodes.len()), Vec::new());
        for id in batch.nodes {
            let Some(node) = batch.state.nodes.get(id) else {
                gone.push(id.as_str().into());
                continue;
            };
            let row = NodeRow::new(id, node, &mut |template| self.name(template));
            let body = self.json(&row, "a node")?;
            self.push(Table::Nodes, id.as_str(), body, &mut rows);
        }
        writes.rows.push((Table::Nodes, rows));
        writes.gone.push((Table::Nodes, gone));
        Ok(())
    }

    fn groups(&mut self, state: &ClusterState, writes: &mut Writes) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        for (id, group) in &state.groups {
            let row = GroupRow::new(group, &mut |template| self.name(template));
            let body = self.json(&row, "a group")?;
            self.push(Table::Groups, id.as_str(), body, &mut rows);
        }
        let kept = state.groups.keys().map(NodeGroupId::as_str).collect();
        writes.gone.push((Table::Groups, self.held.others(Table::Groups, &kept)));
        writes.rows.push((Table::Groups, rows));
        Ok(())
    }

    fn push(&self, table: Table, id: &str, body: String, rows: &mut Vec<Row>) {
        let row = Row::new(table, id.into(), body);
        if self.held.sum(table, id) != Some(row.sum) {
            rows.push(row);
        }
    }

    fn name(&mut self, template: &Arc<NodeTemplate>) -> Arc<str> {
        let digest = self.digests.of(template);
        if self.held.sum(Table::Templates, &digest).is_none()
            && self.named.insert(Arc::clone(&digest))
        {
            let body = serde_json::to_string(&**template).expect("its digest was made from it");
            self.templates.push(Row::new(Table::Templates, (&*digest).into(), body));
        }
        digest
    }

    /// Returns templates that nothing names any more, once there may be many.
    fn unused_templates(&mut self, state: &ClusterState) -> Vec<SmolStr> {
        if self.templates.is_empty() || self.held.len(Table::Templates) < self.digests.collect_at {
            return Vec::new();
        }
        let used: HashSet<Arc<str>> =
            templates(state).map(|template| self.digests.of(template)).collect();
        self.digests.collect_at = SPARE_TEMPLATES + 2 * used.len();
        self.held.others(Table::Templates, &used.iter().map(|digest| &**digest).collect())
    }

    fn event(&self, seq: u64, event: &DriverEvent) -> Result<EventRow, StoreError> {
        let body = self.json(&event.kind, "an event")?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is about an operation")]
        let operation = match &event.kind {
            EventKind::Dispatched { operation, .. }
            | EventKind::Expired { operation, .. }
            | EventKind::Succeeded { operation, .. }
            | EventKind::EffectFailed { operation, .. } => Some(operation),
            _ => None,
        };
        let attempt = operation.map(|operation| operation.attempt).or(event.attempt);
        Ok(EventRow {
            seq: seq.cast_signed(),
            at: to_nanos(event.at, self.place)?,
            node: event.node.as_ref().map(ToString::to_string),
            attempt: attempt.map(|attempt| attempt.0.cast_signed()),
            code: event.kind.code(),
            operation: operation.map(|operation| operation.sequence.cast_signed()),
            checksum: Sum::of(&["events", &body]).to_string(),
            body,
        })
    }

    fn json(&self, value: &impl Serialize, what: &'static str) -> Result<String, StoreError> {
        serde_json::to_string(value).map_err(|error| StoreError::Unstorable {
            path: self.place.database(),
            what,
            source: error.into(),
        })
    }
}

/// Every template that a state names, with repetitions.
fn templates(state: &ClusterState) -> impl Iterator<Item = &Arc<NodeTemplate>> {
    let nodes = state.nodes.values().flat_map(|node| {
        let quarantine = node.quarantine.as_deref().map(|quarantine| &quarantine.template);
        std::iter::once(&node.record.desired.template).chain(quarantine)
    });
    let groups = state.groups.values().flat_map(|group| {
        group.proven.iter().chain(group.canary.as_ref().map(|canary| &canary.template))
    });
    nodes.chain(groups)
}
