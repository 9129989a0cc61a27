//! What a request is answered.

use std::time::Duration;

use myelin_shape::{ClusterUid, LogicalNodeId};

use crate::{
    printable::shortened,
    runtime::{self, Handle, Target, Wanted},
    view::{CensusView, InventoryView},
};

use super::{Failure, FailureKind, Reply, Request, Source, Word};

/// The longest a client may ask to wait for news, so that a connection nobody reads from ends.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest name of a file, which every error of it repeats: the longest path there is.
const MAX_ORIGIN: usize = 4096;

/// The most events in one answer.
const MAX_EVENTS: usize = 10_000;

pub(super) fn failure(
    kind: FailureKind,
    message: impl Into<String>,
    hint: Option<&str>,
) -> Failure {
    Failure { kind, message: message.into(), hint: hint.map(str::to_owned), plan: None }
}

/// Returns the answer of a loop, and of who knows what exists, to a request.
pub(crate) async fn answer(
    handle: &Handle,
    inventory: Option<&myelin_inventory::Handle>,
    request: Request,
) -> Result<Reply, Failure> {
    match request {
        Request::Status {} => {
            let mut status = handle.status().await?;
            status.inventory = inventory.map(|it| InventoryView::from(&*it.census()));
            Ok(Reply::Status(Box::new(status)))
        }
        Request::Nodes {} => Ok(Reply::Nodes(handle.nodes().await?)),
        Request::Explain { node } => {
            let view = handle.explain(node.into()).await?;
            Ok(Reply::Explain(Box::new(view)))
        }
        Request::Events { node, after, limit, wait_ms } => {
            events(handle, node, after, limit, wait_ms).await
        }
        Request::Logs { node, after, wait_ms } => {
            let lines = handle.output(node.into(), after, MAX_EVENTS, patience(wait_ms));
            Ok(Reply::Logs(lines.await?))
        }
        Request::Plan { source } => {
            let plan = handle.plan(parse(&source)?).await?;
            Ok(Reply::Plan(Box::new(plan)))
        }
        Request::Apply { source, if_generation, may_take_ready } => {
            let wanted = Wanted { file: parse(&source)?, source: source.stored() };
            let applied = handle.apply(wanted, if_generation, may_take_ready).await?;
            Ok(Reply::Applied { generation: applied.generation, plan: Box::new(applied.plan) })
        }
        Request::Operator { target, request } => {
            let target = match request {
                super::Operator::Retry => Target::Named(target),
                super::Operator::Replace | super::Operator::Abandon => Target::Node(target.into()),
            };
            Ok(Reply::Concerned(handle.operator(target, request.into()).await?))
        }
        Request::Pause {} => changed(handle.pause(true).await?),
        Request::Resume {} => changed(handle.pause(false).await?),
        Request::Down {} => {
            handle.down().await?;
            changed(true)
        }
        Request::Census { fresh, collect, accept_identity } => {
            let cluster = handle.records().await?.cluster;
            let Some(inventory) = inventory else {
                return Err(failure(FailureKind::Refused, "nobody looks what exists here", None));
            };
            let asked = census(inventory, cluster, fresh, collect, accept_identity).await;
            asked.map(|view| Reply::Census(Box::new(view)))
        }
        Request::Sever { severed } => {
            handle.sever(severed).await?;
            changed(true)
        }
    }
}

async fn census(
    inventory: &myelin_inventory::Handle,
    cluster: ClusterUid,
    fresh: bool,
    collect: Option<Word>,
    accept_identity: Option<String>,
) -> Result<CensusView, Failure> {
    let ended = |error: myelin_inventory::Error| {
        failure(FailureKind::Ended, error.to_string(), Some("`myelin status` says how the run is"))
    };
    let accepted = accept_identity.is_some();
    if let Some(provider) = accept_identity {
        let known = inventory.accept_identity(provider.as_str().into()).await.map_err(ended)?;
        if !known {
            let message = format!("nobody asks who answers for {provider:?}");
            let hint = "`myelin census --fresh` says which providers are held, and why";
            return Err(failure(FailureKind::Refused, message, Some(hint)));
        }
    }
    if let Some(word) = collect {
        let collected = inventory.collect(word == Word::Person).await.map_err(ended)?;
        return Ok(CensusView::after(cluster, &collected));
    }
    let last = inventory.census();
    if fresh || accepted || last.at.is_none() {
        return Ok(CensusView::of(cluster, &*inventory.sweep_now().await.map_err(ended)?));
    }
    Ok(CensusView::of(cluster, &last))
}

#[expect(clippy::unnecessary_wraps, reason = "an arm of `answer`")]
fn changed(changed: bool) -> Result<Reply, Failure> {
    Ok(Reply::Done { changed })
}

fn patience(wait_ms: u64) -> Duration {
    Duration::from_millis(wait_ms).min(LONGEST_WAIT)
}

async fn events(
    handle: &Handle,
    node: Option<String>,
    after: Option<u64>,
    limit: usize,
    wait_ms: u64,
) -> Result<Reply, Failure> {
    let node = node.map(LogicalNodeId::from);
    let limit = limit.min(MAX_EVENTS);
    let events = match after {
        Some(after) if wait_ms > 0 => {
            handle.events_soon(node, after, limit, patience(wait_ms)).await?
        }
        Some(_) | None => handle.events(node, after, limit).await?,
    };
    Ok(Reply::Events(events))
}

fn parse(source: &Source) -> Result<crate::file::ClusterFile, Failure> {
    if source.origin.len() > MAX_ORIGIN {
        let message = format!("the name of the file has more than {MAX_ORIGIN} bytes");
        return Err(failure(FailureKind::Malformed, message, None));
    }
    source.parse().map_err(|errors| {
        if let Some(errors) = errors {
            return failure(FailureKind::Refused, errors.to_string().trim_end(), None);
        }
        let message = format!("{:?} is no format of a cluster file", shortened(&source.format));
        failure(FailureKind::Malformed, message, Some("yaml, json or toml"))
    })
}

impl From<runtime::Error> for Failure {
    fn from(error: runtime::Error) -> Self {
        let (kind, hint) = judge(&error);
        let message = error.to_string();
        let plan = if let runtime::Error::TakesReady(plan) = error { Some(plan) } else { None };
        Self { kind, message, hint, plan }
    }
}

fn judge(error: &runtime::Error) -> (FailureKind, Option<String>) {
    use runtime::Error;
    let hint = |text: &str| Some(text.to_owned());
    match error {
        Error::Ended | Error::NoAnswer => (FailureKind::Ended, None),
        Error::Store { .. } => (FailureKind::Refused, hint("it is tried again every second")),
        Error::Unrecorded { .. } => (
            FailureKind::Unrecorded,
            hint(
                "it is tried again every second; `myelin status` says when it works; it is lost if `myelin up` ends before",
            ),
        ),
        Error::Leaving => {
            (FailureKind::Refused, hint("wait until it is gone, then `myelin up` again"))
        }
        Error::OtherRun { .. } => {
            (FailureKind::Refused, hint("`--run` or `--state-dir` choose another run"))
        }
        Error::OtherGeneration { .. } => (
            FailureKind::Refused,
            hint("somebody else has changed the cluster: look at `myelin plan` again"),
        ),
        Error::TakesReady(_) => (FailureKind::TakesReady, hint("`--yes` agrees to that")),
        Error::UnknownProvider { .. } | Error::Invalid(_) | Error::Refused(_) => {
            (FailureKind::Refused, hint("change the file"))
        }
        Error::Unknown { near, .. } => {
            let near = near.as_ref().map(|near| format!("did you mean {near:?}?"));
            let hint = near.or_else(|| hint("`myelin nodes` lists them"));
            (FailureKind::Unknown, hint)
        }
        Error::NotApplicable { .. } => {
            (FailureKind::Refused, hint("`myelin explain NODE` says more"))
        }
    }
}
