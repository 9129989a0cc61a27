//! What the pages say is what there is: keys, codes, commands and options.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use myelin::file::schema;
use serde_json::Value as Json;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of a page's tables by the backquoted text of the last heading that has one: `key` to its cells.
fn tables(page: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let mut tables: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
    let mut heading = String::new();
    for line in page.lines() {
        if line.starts_with('#') {
            let named = line.split('`').nth(1);
            named.unwrap_or_default().clone_into(&mut heading);
        }
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let key = cells.get(1).and_then(|cell| cell.strip_prefix('`'));
        if let Some(key) = key.and_then(|key| key.strip_suffix('`')) {
            let rows = tables.entry(heading.clone()).or_default();
            rows.insert(key.to_owned(), cells);
        }
    }
    tables
}

/// Every section of a schema by its path, `groups[].boot` for example, with its keys.
fn sections(path: &str, schema: &Json, found: &mut BTreeMap<String, BTreeMap<String, Json>>) {
    if let Some(items) = schema.get("items") {
        return sections(&format!("{path}[]"), items, found);
    }
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else {
        return;
    };
    // The keys of a shape may stand beside it too, and are told of once.
    let shape = properties.get("shape").map(|shape| &shape["properties"]);
    let required = schema["required"].as_array().unwrap();
    let mut keys = BTreeMap::new();
    for (name, key) in properties {
        if shape.is_some_and(|shape| shape.get(name).is_some()) {
            continue;
        }
        let mut key = key.clone();
        key["is_required"] = required.iter().any(|it| it == name).into();
        let dot = if path.is_empty() { "" } else { "." };
        sections(&format!("{path}{dot}{name}"), &key, found);
        keys.insert(name.clone(), key);
    }
    found.insert(path.to_owned(), keys);
}

/// How the page writes a default, if it must say one.
fn default_of(key: &Json) -> Option<String> {
    if key["is_required"] == true {
        return Some("required".to_owned());
    }
    let default = key.get("default")?;
    let text = default.as_str().map(ToOwned::to_owned);
    Some(format!("`{}`", text.unwrap_or_else(|| default.to_string())))
}

#[test]
fn the_page_of_the_file_has_every_key_with_its_default_and_no_other() {
    let tables = tables(&read("docs/reference/cluster-file.md"));
    let mut expected = BTreeMap::new();
    sections("", &schema(), &mut expected);
    assert!(expected.len() >= 10, "{:?}", expected.keys());
    for (section, keys) in &expected {
        let rows = tables.get(section);
        let rows = rows.unwrap_or_else(|| panic!("no table below a heading with `{section}`"));
        let names: Vec<_> = rows.keys().collect();
        assert_eq!(names, keys.keys().collect::<Vec<_>>(), "keys of {section}");
        for (name, key) in keys {
            let default = &rows[name][3];
            let expected = default_of(key);
            assert!(
                expected.as_ref().is_none_or(|expected| expected == default),
                "{section}.{name}: the page says {default}, the schema {expected:?}"
            );
        }
    }
}

/// The codes that the `fn code` of a source returns.
fn codes(source: &str) -> Vec<String> {
    let source = read(source);
    let (_, function) = source.split_once("fn code(").expect("there is a `fn code`");
    let (function, _) = function.split_once("\n    }\n").expect("it ends");
    let arms = function.lines().filter_map(|line| line.split_once("=> \""));
    let codes = arms.filter_map(|(_, rest)| rest.split_once('"'));
    codes.map(|(code, _)| code.to_owned()).collect()
}

#[test]
fn the_guide_has_a_part_for_every_reason_to_hold() {
    let page = read("docs/guide/held.md");
    let codes = codes("crates/myelin-decider/src/held.rs");
    assert!(codes.len() >= 17, "{codes:?}");
    for code in codes {
        let (_, part) = page
            .split_once(&format!("\n### `{code}`\n"))
            .unwrap_or_else(|| panic!("no part about {code}"));
        let part = part.split("\n#").next().unwrap_or_default();
        for what in ["\n- Ends: ", "\n- Type: "] {
            assert!(part.contains(what), "{code} does not say {what:?}");
        }
    }
}

#[test]
fn the_page_of_events_has_every_code() {
    let page = read("docs/reference/events.md");
    let codes = codes("crates/myelin-state/src/history.rs");
    assert!(codes.len() >= 22, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("\n| `{code}` | ")), "{code}");
    }
}

fn help(command: &[&str]) -> String {
    let mut myelin = Command::new(env!("CARGO_BIN_EXE_myelin"));
    let output = myelin.args(command).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The first words of the lines of a help text that are indented by two, such as the names of commands.
fn commands(help: &str) -> Vec<&str> {
    let (_, list) = help.split_once("Commands:\n").expect("commands are listed");
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn the_page_of_commands_has_every_command_and_every_option() {
    let page = read("docs/reference/commands.md");
    let help_text = help(&[]);
    let commands = commands(&help_text);
    assert!(commands.len() >= 17, "{commands:?}");
    for command in commands {
        assert!(page.contains(&format!("| `{command}")), "{command}");
        let help = help(&[command]);
        let options = help.split_whitespace().filter(|word| word.starts_with("--"));
        let plain = |c: char| c != '-' && !c.is_ascii_alphanumeric();
        for option in options.map(|word| word.split(plain).next().unwrap_or(word)) {
            assert!(page.contains(&format!("`{option}")), "{command} {option}");
        }
    }
}
