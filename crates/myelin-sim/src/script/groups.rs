//! What is wanted: groups with their options.

use std::time::Duration;

use myelin_shape::{
    ClusterShape, FirstNode, Limit, OnFailure, RunNodeGroupSpec, ShapeErrors, validate,
};

use super::{
    check::MOST_NODES,
    line::{Line, ScriptError, shown},
    read::pair,
};
use crate::world::{PROVIDER, RUN};

/// Reads `a:3` or `b:2,image=v2,max-unavailable=1`, as many as there are.
pub(super) fn read_groups(line: &mut Line<'_>) -> Result<Vec<RunNodeGroupSpec>, ScriptError> {
    let mut groups: Vec<RunNodeGroupSpec> = Vec::new();
    while let Some(word) = line.next() {
        let mut parts = word.split(',');
        let head = parts.next().unwrap_or_default();
        let error = || line.error(format!("{} is not of the form group:count", shown(head)));
        let (id, count) = head.split_once(':').ok_or_else(error)?;
        let count: u32 = count.parse().map_err(|_| error())?;
        if id.is_empty() || !id.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit()) {
            return Err(line.error("a group is named by small letters and digits"));
        }
        if groups.iter().any(|group| group.group_id.as_str() == id) {
            return Err(line.error(format!("group {id} is there already")));
        }
        let mut group = RunNodeGroupSpec::new(RUN, id, count, PROVIDER);
        group.shape.image = "v1".into();
        for part in parts {
            read_option(line, part, &mut group)?;
        }
        groups.push(group);
        let shape = ClusterShape::new(RUN, 1, groups.clone());
        validate(&shape, u64::from(MOST_NODES)).map_err(|errors| line.error(first_of(&errors)))?;
    }
    Ok(groups)
}

/// Renders what is wrong with a shape, without the place in a shape.
fn first_of(errors: &ShapeErrors) -> String {
    let text = errors.0.first().map(ToString::to_string).unwrap_or_default();
    text.split_once(": ").map_or(text.clone(), |(_, what)| what.to_owned())
}

/// Returns whether a limit lets anything through, as a cluster file demands of `max_unavailable`.
fn is_some(limit: Limit) -> bool {
    !matches!(limit, Limit::Count(0) | Limit::Percent(0))
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
            let limit = limit(value).filter(|&it| is_some(it));
            policy.max_unavailable = Some(limit.ok_or_else(|| not("at least 1 or 1%"))?);
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
        "in-flight" => {
            let number = value.parse().ok().filter(|&it| it > 0);
            policy.max_in_flight_creates = number.ok_or_else(|| not("a number above 0"))?;
        }
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
