//! The providers that are built in.

use std::{env, ffi::OsString, sync::Arc};

use myelin_api::JoinSecret;
use myelin_executor::{Bootstrap, Clock, FoundLease, Provider, ProviderError};
use myelin_provider_process::{JoinSource, Options as ProcessOptions, ProcessProvider};
use myelin_shape::{ClusterUid, ProviderKind};
use tokio::sync::mpsc::unbounded_channel;

#[cfg(debug_assertions)]
use crate::crash;
use crate::{runtime::Outputs, state_dir::StateDir};

use super::{Error, random};

/// Returns the kinds of provider that are built in.
pub fn kinds() -> Vec<ProviderKind> {
    vec![myelin_provider_process::KIND.into()]
}

/// Opens the providers of a state directory for looking and cleaning up only: nothing they would start could join.
///
/// # Errors
///
/// One of them cannot be used.
pub fn providers_for_cleanup(state: &StateDir) -> Result<Vec<Arc<dyn Provider>>, Error> {
    let (observations, _) = unbounded_channel();
    let outputs = Outputs::new(Clock::runtime(), observations);
    let join = JoinSource { address: "127.0.0.1:9".to_owned(), secret: JoinSecret::new(random()?) };
    let options = ProcessOptions::new(state.leases(), agent_command()?, join);
    Ok(vec![provider(Arc::new(ProcessProvider::new(options, Arc::new(outputs))?))])
}

/// Lists every lease of a cluster.
///
/// # Errors
///
/// A provider cannot list them; then it is not known what is left.
pub async fn list_leases(
    providers: &[Arc<dyn Provider>],
    cluster: ClusterUid,
) -> Result<Vec<FoundLease>, ProviderError> {
    let mut leases = Vec::new();
    for provider in providers {
        leases.extend(provider.list(cluster).await?);
    }
    Ok(leases)
}

/// The agent that nodes run is this very program.
pub(super) fn agent_command() -> Result<Vec<OsString>, Error> {
    let program = env::current_exe().map_err(Error::Program)?;
    Ok(vec![program.into(), "agent".into()])
}

/// Returns a provider as the loop uses it.
pub(super) fn provider(process: Arc<ProcessProvider>) -> Arc<dyn Provider> {
    #[cfg(debug_assertions)]
    return Arc::new(crash::Mortal::<dyn Provider>(process));
    #[cfg(not(debug_assertions))]
    return process;
}

/// Returns a bootstrap as the loop uses it.
pub(super) fn bootstrap(process: Arc<ProcessProvider>) -> Arc<dyn Bootstrap> {
    #[cfg(debug_assertions)]
    return Arc::new(crash::Mortal::<dyn Bootstrap>(process));
    #[cfg(not(debug_assertions))]
    return process;
}
