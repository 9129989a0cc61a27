//! What differs between two revisions of a group, field by field.

use std::{collections::BTreeMap, fmt};

use myelin_shape::RunNodeGroupSpec;

use super::{
    node::{Node, Value},
    section,
};

/// Ends of names whose values are not shown.
const SECRET_ENDINGS: [&str; 4] = ["TOKEN", "KEY", "SECRET", "PASSWORD"];

/// One field that differs, under the name the file gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// The field, for example `shape.image`.
    pub path: String,
    /// The old value as JSON; none if there was none.
    pub old: Option<String>,
    /// The new value as JSON; none if there is none.
    pub new: Option<String>,
    /// Whether the change replaces the nodes of the group.
    pub replaces: bool,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let old = self.old.as_deref().unwrap_or("unset");
        let new = self.new.as_deref().unwrap_or("unset");
        write!(f, "{} {old} → {new}", self.path)
    }
}

/// Returns the fields in which two revisions of a group differ, in the order of their paths.
///
/// Values of names that end like a secret's (`API_KEY`, `token`) read `(hidden)`.
pub fn changes(old: &RunNodeGroupSpec, new: &RunNodeGroupSpec) -> Vec<FieldChange> {
    let (old, new) = (leaves(old), leaves(new));
    let mut paths: Vec<_> = old.keys().chain(new.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let differs = |path: &&String| old.get(*path) != new.get(*path);
    let change = |path: &String| FieldChange {
        path: path.clone(),
        old: old.get(path).map(|value| shown(path, value)),
        new: new.get(path).map(|value| shown(path, value)),
        replaces: path != "count" && !path.starts_with("policy."),
    };
    paths.into_iter().filter(differs).map(change).collect()
}

fn leaves(group: &RunNodeGroupSpec) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    collect("", &section::write(group).anywhere(), &mut leaves);
    leaves
}

/// Lists are leaves: of an ordered whole, one changed place says little.
fn collect(path: &str, node: &Node, leaves: &mut BTreeMap<String, String>) {
    if let Value::Map(map) = &node.value {
        let dot = if path.is_empty() { "" } else { "." };
        for entry in &map.0 {
            collect(&format!("{path}{dot}{}", entry.key), &entry.node, leaves);
        }
    } else {
        let text = serde_json::to_string(node).expect("a written section has text keys only");
        leaves.insert(path.to_owned(), text);
    }
}

fn shown(path: &str, value: &str) -> String {
    let path = path.to_ascii_uppercase();
    if SECRET_ENDINGS.iter().any(|ending| path.ends_with(ending)) {
        return "(hidden)".to_owned();
    }
    value.to_owned()
}
