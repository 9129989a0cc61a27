//! What a key can hold: how it is read, written and described.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use myelin_shape::{
    FirstNode, Limit, NodeGroupId, OnFailure, ProviderKind, RoleId, RunId, SecretRef,
};
use serde_json::{Value as Json, json};

use super::{
    node::{Map, Node, Value},
    report::{Problem, Problems},
    suggest::suggest,
};

/// A type of value in the file.
///
/// Plain values implement [`parse`](Self::parse); values with parts replace [`read`](Self::read).
pub(super) trait Field: Sized {
    /// What would do, to be read after "must be".
    const EXPECTED: &'static str;

    /// Returns the value; none if this is no such value.
    fn parse(_value: &Value) -> Option<Self> {
        None
    }

    /// Returns what to do about a value that is none, if there is more to say than what would do.
    fn hint(_value: &Value, _source: &str) -> Option<String> {
        None
    }

    /// Reads the value of `subject`; none after a problem was reported.
    fn read(node: &Node, subject: &str, problems: &mut Problems<'_>) -> Option<Self> {
        let parsed = Self::parse(&node.value);
        if parsed.is_none() {
            problems.push(mismatch::<Self>(node, subject, problems.text()));
        }
        parsed
    }

    /// Returns the value as it is written in a file; null if the key is left out.
    fn write(&self) -> Value;

    /// Returns the JSON Schema of the value.
    fn schema() -> Json;
}

pub(super) fn mismatch<T: Field>(node: &Node, subject: &str, text: &str) -> Problem {
    let (expected, found) = (T::EXPECTED, &node.value);
    let message = format!("{subject:?} must be {expected}, not {found}");
    let problem = Problem::new(node.span.clone(), message);
    match T::hint(found, text.get(node.span.clone()).unwrap_or_default()) {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

macro_rules! whole_number {
    ($($type:ident, $expected:literal;)*) => {$(
        impl Field for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(value: &Value) -> Option<Self> {
                let Value::Int(number) = value else {
                    return None;
                };
                Self::try_from(*number).ok()
            }

            fn write(&self) -> Value {
                Value::Int(i128::from(*self))
            }

            fn schema() -> Json {
                json!({"type": "integer", "minimum": 0, "maximum": Self::MAX})
            }
        }
    )*};
}

whole_number! {
    u32, "a whole number from 0 to 4294967295";
    u64, "a whole number from 0 to 18446744073709551615";
}

impl Field for RunId {
    const EXPECTED: &'static str = u64::EXPECTED;

    fn parse(value: &Value) -> Option<Self> {
        u64::parse(value).map(Self)
    }

    fn write(&self) -> Value {
        self.0.write()
    }

    fn schema() -> Json {
        u64::schema()
    }
}

impl Field for f64 {
    const EXPECTED: &'static str = "a finite number";

    #[expect(clippy::cast_precision_loss, reason = "rates and shares are no counters")]
    fn parse(value: &Value) -> Option<Self> {
        if let Value::Int(number) = value {
            return Some(*number as Self);
        }
        let Value::Float(number) = value else {
            return None;
        };
        Some(*number).filter(|number| number.is_finite())
    }

    fn write(&self) -> Value {
        Value::Float(*self)
    }

    fn schema() -> Json {
        json!({"type": "number"})
    }
}

impl Field for bool {
    const EXPECTED: &'static str = "true or false";

    fn parse(value: &Value) -> Option<Self> {
        let Value::Bool(value) = value else {
            return None;
        };
        Some(*value)
    }

    fn write(&self) -> Value {
        Value::Bool(*self)
    }

    fn schema() -> Json {
        json!({"type": "boolean"})
    }
}

impl Field for String {
    const EXPECTED: &'static str = "a text";

    fn parse(value: &Value) -> Option<Self> {
        let text = value.text()?;
        (!text.contains('\0')).then(|| text.to_owned())
    }

    fn hint(value: &Value, source: &str) -> Option<String> {
        if value.is_number() || matches!(value, Value::Bool(_)) {
            return Some(format!("quote it to make it a text: \"{source}\""));
        }
        let text = value.text();
        text.map(|_| "it may not hold a NUL character".to_owned())
    }

    fn write(&self) -> Value {
        Value::Text(self.clone())
    }

    fn schema() -> Json {
        json!({"type": "string"})
    }
}

macro_rules! as_text {
    ($($type:ty: $to_text:expr;)*) => {$(
        impl Field for $type {
            const EXPECTED: &'static str = String::EXPECTED;

            fn parse(value: &Value) -> Option<Self> {
                String::parse(value).map(Self::from)
            }

            fn hint(value: &Value, source: &str) -> Option<String> {
                String::hint(value, source)
            }

            fn write(&self) -> Value {
                let to_text: fn(&Self) -> String = $to_text;
                Value::Text(to_text(self))
            }

            fn schema() -> Json {
                String::schema()
            }
        }
    )*};
}

as_text! {
    NodeGroupId: |id| id.to_string();
    RoleId: |id| id.to_string();
    ProviderKind: |id| id.to_string();
    PathBuf: |path| path.to_string_lossy().into_owned();
}

impl Field for Duration {
    const EXPECTED: &'static str = "a duration such as \"45s\" or \"10m\"";

    fn parse(value: &Value) -> Option<Self> {
        humantime::parse_duration(value.text()?).ok()
    }

    fn hint(value: &Value, source: &str) -> Option<String> {
        if value.is_number() {
            return Some(format!("say the unit: \"{source}s\"?"));
        }
        let units = "a duration is numbers with units: ms, s, m, h or days, as in \"1h 30m\"";
        value.text().map(|_| units.to_owned())
    }

    fn write(&self) -> Value {
        Value::Text(humantime::format_duration(*self).to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "examples": ["45s", "10m", "1h 30m"]})
    }
}

impl Field for Limit {
    const EXPECTED: &'static str = "a number of nodes or a percentage such as \"40%\"";

    fn parse(value: &Value) -> Option<Self> {
        match value.text() {
            Some(text) => text.ends_with('%').then_some(text)?.parse().ok(),
            None => u32::parse(value).map(Self::Count),
        }
    }

    fn hint(value: &Value, source: &str) -> Option<String> {
        if matches!(value, Value::Float(_)) {
            let hint = format!("{source} is no number of nodes; a share is written in percent");
            return Some(hint);
        }
        let text = value.text()?;
        if text.ends_with('%') {
            return Some("0% to 100% will do".to_owned());
        }
        let count = text.parse::<u32>().ok();
        count.map(|count| format!("write it without quotes: {count}"))
    }

    fn write(&self) -> Value {
        match self {
            Self::Count(count) => count.write(),
            Self::Percent(_) => Value::Text(self.to_string()),
        }
    }

    fn schema() -> Json {
        let percent = json!({"type": "string", "pattern": "^0*(100|[0-9]{1,2}) *%$"});
        json!({"oneOf": [u32::schema(), percent]})
    }
}

macro_rules! word {
    ($type:ident, $expected:literal, {$($word:literal => $variant:ident,)*}) => {
        impl Field for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(value: &Value) -> Option<Self> {
                match value.text()? {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn hint(value: &Value, _source: &str) -> Option<String> {
                suggest(value.text()?, [$($word),*])
            }

            fn write(&self) -> Value {
                let word = match self {
                    $(Self::$variant => $word,)*
                };
                Value::Text(word.to_owned())
            }

            fn schema() -> Json {
                json!({"enum": [$($word),*]})
            }
        }
    };
}

word! {FirstNode, "\"canary\" or \"all\"", {
    "canary" => Canary,
    "all" => All,
}}

word! {OnFailure, "\"replace\" or \"keep\"", {
    "replace" => Replace,
    "keep" => Keep,
}}

impl Field for SecretRef {
    const EXPECTED: &'static str = "\"cluster\", \"env:NAME\" or \"file:PATH\"";

    fn parse(value: &Value) -> Option<Self> {
        let text = String::parse(value)?;
        match text.split_once(':') {
            None if text == "cluster" => Some(Self::Cluster),
            Some(("env", name)) if !name.is_empty() && !name.contains('=') => {
                Some(Self::Env(name.to_owned()))
            }
            Some(("file", path)) if !path.is_empty() => Some(Self::File(path.into())),
            _ => None,
        }
    }

    fn hint(value: &Value, _source: &str) -> Option<String> {
        let refers = "a token is never written into the file, only where it is found";
        value.text().map(|_| refers.to_owned())
    }

    fn write(&self) -> Value {
        Value::Text(self.to_string())
    }

    fn schema() -> Json {
        json!({"type": "string", "pattern": "^(cluster|env:[^=]+|file:.+)$"})
    }
}

impl<T: Field> Field for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn read(node: &Node, subject: &str, problems: &mut Problems<'_>) -> Option<Self> {
        T::read(node, subject, problems).map(Some)
    }

    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }

    fn schema() -> Json {
        T::schema()
    }
}

impl<T: Field> Field for Vec<T> {
    const EXPECTED: &'static str = "a list";

    fn read(node: &Node, subject: &str, problems: &mut Problems<'_>) -> Option<Self> {
        let Some(items) = node.value.list() else {
            problems.push(mismatch::<Self>(node, subject, problems.text()));
            return None;
        };
        let read = |(n, item)| T::read(item, &format!("{subject}[{n}]"), problems);
        Some(items.iter().enumerate().filter_map(read).collect())
    }

    fn write(&self) -> Value {
        let items = self.iter().map(|item| item.write().anywhere());
        Value::List(items.collect())
    }

    fn schema() -> Json {
        json!({"type": "array", "items": T::schema()})
    }
}

impl<T: Field> Field for BTreeMap<String, T> {
    const EXPECTED: &'static str = "a map";

    fn read(node: &Node, subject: &str, problems: &mut Problems<'_>) -> Option<Self> {
        let Some(map) = node.value.map() else {
            problems.push(mismatch::<Self>(node, subject, problems.text()));
            return None;
        };
        let entries = map.0.iter().filter_map(|entry| {
            let value = T::read(&entry.node, &entry.key, problems)?;
            Some((entry.key.clone(), value))
        });
        Some(entries.collect())
    }

    fn write(&self) -> Value {
        let mut map = Map::default();
        for (key, value) in self {
            map.push(key.as_str(), value.write());
        }
        Value::Map(map)
    }

    fn schema() -> Json {
        json!({"type": "object", "additionalProperties": T::schema()})
    }
}
