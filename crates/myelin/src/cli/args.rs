//! What may be typed.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Declare the cluster you want; myelin leases the machines, boots them, joins them and keeps it so.
#[derive(Debug, Parser)]
#[command(
    name = "myelin",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = "Begin with:\n  myelin up examples/quickstart.yaml\n\nExit status: 0 done, 1 refused or failed, 2 usage, 3 not converged."
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) globals: Globals,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct Globals {
    /// Where the run keeps its state [default: `$XDG_STATE_HOME/myelin/RUN`, or `~/.local/state/myelin/RUN`]
    #[arg(long, global = true, value_name = "DIR", env = "MYELIN_STATE_DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// Which run is meant [default: the run of ./myelin.yaml, or the only one there is]
    #[arg(long, global = true, value_name = "N", conflicts_with = "state_dir")]
    pub(super) run: Option<u64>,
    /// Log more: -v what is done, -vv everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// How logs are written to standard error; `MYELIN_LOG` filters them
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How results are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The option of every reader.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// How the result is written
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Format,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make the cluster a file declares, and keep it so until interrupted; the machines stay
    Up(UpArgs),
    /// Show what a file would do, touching nothing
    Plan(PlanArgs),
    /// Give a running `up` another file
    Apply(ApplyArgs),
    /// Show how the run is, by group
    Status(OutputArgs),
    /// List the nodes: where each is, and why
    Nodes(OutputArgs),
    /// Say everything about one node: where it is, why, until when, and what is next
    Explain(NodeReadArgs),
    /// Show what happened
    Events(EventsArgs),
    /// Show what a node's bootstraps printed
    Logs(LogsArgs),
    /// Release what holds a node or a group: back-off, quarantine, refusal, a kept machine
    Retry(TargetArgs),
    /// Replace a node's machine now
    Replace(NodeArgs),
    /// State that a node's machine no longer exists, so that nothing waits for its cleanup
    Abandon(AbandonArgs),
    /// Stop all effects: nothing is leased, booted or given back until `resume`
    Pause,
    /// Start effects again
    Resume,
    /// Remove every machine of the run, with or without a running `up`
    Down(DownArgs),
    /// List what exists and what it costs, and give back what is nobody's
    Census(CensusArgs),
    /// Copy the state of the run to a file, whether or not `up` runs
    Backup(BackupArgs),
    /// Put a copy of the state back, or go on from a state that is not the latest
    Restore(RestoreArgs),
    /// Play the loop in a simulated world, by a script or a seed
    Sim(SimArgs),
    /// Print the JSON Schema of the cluster file
    Schema,
    /// Print a completion script
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    /// Run the agent of a node (nodes do this)
    #[command(hide = true)]
    Agent {
        /// What the node was given to join with
        #[arg(long, value_name = "PATH")]
        join_file: PathBuf,
    },
    /// Break things on purpose
    #[command(hide = true)]
    Debug {
        #[command(subcommand)]
        what: DebugCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum DebugCommand {
    /// Cut the listener off from all agents, as if our own network were gone
    Sever {
        /// Whether it is cut off
        #[arg(value_parser = clap::builder::BoolishValueParser::new(), action = clap::ArgAction::Set)]
        severed: bool,
    },
}

/// The cluster file.
#[derive(Debug, Args)]
pub(super) struct FileArgs {
    /// The cluster file: *.yaml, *.json or *.toml [default: myelin.yaml]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,
    /// Leave when everything is as declared; the machines stay
    #[arg(long)]
    pub(super) until_converged: bool,
    /// With --until-converged: leave with status 3 when it takes longer [default: 30m]
    #[arg(long, value_name = "DURATION", requires = "until_converged", value_parser = humantime::parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// Where agents dial in: a loopback address; port 0 takes a free one [default: where they dialled before, or a free one]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Do not ask before ready nodes of a run that is taken up are deleted or replaced
    #[arg(short, long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Short for --output json
    #[arg(long, conflicts_with = "output")]
    pub(super) json: bool,
    /// Exit with 2 when there are changes
    #[arg(long)]
    pub(super) detailed_exitcode: bool,
    /// Print the file with every default filled in instead
    #[arg(long)]
    pub(super) show_defaults: bool,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// The cluster file: *.yaml, *.json or *.toml
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Refuse unless this generation is desired now
    #[arg(long, value_name = "N")]
    pub(super) if_generation: Option<u64>,
    /// Do not ask before ready nodes are deleted or replaced
    #[arg(short, long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct NodeReadArgs {
    /// The node, for example worker-0
    pub(super) node: String,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Of this node only
    pub(super) node: Option<String>,
    /// Go on as they happen
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Begin with at most so many of the latest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub(super) lines: usize,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The node, for example worker-0
    pub(super) node: String,
    /// Go on as they come
    #[arg(short, long)]
    pub(super) follow: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// A node, for example worker-0, or a whole group, for example worker
    #[arg(value_name = "NODE|GROUP")]
    pub(super) target: String,
}

#[derive(Debug, Args)]
pub(super) struct NodeArgs {
    /// The node, for example worker-0
    pub(super) node: String,
}

#[derive(Debug, Args)]
pub(super) struct AbandonArgs {
    /// The node, for example worker-0
    pub(super) node: String,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct CensusArgs {
    /// Look now, not as the last look of a running `up` found it
    #[arg(long)]
    pub(super) fresh: bool,
    /// Give back what is nobody's: few machines at once, and none while anything is in doubt
    #[arg(long)]
    pub(super) collect: bool,
    /// With --collect: however many there are, and also after a restore
    #[arg(short, long, requires = "collect")]
    pub(super) yes: bool,
    /// State that the right account, daemon or host answers for a provider now
    #[arg(long, value_name = "PROVIDER")]
    pub(super) accept_identity: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// Where to; there must be no such file yet
    pub(super) file: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// What `myelin backup` made
    #[arg(required_unless_present = "accept")]
    pub(super) file: Option<PathBuf>,
    /// Go on from a state although some of what was acted on is missing in it
    #[arg(long)]
    pub(super) accept: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct SimArgs {
    /// What happens, line by line [default: what the seed draws]
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Draws what happens; with a file, only how long each call takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Play so many seeds from that on, and show the first that breaks a rule, made short
    #[arg(long, value_name = "N", conflicts_with = "trace")]
    pub(super) seeds: Option<u64>,
    /// Show every call, report and step
    #[arg(long)]
    pub(super) trace: bool,
    /// Write the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct DownArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,
    /// For a state that cannot be read: remove all that the providers list of the cluster
    #[arg(long)]
    pub(super) without_state: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Give up when it takes longer
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    pub(super) timeout: Duration,
}
