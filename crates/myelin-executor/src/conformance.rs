//! The rules of [`Provider`] and [`Bootstrap`], as checks that any provider's test runs (`spec 4.1`).
//!
//! [`run`] goes through [`CHECKS`] in order, each with attempts of its own under a cluster uid made for this run, and
//! ends at the first rule that is broken, with its name. Every call has a time limit. Whatever happens, the leases that
//! were made are destroyed at the end.
//!
//! Reading order: [`ProviderHarness`], [`run`], [`CHECKS`].
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! use myelin_executor::{conformance, fake::{FakeWorld, Flaw}};
//!
//! let report = conformance::run(&FakeWorld::new()).await.expect("the fake obeys");
//! assert!(report.skipped.is_empty());
//!
//! let broken = FakeWorld::new();
//! broken.plant(Flaw::DestroyLies);
//! let failure = conformance::run(&broken).await.expect_err("the fake lies");
//! assert_eq!(failure.check, "destroyed_lease_is_absent");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod bootstrap;
mod interruption;
mod lease;
mod listing;
mod restart;
mod trial;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;

use myelin_shape::{ClusterUid, NodeTemplate};
use myelin_state::LeaseFacts;

use crate::{Bootstrap, CreateRequest, Provider};

use self::trial::{Suite, Verdict};

/// What the suite needs to know of a provider under test.
#[async_trait]
pub trait ProviderHarness: Send + Sync {
    /// Returns the provider under test. Called once a run.
    fn provider(&self) -> Arc<dyn Provider>;

    /// Returns the bootstrap that goes with it. Called once a run.
    fn bootstrap(&self) -> Arc<dyn Bootstrap>;

    /// Returns a template that can be leased and bootstrapped. Its agent goes on running whether or not it can join.
    fn working(&self) -> NodeTemplate;

    /// Returns a template that will never be leased, if the provider has such.
    fn refused(&self) -> Option<NodeTemplate>;

    /// Returns whether any process still runs on a lease, found without the provider's help where possible.
    async fn runs_anything_on(&self, lease: &LeaseFacts) -> bool;

    /// Makes a second lease for a key behind the provider's back. Returns false if the provider makes that impossible.
    async fn duplicate(&self, _request: &CreateRequest) -> bool {
        false
    }

    /// Returns a provider and its bootstrap as a new process of ours would make them, with nothing remembered, on the
    /// same world. `None` if the provider under test keeps its world to itself.
    fn reopened(&self) -> Option<(Arc<dyn Provider>, Arc<dyn Bootstrap>)> {
        None
    }

    /// Returns how long one call, or something that happens by itself, may take.
    fn patience(&self) -> Duration {
        Duration::from_mins(1)
    }
}

/// A rule that was found broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{check}: {message}")]
pub struct Failure {
    /// The check, one of [`CHECKS`].
    pub check: &'static str,
    /// What was seen instead.
    pub message: String,
}

/// What a successful run has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The checks that held, in order.
    pub passed: Vec<&'static str>,
    /// The checks that do not apply to this provider.
    pub skipped: Vec<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks passed", self.passed.len())?;
        if !self.skipped.is_empty() {
            write!(f, ", not applicable: {}", self.skipped.join(", "))?;
        }
        Ok(())
    }
}

macro_rules! checks {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// The names of all checks, in the order they run.
        pub const CHECKS: &[&str] = &[$(stringify!($name)),*];

        async fn run_all(suite: &Suite<'_>, report: &mut Report) -> Result<(), Failure> {
            $(
                let verdict = Box::pin($module::$name(suite)).await;
                record(report, stringify!($name), verdict)?;
            )*
            Ok(())
        }
    };
}

checks! {
    lease::find_answers_what_create_made,
    lease::repeated_create_answers_the_same_lease,
    lease::keys_do_not_share_a_lease,
    lease::lease_keeps_its_digest,
    lease::lease_keeps_the_generation_it_was_made_under,
    lease::oldest_of_two_leases_comes_first,
    lease::endpoint_appears,
    lease::refused_template_is_a_permanent_error,
    listing::list_shows_every_lease_of_a_cluster,
    listing::list_shows_no_lease_of_another_cluster,
    lease::destroyed_lease_is_absent,
    lease::destroying_twice_succeeds,
    listing::destroying_spares_other_leases,
    bootstrap::repeated_start_answers_the_same_session,
    bootstrap::concluded_session_leaves_the_agent_running,
    bootstrap::cancelled_session_leaves_nothing_running,
    bootstrap::cancelling_twice_succeeds,
    bootstrap::cancelling_an_unknown_session_succeeds,
    bootstrap::concluding_an_unknown_session_succeeds,
    bootstrap::destroying_ends_what_runs_on_the_lease,
    restart::identity_outlives_a_restart,
    restart::leases_and_sessions_outlive_a_restart,
    interruption::dropped_create_leaves_at_most_one_lease,
    interruption::dropped_destroy_can_be_repeated,
    interruption::dropped_start_leaves_at_most_one_session,
}

/// Runs every check.
///
/// # Errors
///
/// Returns the first rule that is broken. What the run leased is destroyed as far as the provider destroys it.
pub async fn run(harness: &dyn ProviderHarness) -> Result<Report, Failure> {
    let suite = Suite::new(harness, [uid(0), uid(1)]);
    let mut report = Report::default();
    let result = run_all(&suite, &mut report).await;
    suite.clean_up().await;
    result.map(|()| report)
}

fn record(report: &mut Report, check: &'static str, verdict: Verdict) -> Result<(), Failure> {
    match verdict {
        Ok(true) => report.passed.push(check),
        Ok(false) => report.skipped.push(check),
        Err(message) => return Err(Failure { check, message }),
    }
    Ok(())
}

/// Returns a cluster uid nobody else has: two runs against one daemon must be strangers.
fn uid(n: u8) -> ClusterUid {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[n]);
    hasher.update(&std::process::id().to_be_bytes());
    hasher.update(&time.unwrap_or_default().as_nanos().to_be_bytes());
    let mut uid = [0; 16];
    hasher.finalize_xof().fill(&mut uid);
    ClusterUid(uid)
}
