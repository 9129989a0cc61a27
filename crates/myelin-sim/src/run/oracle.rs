//! Whether the world is as it is wanted: by the definition of a converged cluster, and in truth.

use std::collections::{BTreeMap, BTreeSet};

use myelin_check::converged;
use myelin_shape::{ClusterShape, LogicalNodeId, NodeGroupId, NodeTemplate, RunNodeGroupSpec};

use crate::{
    shell::Plane,
    world::{N_FOREIGN, RUN, Shared, World},
};

/// Returns in which way the world is not as it is wanted.
pub(super) fn problem(
    plane: &Plane,
    world: &Shared,
    wanted: &[RunNodeGroupSpec],
) -> Option<String> {
    let of_machines = || problem_of_machines(plane, &world.lock(), wanted);
    problem_of_driver(plane, wanted)
        .or_else(|| problem_of_shell(plane, wanted))
        .or_else(of_machines)
}

/// The driver says that it is converged, and the trusted predicate says so of what was asked for.
fn problem_of_driver(plane: &Plane, wanted: &[RunNodeGroupSpec]) -> Option<String> {
    if plane.is_in_trouble() {
        return Some("the store is in trouble".to_owned());
    }
    let driver = plane.driver();
    if !driver.convergence().converged {
        let why = |id: LogicalNodeId| format!("{id}: {:?}", driver.explain(&id));
        let unsettled = driver.planner().map(|it| it.unsettled().map(why).collect::<Vec<_>>());
        return Some(format!("not converged: {}", unsettled.unwrap_or_default().join("; ")));
    }
    let shape = ClusterShape::new(RUN, driver.generation(), wanted.to_vec());
    let reasons = converged(driver.state(), &shape).err()?;
    let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    Some(format!("only the driver takes it for converged: {}", reasons.join("; ")))
}

/// Store, executor and membership know what the driver knows, and no more.
fn problem_of_shell(plane: &Plane, wanted: &[RunNodeGroupSpec]) -> Option<String> {
    if plane.shell.store.memory.state() != *plane.driver().state() {
        return Some("the store holds another state".to_owned());
    }
    let n_known = plane.shell.executor.snapshot().n_attempts;
    let n_wanted: usize = wanted.iter().map(|group| group.count as usize).sum();
    if n_known > n_wanted {
        return Some(format!("{n_known} attempts are remembered, of {n_wanted}"));
    }
    let n_unheard = plane.shell.membership.n_unheard();
    (n_unheard > 0).then(|| format!("{n_unheard} agents are not heard"))
}

/// Each slot has one machine, of the current attempt and made from the wanted template, with its agent; there is nothing
/// else of ours, and nothing of anybody else is missing.
fn problem_of_machines(
    plane: &Plane,
    world: &World,
    wanted: &[RunNodeGroupSpec],
) -> Option<String> {
    let slots: BTreeSet<_> = wanted.iter().flat_map(slots).collect();
    let machines: Vec<_> = world.machines().map(|(key, _)| key).collect();
    let made: BTreeSet<_> = machines.iter().map(|key| key.node.clone()).collect();
    if made != slots || machines.len() != slots.len() {
        return Some(format!("machines of {machines:?}, wanted {slots:?}"));
    }
    let templates = wanted.iter().map(|group| (&group.group_id, group.template())).collect();
    let agents = world.running_agents();
    for (key, template) in world.machines() {
        let node = plane.driver().state().nodes.get(&key.node);
        if node.is_none_or(|node| node.attempt != key.attempt) {
            return Some(format!("{} has a machine of attempt {}", key.node, key.attempt));
        }
        if !is_wanted(template, &templates) {
            return Some(format!("{} is made from another template than is wanted", key.node));
        }
        if !agents.contains(key) {
            return Some(format!("{} is ready and no agent of it runs", key.node));
        }
    }
    (world.n_foreign() != N_FOREIGN).then(|| "what is foreign was ended".to_owned())
}

fn slots(group: &RunNodeGroupSpec) -> impl Iterator<Item = LogicalNodeId> {
    (0..group.count).map(|index| LogicalNodeId::from(format!("{}-{index}", group.group_id)))
}

fn is_wanted(template: &NodeTemplate, wanted: &BTreeMap<&NodeGroupId, NodeTemplate>) -> bool {
    wanted.get(&template.group_id) == Some(template)
}
