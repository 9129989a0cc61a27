//! The operator's words about nodes.

use crate::control::{Operator, Reply, Request};

use super::{
    Outcome,
    args::{AbandonArgs, DebugCommand, Globals, NodeArgs, TargetArgs},
    ask,
    connect::{Loop, ask},
    output,
};

/// Passes a word on and returns the nodes it applied to, as a list for people.
async fn tell(
    globals: &Globals,
    target: String,
    request: Operator,
) -> Result<String, super::Failure> {
    let mut looped = Loop::connect(globals).await?;
    let request = Request::Operator { target, request };
    let concerned = ask!(looped, request, Reply::Concerned(nodes) => nodes);
    Ok(concerned.join(", "))
}

pub(super) async fn retry(globals: &Globals, args: TargetArgs) -> Outcome {
    let concerned = tell(globals, args.target, Operator::Retry).await?;
    output::print(&format!("released: {concerned}\n"))?;
    Ok(0)
}

pub(super) async fn replace(globals: &Globals, args: NodeArgs) -> Outcome {
    let concerned = tell(globals, args.node, Operator::Replace).await?;
    output::print(&format!("{concerned} is being replaced\n"))?;
    Ok(0)
}

pub(super) async fn abandon(globals: &Globals, args: AbandonArgs) -> Outcome {
    if !args.yes {
        let mut looped = Loop::connect(globals).await?;
        let request = Request::Explain { node: args.node.clone() };
        let view = ask!(looped, request, Reply::Explain(view) => view);
        let lease =
            view.node.lease.map_or("no lease is known".to_owned(), |it| format!("lease {it}"));
        ask::confirm(&format!(
            "Does the machine of {} ({lease}) no longer exist? If it does, nothing will clean it up.",
            args.node
        ))?;
    }
    let concerned = tell(globals, args.node, Operator::Abandon).await?;
    output::print(&format!("the machine of {concerned} counts as gone\n"))?;
    Ok(0)
}

pub(super) async fn pause(globals: &Globals) -> Outcome {
    let mut looped = Loop::connect(globals).await?;
    let changed = ask!(looped, Request::Pause {}, Reply::Done { changed } => changed);
    output::print(if changed {
        "paused: nothing is leased, booted or given back until `myelin resume`\n"
    } else {
        "paused already\n"
    })?;
    Ok(0)
}

pub(super) async fn resume(globals: &Globals) -> Outcome {
    let mut looped = Loop::connect(globals).await?;
    let changed = ask!(looped, Request::Resume {}, Reply::Done { changed } => changed);
    output::print(if changed { "resumed\n" } else { "not paused\n" })?;
    Ok(0)
}

pub(super) async fn debug(globals: &Globals, what: DebugCommand) -> Outcome {
    let DebugCommand::Sever { severed } = what;
    let mut looped = Loop::connect(globals).await?;
    ask!(looped, Request::Sever { severed }, Reply::Done { .. } => ());
    let state = if severed { "cut off from" } else { "open to" };
    output::print(&format!("the listener is {state} all agents\n"))?;
    Ok(0)
}
