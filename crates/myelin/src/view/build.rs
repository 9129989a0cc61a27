//! Views made from a driver.

use std::collections::BTreeMap;

use myelin_decider::{BrakeStatus, Explanation, Planner};
use myelin_driver::{ClusterDriver, DriverEvent, EventKind};
use myelin_executor::Snapshot;
use myelin_shape::{LogicalNodeId, NodeGroupId};
use myelin_state::{Connection, ManagedNode, NodeIntent, NodeStage};

use super::{
    AgentView, BrakeView, EventView, ExplainView, FileView, GroupView, NodeView, OutputView,
    PendingView, ProviderView, RetryView, StatusView, stamp, text,
};

/// Returns the key lists of nodes are sorted by: the group, then the index as a number.
pub(crate) fn order(node: &str) -> (&str, u64, &str) {
    let (group, index) = node.rsplit_once('-').unwrap_or((node, ""));
    (group, index.parse().unwrap_or(u64::MAX), node)
}

/// Returns every node, desired or left over, by group and index.
pub(crate) fn nodes(driver: &ClusterDriver) -> Vec<NodeView> {
    let known = driver.state().nodes.iter();
    let mut views: Vec<_> = known.map(|(id, node)| node_view(driver, id, node)).collect();
    views.extend(missing(driver).map(|id| missing_view(driver, &id)));
    views.sort_by(|a, b| order(&a.node).cmp(&order(&b.node)));
    views
}

/// Lists the slots that have no node yet.
fn missing(driver: &ClusterDriver) -> impl Iterator<Item = LogicalNodeId> + '_ {
    let groups = driver.planner().into_iter().flat_map(|planner| &planner.topology().groups);
    let n_desired: u64 = driver.planner().map_or(0, |planner| planner.topology().total());
    let known = &driver.state().nodes;
    // While nothing is missing, which is nearly always, nothing is expanded.
    let complete = known.len() as u64 >= n_desired;
    let slots = groups
        .filter(move |_| !complete)
        .flat_map(|(id, group)| (0..group.count).map(move |index| LogicalNodeId::slot(id, index)));
    slots.filter(move |id| !known.contains_key(id))
}

fn node_view(driver: &ClusterDriver, id: &LogicalNodeId, node: &ManagedNode) -> NodeView {
    let explanation = driver.explain(id);
    let record = &node.record;
    NodeView {
        node: id.to_string(),
        group: record.desired.group_id().to_string(),
        attempt: Some(node.attempt.0),
        state: text::state(node, &explanation).to_owned(),
        stage: record.stage.to_string(),
        ready: node.is_ready(),
        ready_since: record.ready_since.map(stamp),
        provider: record.desired.provider().to_string(),
        lease: record.lease.as_deref().map(|lease| lease.lease_id.to_string()),
        delete_cause: node.delete_cause.map(|cause| cause.to_string()),
        why: text::why(&explanation),
    }
}

/// Returns the word for where a node is, and the sentence why.
pub(crate) fn nodes_why(driver: &ClusterDriver, id: &LogicalNodeId) -> (String, String) {
    let view = match driver.state().nodes.get(id) {
        Some(node) => node_view(driver, id, node),
        None => missing_view(driver, id),
    };
    (view.state, view.why.text)
}

fn missing_view(driver: &ClusterDriver, id: &LogicalNodeId) -> NodeView {
    let (group, ..) = order(id.as_str());
    let groups = driver.planner().map(|planner| &planner.topology().groups);
    let provider = groups
        .and_then(|groups| groups.get(group))
        .map(|group| group.template.provider.to_string());
    NodeView {
        node: id.to_string(),
        group: group.to_owned(),
        attempt: None,
        state: "waiting".to_owned(),
        stage: "New".to_owned(),
        ready: false,
        ready_since: None,
        provider: provider.unwrap_or_default(),
        lease: None,
        delete_cause: None,
        why: text::why(&driver.explain(id)),
    }
}

/// Returns the nodes that are not as desired, at most so many, and how many there are.
pub(crate) fn moving(driver: &ClusterDriver, at_most: usize) -> (Vec<NodeView>, usize) {
    let Some(planner) = driver.planner() else {
        return (Vec::new(), 0);
    };
    let nodes = &driver.state().nodes;
    let unsettled = planner.unsettled().filter_map(|id| nodes.get_key_value(&id));
    let mut shown: Vec<_> =
        unsettled.take(at_most).map(|(id, node)| node_view(driver, id, node)).collect();
    shown.sort_by(|a, b| order(&a.node).cmp(&order(&b.node)));
    (shown, planner.n_unsettled())
}

fn brake(status: BrakeStatus) -> BrakeView {
    BrakeView {
        on: status.is_on(),
        unhealthy: status.unhealthy,
        limit: status.limit,
        repairs: status.repairs,
    }
}

/// Returns every group that is desired or has nodes left. Costs time in proportion to the nodes that are not as desired.
pub(crate) fn groups(driver: &ClusterDriver) -> Vec<GroupView> {
    let Some(planner) = driver.planner() else {
        return Vec::new();
    };
    let state = driver.state();
    let mut views = BTreeMap::new();
    for (id, group) in &planner.topology().groups {
        let mut view = empty_group(id, group.template.provider.as_str());
        (view.desired, view.ready) = (group.count, group.count);
        view.brake = brake(planner.group_brake(state, id).unwrap_or_default());
        views.insert(id.clone(), view);
    }
    for id in planner.unsettled() {
        if let Some(node) = state.nodes.get(&id) {
            count_unsettled(driver, &id, node, &mut views);
        }
    }
    for id in missing(driver) {
        let (group, ..) = order(id.as_str());
        if let Some(view) = views.get_mut(group) {
            view.ready = view.ready.saturating_sub(1);
            *view.moving.entry("missing".to_owned()).or_default() += 1;
        }
    }
    views.into_values().collect()
}

fn empty_group(id: &NodeGroupId, provider: &str) -> GroupView {
    GroupView {
        group: id.to_string(),
        provider: provider.to_owned(),
        desired: 0,
        ready: 0,
        leaving: 0,
        moving: BTreeMap::new(),
        brake: brake(BrakeStatus::default()),
    }
}

fn count_unsettled(
    driver: &ClusterDriver,
    id: &LogicalNodeId,
    node: &ManagedNode,
    views: &mut BTreeMap<NodeGroupId, GroupView>,
) {
    let slot = &node.record.desired;
    let topology = driver.planner().map(Planner::topology);
    let wanted = topology.is_some_and(|topology| topology.wanting(slot).is_some());
    let group = slot.group_id();
    let view =
        views.entry(group.clone()).or_insert_with(|| empty_group(group, slot.provider().as_str()));
    if !wanted {
        view.leaving += 1;
    } else if !node.is_ready() {
        view.ready = view.ready.saturating_sub(1);
    }
    let code = text::why(&driver.explain(id)).code;
    *view.moving.entry(code).or_default() += 1;
}

/// What of a status the driver does not know.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) run: u64,
    pub(crate) leaving: bool,
    pub(crate) since: std::time::SystemTime,
    pub(crate) file: Option<FileView>,
}

/// Returns how the whole run is.
pub(crate) fn status(driver: &ClusterDriver, executor: &Snapshot, of: Loop) -> StatusView {
    let convergence = driver.convergence();
    let state = driver.state();
    StatusView {
        run: of.run,
        converged: convergence.converged,
        generation: convergence.generation,
        observed_generation: convergence.observed_generation,
        paused: state.paused,
        leaving: of.leaving,
        since: stamp(of.since),
        pid: std::process::id(),
        groups: groups(driver),
        brake: brake(driver.planner().map(|it| it.run_brake(state)).unwrap_or_default()),
        providers: executor.providers.iter().map(provider).collect(),
        inventory: None,
        unheard: None,
        trouble: None,
        file: of.file,
        as_of: None,
    }
}

fn provider(snapshot: &myelin_executor::ProviderSnapshot) -> ProviderView {
    let no_capacity = snapshot.no_capacity.iter();
    ProviderView {
        provider: snapshot.kind.to_string(),
        running: snapshot.n_running,
        waiting: snapshot.n_waiting,
        adopted: snapshot.n_adopted,
        no_capacity: no_capacity
            .map(|offer| (offer.message.to_string(), stamp(offer.until)))
            .collect(),
    }
}

/// Returns an event with its place in the history.
pub(crate) fn event(sequence: u64, event: &DriverEvent) -> EventView {
    let stages = if let EventKind::Advanced { from, to } = &event.kind {
        Some((from.to_string(), to.to_string()))
    } else {
        None
    };
    let (from, stage) = stages.unzip();
    let cause =
        if let EventKind::DeleteBegan { cause } = &event.kind { Some(*cause) } else { None };
    EventView {
        sequence,
        at: stamp(event.at),
        node: event.node.as_ref().map(ToString::to_string),
        attempt: event.attempt.map(|attempt| attempt.0),
        code: event.kind.code().to_owned(),
        text: event.kind.to_string(),
        stage,
        from,
        cause: cause.map(|cause| cause.to_string()),
    }
}

/// What of an explanation the driver does not know.
#[derive(Debug)]
pub(crate) struct Around {
    pub(crate) last_contact: Option<std::time::SystemTime>,
    pub(crate) output: Vec<OutputView>,
    pub(crate) events: Vec<EventView>,
}

/// Returns everything about a node; `None` when it is not part of the cluster.
pub(crate) fn explain(
    driver: &ClusterDriver,
    id: &LogicalNodeId,
    around: Around,
) -> Option<ExplainView> {
    let explanation = driver.explain(id);
    let node = driver.state().nodes.get(id);
    if node.is_none() && explanation == Explanation::Unknown {
        return None;
    }
    let view = match node {
        Some(node) => node_view(driver, id, node),
        None => missing_view(driver, id),
    };
    let record = node.map(|node| &node.record);
    let bootstrap = record.and_then(|record| record.bootstrap.as_deref());
    // Of an attempt that has failed or ends, no deadline but those of its cleanup is watched.
    let active = node.filter(|node| node.intent == NodeIntent::Active).map(|node| &node.record);
    let until = |stage| active.filter(move |record| record.stage < stage);
    Some(ExplainView {
        next: text::next(&explanation, node),
        connection: record.and_then(|record| record.connection.as_ref()).map(connection),
        bootstrap: bootstrap.map(|facts| format!("{:?}", facts.stage)),
        join_by: until(NodeStage::SwactorJoined).and_then(|record| record.bootstrap_by).map(stamp),
        ready_by: until(NodeStage::HandedOff).and_then(|record| record.ready_by).map(stamp),
        agent: node.and_then(|node| agent(node, around.last_contact)),
        pending: node.and_then(pending),
        retry: retry(driver, node),
        output: around.output,
        events: around.events,
        node: view,
    })
}

fn connection(connection: &Connection) -> String {
    match connection {
        Connection::Ssh(ssh) => format!("ssh {}@{}:{}", ssh.user, ssh.host, ssh.port),
        Connection::Exec(exec) => format!("exec in {}", exec.target),
    }
}

fn agent(node: &ManagedNode, last_contact: Option<std::time::SystemTime>) -> Option<AgentView> {
    let facts = node.record.swactor.as_deref()?;
    let silent_since = node.record.lost_at();
    Some(AgentView {
        agent: facts.swactor_id.to_string(),
        joined_at: stamp(facts.joined_at),
        last_contact: last_contact.or(silent_since).map(stamp),
        silent_since: silent_since.map(stamp),
    })
}

fn pending(node: &ManagedNode) -> Option<PendingView> {
    let pending = node.pending.as_deref()?;
    Some(PendingView {
        operation: pending.id.to_string(),
        kind: pending.kind.to_string(),
        deadline: stamp(pending.deadline),
        expired: pending.expired,
    })
}

fn retry(driver: &ClusterDriver, node: Option<&ManagedNode>) -> RetryView {
    let retry = node.map(|node| &node.retry);
    let reason = node.and_then(|node| node.record.failed_reason.as_deref());
    let last_error = retry.and_then(|retry| retry.last_error.as_deref());
    let unsettled = retry.and_then(|retry| retry.ambiguous_operation);
    RetryView {
        failures: retry.map_or(0, |retry| retry.consecutive_failures),
        failed_attempts: retry.map_or(0, |retry| retry.ended_attempts),
        quarantined_after: driver.retry_policy().max_consecutive_failures,
        last_error: last_error.or(reason).map(str::to_owned),
        unsettled: unsettled.map(|kind| kind.to_string()),
    }
}
