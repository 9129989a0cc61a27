//! Acceptance of desired shapes (seed 1 §5.1).

use std::{sync::Arc, time::SystemTime};

use myelin_decider::{Planner, Topology};
use myelin_reducer::transition::{self, TakenUp};
use myelin_shape::{ClusterShape, LogicalNodeId, RunId, ShapeErrors};
use myelin_state::{ClusterState, RetryPolicy};

use crate::{ClusterDriver, EventKind, Options, fold::look};

/// A desired shape with the driver configuration that came with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The cluster wanted.
    pub shape: ClusterShape,
    /// How failures are retried from now on; deadlines stored already stay.
    pub retry: RetryPolicy,
}

impl Desired {
    /// Returns the shape with the default retry policy.
    pub fn new(shape: ClusterShape) -> Self {
        Self { shape, retry: RetryPolicy::default() }
    }
}

/// Why a shape was not accepted. Nothing of it took effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DesiredError {
    /// The run of a driver is fixed.
    #[error("this driver is of run {expected}, the shape is of run {found}")]
    OtherRun {
        /// The driver's run.
        expected: RunId,
        /// The shape's run.
        found: RunId,
    },
    /// A later shape was accepted already.
    #[error("generation {found} is older than {accepted}, which was accepted already")]
    OldGeneration {
        /// The last accepted one.
        accepted: u64,
        /// The shape's.
        found: u64,
    },
    /// One generation names one content.
    #[error("generation {generation} was accepted with other content")]
    ChangedContent {
        /// The generation.
        generation: u64,
    },
    /// The shape breaks rules of its own.
    #[error("the shape is not valid")]
    Invalid(#[source] ShapeErrors),
}

impl ClusterDriver {
    /// Makes a shape the desired one; it is evaluated by the next pass.
    ///
    /// # Errors
    ///
    /// A shape of another run, an older generation, changed content at the accepted generation, or an invalid one.
    /// Nothing changes then.
    pub(crate) fn accept(&mut self, desired: Desired) -> Result<(), DesiredError> {
        if let Some(current) = &self.desired {
            let (accepted, found) = (current.generation, desired.shape.generation);
            if current.run_id != desired.shape.run_id {
                let (expected, found) = (current.run_id, desired.shape.run_id);
                return Err(DesiredError::OtherRun { expected, found });
            }
            if found < accepted {
                return Err(DesiredError::OldGeneration { accepted, found });
            }
            if *current == desired.shape && *self.retry == desired.retry {
                return Ok(());
            }
            if found == accepted {
                return Err(DesiredError::ChangedContent { generation: found });
            }
        } else if desired.shape.generation < self.state.observed_generation {
            let (accepted, found) = (self.state.observed_generation, desired.shape.generation);
            return Err(DesiredError::OldGeneration { accepted, found });
        }
        let topology = Topology::with_max_nodes(&desired.shape, self.options.max_nodes)
            .map_err(DesiredError::Invalid)?;
        self.drop_groups(&topology);
        self.retarget(topology);
        let generation = desired.shape.generation;
        self.desired = Some(desired.shape);
        self.retry = Arc::new(desired.retry);
        self.effects.changed.desired = true;
        self.emit(None, EventKind::DesiredAccepted { generation });
        Ok(())
    }

    /// Returns a driver that goes on from what an earlier one has left, and wants the same.
    ///
    /// Effects that were under way count as interrupted: their results are lost, whatever they are.
    ///
    /// # Errors
    ///
    /// The shape is invalid.
    pub fn resume(
        options: Options,
        state: ClusterState,
        desired: Desired,
        now: SystemTime,
    ) -> Result<Self, DesiredError> {
        let mut topology = Topology::with_max_nodes(&desired.shape, options.max_nodes)
            .map_err(DesiredError::Invalid)?;
        topology.share_templates_of(&state);
        let mut driver = Self::restore(options, state);
        driver.now = now;
        driver.retry = Arc::new(desired.retry);
        driver.desired = Some(desired.shape);
        driver.planner = Some(Planner::new(topology));
        for id in driver.state.nodes.keys().cloned().collect::<Vec<_>>() {
            driver.take_up(&id);
        }
        driver.wake();
        Ok(driver)
    }

    /// Returns a driver that explains what an earlier one has left, as that saw it last. It is not to be run: what was
    /// under way is shown so, and not looked for.
    ///
    /// # Errors
    ///
    /// The shape is invalid.
    pub fn show(
        options: Options,
        state: ClusterState,
        desired: Option<Desired>,
        now: SystemTime,
    ) -> Result<Self, DesiredError> {
        let mut driver = Self::restore(options, state);
        driver.now = now;
        let Some(desired) = desired else {
            return Ok(driver);
        };
        let mut topology = Topology::with_max_nodes(&desired.shape, driver.options.max_nodes)
            .map_err(DesiredError::Invalid)?;
        topology.share_templates_of(&driver.state);
        let mut planner = Planner::new(topology);
        let nodes: Vec<_> = driver.state.nodes.keys().cloned().collect();
        // Nothing of it is done; the planner knows now what it would be.
        drop(planner.plan(&driver.state, nodes, now));
        driver.retry = Arc::new(desired.retry);
        driver.desired = Some(desired.shape);
        driver.planner = Some(planner);
        Ok(driver)
    }

    fn take_up(&mut self, id: &LogicalNodeId) {
        let node = self.state.nodes.get_mut(id).expect("it is one of its keys");
        let taken_up = transition::take_up(node, self.now, &self.retry);
        look(&mut self.planner, node, self.state.paused, self.now);
        if taken_up != TakenUp::default() {
            self.effects.changed.nodes.push(id.clone());
        }
        if let Some((operation, effect)) = taken_up.interrupted {
            self.emit(Some(id), EventKind::Interrupted { operation, effect });
        }
        if taken_up.times {
            self.emit(Some(id), EventKind::TakenUp);
        }
    }

    /// Forgets what was known of groups that are gone, nodes and all, before this shape.
    fn drop_groups(&mut self, topology: &Topology) {
        let nodes = &self.state.nodes;
        let known = self.state.groups.len();
        self.state.groups.retain(|id, _| {
            let has_node =
                || nodes.range(id.slots()).any(|(_, node)| node.record.desired.group_id() == id);
            topology.groups.contains_key(id) || has_node()
        });
        self.braked.retain(|id| self.state.groups.contains_key(id));
        self.effects.changed.cluster |= self.state.groups.len() != known;
    }

    fn retarget(&mut self, topology: Topology) {
        if let Some(planner) = &mut self.planner {
            self.touched.extend(planner.set_topology(topology, &self.state));
        } else {
            self.touched.extend(self.state.nodes.keys().cloned());
            self.planner = Some(Planner::new(topology));
            // What fell due before this driver was there is in no index yet.
            for id in self.touched.clone() {
                self.expire(id);
            }
        }
    }
}
