//! What is wanted: groups with their options.

use std::time::Duration;

use myelin_shape::{FirstNode, Limit, OnFailure, RunId, RunNodeGroupSpec};

use super::{
    line::{Line, ScriptError, shown},
    read::pair,
};
use crate::world::PROVIDER;

/// More nodes than this are no cluster to read the history of.
const MOST_NODES: u32 = 1000;

/// Reads `a:3` or `b:2,image=v2,max-unavailable=1`, as many as there are.
pub(super) fn read_groups(line: &mut Line<'_>) -> Result<Vec<RunNodeGroupSpec>, ScriptError> {
    let mut groups: Vec<RunNodeGroupSpec> = Vec::new();
    while let Some(word) = line.next() {
        let mut parts = word.split(',');
        let head = parts.next().unwrap_or_default();
        let error = || line.error(format!("{} is not of the form group:count", shown(head)));
        let (id, count) = head.split_once(':').ok_or_else(error)?;
        let count: u32 = count.parse().map_err(|_| error())?;
        if count > MOST_NODES {
            return Err(line.error(format!("a group has at most {MOST_NODES} nodes here")));
        }
        if id.is_empty() || !id.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit()) {
            return Err(line.error("a group is named by small letters and digits"));
        }
        if groups.iter().any(|group| group.group_id.as_str() == id) {
            return Err(line.error(format!("group {id} is there already")));
        }
        let mut group = RunNodeGroupSpec::new(RunId(1), id, count, PROVIDER);
        group.shape.image = "v1".into();
        for part in parts {
            read_option(line, part, &mut group)?;
        }
        groups.push(group);
    }
    Ok(groups)
}

fn read_option(
    line: &Line<'_>,
    part: &str,
    group: &mut RunNodeGroupSpec,
) -> Result<(), ScriptError> {
    const KEYS: [&str; 7] = [
        "image",
        "max-unavailable",
        "max-unhealthy",
        "first",
        "in-flight",
        "on-failure",
        "keep-limit",
    ];
    let (key, value) = pair(line, part)?;
    let not = |what: &str| line.error(format!("{key} is {what}, not {}", shown(value)));
    let policy = &mut group.policy;
    match key {
        "image" => group.shape.image = value.into(),
        "max-unavailable" => {
            policy.max_unavailable =
                Some(limit(value).ok_or_else(|| not("a number or a share like 50%"))?);
        }
        "max-unhealthy" => {
            policy.max_unhealthy =
                limit(value).ok_or_else(|| not("a number or a share like 50%"))?;
        }
        "first" => {
            policy.first_node = Some(match value {
                "all" => FirstNode::All,
                "canary" => FirstNode::Canary,
                _ => return Err(not("all or canary")),
            });
        }
        "in-flight" => policy.max_in_flight_creates = value.parse().map_err(|_| not("a number"))?,
        "keep-limit" => policy.keep_limit = value.parse().map_err(|_| not("a number"))?,
        "on-failure" => {
            policy.on_failure = match value {
                "replace" => OnFailure::Replace,
                "keep" => OnFailure::Keep,
                _ => return Err(not("replace or keep")),
            };
            policy.keep_for = Duration::from_mins(20);
        }
        other => return Err(line.unknown("setting of a group", other, &KEYS)),
    }
    Ok(())
}

fn limit(text: &str) -> Option<Limit> {
    match text.strip_suffix('%') {
        Some(share) => share.parse().ok().filter(|&it: &u8| it <= 100).map(Limit::Percent),
        None => text.parse().ok().map(Limit::Count),
    }
}
