//! Every key of the file: name, meaning, and what its value must fulfil.
//!
//! Defaults are those of the structs. A rule that `myelin_shape::validate` knows is not repeated here.

use std::{path::PathBuf, time::Duration};

use myelin_shape::{
    BootSpec, DEFAULT_MAX_NODES, DesiredNodeShape, GroupPolicy, Limit, Mount, RunId,
    RunNodeGroupSpec, RunPolicy, SwarmJoinTemplate,
};
use myelin_state::RetryPolicy;
use serde_json::Value as Json;

use super::{
    AgentSettings, ClusterFile,
    field::Field,
    node::{Node, Value},
    report::Problems,
    schema,
    section::{self, Key, Rule, Section, Visitor},
};

/// The most nodes `max_nodes` can allow: the largest run that is measured.
const MOST_NODES: u64 = 1_000_000;

/// The shortest pace of anything that repeats: below it a loop would mostly wait for itself.
const SHORTEST_PACE: Duration = Duration::from_millis(10);

const A_PACE: Rule<Duration> =
    Rule { expected: "a duration of at least 10ms", holds: |duration| *duration >= SHORTEST_PACE };

const AT_LEAST_1: Rule<u32> = Rule { expected: "1 or more", holds: |number| *number > 0 };

const PERCENT: Rule<u32> =
    Rule { expected: "a whole number from 0 to 100", holds: |number| *number <= 100 };

const NOT_NONE: Rule<Option<Limit>> = Rule {
    expected: "at least 1 or 1%",
    holds: |limit| !matches!(limit, Some(Limit::Count(0) | Limit::Percent(0))),
};

const MAX_NODES: Rule<u64> = Rule {
    expected: "a whole number from 1 to 1000000",
    holds: |number| (1..=MOST_NODES).contains(number),
};

const ABSOLUTE: Rule<PathBuf> =
    Rule { expected: "an absolute path", holds: |path| path.is_absolute() };

/// Visits fields whose keys have their names: the meaning of each, then what else is said of its [`Key`].
macro_rules! keys {
    ($visitor:expr, $section:expr; $($name:ident: $doc:literal $(, $more:ident $(($rule:expr))?)*;)*) => {$(
        let key = Key::new(stringify!($name), $doc)$(.$more($($rule)?))*;
        $visitor.key(key, &mut $section.$name);
    )*};
}

impl Section for ClusterFile {
    const NAME: &'static str = "the file";

    fn blank() -> Self {
        Self {
            run: RunId(0),
            groups: Vec::new(),
            policy: RunPolicy::default(),
            retry: RetryPolicy::default(),
            agent: AgentSettings::default(),
            max_nodes: DEFAULT_MAX_NODES,
        }
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            run: "The number of the run; state is kept per run.", required;
            groups: "The groups of equal nodes.", required;
            policy: "Policy over all groups.";
            retry: "How failures are retried and how long things may take.";
            agent: "How agents report.";
            max_nodes: "The most nodes all groups may want together.", must_be(MAX_NODES);
        }
    }
}

impl Section for RunNodeGroupSpec {
    const NAME: &'static str = "a group";

    fn blank() -> Self {
        Self::new(RunId(0), "", 1, "process")
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        let id = Key::new(
            "id",
            "The name of the group: a-z, 0-9 and inner '-'. Its nodes are `{id}-0`, `{id}-1`, …",
        );
        v.key(id.required(), &mut self.group_id);
        if self.role.as_str().is_empty() {
            self.role = self.group_id.as_str().into();
        }
        keys! { v, self;
            role: "What the nodes are for. Default: the id.";
            count: "How many nodes.";
            provider: "Who leases the machines.";
        }
        let shape =
            Key::new("shape", "The machine wanted. Its keys may also stand directly in the group.");
        v.flat(shape, &mut self.shape);
        keys! { v, self;
            boot: "How a machine becomes a node.";
        }
        v.key(Key::new("join", "How a node joins."), &mut self.swarm_join);
        keys! { v, self;
            policy: "How the group is changed and repaired. Changing it replaces nothing.";
        }
    }
}

impl Section for DesiredNodeShape {
    const NAME: &'static str = "a shape";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            image: "The image to boot, in the provider's own terms. Empty: the provider's default.";
            disk_gb: "Disk in gigabytes (10⁹ bytes). 0: the provider's default.";
            cpu: "Processors, in whole cores.";
            memory_mb: "Memory in megabytes (10⁶ bytes).";
            gpu_name: "Model of the accelerator.";
            min_gpu_ram_mb: "Least accelerator memory in megabytes.";
            min_down_mbps: "Least download rate in megabits per second.";
            min_up_mbps: "Least upload rate in megabits per second.";
            min_reliability: "Least reliability the provider states, 0 to 1.";
            require_verified: "Whether only offers the provider has verified will do.";
            provider_labels: "Labels put on the lease. The prefix `myelin.` is reserved.";
        }
    }
}

impl Section for BootSpec {
    const NAME: &'static str = "a boot section";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            ssh_user: "The user to connect as, for providers that connect over SSH.";
            verify_commands: "Shell commands that must each exit with 0 before the agent is started, in order.";
            start_swactor_command: "Shell command that starts the agent. Default: the agent that comes with myelin.";
            stdout_sources: "Files on the node that are followed as further standard output.";
            stderr_sources: "Files on the node that are followed as further standard error.";
            env: "Environment of the verify and start commands.";
            args: "Arguments appended to the start command.";
            mounts: "Directories of the host made visible on the node.";
        }
    }
}

impl Section for Mount {
    const NAME: &'static str = "a mount";

    fn blank() -> Self {
        Self { source: PathBuf::new(), target: PathBuf::new(), read_only: false }
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            source: "Path on the host.", required, must_be(ABSOLUTE);
            target: "Path on the node.", required;
            read_only: "Whether the node may not write there.";
        }
    }
}

impl Section for SwarmJoinTemplate {
    const NAME: &'static str = "a join section";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            orch_swactor_addr: "`host:port` the agent dials. Default: the control plane that boots the node.";
            join_token_ref: "Where the join token comes from: `cluster`, `env:NAME` or `file:PATH`.";
        }
    }
}

impl Section for GroupPolicy {
    const NAME: &'static str = "the policy of a group";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            max_unavailable: "How many ready nodes a change may take at once: a number or percent. Default: no limit.", must_be(NOT_NONE);
            max_unhealthy: "Above so many failing nodes, a number or percent, repair becomes a trickle.";
            first_node: "Whether an unproven template starts with one node. Default: `canary` for groups of 5 or more, else `all`.";
            max_in_flight_creates: "How many machines of the group may be being created at once.";
            on_failure: "Whether the machine of a failed attempt is replaced, or kept for a person to look at.";
            keep_limit: "How many failed machines of the group are kept at most.";
            keep_for: "How long a failed machine is kept.";
        }
    }
}

impl Section for RunPolicy {
    const NAME: &'static str = "the policy of the run";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            max_unhealthy: "Above so many failing nodes of the run, a number or percent, repair becomes a trickle.";
        }
    }
}

impl Section for RetryPolicy {
    const NAME: &'static str = "the retry section";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            initial_delay: "Delay after the first failure.", must_be(A_PACE);
            factor: "By how much each further failure multiplies the delay.", must_be(AT_LEAST_1);
            max_delay: "The longest delay, before jitter.", must_be(A_PACE);
            jitter_percent: "Up to so many percent are added to a delay.", must_be(PERCENT);
            operation_timeout: "How long an effect may take before it is asked to stop.", must_be(A_PACE);
            answer_timeout: "How long it has to answer that before it is asked again.", must_be(A_PACE);
            endpoint_probe_interval: "How long to wait between look-ups of an endpoint that is not there yet.", must_be(A_PACE);
            ready_timeout: "How long a leased machine has to become ready.", must_be(A_PACE);
            bootstrap_timeout: "How long a bootstrap has until the agent joins.", must_be(A_PACE);
            stable_after: "How long a node must be ready until its failures are forgotten.", must_be(A_PACE);
            lost_after: "How long an agent may be silent before its attempt ends.", must_be(A_PACE);
            max_consecutive_failures: "After so many failed attempts in a row a slot is quarantined. 0: never.";
            max_cancel_failures: "How often a cancel may fail before the lease is destroyed all the same.", must_be(AT_LEAST_1);
        }
    }
}

impl Section for AgentSettings {
    const NAME: &'static str = "the agent section";

    fn blank() -> Self {
        Self::default()
    }

    fn keys(&mut self, v: &mut impl Visitor) {
        keys! { v, self;
            heartbeat: "How often an agent reports, and the longest it pauses before it dials again.", must_be(A_PACE);
            silent_after: "How long an agent may report nothing before it counts as silent.", must_be(A_PACE);
        }
    }
}

macro_rules! section_field {
    ($($type:ty),* $(,)?) => {$(
        impl Field for $type {
            const EXPECTED: &'static str = "a map of keys";

            /// Always returns a section, so that positions in a list stay those of the file.
            fn read(node: &Node, _subject: &str, problems: &mut Problems<'_>) -> Option<Self> {
                Some(section::read(node, problems))
            }

            fn write(&self) -> Value {
                section::write(self)
            }

            fn schema() -> Json {
                schema::of_section::<Self>()
            }
        }
    )*};
}

section_field!(
    RunNodeGroupSpec,
    DesiredNodeShape,
    BootSpec,
    Mount,
    SwarmJoinTemplate,
    GroupPolicy,
    RunPolicy,
    RetryPolicy,
    AgentSettings,
);
