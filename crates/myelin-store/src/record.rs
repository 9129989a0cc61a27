//! The rows' JSON: records with the digest of a template in its place.
//!
//! One struct for each kind of row, borrowed when it is written and owned when it is read. Every field is named when a
//! record is taken apart and when it is put together, so that a new field is stored or does not compile.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use myelin_shape::{
    BootstrapSessionId, LogicalNodeId, LogicalNodeSpec, NodeAttemptId, NodeGroupId, NodeTemplate,
};
use myelin_state::{
    BootstrapFacts, BrakeRecord, Canary, Connection, DeleteCause, GroupRecord, LeaseFacts,
    ManagedNode, NodeIntent, NodeRecord, NodeStage, PendingOperation, Quarantine, Refusal,
    RetryState, Silence, SwactorFacts,
};
use serde::{Deserialize, Serialize};

/// Finds a template by its digest.
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> Option<Arc<NodeTemplate>>;

/// Names a template by its digest.
pub(crate) type Name<'a> = &'a mut dyn FnMut(&Arc<NodeTemplate>) -> Arc<str>;

type Text<'a> = Cow<'a, str>;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_at_rest(retry: &RetryState) -> bool {
    *retry == RetryState::default()
}

/// A node's row. What is absent, false or at its default is left out.
#[expect(clippy::struct_excessive_bools, reason = "the record's own")]
#[derive(Serialize, Deserialize)]
pub(crate) struct NodeRow<'a> {
    group: Cow<'a, NodeGroupId>,
    index: u32,
    /// The slot's own id, where it is not the row's.
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<Cow<'a, LogicalNodeId>>,
    template: Arc<str>,
    attempt: NodeAttemptId,
    intent: NodeIntent,
    stage: NodeStage,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Cow<'a, LeaseFacts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<Cow<'a, Connection>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap: Option<Cow<'a, BootstrapFacts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swactor: Option<Cow<'a, SwactorFacts>>,
    #[serde(default, skip_serializing_if = "is_false")]
    handed_off: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_since: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silence: Option<Silence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_by: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap_by: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_reason: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_at: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destroyed_at: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_bootstrap: Option<BootstrapSessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<PendingOperation>,
    next_operation_sequence: u64,
    #[serde(default, skip_serializing_if = "is_at_rest")]
    retry: Cow<'a, RetryState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delete_cause: Option<DeleteCause>,
    #[serde(default, skip_serializing_if = "is_false")]
    recovering: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    repairing: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    spends_budget: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    replace_requested: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    keep_released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantine: Option<QuarantineRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Cow<'a, Refusal>>,
}

#[derive(Serialize, Deserialize)]
struct QuarantineRow {
    template: Arc<str>,
    failures: u32,
    since: SystemTime,
}

impl<'a> NodeRow<'a> {
    pub(crate) fn new(id: &LogicalNodeId, node: &'a ManagedNode, name: Name<'_>) -> Self {
        let ManagedNode {
            attempt,
            intent,
            record,
            active_bootstrap,
            pending,
            next_operation_sequence,
            retry,
            delete_cause,
            recovering,
            repairing,
            spends_budget,
            replace_requested,
            keep_released,
            quarantine,
            refused,
        } = node;
        let NodeRecord {
            desired,
            stage,
            lease,
            connection,
            bootstrap,
            swactor,
            handed_off,
            ready_since,
            silence,
            ready_by,
            bootstrap_by,
            failed_reason,
            failed_at,
            destroyed_at,
        } = record;
        let LogicalNodeSpec { logical_node_id, index, template } = desired;
        Self {
            group: Cow::Borrowed(&template.group_id),
            index: *index,
            slot: (logical_node_id != id).then_some(Cow::Borrowed(logical_node_id)),
            template: name(template),
            attempt: *attempt,
            intent: *intent,
            stage: *stage,
            lease: lease.as_deref().map(Cow::Borrowed),
            connection: connection.as_ref().map(Cow::Borrowed),
            bootstrap: bootstrap.as_deref().map(Cow::Borrowed),
            swactor: swactor.as_deref().map(Cow::Borrowed),
            handed_off: *handed_off,
            ready_since: *ready_since,
            silence: silence.as_deref().copied(),
            ready_by: *ready_by,
            bootstrap_by: *bootstrap_by,
            failed_reason: failed_reason.as_deref().map(Cow::Borrowed),
            failed_at: *failed_at,
            destroyed_at: *destroyed_at,
            active_bootstrap: *active_bootstrap,
            pending: pending.as_deref().copied(),
            next_operation_sequence: *next_operation_sequence,
            retry: Cow::Borrowed(retry),
            delete_cause: *delete_cause,
            recovering: *recovering,
            repairing: *repairing,
            spends_budget: *spends_budget,
            replace_requested: *replace_requested,
            keep_released: *keep_released,
            quarantine: quarantine
                .as_deref()
                .map(|quarantine| QuarantineRow::new(quarantine, name)),
            refused: refused.as_deref().map(Cow::Borrowed),
        }
    }

    /// Returns the node, or the digest of a template that is not known.
    pub(crate) fn into_node(
        self,
        id: &LogicalNodeId,
        find: Find<'_>,
    ) -> Result<ManagedNode, Arc<str>> {
        let template = find(&self.template).ok_or(self.template)?;
        let quarantine = self.quarantine.map(|row| row.into_quarantine(find)).transpose()?;
        let desired = LogicalNodeSpec {
            logical_node_id: self.slot.map_or_else(|| id.clone(), Cow::into_owned),
            index: self.index,
            template,
        };
        let record = NodeRecord {
            desired,
            stage: self.stage,
            lease: self.lease.map(Cow::into_owned).map(Box::new),
            connection: self.connection.map(Cow::into_owned),
            bootstrap: self.bootstrap.map(Cow::into_owned).map(Box::new),
            swactor: self.swactor.map(Cow::into_owned).map(Box::new),
            handed_off: self.handed_off,
            ready_since: self.ready_since,
            silence: self.silence.map(Box::new),
            ready_by: self.ready_by,
            bootstrap_by: self.bootstrap_by,
            failed_reason: self.failed_reason.map(Cow::into_owned).map(Into::into),
            failed_at: self.failed_at,
            destroyed_at: self.destroyed_at,
        };
        Ok(ManagedNode {
            attempt: self.attempt,
            intent: self.intent,
            record,
            active_bootstrap: self.active_bootstrap,
            pending: self.pending.map(Box::new),
            next_operation_sequence: self.next_operation_sequence,
            retry: self.retry.into_owned(),
            delete_cause: self.delete_cause,
            recovering: self.recovering,
            repairing: self.repairing,
            spends_budget: self.spends_budget,
            replace_requested: self.replace_requested,
            keep_released: self.keep_released,
            quarantine: quarantine.map(Box::new),
            refused: self.refused.map(Cow::into_owned).map(Box::new),
        })
    }
}

impl QuarantineRow {
    fn new(quarantine: &Quarantine, name: Name<'_>) -> Self {
        let Quarantine { template, failures, since } = quarantine;
        Self { template: name(template), failures: *failures, since: *since }
    }

    fn into_quarantine(self, find: Find<'_>) -> Result<Quarantine, Arc<str>> {
        let template = find(&self.template).ok_or(self.template)?;
        Ok(Quarantine { template, failures: self.failures, since: self.since })
    }
}

/// A group's row.
#[derive(Serialize, Deserialize)]
pub(crate) struct GroupRow<'a> {
    proven: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    canary: Option<CanaryRow<'a>>,
    brake: BrakeRecord,
}

#[derive(Serialize, Deserialize)]
struct CanaryRow<'a> {
    node: Cow<'a, LogicalNodeId>,
    template: Arc<str>,
}

impl<'a> GroupRow<'a> {
    pub(crate) fn new(group: &'a GroupRecord, name: Name<'_>) -> Self {
        let GroupRecord { proven, canary, brake } = group;
        Self {
            proven: proven.iter().map(&mut *name).collect(),
            canary: canary.as_ref().map(|Canary { node, template }| CanaryRow {
                node: Cow::Borrowed(node),
                template: name(template),
            }),
            brake: *brake,
        }
    }

    /// Returns the group, or the digest of a template that is not known.
    pub(crate) fn into_group(self, find: Find<'_>) -> Result<GroupRecord, Arc<str>> {
        let resolve = |digest: Arc<str>| find(&digest).ok_or(digest);
        let canary = |row: CanaryRow<'_>| {
            let (node, template) = (row.node.into_owned(), resolve(row.template)?);
            Ok::<_, Arc<str>>(Canary { node, template })
        };
        Ok(GroupRecord {
            proven: self.proven.into_iter().map(resolve).collect::<Result<_, _>>()?,
            canary: self.canary.map(canary).transpose()?,
            brake: self.brake,
        })
    }
}
