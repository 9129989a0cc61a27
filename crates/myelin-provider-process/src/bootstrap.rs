//! Bootstraps: sessions that are started, adopted, concluded and cancelled.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;

use myelin_api::{JoinFile, JoinToken, WireKey, encode};
use myelin_executor::{Bootstrap, FoundSession, ProviderError, StartRequest};
use myelin_shape::{AttemptKey, BootstrapSessionId, ClusterUid, SecretRef};
use myelin_state::{BootstrapStage, ErrorClass, LeaseFacts};

use crate::{
    ProcessProvider,
    blocking::{unblock, within},
    proc::Family,
    provider::guard,
    session::{Session, SessionRecord, drop_old_output},
    store::{Place, Store, failed, lease_name, read_at_most, write_private},
    supervise::{Context, supervise},
};

/// A join token given by reference is below this.
const MAX_TOKEN: u64 = 4096;

impl ProcessProvider {
    /// Takes up the work on every live session of a cluster that nobody works on, after a restart. Returns how many.
    ///
    /// # Errors
    ///
    /// The root cannot be listed. Sessions whose records cannot be read are skipped.
    pub async fn resume(&self, cluster: ClusterUid) -> Result<usize, ProviderError> {
        let store = Arc::clone(&self.store);
        let (leases, _) = unblock(move || store.all()).await?;
        let mut n_resumed = 0;
        for lease in leases.iter().filter(|lease| lease.key.cluster == cluster) {
            let name = lease_name(&lease.key)?;
            let _turn = self.turn(&name).await;
            match self.session_of(&name).await {
                Ok(Some(session)) => n_resumed += usize::from(session.record().await.is_live()),
                Ok(None) => {}
                Err(error) => tracing::warn!(lease = name, %error, "session is not resumed"),
            }
        }
        Ok(n_resumed)
    }

    /// Returns the latest session of a lease, and works on it if nobody did and it is not over. Needs the lease's turn.
    async fn session_of(&self, name: &str) -> Result<Option<Arc<Session>>, ProviderError> {
        let lease = self.store.path(name);
        let record = unblock(move || SessionRecord::read(&lease)).await?;
        let Some(record) = record.filter(|record| record.key.to_string() == name) else {
            return Ok(None);
        };
        let known = guard(&self.sessions).get(&record.session).cloned();
        Ok(Some(known.unwrap_or_else(|| self.take_up(name, record))))
    }

    /// Works on a session from now on, unless it failed. Needs the lease's turn.
    fn take_up(&self, name: &str, record: SessionRecord) -> Arc<Session> {
        let is_over = record.stage.is_failure();
        let id = record.session;
        let session = Arc::new(Session::new(
            name.into(),
            self.store.path(name),
            record,
            Arc::clone(&self.sink),
            &self.closing,
        ));
        guard(&self.sessions).insert(id, Arc::clone(&session));
        if is_over {
            session.stopped.cancel();
            session.followed.cancel();
        } else {
            let context = Arc::clone(&self.context);
            tokio::spawn(supervise(context, Arc::clone(&session)));
        }
        session
    }

    /// Returns a session by its id alone: one that is known, or else one that a lease records.
    ///
    /// # Errors
    ///
    /// It was not found, and not everything could be read.
    async fn session_by_id(
        &self,
        id: BootstrapSessionId,
    ) -> Result<Option<Arc<Session>>, ProviderError> {
        let known = guard(&self.sessions).get(&id).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let store = Arc::clone(&self.store);
        let Some(name) = unblock(move || lease_of(&store, id)).await? else {
            return Ok(None);
        };
        let _turn = self.turn(&name).await;
        Ok(self.session_of(&name).await?.filter(|session| session.id == id))
    }

    async fn start_session(
        &self,
        request: &StartRequest,
    ) -> Result<BootstrapSessionId, ProviderError> {
        let name = lease_name(&request.key)?;
        let turn = self.turn(&name).await;
        if !matches!(self.look(&name).await?, Place::Lease(_)) {
            let message = format!("there is no lease {name}");
            return Err(ProviderError::new(ErrorClass::AlreadyAbsent, message));
        }
        let latest = self.session_of(&name).await?;
        let mut number = 1;
        if let Some(latest) = latest {
            let record = latest.record().await;
            // One that was concluded has its agent; a second one is not wanted on the same machine.
            let goes_on = !record.stage.is_failure() && !latest.stopped.is_cancelled();
            if record.is_live() || goes_on {
                return Ok(latest.id);
            }
            number = record.number + 1;
        }
        let (wanted, context, lease) =
            (request.clone(), Arc::clone(&self.context), self.store.path(&name));
        let join_file = unblock(move || join_file(&context, &wanted, &lease)).await?;
        let boot = request.spec.template.boot.clone();
        let record = SessionRecord::new(request.key.clone(), number, boot);
        let (written, lease) = (record.clone(), self.store.path(&name));
        let write = move || {
            let path = lease.join("join.json");
            write_private(&path, &encode(&join_file))
                .map_err(|error| failed("cannot write", &path, &error))?;
            // The turn goes along: whoever drops this call must not let another start read the record before it is there.
            if let Err(error) = drop_old_output(&lease, number) {
                tracing::warn!(lease = %lease.display(), %error, "cannot remove old output");
            }
            written.write(&lease).map(|()| turn)
        };
        let _turn = unblock(write).await?;
        Ok(self.take_up(&name, record).id)
    }

    async fn find_session(&self, key: &AttemptKey) -> Result<Option<FoundSession>, ProviderError> {
        let name = lease_name(key)?;
        let _turn = self.turn(&name).await;
        if !matches!(self.look(&name).await?, Place::Lease(_)) {
            return Ok(None);
        }
        let Some(session) = self.session_of(&name).await? else {
            return Ok(None);
        };
        let record = session.record().await;
        Ok(record.is_live().then_some(FoundSession { session: session.id, stage: record.stage }))
    }

    async fn cancel_session(&self, id: BootstrapSessionId) -> Result<(), ProviderError> {
        let Some(session) = self.session_by_id(id).await? else {
            return Ok(());
        };
        let _turn = self.turn(&session.name).await;
        session.halt().await;
        let record = session.record().await.clone();
        let leader = record.leader.as_ref();
        let leader = leader.and_then(|leader| leader.find(&self.store.boot_id));
        let family = Family::new(record.marks(&session.lease), leader);
        self.context.end(family).await?;
        session.read_out().await;
        match session.advance(BootstrapStage::Cancelled, None).await {
            // A lease that was destroyed meanwhile has no record to change.
            Err(_) if !session.lease.exists() => Ok(()),
            result => result.map(drop),
        }
    }

    async fn conclude_session(&self, id: BootstrapSessionId) -> Result<(), ProviderError> {
        let Some(session) = self.session_by_id(id).await? else {
            return Ok(());
        };
        match session.advance(BootstrapStage::Converged, None).await {
            Err(_) if !session.lease.exists() => Ok(()),
            result => result.map(drop),
        }
    }
}

fn join_file(
    context: &Context,
    request: &StartRequest,
    lease: &Path,
) -> Result<JoinFile, ProviderError> {
    let join = request.spec.swarm_join();
    let ours = &context.options.join;
    Ok(JoinFile {
        address: join.orch_swactor_addr.unwrap_or_else(|| ours.address.clone()),
        key: WireKey::from(&request.key),
        token: match &join.join_token_ref {
            SecretRef::Cluster => ours.secret.token(&request.key),
            reference @ (SecretRef::Env(_) | SecretRef::File(_)) => referred(reference)?,
        },
        state_dir: lease.join("agent"),
    })
}

/// Returns the lease whose latest session this is.
fn lease_of(store: &Store, id: BootstrapSessionId) -> Result<Option<String>, ProviderError> {
    let mut unread = None;
    for lease in store.all()?.0 {
        let name = lease.key.to_string();
        match SessionRecord::read(&store.path(&name)) {
            Ok(Some(record)) if record.session == id => return Ok(Some(name)),
            Ok(_) => {}
            Err(error) => unread = Some(error),
        }
    }
    unread.map_or(Ok(None), Err)
}

/// Returns a token that is not ours. Blocks on file work, briefly. What goes wrong is named; the token is not.
fn referred(reference: &SecretRef) -> Result<JoinToken, ProviderError> {
    let failed = |why: String| {
        let message = format!("join token {reference} {why}");
        ProviderError::new(ErrorClass::Permanent, message)
    };
    let text = match reference {
        SecretRef::Cluster => return Err(failed("is derived, not read".into())),
        SecretRef::Env(name) => std::env::var(name).map_err(|error| failed(error.to_string()))?,
        SecretRef::File(path) => {
            let bytes = read_at_most(path, MAX_TOKEN + 1)
                .map_err(|error| failed(format!("cannot be read: {error}")))?;
            String::from_utf8(bytes).map_err(|_| failed("is no text".into()))?
        }
    };
    if text.len() as u64 > MAX_TOKEN {
        return Err(failed("is far too long".into()));
    }
    text.trim().parse().map_err(|error| failed(format!("{error}")))
}

#[async_trait]
impl Bootstrap for ProcessProvider {
    async fn start(&self, request: &StartRequest) -> Result<BootstrapSessionId, ProviderError> {
        let deadline = self.context.options.call_deadline;
        within(deadline, ErrorClass::Ambiguous, self.start_session(request)).await
    }

    async fn find(
        &self,
        key: &AttemptKey,
        _lease: &LeaseFacts,
    ) -> Result<Option<FoundSession>, ProviderError> {
        let deadline = self.context.options.call_deadline;
        within(deadline, ErrorClass::Transient, self.find_session(key)).await
    }

    async fn conclude(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        let deadline = self.context.options.call_deadline;
        within(deadline, ErrorClass::Transient, self.conclude_session(session)).await
    }

    async fn cancel(&self, session: BootstrapSessionId) -> Result<(), ProviderError> {
        let deadline = self.context.options.call_deadline;
        within(deadline, ErrorClass::Transient, self.cancel_session(session)).await
    }
}
