//! What calls do: machines and sessions come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use myelin_executor::{
    FoundLease, FoundSession, NewLease, Presence, ProviderError, ProviderIdentity,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, LogicalNodeId, ProviderLeaseId};
use myelin_state::{Connection, ErrorClass, ExecEndpoint, LeaseFacts};

use super::{
    CLUSTER, PROVIDER, World,
    calls::{Answer, Reply, Request},
};

/// A machine that exists.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) key: AttemptKey,
    digest: String,
    generation: u64,
    made_at: Duration,
    /// From when on `find` and `list` know of it: a settle window after it was asked for, at the latest.
    visible_at: Duration,
    n_lookups: u32,
}

pub(super) fn number_of(lease: &ProviderLeaseId) -> Option<u64> {
    lease.as_str().strip_prefix("machine-")?.parse().ok()
}

fn id_of(number: u64) -> ProviderLeaseId {
    ProviderLeaseId::from(format!("machine-{number}"))
}

pub(super) fn facts(number: u64) -> LeaseFacts {
    let lease_id = id_of(number);
    LeaseFacts {
        provider: PROVIDER.into(),
        provider_contract_id: lease_id.as_str().into(),
        offer_id: None,
        destroy_handle: lease_id.as_str().into(),
        provider_metadata: None,
        price: None,
        lease_id,
    }
}

fn connection(number: u64) -> Connection {
    Connection::Exec(ExecEndpoint { target: id_of(number).as_str().into() })
}

fn absent(lease: &LeaseFacts) -> ProviderError {
    ProviderError::new(ErrorClass::AlreadyAbsent, format!("there is no {}", lease.lease_id))
}

impl World {
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Lets a request that was made at `asked_at` take effect.
    pub(super) fn apply(&mut self, request: &Request, asked_at: Duration) -> Reply {
        match request {
            Request::Identity => {
                let other = self.troubles.other_account.is_some_and(|until| until > self.now());
                let name = if other { "account 2" } else { "account 1" };
                Ok(Answer::Identity(ProviderIdentity(name.to_owned())))
            }
            Request::Create(request) => {
                if request.spec.template.shape.image == "refused" {
                    return Err(ProviderError::new(ErrorClass::Permanent, "no such image"));
                }
                let known = self.machine_of(&request.key);
                let number = known.unwrap_or_else(|| {
                    self.add_machine(
                        &request.key,
                        &request.template_digest,
                        request.generation,
                        asked_at,
                    )
                });
                Ok(Answer::Lease(Box::new(NewLease { lease: facts(number), connection: None })))
            }
            Request::Find(key) => Ok(Answer::Leases(self.listed(|machine| machine.key == *key))),
            Request::List(cluster) => {
                let nothing = self.troubles.lists_nothing.is_some_and(|until| until > self.now());
                let listed = |machine: &Machine| machine.key.cluster == *cluster && !nothing;
                Ok(Answer::Leases(self.listed(listed)))
            }
            Request::Endpoint(lease) => self.endpoint(lease),
            Request::Presence(lease) => {
                let present =
                    number_of(&lease.lease_id).is_some_and(|it| self.machines.contains_key(&it));
                Ok(Answer::Presence(if present { Presence::Present } else { Presence::Absent }))
            }
            Request::Destroy(lease) => {
                if let Some(number) = number_of(&lease.lease_id) {
                    self.give_back(number);
                }
                Ok(Answer::Done)
            }
            Request::Start(request) => {
                let machine = number_of(&request.lease.lease_id);
                let Some(machine) = machine.filter(|it| self.machines.contains_key(it)) else {
                    let what = format!("there is no {}", request.lease.lease_id);
                    return Err(ProviderError::new(ErrorClass::Transient, what));
                };
                let known = self.open_session(&request.key);
                let session = known.unwrap_or_else(|| self.add_session(&request.key, machine));
                Ok(Answer::Session(BootstrapSessionId(session)))
            }
            Request::FindSession(key) => {
                let found = self.open_session(key).map(|number| FoundSession {
                    session: BootstrapSessionId(number),
                    stage: self.sessions[&number].stage,
                });
                Ok(Answer::FoundSession(found))
            }
            Request::Conclude(session) => {
                if let Some(known) = self.sessions.get_mut(&session.0) {
                    known.open = false;
                }
                Ok(Answer::Done)
            }
            Request::Cancel(session) => {
                if let Some(known) = self.sessions.get_mut(&session.0) {
                    known.open = false;
                    let key = known.key.clone();
                    self.end_agent(&key, session.0);
                }
                Ok(Answer::Done)
            }
        }
    }

    /// What a provider does that takes a request for another one.
    pub(super) fn apply_again(&mut self, request: &Request, asked_at: Duration) {
        match request {
            Request::Create(request) => {
                self.add_machine(
                    &request.key,
                    &request.template_digest,
                    request.generation,
                    asked_at,
                );
            }
            Request::Start(request) => {
                if let Some(machine) = number_of(&request.lease.lease_id)
                    && self.machines.contains_key(&machine)
                {
                    self.add_session(&request.key, machine);
                }
            }
            Request::Identity
            | Request::Find(_)
            | Request::Endpoint(_)
            | Request::Presence(_)
            | Request::Destroy(_)
            | Request::List(_)
            | Request::FindSession(_)
            | Request::Conclude(_)
            | Request::Cancel(_) => drop(self.apply(request, asked_at)),
        }
    }

    fn machine_of(&self, key: &AttemptKey) -> Option<u64> {
        let mut machines = self.machines.iter();
        machines.find(|(_, machine)| machine.key == *key).map(|(&number, _)| number)
    }

    pub(super) fn add_machine(
        &mut self,
        key: &AttemptKey,
        digest: &str,
        generation: u64,
        asked_at: Duration,
    ) -> u64 {
        let number = self.next_number();
        self.check_machine(key, number);
        let machine = Machine {
            key: key.clone(),
            digest: digest.to_owned(),
            generation,
            made_at: self.now(),
            visible_at: asked_at + self.config.settle_window,
            n_lookups: 0,
        };
        self.machines.insert(number, machine);
        number
    }

    /// One machine a slot, and no attempt a second time.
    fn check_machine(&mut self, key: &AttemptKey, number: u64) {
        if key.cluster != CLUSTER || self.lies || self.is_abandoned(key) {
            return;
        }
        let other = self
            .machines
            .iter()
            .filter(|(_, it)| it.key.cluster == CLUSTER && it.key.node == key.node)
            .find(|(_, it)| !self.is_abandoned(&it.key));
        if let Some((&other, machine)) = other {
            let what = format!(
                "{} of attempt {} is made while there is {} of attempt {} for {}",
                id_of(number),
                key.attempt,
                id_of(other),
                machine.key.attempt,
                key.node
            );
            self.break_rule("one machine a slot", what);
        }
        let same = self.spent.iter().find(|spent| spent.attempt == key.attempt);
        if let Some(spent) = same {
            let what = format!(
                "attempt {} of {} was used for {} before and given back",
                key.attempt, key.node, spent.node
            );
            self.break_rule("attempts are used once", what);
        }
    }

    fn listed(&self, wanted: impl Fn(&Machine) -> bool) -> Vec<FoundLease> {
        let now = self.now();
        let visible = |machine: &Machine| machine.visible_at <= now;
        let machines = self.machines.iter().filter(|(_, it)| wanted(it) && visible(it));
        let zero = self.true_time() - now;
        machines
            .map(|(&number, machine)| FoundLease {
                key: machine.key.clone(),
                template_digest: machine.digest.clone(),
                lease: facts(number),
                generation: Some(machine.generation),
                connection: None,
                created_at: zero + machine.made_at,
            })
            .collect()
    }

    fn endpoint(&mut self, lease: &LeaseFacts) -> Reply {
        let number = number_of(&lease.lease_id).ok_or_else(|| absent(lease))?;
        let machine = self.machines.get_mut(&number).ok_or_else(|| absent(lease))?;
        machine.n_lookups += 1;
        let known = machine.n_lookups > self.config.endpoint_after;
        Ok(Answer::Endpoint(known.then(|| connection(number))))
    }

    /// Ends a machine because the control plane said so.
    fn give_back(&mut self, number: u64) {
        let Some(machine) = self.machines.get(&number) else { return };
        let key = machine.key.clone();
        if key.cluster != CLUSTER {
            self.break_rule(
                "what is foreign is left alone",
                format!("{} was ended", id_of(number)),
            );
        }
        self.spent.insert(key);
        self.remove_machine(number);
    }

    fn remove_machine(&mut self, number: u64) {
        self.machines.remove(&number);
        let of_it = self.sessions.iter().filter(|(_, session)| session.machine == number);
        let of_it: Vec<_> = of_it.map(|(&session, it)| (session, it.key.clone())).collect();
        for (session, key) in of_it {
            self.sessions.remove(&session);
            self.end_agent(&key, session);
        }
    }

    /// Ends the machines of a slot behind everybody's back.
    pub(crate) fn lose_machine(&mut self, node: &LogicalNodeId) {
        let of_it = |key: &AttemptKey| key.cluster == CLUSTER && key.node == *node;
        let numbers: Vec<_> = self
            .machines
            .iter()
            .filter(|(_, it)| of_it(&it.key))
            .map(|(&number, _)| number)
            .collect();
        for number in numbers {
            self.remove_machine(number);
        }
    }

    /// Returns every machine of our cluster.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &AttemptKey> {
        self.machines.values().map(|it| &it.key).filter(|key| key.cluster == CLUSTER)
    }

    /// Returns which slots of our cluster have a machine, with the digest of its template.
    pub(crate) fn end(&self) -> BTreeMap<String, String> {
        let ours = self.machines.values().filter(|it| it.key.cluster == CLUSTER);
        ours.map(|it| (it.key.node.to_string(), it.digest.clone())).collect()
    }

    /// Returns the attempts of our cluster whose agent runs.
    pub(crate) fn running_agents(&self) -> BTreeSet<AttemptKey> {
        let agents = self.agents.iter().filter(|(_, agent)| agent.is_genuine());
        agents.map(|((key, _), _)| key.clone()).collect()
    }

    /// Returns how many machines of somebody else there are.
    pub(crate) fn n_foreign(&self) -> usize {
        self.machines.values().filter(|it| it.key.cluster != CLUSTER).count()
    }
}
