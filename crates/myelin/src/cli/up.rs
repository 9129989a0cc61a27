//! `up`: the loop in this process.

use std::{collections::BTreeSet, future, path::Path, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{interval, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    control::Source,
    file::ClusterFile,
    host::{self, Host, Opened},
    runtime::{self, Applied, Handle, Wanted},
    state_dir::StateDir,
};

use super::{
    NOT_CONVERGED, Outcome,
    args::{Globals, UpArgs},
    ask, connect,
    down::{LIST_DEADLINE, is_or_are, listing, machines},
    failure::Failure,
    output::{self, Style, note},
    plan, progress, read, table, time,
};

/// How long `--until-converged` waits by default: twice what a machine has to become ready.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// How often it is looked whether only a person can help.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many kinds of trouble are explained when nodes did not converge.
const MAX_EXPLAINED: usize = 5;

/// What ends the wait.
enum Ending {
    Converged,
    TimedOut,
    /// Nothing gets further without a person.
    Stuck,
    Signal(&'static str),
    /// Somebody said `down`, and nothing is left.
    TakenDown,
    /// The loop has ended by itself, which only a defect can do.
    Broken,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None when we were started so that a closed terminal does not concern us, as by `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "asked to end",
            _ = hangup => "the terminal was closed",
        }
    }
}

/// Returns whether this process was started with the signal of a closed terminal ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is signal 1, the lowest bit.
    mask.is_some_and(|mask| mask & 1 == 1)
}

pub(super) async fn up(globals: &Globals, args: UpArgs) -> Outcome {
    let path = connect::file(args.file.file.clone())?;
    let (source, file) = Source::read(&path)?;
    runtime::check_providers(&file, &host::kinds())?;
    let mut state = connect::state_of(globals, file.run)?;
    state.create()?;
    let lock = state.lock()?;
    let mut signals = Signals::new()?;
    let opened = Opened::open_or_begin(&state, file.run).await?;
    let n_before = opened.n_nodes();
    let (agent, retry) = (file.agent.clone(), file.retry.clone());
    let options = host::Options { listen: args.listen, agent, retry };
    let host = Host::start(&state, opened, options).await?;
    if n_before > 0 {
        note(format!("taking up {} of this run", machines(n_before)));
    }
    let commands = Commands::new(globals, &state, &file, &path);
    let wanted = Wanted { file, source: source.absolute().stored() };
    let outcome = drive(&host, wanted, &args, &mut signals, &commands).await;
    host.stop().await;
    drop(lock);
    outcome
}

/// What a person can type after us.
struct Commands {
    up: String,
    down: String,
}

impl Commands {
    fn new(globals: &Globals, state: &StateDir, file: &ClusterFile, path: &Path) -> Self {
        let path = connect::quoted(&path.to_string_lossy());
        match &globals.state_dir {
            Some(_) => {
                let state = connect::quoted(&state.path().to_string_lossy());
                Self {
                    up: format!("myelin up {path} --state-dir {state}"),
                    down: format!("myelin down --state-dir {state}"),
                }
            }
            None => Self {
                up: format!("myelin up {path}"),
                down: format!("myelin down --run {}", file.run),
            },
        }
    }
}

async fn drive(
    host: &Host,
    wanted: Wanted,
    args: &UpArgs,
    signals: &mut Signals,
    commands: &Commands,
) -> Outcome {
    let handle = &host.handle;
    let generation = want(handle, wanted, args.yes).await?.generation;
    let live = progress::is_live();
    let shown = CancellationToken::new();
    let shower = tokio::spawn(progress::show(handle.clone(), live, host.last_event, shown.clone()));
    let ending = wait(host, args, generation, signals).await;
    shown.cancel();
    let _ = timeout(LIST_DEADLINE, shower).await;
    match ending {
        Ending::Converged => {
            report(handle, &commands.down).await?;
            Ok(0)
        }
        Ending::TimedOut | Ending::Stuck => {
            let why = if matches!(ending, Ending::Stuck) {
                "not converged, and only a person can help"
            } else {
                "not converged in time"
            };
            not_converged(host, why, commands).await
        }
        Ending::TakenDown => finish(host, commands).await,
        Ending::Broken => Err(left_behind(host, "the loop has ended by itself", commands).await),
        Ending::Signal(why) => {
            let n = handle.pulse().borrow().n_nodes;
            detached(why, n, commands);
            Ok(u8::from(args.until_converged))
        }
    }
}

/// Makes the file the desired state. A run that is taken up may have ready nodes that another file takes.
async fn want(handle: &Handle, wanted: Wanted, yes: bool) -> Result<Applied, Failure> {
    let applied = match handle.apply(wanted.clone(), None, yes).await {
        Err(runtime::Error::TakesReady(plan)) => {
            output::print(&plan::plan_text(&plan, Style::stdout()))?;
            ask::confirm("Do this?")?;
            handle.apply(wanted, None, true).await
        }
        other => other,
    };
    match applied {
        // Nobody tries it again once this command has ended.
        Err(runtime::Error::Store { error } | runtime::Error::Unrecorded { error }) => {
            let failure = Failure::new(format!("nothing is done: {error}"));
            Err(failure.hint("mend that and start again"))
        }
        applied => Ok(applied?),
    }
}

/// Says what goes on without us.
fn detached(why: &str, n: usize, commands: &Commands) {
    let Commands { up, down } = commands;
    let text = match n {
        0 => format!("{why}: nothing is leased\n"),
        n => {
            let (stay, them) =
                if n == 1 { ("stays and goes on", "it") } else { ("stay and go on", "them") };
            format!(
                "{why}: {} {stay}; nothing is repaired until the run is taken up again with\n\n    {up}\n\n\
                 remove {them} with\n\n    {down}\n",
                machines(n)
            )
        }
    };
    // A terminal that was closed reads nothing any more, which is how we got here.
    let _ = output::print(&text);
}

async fn wait(host: &Host, args: &UpArgs, generation: u64, signals: &mut Signals) -> Ending {
    let handle = &host.handle;
    let deadline = time::deadline(args.timeout.unwrap_or(DEFAULT_TIMEOUT));
    let mut pulse = handle.pulse();
    let mut looks = interval(LOOK_EVERY);
    loop {
        let now = *pulse.borrow_and_update();
        if now.leaving && now.n_nodes == 0 {
            return Ending::TakenDown;
        }
        // A run that was taken up had converged before, with another file.
        let is_wanted = now.generation >= generation && !now.leaving;
        if args.until_converged && now.converged && is_wanted {
            return Ending::Converged;
        }
        tokio::select! {
            why = signals.next() => return Ending::Signal(why),
            changed = pulse.changed() => if changed.is_err() {
                return Ending::Broken;
            },
            () = sleep_until(deadline), if args.until_converged => return Ending::TimedOut,
            _ = looks.tick(), if args.until_converged => {
                if handle.is_stuck().await.unwrap_or(false) {
                    return Ending::Stuck;
                }
            }
        }
    }
}

/// Ends when nothing is left by the providers' own word.
async fn finish(host: &Host, commands: &Commands) -> Outcome {
    let why = "taken down by `myelin down`";
    match timeout(LIST_DEADLINE, host.leases()).await {
        Ok(Ok(left)) if left.is_empty() => {
            let _ = output::print(&format!("{why}: all machines are removed\n"));
            Ok(0)
        }
        Ok(Ok(_)) => Err(left_behind(host, why, commands).await),
        Ok(Err(_)) | Err(_) => {
            Err(Failure::new("the providers do not say whether anything is left")
                .hint("`myelin down` looks again"))
        }
    }
}

/// Names what is left, and how to remove it.
async fn left_behind(host: &Host, why: &str, commands: &Commands) -> Failure {
    let (what, them) = match timeout(LIST_DEADLINE, host.leases()).await {
        Ok(Ok(left)) if left.is_empty() => ("nothing is left".to_owned(), "what may still appear"),
        Ok(Ok(left)) => {
            note(listing(&left));
            match left.len() {
                1 => ("1 machine is left".to_owned(), "it"),
                n => (format!("{n} machines are left"), "them"),
            }
        }
        Ok(Err(_)) | Err(_) => ("what is left is not known".to_owned(), "what there is"),
    };
    Failure::new(format!("{why}: {what}")).hint(format!("remove {them} with `{}`", commands.down))
}

async fn report(handle: &Handle, down_command: &str) -> Result<(), Failure> {
    let nodes = handle.nodes().await?;
    output::print(&table::nodes(&nodes, None, Style::stdout()))?;
    output::print(&format!(
        "\nconverged: {} ready. They stay; remove them with\n\n    {down_command}\n",
        machines(nodes.len())
    ))
}

async fn not_converged(host: &Host, why: &str, commands: &Commands) -> Outcome {
    let handle = &host.handle;
    let nodes = handle.nodes().await?;
    let style = Style::stdout();
    output::print(&table::nodes(&nodes, None, style))?;
    let waiting: Vec<_> = nodes.iter().filter(|node| node.why.code != "steady").collect();
    // Nodes with the same trouble are explained by one of them.
    let mut told = BTreeSet::new();
    let distinct = waiting.iter().filter(|node| told.insert((&node.state, &node.why.text)));
    for node in distinct.take(MAX_EXPLAINED) {
        let view = handle.explain(node.node.as_str().into()).await?;
        output::print(&format!("\n{}", read::explain_text(&view, style)))?;
    }
    let left = timeout(LIST_DEADLINE, host.leases()).await;
    let hint = match left {
        Ok(Ok(left)) if left.is_empty() => {
            "nothing is leased; mend the file and try again".to_owned()
        }
        _ => format!(
            "what is leased stays: take it up again with `{}`, or remove it with `{}`",
            commands.up, commands.down
        ),
    };
    let are = is_or_are(waiting.len());
    let message = format!("{why}: {} of {} nodes {are} not ready", waiting.len(), nodes.len());
    Err(Failure::new(message).hint(hint).code(NOT_CONVERGED))
}
