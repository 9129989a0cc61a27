//! The spanned tree every format is read into, and every value is shown from.

use std::{fmt, ops::Range};

use serde::{Serialize, Serializer, ser::SerializeMap};

/// A range of bytes of the text.
pub(super) type Span = Range<usize>;

/// How deep lists and maps may be nested: four times what the schema needs, far below what a stack bears.
pub(super) const MAX_DEPTH: usize = 32;

/// How many values a file may expand to, aliases counted at every use: a hundred for each of 2500 groups.
pub(super) const MAX_NODES: usize = 250_000;

/// A value with its place in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Span,
    pub(super) value: Value,
}

impl Node {
    /// Returns the value under a key of a map, or at a position of a list.
    pub(super) fn child(&self, step: &str) -> Option<&Self> {
        if let Some(map) = self.value.map() {
            return map.get(step).map(|entry| &entry.node);
        }
        self.value.list()?.get(step.parse::<usize>().ok()?)
    }

    /// Returns how many values this one consists of, itself included.
    pub(super) fn size(&self) -> usize {
        let items = self.value.list().into_iter().flatten();
        let entries = self.value.map().into_iter().flat_map(|map| &map.0);
        let parts = items.chain(entries.map(|entry| &entry.node));
        1 + parts.map(Self::size).sum::<usize>()
    }
}

/// What a file can hold, whatever its format.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    /// A value only one format knows, by its name.
    Foreign(&'static str),
    List(Vec<Node>),
    Map(Map),
}

impl Value {
    /// Wraps the value in a node that stands nowhere.
    pub(super) fn anywhere(self) -> Node {
        Node { span: 0..0, value: self }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn list(&self) -> Option<&[Node]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    pub(super) fn map(&self) -> Option<&Map> {
        if let Self::Map(map) = self { Some(map) } else { None }
    }

    /// Returns whether this is a list or a map.
    pub(super) fn has_parts(&self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Float(_))
    }
}

/// Names the kind of value, and its content as far as that is short.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "the number {value}"),
            Self::Float(value) => write!(f, "the number {value:?}"),
            Self::Text(value) => write!(f, "the text {}", Quoted(value)),
            Self::Foreign(kind) => f.write_str(kind),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => match u64::try_from(*value) {
                Ok(value) => serializer.serialize_u64(value),
                Err(_) => serializer.serialize_i128(*value),
            },
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Foreign(kind) => serializer.serialize_str(kind),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(map) => {
                let mut entries = serializer.serialize_map(Some(map.0.len()))?;
                for Entry { key, node, .. } in &map.0 {
                    entries.serialize_entry(key, node)?;
                }
                entries.end()
            }
        }
    }
}

/// A map in the order of the text. Keys are unique.
#[derive(Clone, Debug, Default)]
pub(super) struct Map(pub(super) Vec<Entry>);

/// One key of a map with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

impl Map {
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    pub(super) fn push(&mut self, key: impl Into<String>, value: Value) {
        let (key, node) = (key.into(), value.anywhere());
        self.0.push(Entry { key, key_span: 0..0, node });
    }
}

/// Text of a user in a message: quoted, escaped, and cut to what fits a line.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(60) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
        }
    }
}
