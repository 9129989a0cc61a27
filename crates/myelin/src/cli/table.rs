//! Tables without lines, as `kubectl` and `docker` print them.

use std::io::{self, IsTerminal as _};

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;

use crate::{printable::printable, view::NodeView};

use super::{
    output::{self, Style},
    time,
};

/// The longest lease name that is shown whole.
const LEASE_WIDTH: usize = 28;

/// Returns a table with a head.
pub(super) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// Returns the nodes as a table. What was recorded says for how long they were ready then.
pub(super) fn nodes(nodes: &[NodeView], as_of: Option<Timestamp>, style: Style) -> String {
    let ready_for = |since| time::from_to(since, as_of.unwrap_or_else(Timestamp::now));
    let rows = nodes.iter().map(|node| {
        vec![
            node.node.clone(),
            node.state.clone(),
            node.attempt.map_or("-".to_owned(), |attempt| attempt.to_string()),
            node.ready_since.map_or("-".to_owned(), ready_for),
            node.provider.clone(),
            node.lease.as_deref().map_or("-".to_owned(), lease),
            why(node),
        ]
    });
    let head = ["NODE", "STATE", "ATTEMPT", "READY FOR", "PROVIDER", "LEASE", "WHY"];
    let text = table(&head, rows);
    paint_states(&cut_to_terminal(&text), nodes, style)
}

/// Cuts lines to the width of the terminal, if it is one; `explain` says the rest.
fn cut_to_terminal(text: &str) -> String {
    if !io::stdout().is_terminal() {
        return text.to_owned();
    }
    let width = output::width(io::stdout());
    text.lines().map(|line| output::cut(line, width) + "\n").collect()
}

/// Colours are put in after the columns were measured.
fn paint_states(text: &str, nodes: &[NodeView], style: Style) -> String {
    if !style.on {
        return text.to_owned();
    }
    let mut lines = text.lines();
    let head = lines.next().map(|head| style.dim(head) + "\n");
    let body = lines.zip(nodes).map(|(line, node)| {
        let word = format!(" {} ", node.state);
        line.replacen(&word, &style.state(&node.state, &word), 1) + "\n"
    });
    head.into_iter().chain(body).collect()
}

/// Returns what is said of a node in a list: nothing of one that is as desired.
pub(super) fn why(node: &NodeView) -> String {
    if node.why.code == "steady" {
        return String::new();
    }
    let cause = node.delete_cause.as_ref().map(|cause| format!("{cause}: "));
    let until = match (node.why.until, &node.why.until_event) {
        (Some(time), _) => format!(", at most {} more", time::left(time)),
        (None, Some(event)) => format!(", until {event}"),
        (None, None) => String::new(),
    };
    format!("{}{}{until}", cause.unwrap_or_default(), printable(&node.why.text))
}

/// Shortens the name of a lease from its front: the end tells the node and the attempt.
fn lease(name: &str) -> String {
    let n_chars = name.chars().count();
    if n_chars <= LEASE_WIDTH {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(n_chars - LEASE_WIDTH + 1).collect();
    format!("…{kept}")
}
