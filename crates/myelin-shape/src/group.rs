//! Node groups and the templates their nodes share.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GroupPolicy, LogicalNodeId, NodeGroupId, ProviderKind, RoleId, RunId};

/// The machine a node wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DesiredNodeShape {
    /// The image to boot, in the provider's own terms. Empty: the provider's default.
    pub image: String,
    /// Disk in gigabytes (10⁹ bytes); 0: the provider's default.
    pub disk_gb: u32,
    /// Processors, in whole cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Memory in megabytes (10⁶ bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// Model of the accelerator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_name: Option<String>,
    /// Least accelerator memory in megabytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_gpu_ram_mb: Option<u32>,
    /// Least download rate in megabits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_down_mbps: Option<f64>,
    /// Least upload rate in megabits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_up_mbps: Option<f64>,
    /// Least reliability the provider states, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_reliability: Option<f64>,
    /// Whether only offers the provider has verified will do.
    pub require_verified: bool,
    /// Labels put on the lease. The prefix `myelin.` is reserved.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub provider_labels: BTreeMap<String, String>,
}

/// A directory of the host made visible on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Path on the host.
    pub source: PathBuf,
    /// Path on the node.
    pub target: PathBuf,
    /// Whether the node may not write there.
    #[serde(default)]
    pub read_only: bool,
}

/// How a leased machine becomes a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BootSpec {
    /// The user to connect as, for providers that connect over SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_user: Option<String>,
    /// Shell commands that must each exit with 0 before the agent is started, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify_commands: Vec<String>,
    /// Shell command that starts the agent. Absent: the agent that comes with myelin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_swactor_command: Option<String>,
    /// Files on the node that are followed as further standard output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stdout_sources: Vec<PathBuf>,
    /// Files on the node that are followed as further standard error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr_sources: Vec<PathBuf>,
    /// Environment of the verify and start commands.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Arguments appended to the start command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Directories of the host made visible on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

/// Where a secret is found. The secret itself is never part of a shape, a state, a plan or an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// Derived from the cluster's own secret and the attempt key.
    #[default]
    Cluster,
    /// An environment variable of the control plane.
    Env(String),
    /// A file readable by the control plane.
    File(PathBuf),
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// How nodes of a group join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SwarmJoinTemplate {
    /// `host:port` the agent dials. Absent: the listener of the control plane that boots the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orch_swactor_addr: Option<String>,
    /// Where the join token comes from.
    pub join_token_ref: SecretRef,
}

/// How one node joins: the group's template with the identity it must present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwarmJoinSpec {
    /// `host:port` the agent dials. Absent: the listener of the control plane that boots the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orch_swactor_addr: Option<String>,
    /// Where the join token comes from.
    pub join_token_ref: SecretRef,
    /// The slot the agent must join as.
    pub expected_logical_node_id: LogicalNodeId,
}

/// The immutable part that all nodes of a group share. Any change of it replaces the group's nodes (seed 1 §5.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeTemplate {
    /// The run the group belongs to.
    pub run_id: RunId,
    /// The group.
    pub group_id: NodeGroupId,
    /// What the nodes are for.
    pub role: RoleId,
    /// Who leases the machines.
    pub provider: ProviderKind,
    /// The machine wanted.
    pub shape: DesiredNodeShape,
    /// How the machine becomes a node.
    pub boot: BootSpec,
    /// How the node joins.
    pub swarm_join: SwarmJoinTemplate,
}

impl NodeTemplate {
    /// Returns whether two templates are the same one, or have equal content. Nearly always a pointer comparison.
    #[inline]
    pub fn same(left: &Arc<Self>, right: &Arc<Self>) -> bool {
        Arc::ptr_eq(left, right) || left == right
    }

    /// Returns a digest of everything in the template, as 32 hexadecimal digits.
    ///
    /// Leases carry it, so that only what was made from the same template is adopted (`spec 4.1`). Costs a
    /// serialisation; callers keep it.
    ///
    /// # Panics
    ///
    /// If a path is no UTF-8, which [`validate`](crate::validate()) refuses.
    pub fn digest(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("keys are strings, and paths are UTF-8");
        blake3::hash(&bytes).to_hex()[..32].into()
    }
}

/// One slot of the cluster with the template its next attempt is made from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogicalNodeSpec {
    /// The slot.
    pub logical_node_id: LogicalNodeId,
    /// Position in the group, from 0.
    pub index: u32,
    /// What all nodes of the group share.
    pub template: Arc<NodeTemplate>,
}

impl PartialEq for LogicalNodeSpec {
    fn eq(&self, other: &Self) -> bool {
        self.same_template(other) && self.logical_node_id == other.logical_node_id
    }
}

impl LogicalNodeSpec {
    /// Returns whether both slots are made from equal templates: the same one, or one with equal content.
    pub fn same_template(&self, other: &Self) -> bool {
        NodeTemplate::same(&self.template, &other.template)
    }

    /// Returns the group the slot belongs to.
    pub fn group_id(&self) -> &NodeGroupId {
        &self.template.group_id
    }

    /// Returns who leases the machine.
    pub fn provider(&self) -> &ProviderKind {
        &self.template.provider
    }

    /// Returns how this node joins.
    pub fn swarm_join(&self) -> SwarmJoinSpec {
        let SwarmJoinTemplate { orch_swactor_addr, join_token_ref } = &self.template.swarm_join;
        SwarmJoinSpec {
            orch_swactor_addr: orch_swactor_addr.clone(),
            join_token_ref: join_token_ref.clone(),
            expected_logical_node_id: self.logical_node_id.clone(),
        }
    }
}

/// A group of equal nodes, as a user declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunNodeGroupSpec {
    /// The run the group belongs to; equals [`ClusterShape::run_id`](crate::ClusterShape::run_id).
    pub run_id: RunId,
    /// The group.
    pub group_id: NodeGroupId,
    /// What the nodes are for.
    pub role: RoleId,
    /// How many nodes.
    pub count: u32,
    /// Who leases the machines.
    pub provider: ProviderKind,
    /// The machine wanted.
    #[serde(default)]
    pub shape: DesiredNodeShape,
    /// How the machine becomes a node.
    #[serde(default)]
    pub boot: BootSpec,
    /// How the node joins.
    #[serde(default)]
    pub swarm_join: SwarmJoinTemplate,
    /// How the group is changed and repaired. Not part of the immutable spec.
    #[serde(default)]
    pub policy: GroupPolicy,
}

impl RunNodeGroupSpec {
    /// Returns a group with defaults for everything else; its role is named like the group.
    pub fn new(run_id: RunId, group_id: &str, count: u32, provider: &str) -> Self {
        Self {
            run_id,
            group_id: group_id.into(),
            role: group_id.into(),
            count,
            provider: provider.into(),
            shape: DesiredNodeShape::default(),
            boot: BootSpec::default(),
            swarm_join: SwarmJoinTemplate::default(),
            policy: GroupPolicy::default(),
        }
    }

    /// Returns the immutable part, which the group's nodes share.
    pub fn template(&self) -> NodeTemplate {
        NodeTemplate {
            run_id: self.run_id,
            group_id: self.group_id.clone(),
            role: self.role.clone(),
            provider: self.provider.clone(),
            shape: self.shape.clone(),
            boot: self.boot.clone(),
            swarm_join: self.swarm_join.clone(),
        }
    }
}

/// Lists the slots of a group by index. All share one template.
pub fn expand_node_group(
    group: &RunNodeGroupSpec,
) -> impl Iterator<Item = LogicalNodeSpec> + use<> {
    let template = Arc::new(group.template());
    (0..group.count).map(move |index| LogicalNodeSpec {
        logical_node_id: LogicalNodeId::slot(&template.group_id, index),
        index,
        template: Arc::clone(&template),
    })
}
