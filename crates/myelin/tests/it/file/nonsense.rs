use std::{
    fmt::Write as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use myelin::file::{Format, MAX_BYTES, load, parse};

/// Returns the errors of each text under its name, as they are printed.
fn printed<const N: usize>(format: Format, extension: &str, cases: [(&str, &str); N]) -> String {
    let mut out = String::new();
    for (name, text) in cases {
        let errors = match parse(text.as_bytes(), format, &format!("bad.{extension}")) {
            Ok(file) => panic!("{name} is accepted: {file:?}"),
            Err(errors) => errors,
        };
        writeln!(out, "### {name}\n{errors}").unwrap();
    }
    out
}

#[test]
fn keys_and_types() {
    let cases = [
        ("unknown key with a near miss", "run: 1\ngroups:\n  - id: worker\n    cuont: 3\n"),
        ("unknown key without one", "run: 1\ngroups:\n  - id: worker\n    zzzzzz: 3\n"),
        (
            "a key in another section",
            "run: 1\ngroups:\n  - id: worker\n    verify_commands: [\"true\"]\n    heartbeat: 2s\n",
        ),
        ("another spelling", "run: 1\ngroups: []\nretry: {initial-delay: 1s}\n"),
        (
            "unknown word",
            "run: 1\ngroups: [{id: a, policy: {on_failure: keeep, first_node: some}}]\n",
        ),
        (
            "wrong types",
            "run: one\ngroups:\n  - id: 7\n    count: three\n    image: 1.10\n    shape: [a]\n    boot: {env: {PORT: 8080, ON: true}, args: x, verify_commands: [1, {}]}\n    policy: 3\n    require_verified: yes\n",
        ),
        ("null", "run:\ngroups:\n"),
        ("missing keys", "groups:\n  - count: 3\n    boot: {mounts: [{source: /a}]}\n"),
        ("duplicate keys", "run: 1\nrun: 2\ngroups: []\ngroups: []\n"),
        (
            "a key in two places",
            "run: 1\ngroups:\n  - id: a\n    image: x\n    shape: {image: y}\n",
        ),
        (
            "all at once",
            "run: -1\nrunn: 1\ngroups:\n  - id: A\n    count: 1.5\n  - id: b\n    count: 1000000000\nretry: {factor: 0, max_delay: 3}\n",
        ),
    ];
    insta::assert_snapshot!(printed(Format::Yaml, "yaml", cases));
}

#[test]
fn values() {
    let cases = [
        ("duplicate ids", "run: 1\ngroups:\n  - id: worker\n  - id: other\n  - id: worker\n"),
        (
            "bad ids",
            "run: 1\ngroups: [{id: \"\"}, {id: -a}, {id: Worker}, {id: a_b, role: ok}, {id: a, role: \"Ü\", provider: \"a b\"}]\n",
        ),
        (
            "long id",
            "run: 1\ngroups: [{id: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]\n",
        ),
        (
            "an id whose nodes' ids are too long",
            "run: 1\ngroups: [{id: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]\n",
        ),
        (
            "numbers",
            "run: 18446744073709551616\ngroups:\n  - id: a\n    count: -1\n    disk_gb: 4294967296\n    min_reliability: .nan\n    min_up_mbps: -.inf\n    min_down_mbps: 1e999\n    cpu: 1e3\n",
        ),
        (
            "ranges",
            "run: 1\ngroups:\n  - id: a\n    min_reliability: 1.5\n    shape: {min_up_mbps: -1}\n    policy: {max_in_flight_creates: 0, max_unavailable: 0%, max_unhealthy: 101%}\nmax_nodes: 0\n",
        ),
        ("count", "run: 1\ngroups:\n  - id: a\n    count: 1000000000\n"),
        (
            "count over several groups",
            "run: 1\nmax_nodes: 10\ngroups: [{id: a, count: 6}, {id: b, count: 4}, {id: c}]\n",
        ),
        (
            "durations",
            "run: 1\ngroups: [{id: a, policy: {keep_for: 1 fortnight}}]\nretry: {initial_delay: 5, max_delay: -5s, lost_after: 99999999999999999999s, ready_timeout: 0s, stable_after: ''}\n",
        ),
        (
            "durations in the wrong order",
            "run: 1\ngroups: []\nagent: {heartbeat: 10s}\nretry: {initial_delay: 2m}\n",
        ),
        (
            "reserved labels",
            "run: 1\ngroups:\n  - id: a\n    provider_labels: {team: x, Myelin.run: \"1\"}\n",
        ),
        ("tokens", "run: 1\ngroups: [{id: a, join: {join_token_ref: s3cret}}]\n"),
        ("environment names", "run: 1\ngroups: [{id: a, boot: {env: {\"A=B\": c, \"\": d}}}]\n"),
        (
            "relative mounts",
            "run: 1\ngroups: [{id: a, boot: {mounts: [{source: data, target: /data}]}}]\n",
        ),
        ("NUL in a text", "run: 1\ngroups: [{id: a, image: \"a\\0b\"}]\n"),
    ];
    insta::assert_snapshot!(printed(Format::Yaml, "yaml", cases));
}

/// Returns `n` lines of a YAML map.
fn keys(n: usize) -> String {
    let keys: Vec<_> = (0..n).map(|n| format!("key{n}: 1\n")).collect();
    keys.concat()
}

/// Returns the items of a list of 20 groups.
fn groups(prefix: &str) -> String {
    let groups: Vec<_> = (0..20).map(|n| format!("{{id: {prefix}{n}}}")).collect();
    groups.join(", ")
}

#[test]
fn yaml_that_is_no_cluster() {
    let deep = "[".repeat(100_000);
    let deep_maps = "{a: ".repeat(50) + &"}".repeat(50);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let last = format!("*a{}, ", n - 1).repeat(9);
        writeln!(bomb, "a{n}: &a{n} [{last}]").unwrap();
    }
    let long_line = format!("run: 1\ngroups: [{}, {{id: Z}}, {}]\n", groups("a"), groups("b"));
    let many = format!(
        "run: 1
groups: []
{}",
        keys(50)
    );
    let cases = [
        ("empty", ""),
        ("only comments", "# nothing\n\n"),
        ("a list", "- run: 1\n"),
        ("a scalar", "hello"),
        ("two documents", "run: 1\ngroups: []\n---\nrun: 2\n"),
        ("tabs", "run: 1\ngroups:\n\t- id: a\n"),
        ("bad indentation", "run: 1\ngroups:\n  - id: a\n   count: 3\n"),
        ("an open bracket", "run: 1\ngroups: [{id: a}\n"),
        ("unknown alias", "run: 1\ngroups: *nowhere\n"),
        ("an alias in its own anchor", "run: 1\ngroups: &a [*a]\n"),
        ("alias bomb", &bomb),
        ("deep nesting", &deep),
        ("deep maps", &deep_maps),
        ("tag", "run: !!str 1\ngroups: []\n"),
        ("a list as a key", "run: 1\n? [a, b]\n: c\n"),
        ("merge key", "run: 1\ngroups: [{id: a, <<: {count: 3}}]\n"),
        ("control characters", "run: 1\ngroups: \x1b[31m\n"),
        ("a long line", &long_line),
        (
            "wide and bidirectional text",
            "run: 1\ngroups: [{id: a, image: \"ééé漢\u{202e}\", cuont: 3}]\n",
        ),
        ("many errors", &many),
    ];
    insta::assert_snapshot!(printed(Format::Yaml, "yaml", cases));
}

#[test]
fn json_and_toml() {
    let json_deep = "[".repeat(100_000);
    let json = [
        ("empty", ""),
        ("no JSON but YAML", "run: 1\ngroups: []\n"),
        ("trailing comma", "{\"run\": 1, \"groups\": [],}\n"),
        ("comment", "{\"run\": 1, # one\n \"groups\": []}\n"),
        ("duplicate key", "{\"run\": 1, \"run\": 2, \"groups\": []}\n"),
        ("types", "{\n  \"run\": \"1\",\n  \"groups\": [{\"id\": null, \"cuont\": 1}]\n}\n"),
        ("deep", &json_deep),
    ];
    let toml_deep = format!("run = {}", "[".repeat(100_000));
    let toml = [
        ("empty", ""),
        ("syntax", "run = \n"),
        ("duplicate key", "run = 1\nrun = 2\n"),
        (
            "types",
            "run = 1979-05-27\n\n[[groups]]\nid = \"a\"\ncuont = 3\nmin_reliability = nan\nmin_up_mbps = -inf\n",
        ),
        ("groups is a table", "run = 1\n[groups]\nid = \"a\"\n"),
        ("deep", &toml_deep),
    ];
    let printed = printed(Format::Json, "json", json) + &printed(Format::Toml, "toml", toml);
    insta::assert_snapshot!(printed);
}

#[test]
fn bytes_that_are_no_text() {
    let check = |bytes: &[u8]| parse(bytes, Format::Yaml, "bad.yaml").unwrap_err().to_string();
    let invalid = check(b"run: 1\ngroups: [\xff\xfe]");
    let binary = check(b"\x7fELF\x02\x01\x01\x00\x00");
    let large = check(&vec![b'#'; 5 * 1024 * 1024]);
    insta::assert_snapshot!([invalid, binary, large].join("\n"));
}

/// Returns the errors of loading a path, without the directory.
fn load_error(dir: &Path, name: &str) -> String {
    let errors = load(dir.join(name)).unwrap_err().to_string();
    errors.replace(&dir.display().to_string(), "DIR")
}

#[test]
fn things_that_are_no_regular_file_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::create_dir(dir.join("dir.yaml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero.yaml")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.join("pipe.yaml")).status().unwrap().success());
    std::fs::write(dir.join("x.txt"), "run: 1").unwrap();
    let names = ["dir.yaml", "zero.yaml", "pipe.yaml", "none.yaml", "x.txt"];
    insta::assert_snapshot!(names.map(|name| load_error(dir, name)).join(
        "
"
    ));
}

#[test]
fn a_file_of_100_mb_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("huge.yaml")).unwrap();
    file.set_len(100_000_000).unwrap();
    insta::assert_snapshot!(load_error(dir.path(), "huge.yaml"), @r"
    DIR/huge.yaml: cannot be read: it has 100000000 bytes
    hint: a cluster file is a regular file of at most 4 MiB
    ");
}

#[test]
fn of_many_errors_the_first_are_explained_and_the_others_counted() {
    let errors = parse(keys(20_000).as_bytes(), Format::Yaml, "bad.yaml").unwrap_err();
    assert_eq!((errors.n_errors(), errors.shown().len()), (20_002, 20));
    let groups: String = (0..5_000).map(|_| "{id: A, count: x},").collect();
    let groups = format!("run: 1\ngroups: [{groups}]");
    let errors = parse(groups.as_bytes(), Format::Yaml, "bad.yaml").unwrap_err();
    assert!(errors.n_errors() > 5_000 && errors.shown().len() == 20);
}

#[test]
fn what_is_quoted_from_a_file_is_cut() {
    let long = "x".repeat(1_000_000);
    let digits = "1".repeat(1_000_000);
    let texts = [
        format!("run: 1\ngroups: [{{id: a, provider_labels: {{myelin.{long}: x}}}}]"),
        format!("run: 1\ngroups: [{{id: a, image: {digits}}}]"),
        format!("run: 1\ngroups: [{{id: {long}}}, {{id: {long}}}]"),
        format!("run: 1\ngroups: [{{id: a, boot: {{env: {{? {long} : 1}}}}}}]"),
        format!("{long}: 1"),
        format!("run: *{long}"),
        format!("run: !{long} 1"),
    ];
    for text in texts {
        let errors = parse(text.as_bytes(), Format::Yaml, "bad.yaml").unwrap_err();
        let printed = errors.to_string();
        assert!(printed.len() < 4000, "{} bytes", printed.len());
    }
}

/// The largest texts, made of what the parsers take longest for.
#[test]
fn the_largest_nonsense_is_refused_in_seconds() {
    let units = [
        (Format::Yaml, "- a\n"),
        (Format::Yaml, "a:\n"),
        (Format::Yaml, "|\n"),
        (Format::Json, "["),
        (Format::Json, "{\"a\":"),
        (Format::Toml, "[a.b]\n"),
        (Format::Toml, "["),
    ];
    let most = usize::try_from(MAX_BYTES).unwrap();
    for (format, unit) in units {
        let text = unit.repeat(most / unit.len());
        let begin = Instant::now();
        let errors = parse(text.as_bytes(), format, "big").unwrap_err();
        let took = begin.elapsed();
        assert!(errors.to_string().len() < 20_000, "{unit:?}: {errors}");
        assert!(took < Duration::from_mins(1), "{unit:?} took {took:?}");
    }
}
