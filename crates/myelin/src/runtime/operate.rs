//! What operators say.

use myelin_driver::{self as driver, ClusterDriver, Event};
use myelin_shape::{LogicalNodeId, NodeGroupId};
use myelin_state::{NodeIntent, NodeStage, OperatorRequest};

use crate::view;

use super::{Error, Target, core::Core};

impl Core {
    pub(super) async fn operator(
        &mut self,
        target: Target,
        request: OperatorRequest,
    ) -> Result<Vec<String>, Error> {
        if self.leaving && request != OperatorRequest::Abandon {
            return Err(Error::Leaving);
        }
        self.check_store()?;
        let (name, target) = self.target(target)?;
        let before = self.attempts_of(&target);
        let not_applicable =
            |what, why| Err(Error::NotApplicable { name: name.clone(), what, why });
        let concerned: Vec<_> =
            before.into_iter().filter(|id| applies(self.driver(), id, request)).collect();
        if concerned.is_empty() {
            let why = self.why_not(&target);
            return match request {
                OperatorRequest::Retry => not_applicable("retry", why),
                OperatorRequest::Replace => not_applicable("replace", why),
                OperatorRequest::Abandon => not_applicable("abandon", why),
            };
        }
        self.fold(Event::Operator { target, request });
        self.settle_durably().await?;
        Ok(concerned.iter().map(ToString::to_string).collect())
    }

    fn target(&self, target: Target) -> Result<(String, driver::Target), Error> {
        let nodes = &self.driver().state().nodes;
        match target {
            Target::Node(id) if nodes.contains_key(&id) => {
                Ok((id.to_string(), driver::Target::Node(id)))
            }
            Target::Node(id) => Err(self.unknown(id.as_str())),
            Target::Named(name) => {
                let id = LogicalNodeId::from(name.as_str());
                if nodes.contains_key(&id) {
                    return Ok((name, driver::Target::Node(id)));
                }
                let group = NodeGroupId::from(name.as_str());
                let planner = self.driver().planner();
                let desired = planner.is_some_and(|it| it.topology().groups.contains_key(&group));
                if !desired && !self.driver().state().groups.contains_key(&group) {
                    return Err(self.unknown(&name));
                }
                Ok((name, driver::Target::Group(group)))
            }
        }
    }

    fn attempts_of(&self, target: &driver::Target) -> Vec<LogicalNodeId> {
        let nodes = &self.driver().state().nodes;
        match target {
            driver::Target::Node(id) => vec![id.clone()],
            driver::Target::Group(group) => {
                let of_group = nodes.iter().filter(|(_, it)| it.record.desired.group_id() == group);
                of_group.map(|(id, _)| id.clone()).collect()
            }
        }
    }

    fn why_not(&self, target: &driver::Target) -> String {
        match target {
            driver::Target::Node(id) => {
                let why = view::nodes_why(self.driver(), id);
                format!("it is {}: {}", why.0, why.1)
            }
            driver::Target::Group(_) => "none of its nodes is held or delayed".to_owned(),
        }
    }

    pub(super) async fn pause(&mut self, paused: bool) -> Result<bool, Error> {
        if self.leaving {
            return Err(Error::Leaving);
        }
        self.check_store()?;
        if self.driver().state().paused == paused {
            return Ok(false);
        }
        self.fold(if paused { Event::Pause } else { Event::Resume });
        self.settle_durably().await?;
        Ok(true)
    }
}

/// Returns whether an operator's word means anything for a node; the reducer has the last say.
fn applies(driver: &ClusterDriver, id: &LogicalNodeId, request: OperatorRequest) -> bool {
    let Some(node) = driver.state().nodes.get(id) else {
        return false;
    };
    let active = node.intent == NodeIntent::Active;
    match request {
        OperatorRequest::Retry => {
            node.quarantine.is_some()
                || node.refused.is_some()
                || node.retry.next_effect_at.is_some()
                || node.retry.restart_at.is_some()
                || (active && node.record.stage == NodeStage::Failed)
        }
        OperatorRequest::Replace => active && node.record.stage < NodeStage::Failed,
        OperatorRequest::Abandon => !node.is_destroyed(),
    }
}
