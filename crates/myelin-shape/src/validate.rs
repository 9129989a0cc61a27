//! Rules every shape obeys, reported all at once.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    path::Path,
};

use crate::{
    ClusterShape, DesiredNodeShape, GroupPolicy, IdError, Limit, LogicalNodeId, LogicalNodeSpec,
    NodeGroupId, RunId, RunNodeGroupSpec, SecretRef, check_id,
};

/// The most nodes of a run unless the caller says otherwise: ten times the largest clusters people run by hand.
pub const DEFAULT_MAX_NODES: u64 = 100_000;

/// Labels with this prefix, in any case, carry our own identity and can't be set by a user.
pub const RESERVED_LABEL_PREFIX: &str = "myelin.";

/// One rule a shape breaks. `path` names the field, for example `groups[1].shape.min_reliability`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A group names another run than the shape.
    #[error("{path}: belongs to run {found}, but the shape is of run {expected}")]
    ForeignRun {
        /// Where.
        path: String,
        /// The shape's run.
        expected: RunId,
        /// The group's run.
        found: RunId,
    },
    /// Two groups have one id.
    #[error("{path}: group {group:?} is already declared by groups[{first}]")]
    DuplicateGroup {
        /// Where the second one is.
        path: String,
        /// The id.
        group: NodeGroupId,
        /// Position of the first one.
        first: usize,
    },
    /// Two slots have one id.
    #[error("groups expand to {node:?} twice")]
    DuplicateNode {
        /// The id.
        node: LogicalNodeId,
    },
    /// A text is no id.
    #[error("{path}: {text:?} is no id: {source}")]
    Id {
        /// Where.
        path: String,
        /// The text, cut to 80 characters.
        text: String,
        /// The rule it breaks.
        source: IdError,
    },
    /// A number is not finite, or out of its range.
    #[error("{path}: must be {expected}, not {found}")]
    Number {
        /// Where.
        path: String,
        /// What would do.
        expected: &'static str,
        /// What was found, as text.
        found: String,
    },
    /// A file path is no UTF-8, so that it could not be kept.
    #[error("{path}: {found:?} is not UTF-8")]
    NotUtf8 {
        /// Where.
        path: String,
        /// The path, with replacement characters for what is not UTF-8.
        found: String,
    },
    /// The groups want more nodes than the ceiling.
    #[error("{path}: {wanted} nodes wanted, at most {max} are allowed")]
    TooManyNodes {
        /// Where.
        path: String,
        /// How many the run wants up to this group.
        wanted: u64,
        /// The ceiling.
        max: u64,
    },
    /// A provider label begins with `myelin.`.
    #[error("{path}: label {label:?} begins with {RESERVED_LABEL_PREFIX:?}, which is reserved")]
    ReservedLabel {
        /// Where.
        path: String,
        /// The label.
        label: String,
    },
}

impl ShapeError {
    /// Returns the path of the offending field, such as `groups[0].count`; empty for the shape as a whole.
    pub fn path(&self) -> &str {
        match self {
            Self::ForeignRun { path, .. }
            | Self::DuplicateGroup { path, .. }
            | Self::Id { path, .. }
            | Self::Number { path, .. }
            | Self::NotUtf8 { path, .. }
            | Self::TooManyNodes { path, .. }
            | Self::ReservedLabel { path, .. } => path,
            Self::DuplicateNode { .. } => "",
        }
    }
}

/// Everything that is wrong with a shape; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeErrors(pub Vec<ShapeError>);

impl fmt::Display for ShapeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ShapeErrors {}

/// Checks every rule of a shape in time linear in its groups, whatever their counts.
///
/// # Errors
///
/// Every broken rule, the run's policy first and then in the order of the groups.
pub fn validate(shape: &ClusterShape, max_nodes: u64) -> Result<(), ShapeErrors> {
    let mut errors = Vec::new();
    check_limit("policy.max_unhealthy", shape.policy.max_unhealthy, &mut errors);
    let mut seen = BTreeMap::new();
    let mut wanted = 0_u64;
    for (position, group) in shape.groups.iter().enumerate() {
        let path = format!("groups[{position}]");
        check_group(&path, group, shape.run_id, &mut errors);
        match seen.entry(&group.group_id) {
            Entry::Vacant(entry) => {
                entry.insert(position);
            }
            Entry::Occupied(entry) => errors.push(ShapeError::DuplicateGroup {
                path: format!("{path}.group_id"),
                group: group.group_id.clone(),
                first: *entry.get(),
            }),
        }
        let before = wanted;
        wanted += u64::from(group.count);
        if before <= max_nodes && wanted > max_nodes {
            let path = format!("{path}.count");
            errors.push(ShapeError::TooManyNodes { path, wanted, max: max_nodes });
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ShapeErrors(errors)) }
}

fn check_group(path: &str, group: &RunNodeGroupSpec, run: RunId, errors: &mut Vec<ShapeError>) {
    if group.run_id != run {
        errors.push(ShapeError::ForeignRun {
            path: format!("{path}.run_id"),
            expected: run,
            found: group.run_id,
        });
    }
    let group_is_an_id = push_id(&format!("{path}.group_id"), group.group_id.as_str(), errors);
    push_id(&format!("{path}.role"), group.role.as_str(), errors);
    push_id(&format!("{path}.provider"), group.provider.as_str(), errors);
    if group_is_an_id && group.count > 0 {
        // The longest slot id is the last one, and host names are derived from it.
        let last = LogicalNodeId::slot(&group.group_id, group.count - 1);
        push_id(&format!("{path}.group_id"), last.as_str(), errors);
    }
    check_shape(&format!("{path}.shape"), &group.shape, errors);
    check_paths(path, group, errors);
    check_policy(&format!("{path}.policy"), &group.policy, errors);
}

fn push_id(path: &str, text: &str, errors: &mut Vec<ShapeError>) -> bool {
    let Err(source) = check_id(text) else {
        return true;
    };
    let (path, text) = (path.to_owned(), text.chars().take(80).collect());
    errors.push(ShapeError::Id { path, text, source });
    false
}

fn check_shape(path: &str, shape: &DesiredNodeShape, errors: &mut Vec<ShapeError>) {
    let rate = "a finite number, 0 or more";
    let numbers = [
        ("min_down_mbps", shape.min_down_mbps, f64::MAX, rate),
        ("min_up_mbps", shape.min_up_mbps, f64::MAX, rate),
        ("min_reliability", shape.min_reliability, 1.0, "a number from 0 to 1"),
    ];
    for (field, value, max, expected) in numbers {
        if let Some(value) = value.filter(|value| !(0.0..=max).contains(value)) {
            let (path, found) = (format!("{path}.{field}"), value.to_string());
            errors.push(ShapeError::Number { path, expected, found });
        }
    }
    let reserved = |label: &&String| {
        let prefix = label.get(..RESERVED_LABEL_PREFIX.len());
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(RESERVED_LABEL_PREFIX))
    };
    for label in shape.provider_labels.keys().filter(reserved) {
        let (path, label) = (format!("{path}.provider_labels"), label.clone());
        errors.push(ShapeError::ReservedLabel { path, label });
    }
}

fn check_paths(path: &str, group: &RunNodeGroupSpec, errors: &mut Vec<ShapeError>) {
    let boot = &group.boot;
    let sources = boot.stdout_sources.iter().chain(&boot.stderr_sources);
    let mounts = boot.mounts.iter();
    let mounts = mounts.flat_map(|mount| [&mount.source, &mount.target]);
    let mut check = |field: &str, file: &Path| {
        if file.to_str().is_none() {
            let (path, found) = (format!("{path}.{field}"), file.to_string_lossy().into());
            errors.push(ShapeError::NotUtf8 { path, found });
        }
    };
    sources.for_each(|file| check("boot", file));
    mounts.for_each(|file| check("boot.mounts", file));
    if let SecretRef::File(file) = &group.swarm_join.join_token_ref {
        check("swarm_join.join_token_ref", file);
    }
}

fn check_policy(path: &str, policy: &GroupPolicy, errors: &mut Vec<ShapeError>) {
    if let Some(limit) = policy.max_unavailable {
        check_limit(&format!("{path}.max_unavailable"), limit, errors);
    }
    let max_unhealthy = policy.max_unhealthy;
    check_limit(&format!("{path}.max_unhealthy"), max_unhealthy, errors);
    if policy.max_in_flight_creates == 0 {
        errors.push(ShapeError::Number {
            path: format!("{path}.max_in_flight_creates"),
            expected: "1 or more",
            found: "0".to_owned(),
        });
    }
}

fn check_limit(path: &str, limit: Limit, errors: &mut Vec<ShapeError>) {
    if matches!(limit, Limit::Percent(101..)) {
        let (path, found) = (path.to_owned(), limit.to_string());
        errors.push(ShapeError::Number { path, expected: "at most 100%", found });
    }
}

/// Collects slots into the desired map.
///
/// The id grammar makes slots of groups with different ids differ (an index holds no `-`), so this refuses only what
/// [`validate`] would have refused; it is the seed's rule all the same, and guards a change of the convention.
pub(crate) fn check_unique_slots(
    slots: impl Iterator<Item = LogicalNodeSpec>,
) -> Result<BTreeMap<LogicalNodeId, LogicalNodeSpec>, ShapeErrors> {
    let mut twice = BTreeSet::new();
    let mut sorted: Vec<_> = slots.map(|spec| (spec.logical_node_id.clone(), spec)).collect();
    sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
    for pair in sorted.windows(2) {
        if pair[0].0 == pair[1].0 {
            twice.insert(pair[0].0.clone());
        }
    }
    if twice.is_empty() {
        return Ok(sorted.into_iter().collect());
    }
    Err(ShapeErrors(twice.into_iter().map(|node| ShapeError::DuplicateNode { node }).collect()))
}
