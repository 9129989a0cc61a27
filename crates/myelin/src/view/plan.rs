//! What a cluster file would do, from live state, touching nothing.

use std::{collections::BTreeMap, time::SystemTime};

use myelin_decider::{Explanation, Planner};
use myelin_driver::{ClusterDriver, Desired, DesiredError, Event, NodeChange, Options};
use myelin_shape::{LogicalNodeId, NodeAttemptId, RunNodeGroupSpec};

use crate::file::{self, AgentSettings, ClusterFile};

use super::{ChangeView, FieldView, PlanView, PlannedAction, WaitingView, order, text};

/// Returns what a file would do to a driver's cluster, whose agents report as `agent` says if it runs.
///
/// What is held is found out by letting a copy of the driver accept the file and plan: nothing it decides leaves it.
///
/// # Errors
///
/// A file of another run, or one that is not valid.
pub(crate) fn plan(
    driver: &ClusterDriver,
    agent: Option<&AgentSettings>,
    file: &ClusterFile,
    now: SystemTime,
) -> Result<PlanView, DesiredError> {
    let generation = driver.desired().map_or(0, |shape| shape.generation);
    let preview = driver.preview(&file.shape(generation))?;
    let trial = accepted_by_a_copy(driver, file, generation, now);
    let changes = preview.changes.iter();
    let mut changes: Vec<_> =
        changes.map(|(id, change)| change_view(&trial, id, *change)).collect();
    changes.sort_by_key(place);
    let planned: std::collections::BTreeSet<_> =
        preview.changes.iter().map(|(id, _)| id.clone()).collect();
    let unsettled = trial.planner().into_iter().flat_map(Planner::unsettled);
    let mut waiting: Vec<_> = unsettled
        .filter(|id| !planned.contains(id))
        .map(|id| WaitingView { node: id.to_string(), why: text::why(&trial.explain(&id)) })
        .collect();
    waiting.sort_by(|a, b| order(&a.node).cmp(&order(&b.node)));
    Ok(PlanView {
        run: file.run.0,
        generation,
        fields: fields(driver, agent, file),
        changes,
        waiting,
        unchanged: preview.unchanged,
        ready_taken: preview.ready_taken(),
    })
}

fn accepted_by_a_copy(
    driver: &ClusterDriver,
    file: &ClusterFile,
    generation: u64,
    now: SystemTime,
) -> ClusterDriver {
    let options = Options { max_nodes: u64::MAX };
    let mut copy = ClusterDriver::restore(options, driver.state().clone());
    let desired =
        Desired { shape: file.shape(generation.saturating_add(1)), retry: file.retry.clone() };
    drop(copy.handle(now, Event::Desired(Box::new(desired))));
    copy
}

fn change_view(trial: &ClusterDriver, id: &LogicalNodeId, change: NodeChange) -> ChangeView {
    let (action, attempt, ready) = match change {
        NodeChange::Create => (PlannedAction::Create, None, false),
        NodeChange::Replace { attempt, ready } => (PlannedAction::Replace, Some(attempt), ready),
        NodeChange::Delete { attempt, ready } => (PlannedAction::Delete, Some(attempt), ready),
    };
    let held = match trial.explain(id) {
        Explanation::Held(held) if is_held(trial, id, attempt) => Some(text::held_because(&held)),
        Explanation::Held(_)
        | Explanation::Unknown
        | Explanation::Steady
        | Explanation::Missing
        | Explanation::Next(_) => None,
    };
    let (group, ..) = order(id.as_str());
    ChangeView {
        node: id.to_string(),
        group: group.to_owned(),
        action,
        attempt: attempt.map(|attempt| attempt.0),
        ready,
        held,
    }
}

/// Returns whether a change does not begin at once: no effect was handed out, and the attempt that is to end still lives.
fn is_held(trial: &ClusterDriver, id: &LogicalNodeId, ends: Option<NodeAttemptId>) -> bool {
    let Some(node) = trial.state().nodes.get(id) else {
        return false;
    };
    let begun = node.pending.is_some();
    let ending = ends.is_some() && node.intent == myelin_state::NodeIntent::Deleting;
    !begun && !ending
}

/// What is made comes first, upwards; then what is replaced and what goes, downwards, as it is done.
fn place(change: &ChangeView) -> (String, PlannedAction, u64) {
    let (group, index, _) = order(&change.node);
    let index = match change.action {
        PlannedAction::Create => index,
        PlannedAction::Replace | PlannedAction::Delete => u64::MAX - index,
    };
    (group.to_owned(), change.action, index)
}

fn fields(
    driver: &ClusterDriver,
    agent: Option<&AgentSettings>,
    file: &ClusterFile,
) -> Vec<FieldView> {
    let Some(current) = driver.desired() else {
        return Vec::new();
    };
    let known: BTreeMap<_, _> = current.groups.iter().map(|it| (&it.group_id, it)).collect();
    let both = file.groups.iter();
    let both = both.filter_map(|new| Some((*known.get(&new.group_id)?, new)));
    let mut fields: Vec<_> = both.flat_map(|(old, new)| group_fields(old, new)).collect();
    fields.extend(run_fields(driver, file));
    fields.extend(agent.into_iter().flat_map(|agent| agent_fields(agent, &file.agent)));
    fields
}

fn group_fields(old: &RunNodeGroupSpec, new: &RunNodeGroupSpec) -> Vec<FieldView> {
    let view = |change: file::FieldChange| FieldView {
        group: new.group_id.to_string(),
        field: change.path,
        old: change.old,
        new: change.new,
        replaces: change.replaces,
        next_up: false,
    };
    file::changes(old, new).into_iter().map(view).collect()
}

/// What differs beside the groups; never replaces anything.
fn run_fields(driver: &ClusterDriver, file: &ClusterFile) -> Vec<FieldView> {
    let json = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
    let old_policy = driver.desired().map(|shape| &shape.policy);
    let pairs = [
        (
            "policy",
            json(serde_json::to_value(old_policy)),
            json(serde_json::to_value(&file.policy)),
        ),
        (
            "retry",
            json(serde_json::to_value(driver.retry_policy())),
            json(serde_json::to_value(&file.retry)),
        ),
    ];
    let mut fields = Vec::new();
    for (section, old, new) in pairs {
        for (key, value) in new.as_object().into_iter().flatten() {
            let before = old.get(key);
            if before != Some(value) {
                fields.push(FieldView {
                    group: String::new(),
                    field: format!("{section}.{key}"),
                    old: before.map(ToString::to_string),
                    new: Some(value.to_string()),
                    replaces: false,
                    next_up: false,
                });
            }
        }
    }
    fields
}

/// What differs in how agents report. The listener and the agents were told at their start.
fn agent_fields(old: &AgentSettings, new: &AgentSettings) -> impl Iterator<Item = FieldView> {
    let shown = |duration| Some(format!("\"{}\"", humantime::format_duration(duration)));
    let pairs = [
        ("agent.heartbeat", old.heartbeat, new.heartbeat),
        ("agent.silent_after", old.silent_after, new.silent_after),
    ];
    let differs = pairs.into_iter().filter(|(_, old, new)| old != new);
    differs.map(move |(field, old, new)| FieldView {
        group: String::new(),
        field: field.to_owned(),
        old: shown(old),
        new: shown(new),
        replaces: false,
        next_up: true,
    })
}
