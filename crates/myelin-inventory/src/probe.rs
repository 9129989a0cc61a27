//! Calls to providers, each with a deadline; a panic is a failure.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use myelin_executor::{Clock, Presence, Provider, ProviderError, ProviderIdentity};
use myelin_shape::{ClusterUid, ProviderKind};
use myelin_state::LeaseFacts;

use crate::{Answer, Listing, ListingFailure, LookUp};

/// How providers are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many calls may be under way at once; at least 1.
    pub concurrency: usize,
    /// How long one listing may take: the longest listings have many pages.
    pub list_timeout: Duration,
    /// How long one look-up may take, with its wait for a turn: of a busy provider that lets one call a second through,
    /// looks get every third.
    pub look_up_timeout: Duration,
    /// How long it may take to destroy one lease: machines are asked to stop before they are made to.
    pub destroy_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Four look-ups of two calls each are answered in time even then.
            concurrency: 4,
            list_timeout: Duration::from_secs(30),
            look_up_timeout: Duration::from_secs(30),
            destroy_timeout: Duration::from_mins(2),
        }
    }
}

/// Lists every lease of a cluster at every provider. Read the records after this returned.
pub async fn list_all(
    providers: &[Arc<dyn Provider>],
    cluster: ClusterUid,
    clock: &Clock,
    limits: Limits,
) -> (Vec<Listing>, Vec<ListingFailure>) {
    let calls = providers.iter().map(|provider| {
        let (provider, clock) = (Arc::clone(provider), clock.clone());
        let kind = provider.kind();
        (kind, async move { list(&*provider, cluster, &clock, limits.list_timeout).await })
    });
    let (mut listings, mut failures) = (Vec::new(), Vec::new());
    for (provider, answer) in all(calls, limits.concurrency).await {
        match answer {
            Ok(listing) => listings.push(listing),
            Err(error) => failures.push(ListingFailure { provider, error }),
        }
    }
    (listings, failures)
}

async fn list(
    provider: &dyn Provider,
    cluster: ClusterUid,
    clock: &Clock,
    patience: Duration,
) -> Result<Listing, String> {
    within(patience, async {
        let identity = identity(provider).await?;
        let listed_at = clock.now();
        let leases = provider.list(cluster).await.map_err(words)?;
        let after = self::identity(provider).await?;
        if after != identity {
            return Err(format!(
                "another one answers after the listing: it was {:?}, and is {:?}",
                identity.0, after.0
            ));
        }
        Ok(Listing {
            provider: provider.kind(),
            identity,
            settle_window: provider.settle_window(),
            listed_at,
            leases,
        })
    })
    .await
}

/// Looks leases up by their handles.
pub(crate) async fn look_up_all(
    providers: &[Arc<dyn Provider>],
    look_ups: Vec<LookUp>,
    limits: Limits,
) -> Vec<(LookUp, Answer)> {
    let calls = look_ups.into_iter().map(|look_up| {
        let provider = provider_of(providers, &look_up.provider);
        let lease = look_up.lease.clone();
        let call = async move {
            let provider = provider?;
            within(limits.look_up_timeout, presence(&*provider, &lease)).await
        };
        (look_up, call)
    });
    all(calls, limits.concurrency).await
}

/// Who answers is asked last: a wrong one that says "absent" must not pass for the right one.
async fn presence(provider: &dyn Provider, lease: &LeaseFacts) -> Answer {
    let presence: Presence = provider.presence(lease).await.map_err(words)?;
    Ok((identity(provider).await?, presence))
}

/// Destroys a lease.
pub(crate) async fn destroy(
    providers: &[Arc<dyn Provider>],
    kind: &ProviderKind,
    lease: &LeaseFacts,
    limits: Limits,
) -> Result<(), String> {
    let provider = provider_of(providers, kind);
    let lease = lease.clone();
    let call = async move {
        let provider = provider?;
        within(limits.destroy_timeout, async { provider.destroy(&lease).await.map_err(words) })
            .await
    };
    let mut answers = all([((), call)], 1).await;
    answers.pop().map_or_else(|| Err("never asked".to_owned()), |((), answer)| answer)
}

fn provider_of(
    providers: &[Arc<dyn Provider>],
    kind: &ProviderKind,
) -> Result<Arc<dyn Provider>, String> {
    let found = providers.iter().find(|it| it.kind() == *kind);
    found.cloned().ok_or_else(|| format!("there is no provider {:?}", kind.as_str()))
}

async fn identity(provider: &dyn Provider) -> Result<ProviderIdentity, String> {
    provider.identity().await.map_err(words)
}

#[expect(clippy::needless_pass_by_value, reason = "to be passed to map_err")]
fn words(error: ProviderError) -> String {
    error.to_string()
}

async fn within<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let answer = timeout(patience, call).await;
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", patience.as_secs_f32())))
}

/// Makes calls, so many at once, and returns their answers in order. Dropped, it stops them.
async fn all<K, T, F>(
    calls: impl IntoIterator<Item = (K, F)>,
    concurrency: usize,
) -> Vec<(K, Result<T, String>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(concurrency.max(1)));
    let mut tasks = Vec::new();
    for (key, call) in calls {
        let turns = Arc::clone(&turns);
        let task = tokio::spawn(async move {
            let _turn = turns.acquire().await.map_err(|closed| closed.to_string())?;
            call.await
        });
        tasks.push((key, AbortOnDropHandle::new(task)));
    }
    let mut answers = Vec::with_capacity(tasks.len());
    for (key, task) in tasks {
        let answer = task.await.unwrap_or_else(|_| Err("the provider panicked".to_owned()));
        answers.push((key, answer));
    }
    answers
}
