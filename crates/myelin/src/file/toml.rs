//! TOML as a spanned tree.

use ::toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    node::{Entry, MAX_DEPTH, MAX_NODES, Map, Node, Value},
    report::{Problem, Problems},
    yaml,
};

/// Reads a TOML text. The first thing that is no TOML is added to the problems.
pub(super) fn parse_toml(problems: &mut Problems<'_>) -> Option<Node> {
    let mut n_nodes = 0;
    let parsed = DeTable::parse(problems.text()).map_err(|error| {
        let span = error.span().unwrap_or_default();
        let problem = Problem::new(span, format!("not valid TOML: {}", error.message()));
        problem.hint("texts are quoted, and each group begins with `[[groups]]`")
    });
    let tree = parsed.and_then(|table| {
        let (span, table) = (table.span(), table.into_inner());
        let value = map(table, 1, &mut n_nodes)?;
        let span = span.start..span.start;
        Ok(Node { span, value })
    });
    match tree {
        Ok(node) => Some(node),
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

fn map(table: DeTable<'_>, depth: usize, n_nodes: &mut usize) -> Result<Value, Problem> {
    let entries = table.into_iter().map(|(key, value)| {
        Ok(Entry {
            key_span: key.span(),
            key: key.into_inner().into_owned(),
            node: node(value, depth, n_nodes)?,
        })
    });
    entries.collect::<Result<_, _>>().map(|entries| Value::Map(Map(entries)))
}

fn node(value: Spanned<DeValue<'_>>, depth: usize, n_nodes: &mut usize) -> Result<Node, Problem> {
    let span = value.span();
    *n_nodes += 1;
    if *n_nodes > MAX_NODES {
        let message = format!("the file holds more than {MAX_NODES} values");
        return Err(Problem::new(span, message));
    }
    if depth > MAX_DEPTH {
        let message = format!("nested deeper than {MAX_DEPTH} levels");
        return Err(Problem::new(span, message));
    }
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(digits) => {
            let parsed = i128::from_str_radix(digits.as_str(), digits.radix());
            parsed.map_or_else(|_| float(digits.as_str()), Value::Int)
        }
        DeValue::Float(digits) => float(digits.as_str()),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(_) => Value::Foreign("a date"),
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| node(item, depth + 1, n_nodes));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => map(table, depth + 1, n_nodes)?,
    };
    let span = if value.has_parts() { span.start..span.start } else { span };
    Ok(Node { span, value })
}

fn float(text: &str) -> Value {
    let parsed = yaml::number(text).or_else(|| text.parse().ok().map(Value::Float));
    match parsed {
        Some(Value::Float(number)) => Value::Float(number),
        Some(_) | None => Value::Foreign("a number out of range"),
    }
}
