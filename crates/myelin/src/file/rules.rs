//! Rules between keys, and those of `myelin_shape`, brought back to their places in the text.

use std::collections::BTreeSet;

use myelin_shape::{ShapeError, validate};

use super::{
    ClusterFile,
    node::{Entry, Node, Quoted, Span},
    report::{Problem, Problems},
};

/// Adds everything the cluster breaks that a key alone does not show.
pub(super) fn check(file: &ClusterFile, root: &Node, problems: &mut Problems<'_>) {
    check_order(file, root, problems);
    check_env(root, problems);
    let Err(errors) = validate(&file.shape(0), file.max_nodes) else {
        return;
    };
    // What could not be read is reported already, and what stands in for it may well break a rule.
    let known: BTreeSet<_> = problems.starts().collect();
    let mut last = None;
    for error in errors.0 {
        let span = place(root, &error);
        if !known.contains(&span.start) && last.as_ref() != Some(&span) {
            problems.push(problem(root, &error, span.clone()));
        }
        last = Some(span);
    }
}

/// Pairs of durations of which the first must be the shorter.
fn check_order(file: &ClusterFile, root: &Node, problems: &mut Problems<'_>) {
    let (agent, retry) = (&file.agent, &file.retry);
    let pairs = [
        ("agent.heartbeat", agent.heartbeat, "agent.silent_after", agent.silent_after),
        ("agent.silent_after", agent.silent_after, "retry.lost_after", retry.lost_after),
        ("retry.initial_delay", retry.initial_delay, "retry.max_delay", retry.max_delay),
    ];
    for (shorter, short, longer, long) in pairs {
        if short <= long {
            continue;
        }
        let given = [longer, shorter].into_iter().find_map(|path| exactly(root, path));
        let (short, long) = (humantime::format_duration(short), humantime::format_duration(long));
        let message = format!("{shorter} ({short}) must not be longer than {longer} ({long})");
        let span = given.map_or(root.span.clone(), |node| node.span.clone());
        let hint = "`myelin plan --show-defaults` shows the values you did not give";
        problems.push(Problem::new(span, message).hint(hint));
    }
}

/// Names no process can have in its environment.
fn check_env(root: &Node, problems: &mut Problems<'_>) {
    let groups = root.child("groups").and_then(|groups| groups.value.list());
    let groups = groups.unwrap_or_default();
    let envs = groups.iter().filter_map(|group| exactly(group, "boot.env"));
    for entry in envs.flat_map(entries) {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            let message = format!("{} is no name of an environment variable", Quoted(&entry.key));
            let problem = Problem::new(entry.key_span.clone(), message);
            problems.push(problem.hint("a name is not empty and holds no '='"));
        }
    }
}

fn entries(node: &Node) -> &[Entry] {
    node.value.map().map_or(&[], |map| &map.0)
}

fn problem(root: &Node, error: &ShapeError, span: Span) -> Problem {
    // The file calls the id `id`.
    let message = error.to_string().replacen(".group_id:", ".id:", 1);
    let problem = Problem::new(span, message);
    match error {
        ShapeError::DuplicateGroup { first, .. } => {
            let first = deepest(root, &format!("groups[{first}].id")).span.clone();
            problem.note(first, "first declared here").hint("give each group an id of its own")
        }
        ShapeError::TooManyNodes { .. } => {
            problem.hint("raise `max_nodes` at the top of the file if you mean it")
        }
        ShapeError::Id { .. } => problem.hint(
            "an id is 1 to 63 of a-z, 0-9 and inner '-'; that of a node, such as `worker-0`, too",
        ),
        ShapeError::ReservedLabel { .. } => {
            problem.hint("myelin marks what it owns with such labels; choose another name")
        }
        ShapeError::Number { .. }
        | ShapeError::NotUtf8 { .. }
        | ShapeError::ForeignRun { .. }
        | ShapeError::DuplicateNode { .. } => problem,
    }
}

/// Returns the place of the field a shape error names.
fn place(root: &Node, error: &ShapeError) -> Span {
    let node = field(root, error.path());
    let label = if let ShapeError::ReservedLabel { label, .. } = error {
        entries(node).iter().find(|entry| entry.key == *label)
    } else {
        None
    };
    label.map_or_else(|| node.span.clone(), |entry| entry.key_span.clone())
}

/// Finds a field of a shape under the name the file gives it, or what comes nearest.
fn field<'n>(root: &'n Node, path: &str) -> &'n Node {
    let id = path.replace(".group_id", ".id");
    let written = [path.replace(".role", ".id"), path.replace(".shape.", ".")];
    let exact = exactly(root, &id).or_else(|| written.iter().find_map(|path| exactly(root, path)));
    exact.unwrap_or_else(|| deepest(root, &id))
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|step| !step.is_empty())
}

fn exactly<'n>(root: &'n Node, path: &str) -> Option<&'n Node> {
    steps(path).try_fold(root, Node::child)
}

fn deepest<'n>(root: &'n Node, path: &str) -> &'n Node {
    let mut node = root;
    for step in steps(path) {
        match node.child(step) {
            Some(child) => node = child,
            None => break,
        }
    }
    node
}
