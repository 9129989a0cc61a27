//! Sentences about nodes.

use myelin_decider::{Explanation, Held, HeldReason, Step, Trigger, Until};
use myelin_state::{LeaseMode, ManagedNode, NodeIntent, NodeStage, OperationKind};

use super::{Why, stamp};

/// Returns what an explanation says.
pub(super) fn why(explanation: &Explanation) -> Why {
    let plain = |code: &str, text: String| Why {
        code: code.to_owned(),
        text,
        until: None,
        until_event: None,
    };
    match explanation {
        Explanation::Unknown => plain("unknown", "not part of the cluster".to_owned()),
        Explanation::Steady => plain("steady", "as desired".to_owned()),
        Explanation::Missing => plain("missing", "its first attempt is about to start".to_owned()),
        Explanation::Next(step) => plain("next", format!("{} is next", action(*step))),
        Explanation::Held(held) => held_because(held),
    }
}

/// Returns what a hold says.
pub(super) fn held_because(held: &Held) -> Why {
    let (until, until_event) = match held.until {
        Until::At(time) => (Some(stamp(time)), None),
        Until::On(trigger) => (None, Some(awaited(trigger).to_owned())),
    };
    Why { code: held.reason.code().to_owned(), text: reason(&held.reason), until, until_event }
}

fn awaited(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::SpecChange => "its group changes in the file, or `myelin retry`",
        Trigger::Operator => "an operator says so",
        Trigger::GroupCounts => "other nodes get further",
    }
}

fn reason(reason: &HeldReason) -> String {
    match reason {
        HeldReason::Silent { since } => {
            format!("the agent is silent since {:.0}", stamp(*since))
        }
        HeldReason::Pending { kind, expired: false } => doing(*kind).to_owned(),
        HeldReason::Pending { kind, expired: true } => {
            format!("{} took too long and is being stopped", doing(*kind))
        }
        HeldReason::Backoff { failures } => {
            format!("the last step failed ({}), trying again", times(*failures))
        }
        HeldReason::RestartBackoff { failures } => {
            format!("the last attempt failed ({}), starting anew", times(*failures))
        }
        HeldReason::Refused { node, message } => {
            format!("the provider refused the template (at {node}): {message}")
        }
        HeldReason::Paused => "effects are paused, `myelin resume` starts them again".to_owned(),
        HeldReason::AwaitingEndpoint
        | HeldReason::AwaitingJoin
        | HeldReason::Quarantined { .. }
        | HeldReason::Kept
        | HeldReason::Budget { .. }
        | HeldReason::Canary { .. }
        | HeldReason::CanaryFailed { .. }
        | HeldReason::CreateLimit { .. }
        | HeldReason::Brake { .. }
        | HeldReason::AwaitingRepair { .. }
        | HeldReason::AllocatorExhausted => reason.to_string(),
    }
}

fn times(failures: u32) -> String {
    match failures {
        1 => "1 failure in a row".to_owned(),
        n => format!("{n} failures in a row"),
    }
}

fn doing(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::CreateLease => "leasing a machine",
        OperationKind::LookupEndpoint => "looking up the machine's endpoint",
        OperationKind::StartBootstrap => "starting the bootstrap",
        OperationKind::BootstrapConvergenceObserved => "handing the node to its agent",
        OperationKind::CancelBootstrap => "cancelling the bootstrap",
        OperationKind::DestroyLease => "giving the machine back",
    }
}

fn action(step: Step) -> &'static str {
    match step {
        Step::BeginDelete(_) => "cleanup",
        Step::MarkDestroyed => "noting that nothing is left",
        Step::Restart => "a fresh attempt",
        Step::Reap => "removal of the slot",
        Step::Dispatch(OperationKind::CreateLease, LeaseMode::AdoptOnly) => {
            "finding out whether a machine was leased"
        }
        Step::Dispatch(OperationKind::StartBootstrap, LeaseMode::AdoptOnly) => {
            "finding out whether a bootstrap was started"
        }
        Step::Dispatch(kind, LeaseMode::CreateOrAdopt | LeaseMode::AdoptOnly) => doing(kind),
    }
}

/// Returns what follows after what an explanation says.
pub(super) fn next(explanation: &Explanation, node: Option<&ManagedNode>) -> String {
    let held = match explanation {
        Explanation::Unknown => return "nothing".to_owned(),
        Explanation::Steady => return "nothing, unless its agent falls silent".to_owned(),
        Explanation::Missing => return "a machine is leased for it".to_owned(),
        Explanation::Next(step) => return format!("{}, with the next pass", action(*step)),
        Explanation::Held(held) => held,
    };
    after(&held.reason, node).to_owned()
}

fn after(reason: &HeldReason, node: Option<&ManagedNode>) -> &'static str {
    let deleting = node.is_some_and(|node| node.intent == NodeIntent::Deleting);
    match reason {
        HeldReason::Pending { expired: true, .. } => {
            "once the provider is known to have stopped, its outcome is settled first"
        }
        HeldReason::Pending { .. } if deleting => "cleanup goes on when the provider has answered",
        HeldReason::Pending { .. } => {
            "when the provider has answered, the node goes on; without an answer the effect is stopped and settled"
        }
        HeldReason::Backoff { .. } if deleting => "the cleanup is tried again",
        HeldReason::Backoff { .. } => "the same step is tried again",
        HeldReason::AwaitingEndpoint => "the endpoint is looked up again",
        HeldReason::AwaitingJoin => {
            "when the agent joins, the node is ready; if it does not in time, the machine is given back and the slot starts anew"
        }
        HeldReason::Silent { .. } => {
            "if the agent is heard by then nothing is lost; if not, the machine is replaced"
        }
        HeldReason::RestartBackoff { .. } => "a fresh attempt starts",
        HeldReason::Quarantined { .. } => {
            "nothing is leased for the slot; change the group in the file, or say `myelin retry`"
        }
        HeldReason::Refused { .. } => {
            "nothing is leased for the group; change it in the file, or say `myelin retry`"
        }
        HeldReason::Kept => {
            "the failed machine stays so that somebody can look at it; `myelin retry` gives it back earlier"
        }
        HeldReason::Budget { .. } => "it is taken when another node is ready again",
        HeldReason::Canary { .. } => "when that node is ready, the others follow",
        HeldReason::CanaryFailed { .. } => {
            "the other nodes stay unleased; change the group in the file, or say `myelin retry`"
        }
        HeldReason::CreateLimit { .. } => "its machine is leased when another create has ended",
        HeldReason::Brake { .. } => {
            "so many failures at once have a common cause; nodes are repaired one at a time until it is over"
        }
        HeldReason::AwaitingRepair { stuck: Some(_), .. } => {
            "nothing that failed is repaired by itself any more; say `myelin retry` for one of them"
        }
        HeldReason::AwaitingRepair { stuck: None, .. } => {
            "the fault may be ours, so no further machine is ended until a repaired node is ready"
        }
        HeldReason::Paused => "it goes on with `myelin resume`",
        HeldReason::AllocatorExhausted => "nothing; a new run is needed",
    }
}

/// Returns one word for where a node is.
pub(super) fn state(node: &ManagedNode, explanation: &Explanation) -> &'static str {
    let record = &node.record;
    let reason = match explanation {
        Explanation::Held(held) => Some(&held.reason),
        Explanation::Unknown
        | Explanation::Steady
        | Explanation::Missing
        | Explanation::Next(_) => None,
    };
    match (node.intent, record.stage) {
        (_, NodeStage::Destroyed) => match reason {
            Some(HeldReason::Quarantined { .. }) => "quarantined",
            Some(_) | None => "restarting",
        },
        (NodeIntent::Deleting, _) => "deleting",
        (NodeIntent::Active, NodeStage::Failed) => match reason {
            Some(HeldReason::Kept) => "kept",
            Some(_) | None => "failed",
        },
        (NodeIntent::Active, _) if record.silence.is_some() => "silent",
        (NodeIntent::Active, NodeStage::HandedOff | NodeStage::Dormant) => "ready",
        (NodeIntent::Active, NodeStage::New) => match reason {
            Some(HeldReason::Refused { .. }) => "refused",
            Some(_) | None => "waiting",
        },
        (NodeIntent::Active, NodeStage::LeaseRequested) => match reason {
            Some(HeldReason::Refused { .. }) => "refused",
            Some(_) | None => "leasing",
        },
        (NodeIntent::Active, NodeStage::LeaseCreated | NodeStage::EndpointKnown) => "leased",
        (NodeIntent::Active, NodeStage::BootstrapRunning) => "booting",
        (NodeIntent::Active, NodeStage::SwactorJoined) => "joined",
    }
}
