use std::path::{Path, PathBuf};

use myelin::file::{ClusterFile, Format, defaults_shown, load, parse, schema};
use serde_json::Value as Json;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn loaded(name: &str) -> ClusterFile {
    load(example(name)).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Every file of the directory that is a cluster file by its extension.
fn all() -> Vec<PathBuf> {
    let entries = example("").read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| Format::of(path).is_some()).collect()
}

#[test]
fn every_example_loads_and_expands() {
    assert!(all().len() >= 6, "the examples are where they were");
    for path in all() {
        let file = load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let nodes = file.shape(1).expand().unwrap();
        assert!(!nodes.is_empty(), "{} declares nodes", path.display());
    }
}

#[test]
fn quickstart_says_the_same_in_every_format() {
    assert_eq!(loaded("quickstart.yaml"), loaded("quickstart.json"));
    assert_eq!(loaded("quickstart.yaml"), loaded("quickstart.toml"));
}

#[test]
fn quickstart_takes_at_most_ten_lines() {
    let text = std::fs::read_to_string(example("quickstart.yaml")).unwrap();
    assert!(text.lines().count() <= 10);
}

#[test]
fn an_example_with_its_defaults_shown_is_the_same_cluster() {
    for path in all() {
        let file = load(&path).unwrap();
        let shown = defaults_shown(&file);
        let again = parse(shown.as_bytes(), Format::Yaml, "shown")
            .unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again, file, "{shown}");
    }
}

#[test]
fn defaults_of_the_quickstart() {
    insta::assert_snapshot!(defaults_shown(&loaded("quickstart.yaml")));
}

#[test]
fn every_key_of_an_example_is_in_the_schema() {
    let schema = schema();
    for path in all().iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")) {
        let file = load(path).unwrap();
        let shown: Json = serde_saphyr::from_str(&defaults_shown(&file)).unwrap();
        check_keys(&shown, &schema, "");
    }
}

/// Fails for a key that the schema does not know.
fn check_keys(value: &Json, schema: &Json, path: &str) {
    match value {
        Json::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                let known = schema["properties"].get(key);
                let known = known
                    .or_else(|| schema.get("additionalProperties").filter(|any| any.is_object()));
                check_keys(
                    value,
                    known.unwrap_or_else(|| panic!("{path} is not in the schema")),
                    &path,
                );
            }
        }
        Json::Array(items) => {
            for item in items {
                check_keys(item, &schema["items"], path);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// A value that obeys the schema, with every key there is.
fn filled(schema: &Json, name: &str) -> Json {
    if let Some(words) = schema.get("enum") {
        return words[0].clone();
    }
    match schema["type"].as_str() {
        Some("object") if schema.get("properties").is_some() => {
            // Beside `shape` its keys are sugar, and may not be given twice.
            let properties = schema["properties"].as_object().unwrap();
            let inner = properties.get("shape").map(|shape| shape["properties"].clone());
            let own = |key: &String| inner.as_ref().is_none_or(|inner| inner.get(key).is_none());
            let own = properties.iter().filter(|(key, _)| own(key));
            own.map(|(key, schema)| (key.clone(), filled(schema, key))).collect()
        }
        Some("object") => Json::Object([("KEY".to_owned(), "value".into())].into_iter().collect()),
        Some("array") => vec![filled(&schema["items"], name)].into(),
        Some("integer") => schema.get("default").cloned().unwrap_or_else(|| 1.into()),
        Some("number") => 0.5.into(),
        Some("boolean") => true.into(),
        Some("string") => match (schema.get("default"), name) {
            (Some(default), _) => default.clone(),
            (None, "id" | "role") => "a".into(),
            (None, _) => "/text".into(),
        },
        _ => "40%".into(),
    }
}

#[test]
fn every_key_of_the_schema_is_read() {
    let text = filled(&schema(), "").to_string();
    let file =
        parse(text.as_bytes(), Format::Json, "filled").unwrap_or_else(|errors| panic!("{errors}"));
    let shown = defaults_shown(&file);
    for key in ["gpu_name", "ssh_user", "orch_swactor_addr", "first_node", "mounts"] {
        assert!(text.contains(key) && shown.contains(key), "{key} of {text} in {shown}");
    }
}

#[test]
fn a_key_of_the_shape_may_stand_beside_it() {
    let group = |machine: &str| format!("run: 1\ngroups:\n  - id: worker\n    {machine}\n");
    let parsed = |text: String| parse(text.as_bytes(), Format::Yaml, "").unwrap();
    let long = parsed(group("shape: {image: \"v1\", cpu: 2}"));
    assert_eq!(long, parsed(group("image: v1\n    cpu: 2")));
    assert_eq!(long, parsed(group("image: v1\n    shape: {cpu: 2}")));
    assert_eq!(long.groups[0].shape.image, "v1");
}

#[test]
fn the_role_is_the_id_unless_it_is_given() {
    let role =
        |text: &str| parse(text.as_bytes(), Format::Yaml, "").unwrap().groups[0].role.clone();
    assert_eq!(role("{run: 1, groups: [{id: worker}]}").as_str(), "worker");
    assert_eq!(role("{run: 1, groups: [{id: worker, role: batch}]}").as_str(), "batch");
}

#[test]
fn the_environment_is_not_expanded() {
    let text = b"{run: 1, groups: [{id: a, image: \"${HOME}\"}]}";
    let file = parse(text, Format::Yaml, "").unwrap();
    assert_eq!(file.groups[0].shape.image, "${HOME}");
}

#[test]
fn anchors_stand_for_what_they_name() {
    let text = "run: 1\ngroups:\n  - {id: a, boot: &boot {args: [x]}}\n  - {id: b, boot: *boot}\n";
    let file = parse(text.as_bytes(), Format::Yaml, "").unwrap();
    assert_eq!(file.groups[0].boot, file.groups[1].boot);
    assert_eq!(file.groups[1].boot.args, ["x"]);
}

#[test]
fn json_is_read_with_tabs_escapes_and_surrogate_pairs() {
    let text = b"{\n\t\"run\": 1,\n\t\"groups\":[{\"id\":\"a\",\"image\":\"\\ud83d\\ude00\\/\\n\\u00e9\"}]\n}\n";
    let file = parse(text, Format::Json, "").unwrap();
    assert_eq!(file.groups[0].shape.image, "\u{1f600}/\n\u{e9}");
}
