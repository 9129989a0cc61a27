//! The provider half of a fake world.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, ProviderKind};
use myelin_state::{Connection, ErrorClass, ExecEndpoint, LeaseFacts};

use super::{
    CallKind, FakeWorld, Flaw, Inner, Lease, REFUSED_IMAGE, lease_id, number_of, script::Effect,
};
use crate::{
    CreateRequest, FoundLease, NewLease, Presence, Provider, ProviderError, ProviderIdentity,
};

#[async_trait]
impl Provider for FakeWorld {
    fn kind(&self) -> ProviderKind {
        self.0.kind.clone()
    }

    fn settle_window(&self) -> Duration {
        self.inner().settle_window
    }

    async fn identity(&self) -> Result<ProviderIdentity, ProviderError> {
        self.play(CallKind::Identity, None, |inner, _| {
            let wanders = inner.has(Flaw::IdentityWanders);
            let number = if wanders { inner.next_number() } else { 0 };
            let suffix = if wanders { format!(" {number}") } else { String::new() };
            Ok(ProviderIdentity(format!("{} world{suffix}", self.0.kind)))
        })
        .await
    }

    async fn create(&self, request: &CreateRequest) -> Result<NewLease, ProviderError> {
        let mut made = None;
        let answer = self
            .play(CallKind::Create, Some(&request.key), |inner, effect| {
                let (number, lease) = self.ensure_lease(inner, request, effect)?;
                made = made.or(Some(number));
                Ok(lease)
            })
            .await?;
        let mut inner = self.inner();
        if let Some(lease) = made.and_then(|number| inner.leases.get_mut(&number)) {
            lease.recorded = true;
        }
        Ok(answer)
    }

    async fn find(&self, key: &AttemptKey) -> Result<Vec<FoundLease>, ProviderError> {
        self.play(CallKind::Find, Some(key), |inner, _| {
            if inner.has(Flaw::FindMisses) {
                return Ok(Vec::new());
            }
            let numbers = inner.leases_of.get(key).into_iter().flatten();
            let mut found =
                self.visible(inner, numbers.map(|number| (number, &inner.leases[number])));
            if inner.has(Flaw::FindListsNewestFirst) {
                found.reverse();
            }
            Ok(found)
        })
        .await
    }

    async fn endpoint(&self, lease: &LeaseFacts) -> Result<Option<Connection>, ProviderError> {
        self.play(CallKind::Endpoint, None, |inner, _| {
            let (after, never) = (inner.endpoint_after, inner.has(Flaw::NeverAnEndpoint));
            let number = number_of(&lease.lease_id);
            let found = number.and_then(|number| inner.leases.get_mut(&number));
            let found = found.ok_or_else(|| absent(lease))?;
            found.n_lookups += 1;
            let known = found.n_lookups > after && !never;
            Ok(known.then(|| connection(lease)))
        })
        .await
    }

    async fn presence(&self, lease: &LeaseFacts) -> Result<Presence, ProviderError> {
        self.play(CallKind::Presence, None, |inner, _| {
            let number = number_of(&lease.lease_id);
            let present = number.is_some_and(|number| inner.leases.contains_key(&number));
            Ok(if present { Presence::Present } else { Presence::Absent })
        })
        .await
    }

    async fn destroy(&self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        self.play(CallKind::Destroy, None, |inner, _| inner.destroy_lease(lease)).await
    }

    async fn list(&self, cluster: ClusterUid) -> Result<Vec<FoundLease>, ProviderError> {
        self.play(CallKind::List, None, |inner, _| {
            let leaks = inner.has(Flaw::ListLeaks);
            let listed = |(_, lease): &(&u64, &Lease)| leaks || lease.key.cluster == cluster;
            let mut found = self.visible(inner, inner.leases.iter().filter(listed));
            if inner.has(Flaw::ListMisses) {
                found.pop();
            }
            Ok(found)
        })
        .await
    }
}

impl FakeWorld {
    pub(super) fn ensure_lease(
        &self,
        inner: &mut Inner,
        request: &CreateRequest,
        effect: Effect,
    ) -> Result<(u64, NewLease), ProviderError> {
        inner.check_template(request)?;
        let known = match effect {
            Effect::Own => inner.lease_of(&request.key),
            Effect::Extra => None,
        };
        let number = known.unwrap_or_else(|| self.add_lease(inner, request));
        let lease = self.facts(number);
        let connection = inner.connects_at_once.then(|| connection(&lease));
        Ok((number, NewLease { lease, connection }))
    }

    fn add_lease(&self, inner: &mut Inner, request: &CreateRequest) -> u64 {
        let number = inner.next_number();
        let digest = if inner.has(Flaw::LosesDigest) {
            String::new()
        } else {
            request.template_digest.to_string()
        };
        let lease = Lease {
            key: request.key.clone(),
            recorded: !inner.has(Flaw::CreateRecordsLast),
            digest,
            generation: (!inner.has(Flaw::LosesGeneration)).then_some(request.generation),
            created_at: self.now(),
            visible_from: Instant::now() + inner.settle_window,
            n_lookups: 0,
        };
        inner.leases.insert(number, lease);
        let of_key = inner.leases_of.entry(request.key.clone()).or_default();
        of_key.insert(number);
        inner.note_leases_of_slot(&request.key);
        number
    }

    fn visible<'a>(
        &self,
        inner: &Inner,
        leases: impl Iterator<Item = (&'a u64, &'a Lease)>,
    ) -> Vec<FoundLease> {
        let now = Instant::now();
        leases
            .filter(|(_, lease)| lease.visible_from <= now)
            .map(|(&number, lease)| self.found(inner, number, lease))
            .collect()
    }

    pub(super) fn found(&self, inner: &Inner, number: u64, lease: &Lease) -> FoundLease {
        let facts = self.facts(number);
        FoundLease {
            key: lease.key.clone(),
            template_digest: lease.digest.clone(),
            generation: lease.generation,
            connection: inner.connects_at_once.then(|| connection(&facts)),
            lease: facts,
            created_at: lease.created_at,
        }
    }

    fn facts(&self, number: u64) -> LeaseFacts {
        let lease_id = lease_id(number);
        LeaseFacts {
            provider: self.0.kind.clone(),
            provider_contract_id: lease_id.as_str().into(),
            offer_id: None,
            destroy_handle: lease_id.as_str().into(),
            provider_metadata: None,
            price: None,
            lease_id,
        }
    }
}

impl Inner {
    fn check_template(&self, request: &CreateRequest) -> Result<(), ProviderError> {
        let template = &request.spec.template;
        let built_in = (template.shape.image == REFUSED_IMAGE).then(|| "no such image".to_owned());
        let asked = self.refuse.as_ref().and_then(|refuse| refuse(template));
        let Some(words) = built_in.or(asked) else {
            return Ok(());
        };
        let class = if self.has(Flaw::RefusesVaguely) {
            ErrorClass::Transient
        } else {
            ErrorClass::Permanent
        };
        Err(ProviderError::new(class, words))
    }

    fn lease_of(&self, key: &AttemptKey) -> Option<u64> {
        if self.has(Flaw::CreateForgetsKey) {
            return None;
        }
        if self.has(Flaw::CreateSharesLease) {
            let mut leases = self.leases.iter();
            let (&number, _) = leases.find(|(_, lease)| lease.key.cluster == key.cluster)?;
            return Some(number);
        }
        let recorded = |number: &&u64| self.leases[number].recorded;
        let mut numbers = self.leases_of.get(key)?.iter().filter(recorded);
        if self.has(Flaw::CreateAdoptsNewest) {
            numbers.next_back().copied()
        } else {
            numbers.next().copied()
        }
    }

    fn note_leases_of_slot(&mut self, key: &AttemptKey) {
        let at = |attempt| AttemptKey { attempt, ..key.clone() };
        let attempts = at(NodeAttemptId(0))..=at(NodeAttemptId(u64::MAX));
        let n_leases = self.leases_of.range(attempts).map(|(_, leases)| leases.len()).sum();
        self.most_leases_of_a_slot = self.most_leases_of_a_slot.max(n_leases);
    }

    fn destroy_lease(&mut self, lease: &LeaseFacts) -> Result<(), ProviderError> {
        if self.has(Flaw::DestroyLies) {
            return Ok(());
        }
        if self.has(Flaw::DestroyTakesForeign)
            && let Some(number) = number_of(&lease.lease_id)
            && let Some(cluster) = self.leases.get(&number).map(|it| it.key.cluster)
        {
            let foreign = self.leases.iter().filter(|(_, it)| it.key.cluster != cluster);
            let foreign: Vec<_> = foreign.map(|(&number, _)| lease_id(number)).collect();
            for lease in foreign {
                self.remove_lease(&lease, true);
            }
        }
        let with_agents = !self.has(Flaw::DestroyLeavesAgents);
        let was_there = self.remove_lease(&lease.lease_id, with_agents);
        if !was_there && self.has(Flaw::DestroyRefusesAbsent) {
            return Err(ProviderError::new(ErrorClass::Transient, "no such lease"));
        }
        Ok(())
    }
}

fn connection(lease: &LeaseFacts) -> Connection {
    Connection::Exec(ExecEndpoint { target: lease.lease_id.as_str().into() })
}

fn absent(lease: &LeaseFacts) -> ProviderError {
    let message = format!("there is no {}", lease.lease_id);
    ProviderError::new(ErrorClass::AlreadyAbsent, message)
}
