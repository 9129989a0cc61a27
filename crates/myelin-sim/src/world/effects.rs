//! What calls do: machines and sessions come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use myelin_executor::{
    CreateRequest, FoundLease, FoundSession, NewLease, Presence, ProviderError, ProviderIdentity,
    StartRequest,
};
use myelin_shape::{AttemptKey, BootstrapSessionId, LogicalNodeId, NodeTemplate, ProviderLeaseId};
use myelin_state::{Connection, ErrorClass, ExecEndpoint, LeaseFacts};

use super::{
    CLUSTER, PROVIDER, World,
    calls::{Answer, Reply, Request},
};

/// A machine that exists.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) key: AttemptKey,
    made: Made,
    made_at: Duration,
    /// From when on `find` and `list` know of it: a settle window after it was made, at the latest, and after its maker
    /// was given up.
    visible_at: Duration,
    n_lookups: u32,
}

/// What a machine is made from.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// In truth.
    pub(super) template: Arc<NodeTemplate>,
    /// By its label.
    pub(super) digest: String,
    pub(super) generation: u64,
}

impl Made {
    fn by(request: &CreateRequest) -> Self {
        Self {
            template: Arc::clone(&request.spec.template),
            digest: request.template_digest.to_string(),
            generation: request.generation,
        }
    }
}

pub(super) fn number_of(lease: &ProviderLeaseId) -> Option<u64> {
    lease.as_str().strip_prefix("machine-")?.parse().ok()
}

pub(super) fn id_of(number: u64) -> ProviderLeaseId {
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

    /// Lets a request take effect, of which listings know from `visible_at` on at the latest.
    pub(super) fn apply(&mut self, request: &Request, visible_at: Duration) -> Reply {
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
                self.check_label(request);
                let known = self.machine_of(&request.key);
                let number = known.unwrap_or_else(|| {
                    self.add_machine(&request.key, Made::by(request), visible_at)
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
                self.check_template(request, machine);
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

    /// A machine is labelled by what it is made from.
    fn check_label(&mut self, request: &CreateRequest) {
        let digest = request.spec.template.digest();
        if *digest != *request.template_digest {
            let what = format!("{} instead of {digest}", request.template_digest);
            self.break_rule("a label is true", what);
        }
    }

    /// A machine runs what it was made for.
    fn check_template(&mut self, request: &StartRequest, machine: u64) {
        let made = self.machines.get(&machine).map(|it| (&it.key, &it.made.template));
        if made.is_some_and(|(key, made)| *key != request.key || **made != *request.spec.template) {
            let what = format!("{} is started on {}", request.spec.logical_node_id, id_of(machine));
            self.break_rule("a machine runs what it was made for", what);
        }
    }

    /// What a provider does that takes a request for another one.
    pub(super) fn apply_again(&mut self, request: &Request, visible_at: Duration) {
        match request {
            Request::Create(request) => {
                self.add_machine(&request.key, Made::by(request), visible_at);
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
            | Request::Cancel(_) => drop(self.apply(request, visible_at)),
        }
    }

    fn machine_of(&self, key: &AttemptKey) -> Option<u64> {
        let mut machines = self.machines.iter();
        machines.find(|(_, machine)| machine.key == *key).map(|(&number, _)| number)
    }

    pub(super) fn add_machine(
        &mut self,
        key: &AttemptKey,
        made: Made,
        visible_at: Duration,
    ) -> u64 {
        let number = self.next_number();
        self.check_machine(key, number);
        let machine =
            Machine { key: key.clone(), made, made_at: self.now(), visible_at, n_lookups: 0 };
        self.machines.insert(number, machine);
        number
    }

    fn listed(&self, wanted: impl Fn(&Machine) -> bool) -> Vec<FoundLease> {
        let now = self.now();
        let visible = |machine: &Machine| machine.visible_at <= now;
        let machines = self.machines.iter().filter(|(_, it)| wanted(it) && visible(it));
        let zero = self.true_time() - now;
        machines
            .map(|(&number, machine)| FoundLease {
                key: machine.key.clone(),
                template_digest: machine.made.digest.clone(),
                lease: facts(number),
                generation: Some(machine.made.generation),
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
        self.note_given_back(key);
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
        let lost = self.machines.iter().filter(|(_, it)| of_it(&it.key));
        let lost: Vec<_> = lost.map(|(&number, it)| (number, it.key.clone())).collect();
        for (number, key) in lost {
            self.note_lost(&key);
            self.remove_machine(number);
        }
    }

    /// Returns every machine of our cluster, with what it is made from.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (&AttemptKey, &NodeTemplate)> {
        let ours = self.machines.values().filter(|it| it.key.cluster == CLUSTER);
        ours.map(|it| (&it.key, &*it.made.template))
    }

    /// Returns whether a look-up finds a machine of an attempt.
    pub(super) fn is_found(&self, key: &AttemptKey) -> bool {
        let now = self.now();
        self.machines.values().any(|it| it.key == *key && it.visible_at <= now)
    }

    /// Returns which slots of our cluster have a machine, with the digest of its template.
    pub(crate) fn end(&self) -> BTreeMap<String, String> {
        let ours = self.machines.values().filter(|it| it.key.cluster == CLUSTER);
        ours.map(|it| (it.key.node.to_string(), it.made.digest.clone())).collect()
    }

    /// Returns the attempts of our cluster whose agent runs.
    pub(crate) fn running_agents(&self) -> BTreeSet<AttemptKey> {
        let agents = self.agents.iter().filter(|(_, agent)| agent.is_genuine());
        agents.map(|((key, _), _)| key.clone()).collect()
    }

    /// Returns how many machines of somebody else there are.
    pub(crate) fn n_foreign(&self) -> u64 {
        let foreign = self.machines.values().filter(|it| it.key.cluster != CLUSTER);
        foreign.map(|_| 1).sum()
    }
}
