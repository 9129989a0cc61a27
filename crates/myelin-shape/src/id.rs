//! Identities. Strings are inline up to 23 bytes and shared above, so that a clone never copies more than 24 bytes.

use std::{borrow::Borrow, fmt, ops::Range, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// The longest id: what fits a DNS label, since providers derive host names from ids.
const MAX_ID_BYTES: usize = 63;

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(transparent)]
        pub struct $name(#[schemars(with = "String")] SmolStr);

        impl $name {
            /// Wraps the text as it is; [`validate`](crate::validate()) checks the grammar where one applies.
            pub fn new(text: impl Into<SmolStr>) -> Self {
                Self(text.into())
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.0.as_str(), f)
            }
        }
    };
}

string_id! {
    /// A stable slot of the cluster, `{group}-{index}`. Ordered as text.
    LogicalNodeId
}
string_id! {
    /// A group of nodes that share one template.
    NodeGroupId
}
string_id! {
    /// What the nodes of a group are for. Free to the user; part of the immutable spec.
    RoleId
}
string_id! {
    /// Which provider leases the machines, for example `process`.
    ProviderKind
}
string_id! {
    /// The provider's own name for a lease.
    ProviderLeaseId
}
string_id! {
    /// An agent that has joined from a node. Stable over restarts of that agent.
    SwactorId
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        #[schemars(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number_id! {
    /// One declared cluster under one driver.
    RunId
}
number_id! {
    /// One incarnation of a slot. Allocated once per run and never reused (seed 1 §5.2).
    NodeAttemptId
}
number_id! {
    /// One bootstrap of one attempt, as the executor numbers it.
    BootstrapSessionId
}

impl NodeGroupId {
    /// Returns a range of ids that holds every slot of the group, and slots of groups whose name begins with
    /// `{group}-`.
    pub fn slots(&self) -> Range<LogicalNodeId> {
        // `-` is followed by `.` in ASCII.
        LogicalNodeId(smol_str::format_smolstr!("{self}-"))
            ..LogicalNodeId(smol_str::format_smolstr!("{self}."))
    }
}

impl LogicalNodeId {
    /// Returns the slot's id under the `{group}-{index}` convention.
    pub fn slot(group: &NodeGroupId, index: u32) -> Self {
        Self(smol_str::format_smolstr!("{group}-{index}"))
    }
}

/// One dispatched effect of an attempt: `sequence` counts up from 0 within the attempt.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct OperationId {
    /// The attempt the effect belongs to.
    pub attempt: NodeAttemptId,
    /// Position among the effects of that attempt.
    pub sequence: u64,
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.sequence)
    }
}

/// 128 random bits that make the labels and tokens of one state directory unique (`spec 1.1`).
///
/// Minting one needs a random source, which is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(transparent)]
pub struct ClusterUid(#[schemars(with = "String")] pub [u8; 16]);

impl fmt::Display for ClusterUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cluster uid is 32 hexadecimal digits")]
pub struct ParseClusterUidError;

impl FromStr for ClusterUid {
    type Err = ParseClusterUidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let canonical = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(canonical) {
            return Err(ParseClusterUidError);
        }
        u128::from_str_radix(text, 16)
            .map(|bits| Self(bits.to_be_bytes()))
            .map_err(|_| ParseClusterUidError)
    }
}

impl Serialize for ClusterUid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClusterUid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What a lease, a session and a join token are named by, everywhere (`spec 1.1`).
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct AttemptKey {
    /// The cluster the attempt belongs to.
    pub cluster: ClusterUid,
    /// The number the user gave the run.
    pub run: RunId,
    /// The slot.
    pub node: LogicalNodeId,
    /// The incarnation of the slot.
    pub attempt: NodeAttemptId,
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, run, node, attempt } = self;
        write!(f, "{cluster}.{run}.{node}.{attempt}")
    }
}

/// Why a text is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing was given.
    #[error("must not be empty")]
    Empty,
    /// More than 63 bytes were given.
    #[error("has {0} bytes, at most 63 are allowed")]
    TooLong(usize),
    /// A character outside the grammar was given.
    #[error("may hold only a-z, 0-9 and inner '-', not {0:?}")]
    Character(char),
}

/// Checks `[a-z0-9]([a-z0-9-]*[a-z0-9])?`, 1 to 63 bytes.
///
/// # Errors
///
/// Returns the first rule the text breaks.
pub fn check_id(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong(text.len()));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if let Some(other) = text.chars().find(|&c| !allowed(c)) {
        return Err(IdError::Character(other));
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err(IdError::Character('-'));
    }
    Ok(())
}
