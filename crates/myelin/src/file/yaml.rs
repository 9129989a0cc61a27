//! YAML and JSON as spanned trees.
//!
//! JSON is first checked to be JSON, then read as the YAML it also is: one reader, one kind of place. Depth and
//! number of values are bounded while events arrive, so neither nesting nor aliases of aliases cost more than the budget.

use std::collections::HashMap;

use granit_parser::{
    ErrorKind, Event, Parser, ScalarStyle, ScanError, Span as Range, StructureStyle,
};
use serde::de::IgnoredAny;

use super::{
    node::{Entry, MAX_DEPTH, MAX_NODES, Map, Node, Quoted, Span, Value},
    report::{Problem, Problems},
};

/// Reads a JSON text.
pub(super) fn parse_json(problems: &mut Problems<'_>) -> Option<Node> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(problems.text()) {
        let at = problems.offset(error.line(), error.column());
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        let problem = Problem::new(at..at, format!("not valid JSON: {message}"));
        problems.push(problem.hint("JSON has no comments and no comma before a closing bracket"));
        return None;
    }
    parse_yaml(problems)
}

/// Reads a YAML text of one document. What is wrong with it is added to the problems.
pub(super) fn parse_yaml(problems: &mut Problems<'_>) -> Option<Node> {
    let mut options = granit_parser::options! { emit_comments: false };
    options.flow_nesting_limit = 2 * MAX_DEPTH;
    options.block_nesting_limit = 2 * MAX_DEPTH;
    let text = problems.text();
    let mut tree = Tree::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let taken = match event {
            Ok((event, range)) => tree.take(event, bytes(range), problems),
            Err(error) => Err(syntax(&error, text.len())),
        };
        if let Err(problem) = taken {
            problems.push(problem);
            return None;
        }
    }
    if tree.root.is_none() {
        let empty = Problem::new(0..0, "the file says nothing");
        problems.push(empty.hint("the least a file says is `run: 1` and `groups: []`"));
    }
    tree.root
}

fn syntax(error: &ScanError, end: usize) -> Problem {
    let at = error.marker().byte_offset().unwrap_or(end);
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep(at..at);
    }
    let problem = Problem::new(at..at, format!("not valid YAML: {}", error.info()));
    problem.hint("keys of one map begin in one column, indented by spaces; texts with `: `, ` #` or a leading `[{*&!%@` are quoted")
}

fn bytes(range: Range) -> Span {
    let at = |marker: granit_parser::Marker| marker.byte_offset().unwrap_or_default();
    at(range.start)..at(range.end)
}

/// The tree under construction.
#[derive(Default)]
struct Tree {
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    n_nodes: usize,
}

/// A list or map whose end has not been seen.
struct Open {
    span: Span,
    anchor: usize,
    parts: Parts,
}

enum Parts {
    List(Vec<Node>),
    Map(Map, Option<(String, Span)>),
}

impl Tree {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is open, and what is no value is passed over"
    )]
    fn take(
        &mut self,
        event: Event<'_>,
        span: Span,
        problems: &mut Problems<'_>,
    ) -> Result<(), Problem> {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => Err(Problem::new(
                span,
                "a second document begins here, but a cluster is one document",
            )),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.is_some(), &span)?;
                if let Some(open) = self.open_key() {
                    *open = Some((text.into_owned(), span));
                    return Ok(());
                }
                let value = if style == ScalarStyle::Plain {
                    plain(&text)
                } else {
                    Value::Text(text.into_owned())
                };
                self.add(Node { span, value }, anchor)
            }
            Event::SequenceStart(style, anchor, tag) => {
                refuse_tag(tag.is_some(), &span)?;
                self.enter(head(style, span), anchor, Parts::List(Vec::new()))
            }
            Event::MappingStart(style, anchor, tag) => {
                refuse_tag(tag.is_some(), &span)?;
                self.enter(head(style, span), anchor, Parts::Map(Map::default(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(problems),
            Event::Alias(id) => self.alias(id, span),
            _ => Ok(()),
        }
    }

    /// Returns the place for a key, if the next value is one.
    fn open_key(&mut self) -> Option<&mut Option<(String, Span)>> {
        match &mut self.open.last_mut()?.parts {
            Parts::Map(_, key) if key.is_none() => Some(key),
            Parts::Map(..) | Parts::List(_) => None,
        }
    }

    fn enter(&mut self, span: Span, anchor: usize, parts: Parts) -> Result<(), Problem> {
        if self.open_key().is_some() {
            return Err(Problem::new(span, "a key must be text, not a list or a map"));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(too_deep(span));
        }
        self.open.push(Open { span, anchor, parts });
        Ok(())
    }

    fn leave(&mut self, problems: &mut Problems<'_>) -> Result<(), Problem> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.parts {
            Parts::List(items) => Value::List(items),
            Parts::Map(map, _) => Value::Map(without_duplicates(map, problems)),
        };
        let span = open.span;
        self.add(Node { span, value }, open.anchor)
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<(), Problem> {
        if self.open_key().is_some() {
            return Err(Problem::new(span, "a key must be text, not an alias"));
        }
        let Some((node, size)) = self.anchors.get(&id) else {
            return Err(Problem::new(span, "an alias may not stand inside its own anchor"));
        };
        self.n_nodes = self.n_nodes.saturating_add(*size);
        if self.n_nodes > MAX_NODES {
            return Err(too_many(span));
        }
        let node = node.clone();
        self.add(node, 0)
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        self.n_nodes += 1;
        if anchor != 0 {
            let size = node.size();
            self.n_nodes += size;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        if self.n_nodes > MAX_NODES {
            return Err(too_many(node.span));
        }
        match self.open.last_mut().map(|open| &mut open.parts) {
            None => self.root = Some(node),
            Some(Parts::List(items)) => items.push(node),
            Some(Parts::Map(map, key)) => {
                let (key, key_span) = key.take().unwrap_or_default();
                map.0.push(Entry { key, key_span, node });
            }
        }
        Ok(())
    }
}

/// Returns where to point for a list or map: at its bracket, or where its first entry begins.
fn head(style: StructureStyle, span: Span) -> Span {
    match style {
        StructureStyle::Flow => span.start..span.start + 1,
        StructureStyle::Block => span.start..span.start,
    }
}

fn too_deep(span: Span) -> Problem {
    Problem::new(span, format!("nested deeper than {MAX_DEPTH} levels"))
}

fn too_many(span: Span) -> Problem {
    let message = format!("the file expands to more than {MAX_NODES} values");
    Problem::new(span, message).hint("every use of an alias counts as a copy of what it stands for")
}

fn refuse_tag(tagged: bool, span: &Span) -> Result<(), Problem> {
    if !tagged {
        return Ok(());
    }
    let problem = Problem::new(span.clone(), "tags are not used in a cluster file");
    Err(problem.hint("leave out the `!…`; a quoted value is a text"))
}

/// Keeps the first of equal keys and reports the others.
fn without_duplicates(map: Map, problems: &mut Problems<'_>) -> Map {
    let mut first = HashMap::with_capacity(map.0.len());
    let mut again = Vec::new();
    for (n, entry) in map.0.iter().enumerate() {
        if let Some(earlier) = first.insert(entry.key.as_str(), n) {
            first.insert(entry.key.as_str(), earlier);
            again.push((earlier, n));
        }
    }
    for &(earlier, n) in &again {
        let Entry { key, key_span, .. } = &map.0[n];
        let problem =
            Problem::new(key_span.clone(), format!("the key {} is given twice", Quoted(key)));
        let earlier = map.0[earlier].key_span.clone();
        problems.push(problem.note(earlier, "first given here"));
    }
    let mut again = again.iter().map(|&(_, n)| n).peekable();
    let entries = map.0.into_iter().enumerate();
    let unique = entries.filter(|(n, _)| again.next_if_eq(n).is_none());
    Map(unique.map(|(_, entry)| entry).collect())
}

/// Resolves an unquoted scalar by the core schema of YAML 1.2: `no` is a text, `010` is ten.
pub(super) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    let radix = |prefix, radix| {
        let digits: &str = text.strip_prefix(prefix)?;
        i128::from_str_radix(digits, radix).ok()
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Value::Int(number);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Value::Float(sign * f64::INFINITY);
    }
    number(text).unwrap_or_else(|| Value::Text(text.to_owned()))
}

/// Reads a decimal number; one that no integer holds becomes a float.
pub(super) fn number(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !text.bytes().all(numeric)
    {
        return None;
    }
    match text.parse() {
        Ok(number) => Some(Value::Int(number)),
        Err(_) => text.parse().ok().map(Value::Float),
    }
}
