//! The JSON Schema of the file, from the same lists of keys that read it.

use serde_json::{Map, Value as Json, json};

use super::{
    ClusterFile,
    field::Field,
    section::{Key, Section, Visitor},
};

/// Returns the JSON Schema of a cluster file (draft 2020-12). Editors complete from it.
///
/// Rules between keys and the grammar of ids are not part of it; [`parse`](super::parse) checks those.
pub fn schema() -> Json {
    let mut schema = of_section::<ClusterFile>();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("myelin cluster file");
    schema
}

/// Returns the schema of one section.
pub(super) fn of_section<S: Section>() -> Json {
    let mut keys = Properties::default();
    S::blank().keys(&mut keys);
    let Properties { known, required } = keys;
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": known,
        "required": required,
    })
}

#[derive(Default)]
struct Properties {
    known: Map<String, Json>,
    required: Vec<&'static str>,
}

impl Visitor for Properties {
    fn key<T: Field>(&mut self, key: Key<T>, value: &mut T) {
        let mut schema = T::schema();
        let expected = key.rule.map(|rule| format!(" Must be {}.", rule.expected));
        schema["description"] = json!(format!("{}{}", key.doc, expected.unwrap_or_default()));
        if key.required {
            self.required.push(key.name);
        } else if let Some(default) = shown_default(value) {
            schema["default"] = default;
        }
        self.known.insert(key.name.to_owned(), schema);
    }

    fn flat<S: Section + Field>(&mut self, key: Key<S>, section: &mut S) {
        self.key(key, section);
        section.keys(self);
    }
}

/// Returns the default an editor can show: that of a section is in its keys, and an empty one says nothing.
fn shown_default<T: Field>(value: &T) -> Option<Json> {
    let written = serde_json::to_value(value.write()).ok()?;
    let shown = written.is_boolean()
        || written.is_number()
        || written.as_str().is_some_and(|text| !text.is_empty());
    shown.then_some(written)
}

/// Returns where a key that is unknown in its section would belong.
pub(super) fn place_of(key: &str) -> Option<String> {
    let found = find(&schema(), key, "")?;
    Some(if found.is_empty() {
        format!("{key:?} belongs at the top of the file")
    } else {
        format!("{key:?} belongs under {found:?}")
    })
}

/// Returns the path of the section that has the key. Sections nearer the top go first.
fn find(schema: &Json, key: &str, path: &str) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    if properties.contains_key(key) {
        return Some(path.to_owned());
    }
    properties.iter().find_map(|(name, inner)| {
        let inner = inner.get("items").unwrap_or(inner);
        let dot = if path.is_empty() { "" } else { "." };
        find(inner, key, &format!("{path}{dot}{name}"))
    })
}
