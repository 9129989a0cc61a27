//! Group and run policy (`spec 1.6`). Never part of the immutable node spec: changing it replaces nothing.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Unexpected, Visitor},
};

/// A limit on how many slots of a scope: a number of slots, or percent of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many slots.
    Count(u32),
    /// So many percent of the scope's slots, rounded up; 0 to 100.
    Percent(u8),
}

impl Limit {
    /// Returns the limit in slots for a scope of `total` slots, percent rounded up.
    pub fn of(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let slots = (u64::from(total) * u64::from(percent)).div_ceil(100);
                u32::try_from(slots).unwrap_or(u32::MAX)
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The text is neither a number nor `0%` to `100%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of nodes or a percentage from 0% to 100%")]
pub struct ParseLimitError;

impl FromStr for Limit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            // The integer parsers would take a leading `+`.
            return Err(ParseLimitError);
        }
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(Self::Count).map_err(|_| ParseLimitError);
        };
        match percent.trim_end_matches(' ').parse() {
            Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
            Ok(_) | Err(_) => Err(ParseLimitError),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

/// Reads `3` and `"40%"`. Not an untagged enum, whose errors name neither what was found nor what would do.
struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of nodes or a percentage from 0% to 100%")
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<Limit, E> {
        let too_large = |_| E::invalid_value(Unexpected::Unsigned(count), &self);
        u32::try_from(count).map(Limit::Count).map_err(too_large)
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<Limit, E> {
        let negative = |_| E::invalid_value(Unexpected::Signed(count), &self);
        u32::try_from(count).map(Limit::Count).map_err(negative)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
        let neither = |_| E::invalid_value(Unexpected::Str(text), &self);
        text.parse().map_err(neither)
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of nodes, or a percentage such as `40%`, rounded up.",
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                { "type": "string", "pattern": "^([0-9]+|[0-9]+ *%)$" },
            ],
        })
    }
}

/// Whether a template nobody has yet been ready with starts with one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FirstNode {
    /// One node proves the template before the others start.
    Canary,
    /// All nodes start at once.
    All,
}

/// What happens to the machine of a failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is destroyed and the slot starts anew after its back-off.
    #[default]
    Replace,
    /// It is left as it is for [`GroupPolicy::keep_for`], so that a person can look.
    Keep,
}

/// How a group is changed and repaired. Read at every decision, stored with no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupPolicy {
    /// How many ready nodes voluntary replacement and scale-down may take at once, at least 1. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Limit>,
    /// Above so many failing nodes, repair becomes a trickle. At least 2 nodes.
    pub max_unhealthy: Limit,
    /// How an unproven template starts. Absent: `canary` for groups of 5 or more, else `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_node: Option<FirstNode>,
    /// How many creates of the group may be pending or ambiguous at once.
    pub max_in_flight_creates: u32,
    /// What happens to the machine of a failed attempt.
    pub on_failure: OnFailure,
    /// How many failed machines of the group are kept at most, with `on_failure: keep`.
    pub keep_limit: u32,
    /// How long a failed machine is kept, with `on_failure: keep`.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub keep_for: Duration,
}

impl Default for GroupPolicy {
    fn default() -> Self {
        Self {
            max_unavailable: None,
            max_unhealthy: DEFAULT_MAX_UNHEALTHY,
            first_node: None,
            max_in_flight_creates: 50,
            on_failure: OnFailure::Replace,
            keep_limit: 1,
            keep_for: Duration::from_hours(24),
        }
    }
}

impl GroupPolicy {
    /// Returns how an unproven template starts in a group of `count` nodes.
    pub fn first_node(&self, count: u32) -> FirstNode {
        self.first_node.unwrap_or(if count >= CANARY_FROM {
            FirstNode::Canary
        } else {
            FirstNode::All
        })
    }
}

/// Below five nodes a canary only makes the first start slower.
const CANARY_FROM: u32 = 5;

/// The share of failing nodes above which the cause is more likely ours or common than theirs.
const DEFAULT_MAX_UNHEALTHY: Limit = Limit::Percent(40);

/// Policy over all groups of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunPolicy {
    /// Above so many failing nodes of the run, repair becomes a trickle. At least 2 nodes.
    pub max_unhealthy: Limit,
}

impl Default for RunPolicy {
    fn default() -> Self {
        Self { max_unhealthy: DEFAULT_MAX_UNHEALTHY }
    }
}
