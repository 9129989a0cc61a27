use super::*;

const MANIFEST: &str = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";

/// Returns the findings of a repository with these files, beside one crate that is tidy.
fn check(files: &[(&str, &str)]) -> String {
    let tidy = [("a/Cargo.toml", MANIFEST), ("a/src/lib.rs", "//! A crate.\n")];
    let all = tidy.iter().chain(files);
    let files: Files = all.map(|(path, text)| ((*path).into(), (*text).into())).collect();
    super::check(&files, &|path| {
        files.keys().any(|file| file == path || file.starts_with(&format!("{path}/")))
    })
    .join("\n")
}

#[test]
fn a_tidy_repository_has_no_findings() {
    assert_eq!(check(&[]), "");
}

#[test]
fn white_space_is_found() {
    let text = "fn a() {} \n\tfn b() {}\nfn c() {}\r\nfn d() {}";
    insta::assert_snapshot!(check(&[("a/src/b.rs", text), ("a.txt", "x \n\ty\n")]), @r"
    a/src/b.rs: does not end with a newline
    a/src/b.rs:1: ends with white space
    a/src/b.rs:2: holds a tab
    a/src/b.rs:3: ends with white space
    ");
}

#[test]
fn words_that_may_not_land_are_found() {
    let text = BANNED.join("\n") + "\n";
    let findings = check(&[("a/src/b.rs", &text)]);
    for (word, line) in BANNED.iter().zip(1..) {
        let finding = format!("a/src/b.rs:{line}: holds `{word}`");
        assert!(findings.contains(&finding), "{findings}");
    }
    assert_eq!(check(&[("a.md", &text)]), "", "pages may speak of them");
}

#[test]
fn paths_of_one_machine_are_found() {
    for path in MACHINE_PATHS {
        let findings = check(&[("a.md", &format!("see {path}me/x\n"))]);
        assert_eq!(findings, format!("a.md:1: names {path}, which is of one machine only"));
        let longer = format!("https://example.org{path} and a{path} and target{path}\n");
        assert_eq!(check(&[("a.md", &longer)]), "");
    }
}

#[test]
fn manifests_that_go_their_own_way_are_found() {
    let text = "
[package]
name = \"b\"

[dependencies]
serde = \"1\"
good.workspace = true
fine = { workspace = true, features = [\"x\"] }

[dev-dependencies]
insta = { version = \"1\" }

[target.'cfg(unix)'.dependencies]
rustix = { path = \"x\" }
";
    insta::assert_snapshot!(check(&[("b/Cargo.toml", text), ("b/src/main.rs", "//! B.\n"), ("c/Cargo.toml", "[")]), @r"
    b/Cargo.toml: lacks `[lints] workspace = true`
    b/Cargo.toml: serde does not say `workspace = true`
    b/Cargo.toml: insta does not say `workspace = true`
    b/Cargo.toml: rustix does not say `workspace = true`
    c/Cargo.toml: does not end with a newline
    c/Cargo.toml: is no TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`
    c: has neither src/lib.rs nor src/main.rs
    ");
}

#[test]
fn crates_without_docs_are_found() {
    let files = [
        ("b/Cargo.toml", MANIFEST),
        ("b/src/lib.rs", "fn undocumented() {}\n"),
        ("c/Cargo.toml", MANIFEST),
        (
            "d/Cargo.toml",
            &format!("{MANIFEST}[[bin]]\npath = \"e.rs\"\n[[bin]]\npath = \"f.rs\"\n"),
        ),
        ("d/e.rs", "//! Documented.\n"),
        ("d/f.rs", "fn undocumented() {}\n"),
    ];
    insta::assert_snapshot!(check(&files), @r"
    b/src/lib.rs:1: does not begin with a `//!` doc
    c: has neither src/lib.rs nor src/main.rs
    d/f.rs:1: does not begin with a `//!` doc
    ");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let text = "
[site](https://example.org) [mail](mailto:a@b) [here](#part) [root](../README.md#part) [dir](../a/src)
[gone](gone.md) [also gone](../docs/gone.md \"title\"), `[code](no.md)` and ` [odd](odd.md)
[outside](../../x.md)
```text
[code](no.md)
```
";
    insta::assert_snapshot!(check(&[("docs/guide.md", text), ("README.md", "# A\n")]), @r"
    docs/guide.md:3: link to gone.md leads nowhere
    docs/guide.md:3: link to ../docs/gone.md leads nowhere
    docs/guide.md:3: link to odd.md leads nowhere
    docs/guide.md:4: link to ../../x.md leads nowhere
    ");
}

#[test]
fn snippets_that_do_not_stand_in_their_file_are_found() {
    let page = "
<!-- from a/src/b.rs -->
```rust
fn b() {
    one();
    // …
    three();
}
```
<!-- from a/src/b.rs -->
```rust
one();
  two();
```
<!-- from a/src/b.rs -->
```rust
three();
// …
one();
```
<!-- from a/src/gone.rs -->
<!-- from a/src/b.rs -->
text
";
    let source =
        "mod m {\n    fn b() {\n        one();\n        two();\n        three();\n    }\n}\n";
    insta::assert_snapshot!(check(&[("docs/page.md", page), ("a/src/b.rs", source)]), @r"
    docs/page.md:10: the block does not stand in a/src/b.rs
    docs/page.md:15: the block does not stand in a/src/b.rs
    docs/page.md:21: a/src/gone.rs is no file
    docs/page.md:22: no block of code follows
    ");
}
