//! `down`: to the last lease, by the providers' lists.

use std::{sync::Arc, time::Duration};

use myelin_executor::{FoundLease, Provider};
use myelin_shape::ClusterUid;
use myelin_state::{ErrorClass, RetryPolicy};
use myelin_store::SqliteStore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    control::{self, FailureKind, Reply, Request},
    file::{self, AgentSettings},
    host::{self, Host, Opened, list_leases},
    runtime,
    state_dir::{Lock, StateDir},
    view,
};

use super::{
    Outcome,
    args::{DownArgs, Globals},
    ask,
    connect::{self, Loop},
    failure::Failure,
    output::{self, note},
    table, time,
};

/// How long a list of what is left may take at least.
pub(super) const LIST_DEADLINE: Duration = Duration::from_secs(5);

/// How often it is looked whether a loop has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn down(globals: &Globals, args: DownArgs) -> Outcome {
    let mut state = match &args.file.file {
        Some(path) => connect::state_of(globals, file::load(path)?.run)?,
        None => connect::state(globals).await?,
    };
    if !state.path().try_exists().map_err(|error| unseen(&state, &error))? {
        output::print(&format!("nothing is there: {} does not exist\n", state.path().display()))?;
        return Ok(0);
    }
    let lost = host::lost(&state);
    if !lost.is_empty() && !args.without_state {
        return Err(connect::never_begun(&state));
    }
    if !state.is_begun()? && lost.is_empty() {
        let at = state.path().display();
        output::print(&format!("nothing is left to remove: nothing was begun in {at}\n"))?;
        return Ok(0);
    }
    state.create()?;
    let deadline = time::deadline(args.timeout);
    if args.without_state {
        return without_state(&state, args.yes, deadline).await;
    }
    // Without a loop the run is ours from here on, so that none starts while we look.
    let looped = Loop::find(&state).await?.is_some();
    let lock = if looped { None } else { Some(state.lock()?) };
    let opened = Opened::look(&state).await?;
    let cluster = opened.identity().cluster;
    let providers = host::providers_for_cleanup(&state)?;
    let leases = found(&providers, cluster, deadline).await?;
    if leases.is_empty() && !looped && opened.n_nodes() == 0 {
        output::print("nothing is left to remove\n")?;
        return Ok(0);
    }
    let n_unlisted = opened.n_leases().saturating_sub(leases.len());
    drop(opened);
    note(listing(&leases));
    if n_unlisted > 0 {
        note(format!(
            "warning: {} that the state knows {} not listed; what the provider cannot find is taken for gone",
            machines(n_unlisted),
            is_or_are(n_unlisted)
        ));
    }
    if !args.yes {
        ask::confirm(&format!("Remove {}?", machines(leases.len())))?;
    }
    let n_before = leases.len();
    let lock = match lock {
        Some(lock) => lock,
        // A loop waits for no request as long as a person thinks, so it is dialled again. It may have ended, too.
        None => match Loop::find(&state).await? {
            Some(looped) => end_loop(looped, &state, deadline).await?,
            None => state.lock()?,
        },
    };
    let opened = Opened::open(&state).await?;
    if opened.n_nodes() > 0 {
        take_down(&state, opened, deadline).await?;
    }
    sweep(&providers, cluster, deadline).await?;
    state.remove_run_file();
    // Nothing is left that a state could be wrong about.
    state.confirm_restored()?;
    drop(lock);
    output::print(&format!("removed {}; nothing is left\n", machines(n_before)))?;
    Ok(0)
}

/// Removes what the providers list of the cluster that the directory is of, whatever its state says: the way out for a
/// person whose state is lost. The state stays as it is.
async fn without_state(state: &StateDir, yes: bool, deadline: Instant) -> Outcome {
    let lock = state.lock()?;
    let clusters = clusters_of(state).await?;
    let providers = host::providers_for_cleanup(state)?;
    let mut leases = Vec::new();
    for cluster in &clusters {
        leases.extend(found(&providers, *cluster, deadline).await?);
    }
    if !leases.is_empty() {
        note(listing(&leases));
        if !yes {
            ask::confirm(&format!(
                "Remove {}, without a look at the state?",
                machines(leases.len())
            ))?;
        }
        for cluster in clusters {
            sweep(&providers, cluster, deadline).await?;
        }
    }
    drop(lock);
    let at = state.path().display();
    output::print(&format!(
        "removed {}; nothing is left. The state in {at} was not read and still names them: remove the directory\n",
        machines(leases.len())
    ))?;
    Ok(0)
}

/// Returns the cluster that a directory is of; of one that has lost its state, all that have machines there.
async fn clusters_of(state: &StateDir) -> Result<Vec<ClusterUid>, Failure> {
    let lost = host::lost(state);
    if !lost.is_empty() {
        return Ok(lost.into_keys().collect());
    }
    if let Some(cluster) = SqliteStore::marked_cluster(state.path()).map_err(host::Error::from)? {
        return Ok(vec![cluster]);
    }
    // The mark is lost as well; the database may still say whose it is.
    Ok(vec![Opened::look(state).await?.identity().cluster])
}

/// Runs the loop of a run that wants nothing any more, until nothing is left of it.
async fn take_down(state: &StateDir, opened: Opened, deadline: Instant) -> Result<(), Failure> {
    let (agent, retry) = (AgentSettings::default(), RetryPolicy::default());
    let options = host::Options { listen: None, agent, retry };
    let host = Host::start(state, opened, options).await?;
    let gone = async {
        match host.handle.down().await {
            // It is tried again as long as there is time.
            Err(error @ runtime::Error::Unrecorded { .. }) => note(format!("warning: {error}")),
            other => other?,
        }
        let mut pulse = host.handle.pulse();
        while pulse.borrow_and_update().n_nodes > 0 {
            pulse.changed().await.map_err(|_| runtime::Error::Ended)?;
        }
        Ok::<_, runtime::Error>(())
    };
    let gone = timeout_at(deadline, gone).await;
    let n_left = host.handle.pulse().borrow().n_nodes;
    host.stop().await;
    match gone {
        Ok(result) => Ok(result?),
        Err(_) => Err(Failure::new(format!("{} could not be removed in time", machines(n_left)))
            .hint("`myelin down` again goes on with what is left; `myelin explain NODE` says why")),
    }
}

/// Returns the failure to see whether there is a state directory, which is no sign that there is none.
fn unseen(state: &StateDir, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot look for {}: {error}", state.path().display()))
        .hint("nothing was done to any machine; be the user whose run it is")
}

/// Returns how many machines, in words.
pub(super) fn machines(n: usize) -> String {
    match n {
        1 => "1 machine".to_owned(),
        n => format!("{n} machines"),
    }
}

/// Returns the verb of so many.
pub(super) fn is_or_are(n: usize) -> &'static str {
    if n == 1 { "is" } else { "are" }
}

/// Returns a list of machines for people.
pub(super) fn listing(leases: &[FoundLease]) -> String {
    let mut leases: Vec<_> = leases.iter().collect();
    leases.sort_by(|a, b| view::order(a.key.node.as_str()).cmp(&view::order(b.key.node.as_str())));
    let rows = leases.into_iter().map(|lease| {
        let made = jiff::Timestamp::try_from(lease.created_at).unwrap_or(jiff::Timestamp::MAX);
        vec![
            lease.key.node.to_string(),
            lease.key.attempt.to_string(),
            lease.lease.provider.to_string(),
            time::ago(made),
            lease.lease.lease_id.to_string(),
        ]
    });
    table::table(&["NODE", "ATTEMPT", "PROVIDER", "AGE", "LEASE"], rows)
}

async fn found(
    providers: &[Arc<dyn Provider>],
    cluster: ClusterUid,
    deadline: Instant,
) -> Result<Vec<FoundLease>, Failure> {
    // One look is taken even when there is no time left for more.
    let deadline = deadline.max(Instant::now() + LIST_DEADLINE);
    let why = loop {
        match timeout_at(deadline, list_leases(providers, cluster)).await {
            Ok(Ok(leases)) => return Ok(leases),
            Ok(Err(error)) => {
                let ErrorClass::RateLimited(pause) = error.class else {
                    break error.to_string();
                };
                // What it asks for is granted as far as there is time.
                let pause = pause.max(LOOK_EVERY);
                if pause >= deadline - Instant::now() {
                    break error.to_string();
                }
                sleep(pause).await;
            }
            Err(_) => break "the provider does not answer".to_owned(),
        }
    };
    Err(Failure::new(format!("cannot list the machines: {why}"))
        .hint("it is not known what is left; try again when the provider answers"))
}

/// Lets a loop take its cluster down, and waits until it has ended. Returns the run, which is ours then.
async fn end_loop(mut looped: Loop, state: &StateDir, deadline: Instant) -> Result<Lock, Failure> {
    let asked = timeout_at(deadline, looped.ask(Request::Down {})).await;
    match asked.unwrap_or(Err(control::Error::Late)) {
        // It ended before it answered, which is what was wanted.
        Ok(Reply::Done { .. }) | Err(control::Error::Ended) => {}
        Err(control::Error::Failure(failure)) if failure.kind == FailureKind::Unrecorded => {
            note(format!("warning: {}", failure.message));
        }
        Ok(other) => return Err(connect::unexpected(&other)),
        Err(error) => return Err(error.into()),
    }
    drop(looped);
    loop {
        match state.lock() {
            Ok(lock) => return Ok(lock),
            Err(crate::state_dir::Error::Held { pid }) if Instant::now() >= deadline => {
                let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                return Err(Failure::new(format!("the loop{pid} is still removing machines"))
                    .hint("`myelin nodes` shows which, `myelin explain NODE` why"));
            }
            Err(crate::state_dir::Error::Held { .. }) => sleep(LOOK_EVERY).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes every lease of the cluster: a person has said that nothing of it is to stay, known to the state or not.
pub(super) async fn sweep(
    providers: &[Arc<dyn Provider>],
    cluster: ClusterUid,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut failed = None;
    loop {
        let left = found(providers, cluster, deadline).await?;
        let Some(last) = left.last().map(|lease| lease.key.node.to_string()) else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            let (node, why) = failed.unwrap_or((last, "it is still listed".to_owned()));
            return Err(Failure::new(format!("cannot remove the machine of {node}: {why}"))
                .hint("`myelin down` again goes on with what is left"));
        }
        failed = remove(providers, left, deadline).await;
        sleep(LOOK_EVERY).await;
    }
}

/// Removes leases, all at once. Returns the last failure.
async fn remove(
    providers: &[Arc<dyn Provider>],
    leases: Vec<FoundLease>,
    deadline: Instant,
) -> Option<(String, String)> {
    let mut removals = tokio::task::JoinSet::new();
    for found in leases {
        let kind = &found.lease.provider;
        let Some(provider) = providers.iter().find(|it| it.kind() == *kind).cloned() else {
            continue;
        };
        removals.spawn(async move {
            let destroyed = timeout_at(deadline, provider.destroy(&found.lease)).await;
            let why = match destroyed {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it took too long".to_owned(),
            };
            Some((found.key.node.to_string(), why))
        });
    }
    removals.join_all().await.into_iter().flatten().last()
}
