//! What is there: from `/proc`, the directories of the leases, and the stored history; never by our own answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use myelin_shape::OperationId;
use myelin_state::{DriverEvent, EventKind, OperationKind};
use myelin_store::{EventQuery, Options, SqliteStore, Store as _, StoreError, StoredEvent};
use rustix::process::Pid;

use super::{super::site::Site, life::Desired};

/// More than a life has.
const ALL_EVENTS: u32 = 1_000_000;

/// A lease by its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) attempt: u64,
    /// Its record.
    record: String,
}

impl Lease {
    fn is_wanted(&self, desired: &Desired) -> bool {
        let image = format!(r#""image":"{}""#, desired.image);
        self.record.contains(&image) && desired.nodes().contains(&self.node)
    }
}

/// Returns the leases that are there.
pub(super) fn leases(site: &Site) -> Vec<Lease> {
    let names = site.leases().into_iter();
    let mut leases: Vec<_> = names.filter_map(|name| lease(site, name)).collect();
    leases.sort_by(|a, b| a.name.cmp(&b.name));
    leases
}

fn lease(site: &Site, name: String) -> Option<Lease> {
    let record = site.state().join("leases").join(&name).join("lease.json");
    // One that is being destroyed may go while it is looked at.
    let record = fs::read_to_string(record).ok()?;
    let (rest, attempt) = name.rsplit_once('.').unwrap();
    let node = rest.rsplit_once('.').unwrap().1.to_owned();
    let attempt = attempt.parse().unwrap();
    Some(Lease { name, node, attempt, record })
}

/// Checks what must be so at any moment at which nothing of ours runs: no slot has two leases, no lease two agents, and no
/// process is without a lease; no lease is without a record that it was to be made.
pub(super) fn check_dead(site: &Site) -> Result<(), String> {
    let leases = leases(site);
    let history = history(site)?;
    let mut nodes = BTreeSet::new();
    for lease in &leases {
        if !nodes.insert(&lease.node) {
            return Err(format!("{} has two leases: {leases:?}", lease.node));
        }
        if !history.is_dispatched(OperationKind::CreateLease, &lease.name) {
            return Err(format!("{} was made without a record", lease.name));
        }
    }
    let (agents, others) = processes(site, None);
    if let Some((lease, pids)) = agents.iter().find(|(_, pids)| pids.len() > 1) {
        return Err(format!("{lease} has several agents: {pids:?}"));
    }
    let is_leased = |name: &String| leases.iter().any(|lease| lease.name == *name);
    if let Some(lease) = agents.keys().find(|name| !is_leased(name)) {
        return Err(format!("an agent runs on {lease}, which is gone"));
    }
    match others.iter().find(|other| !other.lease.as_ref().is_some_and(is_leased)) {
        Some(other) => Err(format!("this runs without a lease: {other:?}")),
        None => Ok(()),
    }
}

/// Checks that the call in which a process died, by its last word, was recorded before it was made.
pub(super) fn check_recorded(site: &Site, said: &str) -> Result<(), String> {
    let last = said.lines().rev().find_map(|line| line.strip_prefix("killed at "));
    let Some((call, lease)) = last.and_then(|last| last.split_once(' ')) else {
        return Ok(());
    };
    let effect = match call {
        "create" => OperationKind::CreateLease,
        "start" => OperationKind::StartBootstrap,
        "destroy" => OperationKind::DestroyLease,
        // The others make and end nothing, or do not say of which lease they are.
        _ => return Ok(()),
    };
    if history(site)?.is_dispatched(effect, lease) {
        return Ok(());
    }
    Err(format!("{call} {lease} was called without a record"))
}

/// Checks that every slot has one lease as it is wanted, with one agent, and that nothing else is there.
pub(super) fn check_whole(site: &Site, desired: &Desired) -> Result<(), String> {
    check_whole_beside(site, desired, None)
}

/// As [`check_whole`], while a process of ours runs.
pub(super) fn check_whole_beside(
    site: &Site,
    desired: &Desired,
    ours: Option<Pid>,
) -> Result<(), String> {
    let leases = leases(site);
    let nodes: Vec<_> = leases.iter().map(|lease| lease.node.clone()).collect();
    if nodes != desired.nodes() {
        return Err(format!("leased are {nodes:?}, declared {:?}", desired.nodes()));
    }
    if let Some(lease) = leases.iter().find(|lease| !lease.is_wanted(desired)) {
        return Err(format!("{} is not of image {}", lease.name, desired.image));
    }
    let (agents, others) = processes(site, ours);
    for lease in &leases {
        let n = agents.get(&lease.name).map_or(0, Vec::len);
        if n != 1 {
            return Err(format!("{} has {n} agents", lease.name));
        }
    }
    if others.is_empty() { Ok(()) } else { Err(format!("this runs as well: {others:?}")) }
}

/// Returns the leases that are as wanted, with their agents.
pub(super) fn kept(site: &Site, desired: &Desired) -> BTreeMap<String, Vec<i32>> {
    let (mut agents, _) = processes(site, None);
    let wanted = leases(site).into_iter().filter(|lease| lease.is_wanted(desired));
    wanted
        .map(|lease| (lease.name.clone(), agents.remove(&lease.name).unwrap_or_default()))
        .collect()
}

/// Checks that nothing is leased and nothing runs.
pub(super) fn check_gone(site: &Site) -> Result<(), String> {
    let (leases, processes) = (site.leases(), site.processes());
    if leases.is_empty() && processes.is_empty() {
        return Ok(());
    }
    Err(format!("left are {leases:?} and {processes:?}"))
}

/// A process that is no agent.
#[derive(Debug)]
struct Other {
    /// The lease it runs on.
    lease: Option<String>,
    #[expect(dead_code, reason = "it is for people who read of a failure")]
    command: String,
}

/// Returns the agents by their lease, and all else that has to do with the site.
fn processes(site: &Site, ours: Option<Pid>) -> (BTreeMap<String, Vec<i32>>, Vec<Other>) {
    let (mut agents, mut others) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    for (pid, command) in site.processes().into_iter().filter(|(pid, _)| Some(*pid) != ours) {
        let pid = pid.as_raw_nonzero().get();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let mark = environment.split('\0').find_map(|entry| entry.strip_prefix("MYELIN_LEASE="));
        match mark {
            Some(lease) if command.contains(" agent --join-file ") => {
                agents.entry(lease.to_owned()).or_default().push(pid);
            }
            lease => others.push(Other { lease: lease.map(str::to_owned), command }),
        }
    }
    (agents, others)
}

/// What has happened, by the store.
#[derive(Debug, Default)]
pub(super) struct History {
    events: Vec<StoredEvent>,
    next_attempt: u64,
}

/// Reads the history as another process would, and checks that it is whole.
pub(super) fn history(site: &Site) -> Result<History, String> {
    let history = read(site).map_err(|error| format!("the history cannot be read: {error}"))?;
    history.check()?;
    Ok(history)
}

fn read(site: &Site) -> Result<History, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = match SqliteStore::open_read_only(site.state(), Options::default()).await {
            Err(StoreError::NotFound(_)) => return Ok(History::default()),
            other => other?,
        };
        let loaded = store.load().await?;
        let limit = ALL_EVENTS;
        let events = store.events(EventQuery { limit, ..EventQuery::default() }).await?;
        assert_eq!(loaded.events_last, events.len() as u64);
        Ok(History { events, next_attempt: loaded.state.next_attempt_id })
    })
}

impl History {
    fn check(&self) -> Result<(), String> {
        let (mut last_attempt, mut last_generation) = (None, None);
        let mut operations = BTreeMap::<OperationId, &DriverEvent>::new();
        for (seq, StoredEvent { seq: found, event }) in (1..).zip(&self.events) {
            if seq != *found {
                return Err(format!("event {seq} is missing: {found} is next"));
            }
            if let EventKind::Inserted | EventKind::Restarted { .. } = event.kind {
                let attempt = event.attempt.map(|attempt| attempt.0);
                if attempt <= last_attempt || attempt >= Some(self.next_attempt) {
                    return Err(format!("an attempt id is used again: {event:?}"));
                }
                last_attempt = attempt;
            } else if let EventKind::DesiredAccepted { generation } = event.kind {
                if Some(generation) <= last_generation {
                    return Err(format!("a generation is used again: {event:?}"));
                }
                last_generation = Some(generation);
            } else if let EventKind::Dispatched { operation, .. } = event.kind
                && let Some(before) = operations.insert(operation, event)
            {
                return Err(format!("dispatched twice: {before:?} and {event:?}"));
            }
        }
        Ok(())
    }

    /// Returns whether an effect on a lease was recorded.
    fn is_dispatched(&self, wanted: OperationKind, lease: &str) -> bool {
        self.events.iter().any(|StoredEvent { event, .. }| {
            let kind =
                matches!(event.kind, EventKind::Dispatched { effect, .. } if effect == wanted);
            let slot = event.node.as_ref().zip(event.attempt);
            kind && slot
                .is_some_and(|(node, attempt)| lease.ends_with(&format!(".{node}.{attempt}")))
        })
    }

    /// Returns the last events, for people.
    pub(super) fn last(&self, n: usize) -> String {
        let lines = self.events.iter().rev().take(n).rev().map(|StoredEvent { seq, event }| {
            let node = event.node.as_ref().map_or("-", |node| node.as_str());
            let attempt = event.attempt.map_or(0, |attempt| attempt.0);
            format!("{seq} {node} {attempt} {}\n", event.kind)
        });
        lines.collect()
    }
}
