//! Maps with known keys. One list of keys per section ([`Section::keys`]) is read, written and described by visitors,
//! so that the three cannot differ.

use super::{
    field::Field,
    node::{Entry, Map, Node, Quoted, Span, Value},
    report::{Problem, Problems},
    schema,
    suggest::suggest,
};

/// A part of the file with known keys.
pub(super) trait Section: Sized {
    /// What the section is, as in "unknown key in …".
    const NAME: &'static str;

    /// Returns the section as it is when it holds no key at all.
    fn blank() -> Self;

    /// Shows every key to the visitor, in the order people write them.
    fn keys(&mut self, visitor: &mut impl Visitor);
}

/// Something that is done with every key of a section.
pub(super) trait Visitor {
    /// Visits one key and the place of its value.
    fn key<T: Field>(&mut self, key: Key<T>, value: &mut T);

    /// Visits a section whose keys may also stand beside its own name.
    fn flat<S: Section + Field>(&mut self, key: Key<S>, section: &mut S);
}

/// A key of a section.
pub(super) struct Key<T> {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) required: bool,
    pub(super) rule: Option<Rule<T>>,
}

/// What a value must fulfil beyond its type; `expected` is read after "must be".
pub(super) struct Rule<T> {
    pub(super) expected: &'static str,
    pub(super) holds: fn(&T) -> bool,
}

impl<T> Key<T> {
    pub(super) fn new(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, required: false, rule: None }
    }

    pub(super) fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(super) fn must_be(mut self, rule: Rule<T>) -> Self {
        self.rule = Some(rule);
        self
    }
}

/// Reads a section from a map.
struct Reader<'n, 'p, 't> {
    map: &'n Map,
    span: Span,
    section: &'static str,
    known: Vec<&'static str>,
    /// The section these keys belong to, when they are read from beside it.
    inside: Option<&'n Entry>,
    problems: &'p mut Problems<'t>,
}

impl<'n> Reader<'n, '_, '_> {
    fn entry<T>(&mut self, key: &Key<T>) -> Option<&'n Entry> {
        self.known.push(key.name);
        let found = self.map.get(key.name);
        if found.is_none() && key.required && self.inside.is_none() {
            let message = format!("{} lacks the key {:?}", self.section, key.name);
            let problem = Problem::new(self.span.clone(), message);
            self.problems.push(problem.hint(describe(key)));
        }
        found
    }

    fn refuse_twice(&mut self, found: &Entry) {
        let Some(section) = self.inside else { return };
        let Some(inner) = entry_of(&section.node, &found.key) else {
            return;
        };
        let (key, outer) = (&found.key, &section.key);
        let message = format!("the key {key:?} is given here and inside {outer:?}");
        let problem = Problem::new(found.key_span.clone(), message)
            .note(inner.key_span.clone(), "also given here")
            .hint(format!("{key:?} beside {outer:?} is short for {key:?} inside it; keep one"));
        self.problems.push(problem);
    }

    /// Reports every key nobody asked for.
    fn finish(self) {
        let Self { map, section, known, problems, .. } = self;
        for entry in &map.0 {
            if !known.contains(&entry.key.as_str()) {
                problems.push_with(|| unknown(entry, section, &known));
            }
        }
    }
}

fn unknown(entry: &Entry, section: &str, known: &[&str]) -> Problem {
    let key = entry.key.as_str();
    let message = format!("unknown key {} in {section}", Quoted(key));
    let hint = suggest(key, known.iter().copied())
        .or_else(|| schema::place_of(key))
        .unwrap_or_else(|| format!("the keys here are {}", known.join(", ")));
    Problem::new(entry.key_span.clone(), message).hint(hint)
}

impl Visitor for Reader<'_, '_, '_> {
    fn key<T: Field>(&mut self, key: Key<T>, value: &mut T) {
        let Some(found) = self.entry(&key) else {
            return;
        };
        self.refuse_twice(found);
        let before = self.problems.len();
        if let Some(read) = T::read(&found.node, key.name, self.problems) {
            match key.rule.as_ref().filter(|rule| !(rule.holds)(&read)) {
                Some(rule) => self.problems.push(Problem::new(
                    found.node.span.clone(),
                    format!("{:?} must be {}, not {}", key.name, rule.expected, found.node.value),
                )),
                None => *value = read,
            }
        }
        self.problems.hint_since(before, || describe(&key));
    }

    fn flat<S: Section + Field>(&mut self, key: Key<S>, section: &mut S) {
        let name = key.name;
        self.key(key, section);
        let mut beside = Reader {
            map: self.map,
            span: self.span.clone(),
            section: self.section,
            known: std::mem::take(&mut self.known),
            inside: self.map.get(name),
            problems: self.problems,
        };
        section.keys(&mut beside);
        self.known = beside.known;
    }
}

fn entry_of<'n>(node: &'n Node, key: &str) -> Option<&'n Entry> {
    node.value.map()?.get(key)
}

fn describe<T>(key: &Key<T>) -> String {
    format!("{}: {}", key.name, key.doc)
}

/// Reads a section; what is wrong is reported and left as it is when blank.
pub(super) fn read<S: Section>(node: &Node, problems: &mut Problems<'_>) -> S {
    let mut section = S::blank();
    let Some(map) = node.value.map() else {
        let message = format!("{} must be a map of keys, not {}", S::NAME, node.value);
        problems.push(Problem::new(node.span.clone(), message));
        return section;
    };
    let mut reader = Reader {
        map,
        span: node.span.clone(),
        section: S::NAME,
        known: Vec::new(),
        inside: None,
        problems,
    };
    section.keys(&mut reader);
    reader.finish();
    section
}

/// Writes a section with every key that has a value.
struct Writer(Map);

impl Visitor for Writer {
    fn key<T: Field>(&mut self, key: Key<T>, value: &mut T) {
        let written = value.write();
        if !matches!(written, Value::Null) {
            self.0.push(key.name, written);
        }
    }

    fn flat<S: Section + Field>(&mut self, key: Key<S>, section: &mut S) {
        self.key(key, section);
    }
}

/// Returns the section with all its keys, defaults included.
pub(super) fn write<S: Section + Clone>(section: &S) -> Value {
    let mut writer = Writer(Map::default());
    section.clone().keys(&mut writer);
    Value::Map(writer.0)
}
