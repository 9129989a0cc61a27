//! What people and programs are shown: plain values, serialisable, times as RFC 3339.
//!
//! A [`NodeView`] says where a node is and, in its [`Why`], why it is there and when it is looked at again. Every reader of
//! the command prints one of these, as a table or as JSON or YAML; the control socket carries the same.
//! Nothing here changes anything, and no secret is ever part of a view.
//!
//! Reading order: [`StatusView`], [`NodeView`], [`Why`], [`ExplainView`], [`PlanView`], [`EventView`],
//! [`CensusView`].

mod build;
mod census;
mod plan;
mod text;
mod unheard;

use std::{collections::BTreeMap, time::SystemTime};

use jiff::Timestamp;
use myelin_store::Source;
use serde::{Deserialize, Serialize};

pub(crate) use self::build::{
    Around, Loop, event, explain, groups, moving, nodes, nodes_why, order, status,
};
pub use self::census::{
    CensusView, CollectedView, HoldView, InventoryView, LeaseView, MissingView,
};
pub(crate) use self::plan::plan;
pub(crate) use self::unheard::{Unheard, correct_groups, correct_nodes, unheard_view};

/// Returns a time as it is shown. What no calendar has is shown as the end of time.
pub(crate) fn stamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::MAX)
}

/// Why a node is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// A stable name: `steady`, `missing`, `unknown`, `next`, or the code of a held reason.
    pub code: String,
    /// A sentence without its end.
    pub text: String,
    /// When the node is looked at again, if a time decides that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What the node waits for, if no time decides that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_event: Option<String>,
}

/// One node in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The slot.
    pub node: String,
    /// Its group.
    pub group: String,
    /// The current attempt; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// One word for where it is: `ready`, `booting`, `deleting`, …
    pub state: String,
    /// The stage of the attempt.
    pub stage: String,
    /// Whether it is handed off and heard.
    pub ready: bool,
    /// Since when it is ready without a break.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
    /// Who leases the machine.
    pub provider: String,
    /// The machine, while one is leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Why the attempt is being cleaned up, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_cause: Option<String>,
    /// Why it is where it is.
    pub why: Why,
}

/// How a brake stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrakeView {
    /// Whether repair is a trickle.
    pub on: bool,
    /// How many nodes of the scope fail.
    pub unhealthy: u32,
    /// Above how many the brake is on; none for a scope of one node.
    pub limit: Option<u32>,
    /// How many repairs are under way.
    pub repairs: u32,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// Which.
    pub group: String,
    /// Who leases its machines.
    pub provider: String,
    /// How many nodes it is to have.
    pub desired: u32,
    /// How many are ready.
    pub ready: u32,
    /// How many are on their way out of the group.
    pub leaving: u32,
    /// How many nodes are not as desired, by the code of why.
    pub moving: BTreeMap<String, u32>,
    /// Its brake.
    pub brake: BrakeView,
}

/// A provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// Which.
    pub provider: String,
    /// How many operations are with it.
    pub running: u32,
    /// How many wait for their turn.
    pub waiting: usize,
    /// How many leases and sessions were found rather than made.
    pub adopted: u64,
    /// Offers it has no capacity for, and until when they are not asked for again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_capacity: Vec<(String, Timestamp)>,
}

/// The whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    /// The number the user gave it.
    pub run: u64,
    /// Whether everything is as desired, and was seen to be.
    pub converged: bool,
    /// The desired revision.
    pub generation: u64,
    /// The revision evaluated last.
    pub observed_generation: u64,
    /// Whether an operator stopped all effects.
    pub paused: bool,
    /// Whether the cluster is being taken down.
    pub leaving: bool,
    /// Since when the loop runs.
    pub since: Timestamp,
    /// The loop's process; 0 where none runs. One that does not answer is named beside `as_of`.
    pub pid: u32,
    /// The groups.
    pub groups: Vec<GroupView>,
    /// The brake over all groups.
    pub brake: BrakeView,
    /// The providers.
    pub providers: Vec<ProviderView>,
    /// What exists, as the last sweep found it; none where nobody sweeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<InventoryView>,
    /// The file that what is desired was read from; none after `down`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileView>,
    /// Agents from before that the loop has not heard yet; none once each was heard or is silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unheard: Option<UnheardView>,
    /// Why nothing is done, while the store takes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleView>,
    /// When what is shown was recorded, where no loop runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
}

/// A cluster file that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    /// Where it was.
    pub path: String,
    /// The BLAKE3 digest of its text then.
    pub digest: String,
}

impl FileView {
    pub(crate) fn of(source: &Source) -> Option<Self> {
        source.digest().map(|digest| Self { path: source.name.clone(), digest })
    }
}

/// Agents of a run that was taken up and that were not heard since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnheardView {
    /// How many.
    pub agents: usize,
    /// When each was heard or counts as silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A store that takes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroubleView {
    /// What it says.
    pub error: String,
    /// Since when.
    pub since: Timestamp,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// Position in the history, from 1.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// To which slot; none for the cluster as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// To which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// A stable name of what happened.
    pub code: String,
    /// What happened.
    pub text: String,
    /// The stage that was reached, if that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The stage before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Why cleanup began, if that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// A line of a bootstrap's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputView {
    /// Position among the lines of the node, from 1.
    pub sequence: u64,
    /// When it came; where it was read without a loop, when the last one did.
    pub at: Timestamp,
    /// The attempt it is of.
    pub attempt: u64,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The line.
    pub text: String,
}

/// An effect under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    /// Its identity: attempt and sequence.
    pub operation: String,
    /// What is asked of the provider.
    pub kind: String,
    /// When it is given up.
    pub deadline: Timestamp,
    /// Whether it was given up and an answer to that is awaited.
    pub expired: bool,
}

/// The agent of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its public name.
    pub agent: String,
    /// When it joined.
    pub joined_at: Timestamp,
    /// When it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<Timestamp>,
    /// Since when it is silent, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
}

/// How often things failed, and what that means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryView {
    /// Failures in a row; they decide the delay.
    pub failures: u32,
    /// Attempts in a row that ended in failure; they decide quarantine.
    pub failed_attempts: u32,
    /// After so many failed attempts the slot is quarantined; 0: never.
    pub quarantined_after: u32,
    /// The last error, in the provider's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// An effect whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
}

/// Everything about one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainView {
    /// Where it is, and why.
    #[serde(flatten)]
    pub node: NodeView,
    /// What happens after that.
    pub next: String,
    /// How the machine is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// How far the bootstrap is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<String>,
    /// When the bootstrap fails without a join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_by: Option<Timestamp>,
    /// When the attempt fails if it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_by: Option<Timestamp>,
    /// The agent, from its join on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentView>,
    /// The effect under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingView>,
    /// Failures so far.
    pub retry: RetryView,
    /// The last lines of its bootstraps.
    pub output: Vec<OutputView>,
    /// What happened to it last.
    pub events: Vec<EventView>,
}

/// What happens to one node of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAction {
    /// It is made.
    Create,
    /// Its attempt ends, and one from the new spec follows.
    Replace,
    /// Its attempt ends and the slot goes.
    Delete,
}

/// One node of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeView {
    /// The slot.
    pub node: String,
    /// Its group.
    pub group: String,
    /// What happens to it.
    pub action: PlannedAction,
    /// The attempt that ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// Whether it is ready now.
    pub ready: bool,
    /// Why it does not happen at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Why>,
}

/// One field of a group that a plan changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldView {
    /// The group; none for the run.
    pub group: String,
    /// The field, as the file names it.
    pub field: String,
    /// The old value as JSON.
    pub old: Option<String>,
    /// The new value as JSON.
    pub new: Option<String>,
    /// Whether the change replaces the nodes of the group.
    pub replaces: bool,
    /// Whether it takes effect only with the next `up`: this one goes on with the old value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub next_up: bool,
}

/// A node of a plan that does not change, and is not ready either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingView {
    /// The slot.
    pub node: String,
    /// Why it is not ready.
    pub why: Why,
}

/// What a cluster file would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    /// The run.
    pub run: u64,
    /// The revision the plan starts from; 0 when nothing runs.
    pub generation: u64,
    /// Fields that differ.
    pub fields: Vec<FieldView>,
    /// Nodes that change, by group: first what is made, then what is replaced, then what goes, highest index first.
    pub changes: Vec<ChangeView>,
    /// Nodes that stay and are not ready yet.
    pub waiting: Vec<WaitingView>,
    /// How many nodes stay as they are.
    pub unchanged: usize,
    /// How many ready nodes are deleted or replaced.
    pub ready_taken: usize,
}

impl PlanView {
    /// Returns whether the file would change anything now.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty() || self.fields.iter().any(|field| !field.next_up)
    }

    /// Returns how many nodes an action is planned for.
    pub fn count(&self, action: PlannedAction) -> usize {
        let planned = self.changes.iter();
        planned.filter(|change| change.action == action).count()
    }
}
