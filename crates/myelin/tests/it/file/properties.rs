use std::{collections::BTreeMap, time::Duration};

use myelin::file::{AgentSettings, ClusterFile, Format, changes, defaults_shown, parse};
use myelin_shape::{
    BootSpec, DesiredNodeShape, FirstNode, GroupPolicy, Limit, Mount, OnFailure, RunId,
    RunNodeGroupSpec, RunPolicy, SecretRef, SwarmJoinTemplate,
};
use myelin_state::RetryPolicy;
use proptest::{collection, option, prelude::*};

/// Text that YAML could take for something else, and any other.
fn text() -> impl Strategy<Value = String> {
    let tricky = [
        "",
        " ",
        "1",
        "1.5",
        "0x10",
        "1e3",
        "true",
        "no",
        "null",
        "~",
        ".inf",
        "- a",
        "a: b",
        "#",
        "a #b",
        "&a",
        "*a",
        "!t",
        "|",
        "%",
        "@",
        "`",
        "'",
        "\"",
        "\\",
        "{",
        "[",
        "a\nb",
        "\n",
        " a ",
        "---",
        "...",
        "<<",
        "?",
        ":",
        "2020-01-01",
        "a\tb",
        "é",
        "😀",
        "0o7",
        "1_000",
        "=",
        "a\n",
        "\na",
        "a\u{2028}b",
        "a\r\nb",
        "\u{feff}",
    ];
    prop_oneof![
        prop::sample::select(tricky.to_vec()).prop_map(str::to_owned),
        "[^\x00\u{7f}-\u{9f}]{0,12}",
    ]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    collection::vec(text(), 0..3)
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    collection::btree_map("[A-Za-z_.]{1,6}|[^=\x00\u{7f}-\u{9f}]{1,6}", text(), 0..3)
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (10..100_000_u64).prop_map(Duration::from_millis),
        (1..10_000_000_u64).prop_map(Duration::from_secs),
        (10_000_000..u64::MAX / 4).prop_map(Duration::from_nanos),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![(1..u32::MAX).prop_map(Limit::Count), (1..=100_u8).prop_map(Limit::Percent)]
}

fn shape() -> impl Strategy<Value = DesiredNodeShape> {
    let sizes = (any::<u32>(), any::<Option<u32>>(), any::<Option<u32>>(), any::<Option<u32>>());
    let rates = (option::of(0.0..1e9), option::of(0.0..1e300), option::of(0.0..=1.0));
    (text(), sizes, option::of(text()), rates, any::<bool>(), map()).prop_map(
        |(
            image,
            (disk_gb, cpu, memory_mb, min_gpu_ram_mb),
            gpu_name,
            rates,
            require_verified,
            provider_labels,
        )| {
            DesiredNodeShape {
                image,
                disk_gb,
                cpu,
                memory_mb,
                gpu_name,
                min_gpu_ram_mb,
                min_down_mbps: rates.0,
                min_up_mbps: rates.1,
                min_reliability: rates.2,
                require_verified,
                provider_labels,
            }
        },
    )
}

fn boot() -> impl Strategy<Value = BootSpec> {
    let mount = (text(), text(), any::<bool>()).prop_map(|(source, target, read_only)| Mount {
        source: format!("/{source}").into(),
        target: format!("/{target}").into(),
        read_only,
    });
    let mounts = collection::vec(mount, 0..3);
    (option::of(text()), texts(), option::of(text()), texts(), map(), texts(), mounts).prop_map(
        |(ssh_user, verify_commands, start_swactor_command, sources, env, args, mounts)| BootSpec {
            ssh_user,
            verify_commands,
            start_swactor_command,
            stdout_sources: sources.iter().map(Into::into).collect(),
            stderr_sources: sources.iter().rev().map(Into::into).collect(),
            env,
            args,
            mounts,
        },
    )
}

fn join() -> impl Strategy<Value = SwarmJoinTemplate> {
    let token = prop_oneof![
        Just(SecretRef::Cluster),
        "[A-Z]{1,8}".prop_map(SecretRef::Env),
        text().prop_map(|path| SecretRef::File(format!("/{path}").into())),
    ];
    (option::of(text()), token).prop_map(|(orch_swactor_addr, join_token_ref)| SwarmJoinTemplate {
        orch_swactor_addr,
        join_token_ref,
    })
}

fn policy() -> impl Strategy<Value = GroupPolicy> {
    let first_node =
        prop::sample::select(vec![None, Some(FirstNode::Canary), Some(FirstNode::All)]);
    let on_failure = prop::sample::select(vec![OnFailure::Keep, OnFailure::Replace]);
    (option::of(limit()), limit(), first_node, 1..u32::MAX, on_failure, any::<u32>(), duration())
        .prop_map(
            |(
                max_unavailable,
                max_unhealthy,
                first_node,
                max_in_flight_creates,
                on_failure,
                keep_limit,
                keep_for,
            )| {
                GroupPolicy {
                    max_unavailable,
                    max_unhealthy,
                    first_node,
                    max_in_flight_creates,
                    on_failure,
                    keep_limit,
                    keep_for,
                }
            },
        )
}

fn group(id: String) -> impl Strategy<Value = RunNodeGroupSpec> {
    ("[a-z][a-z0-9]{0,5}", 0..1000_u32, shape(), boot(), join(), policy()).prop_map(
        move |(role, count, shape, boot, swarm_join, policy)| RunNodeGroupSpec {
            role: role.into(),
            shape,
            boot,
            swarm_join,
            policy,
            ..RunNodeGroupSpec::new(RunId(0), &id, count, "process")
        },
    )
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    let other = (duration(), duration(), duration(), duration(), duration(), duration());
    (duration(), 1..100_u32, 0..=100_u32, other, any::<u32>(), duration()).prop_map(
        |(initial_delay, factor, jitter_percent, other, max_consecutive_failures, lost_after)| {
            RetryPolicy {
                initial_delay,
                factor,
                max_delay: initial_delay.max(other.0),
                jitter_percent,
                operation_timeout: other.0,
                answer_timeout: other.1,
                endpoint_probe_interval: other.2,
                ready_timeout: other.3,
                bootstrap_timeout: other.4,
                stable_after: other.5,
                lost_after,
                max_consecutive_failures,
                max_cancel_failures: factor,
            }
        },
    )
}

fn cluster() -> impl Strategy<Value = ClusterFile> {
    let groups = (group("a".to_owned()), group("b-2".to_owned()), 0..=2_usize);
    (any::<u64>(), groups, limit(), retry(), 2000..1_000_000_u64)
        .prop_map(|(run, (a, b, n), max_unhealthy, retry, max_nodes)| {
            let run = RunId(run);
            let mut groups = vec![a, b];
            groups.truncate(n);
            for group in &mut groups {
                group.run_id = run;
            }
            let silent_after = retry.lost_after;
            ClusterFile {
                run,
                groups,
                policy: RunPolicy { max_unhealthy },
                retry,
                agent: AgentSettings { heartbeat: silent_after, silent_after },
                max_nodes,
            }
        })
        .prop_filter("labels are not reserved", |file| {
            file.shape(0).expand_up_to(file.max_nodes).is_ok()
        })
}

/// The example with most kinds of values, in every format.
const SEEDS: [&str; 3] = [
    include_str!("../../../../../examples/two-groups.yaml"),
    include_str!("../../../../../examples/quickstart.json"),
    "run = 1\nagent = {heartbeat = \"1s\"}\n[[groups]]\nid = \"a\"\nmin_reliability = 0.5\n[groups.boot]\nenv.X = \"y\"\nargs = [\"a\", 'b']\n",
];

#[derive(Clone, Debug)]
enum Mutation {
    Remove(usize, usize),
    Insert(usize, &'static str),
    Copy(usize, usize, usize),
    Byte(usize, u8),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let pieces = [
        "\n",
        "  ",
        "\t",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "\"",
        "'",
        "#",
        "!x ",
        "---\n",
        "|\n",
        ">\n",
        "? ",
        ",",
        "id: a\n",
        "\u{1f600}",
        "\r",
        "%",
        "=",
        "[[groups]]\n",
        "nan",
        "1e999",
        "\\u",
        "\u{85}",
        "\u{feff}",
        "...\n",
        "-1",
    ];
    prop_oneof![
        (any::<usize>(), 1..9_usize).prop_map(|(at, n)| Mutation::Remove(at, n)),
        (any::<usize>(), prop::sample::select(pieces.to_vec()))
            .prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        (any::<usize>(), any::<usize>(), 1..40_usize)
            .prop_map(|(from, to, n)| Mutation::Copy(from, to, n)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let at = |n: usize| n % (bytes.len() + 1);
    match *mutation {
        Mutation::Remove(from, n) => drop(bytes.drain(at(from)..(at(from) + n).min(bytes.len()))),
        Mutation::Insert(to, piece) => drop(bytes.splice(at(to)..at(to), piece.bytes())),
        Mutation::Copy(from, to, n) => {
            let piece = bytes[at(from)..(at(from) + n).min(bytes.len())].to_vec();
            drop(bytes.splice(at(to)..at(to), piece));
        }
        Mutation::Byte(to, byte) => {
            drop(bytes.splice(at(to)..(at(to) + 1).min(bytes.len()), [byte]));
        }
    }
}

/// Either a file that reads back as it is shown, or errors whose places are in the text.
fn check_total(bytes: &[u8], format: Format) {
    match parse(bytes, format, "any") {
        Ok(file) => {
            let shown = defaults_shown(&file);
            assert_eq!(
                parse(shown.as_bytes(), Format::Yaml, "shown").as_ref(),
                Ok(&file),
                "{shown}"
            );
        }
        Err(errors) => {
            let n_lines = bytes.split(|&byte| byte == b'\n').count();
            assert!(errors.n_errors() > 0 && errors.shown().len() <= 20);
            assert!(errors.to_string().len() < 40_000, "{errors}");
            assert!(
                errors.to_string().lines().last().is_some_and(|line| line.starts_with("hint: "))
            );
            for error in errors.shown() {
                let (line, column) = error.place.unwrap();
                assert!(line <= n_lines && column <= bytes.len() + 1, "{errors}");
                assert!(!error.message.contains(char::is_control), "{errors:?}");
            }
        }
    }
}

fn check_in_every_format(bytes: &[u8]) {
    for format in [Format::Yaml, Format::Json, Format::Toml] {
        check_total(bytes, format);
    }
}

#[test]
fn control_characters_are_shown_as_escapes() {
    let controls = (1..0xa0).filter_map(char::from_u32).filter(|c| c.is_control());
    for c in controls {
        let text = format!("{{run: 1, groups: [{{id: a, image: \"a\\x{:02x}\"}}]}}", u32::from(c));
        let file = parse(text.as_bytes(), Format::Yaml, "any").unwrap();
        assert_eq!(file.groups[0].shape.image, format!("a{c}"));
        check_total(text.as_bytes(), Format::Yaml);
    }
}

proptest! {
    #[test]
    fn a_file_with_its_defaults_shown_is_the_same_cluster(file in cluster()) {
        let shown = defaults_shown(&file);
        let again = parse(shown.as_bytes(), Format::Yaml, "shown");
        prop_assert!(again.as_ref() == Ok(&file), "{}\n{:?}\n{:?}", shown, again, file);
    }

    #[test]
    fn equal_content_is_an_equal_cluster_in_every_format(file in cluster()) {
        let tree: serde_json::Value = serde_saphyr::from_str(&defaults_shown(&file)).unwrap();
        let json = serde_json::to_string_pretty(&tree).unwrap();
        prop_assert_eq!(parse(json.as_bytes(), Format::Json, "json"), Ok(file.clone()));
        // TOML has no integers beyond 63 bits.
        if i64::try_from(file.run.0).is_ok() {
            let toml = toml::to_string(&tree).unwrap();
            prop_assert_eq!(parse(toml.as_bytes(), Format::Toml, "toml"), Ok(file));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in collection::vec(any::<u8>(), 0..300)) {
        check_in_every_format(&bytes);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(\\PC|[\n\t:\\-\\[\\]{}&*'\"#=,?|> ]){0,200}") {
        check_in_every_format(text.as_bytes());
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(
        seed in 0..SEEDS.len(),
        mutations in collection::vec(mutation(), 1..8),
    ) {
        let mut bytes = SEEDS[seed].as_bytes().to_vec();
        for mutation in &mutations {
            mutate(&mut bytes, mutation);
        }
        check_in_every_format(&bytes);
    }

    #[test]
    fn groups_differ_exactly_when_there_are_changes(one in group("a".to_owned()), other in group("a".to_owned())) {
        prop_assert_eq!(changes(&one, &one), []);
        prop_assert_eq!(changes(&one, &other).is_empty(), one == other);
        let replaces = changes(&one, &other).iter().any(|change| change.replaces);
        prop_assert_eq!(replaces, one.template() != other.template());
    }
}

#[test]
fn a_change_names_the_field_with_both_values_and_hides_secrets() {
    let old = RunNodeGroupSpec::new(RunId(1), "a", 1, "process");
    let mut new = old.clone();
    new.count = 2;
    new.shape.image = "v2".to_owned();
    new.shape.cpu = Some(4);
    new.boot.args = vec!["-v".to_owned()];
    new.boot.env = [("API_KEY", "abc"), ("token", "abc"), ("PORT", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    new.policy.keep_for = Duration::from_mins(90);
    let changes = changes(&old, &new);
    let lines: Vec<_> =
        changes.iter().map(|change| format!("{change} ({})", change.replaces)).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    boot.args [] → ["-v"] (true)
    boot.env.API_KEY unset → (hidden) (true)
    boot.env.PORT unset → "1" (true)
    boot.env.token unset → (hidden) (true)
    count 1 → 2 (false)
    policy.keep_for "1day" → "1h 30m" (false)
    shape.cpu unset → 4 (true)
    shape.image "" → "v2" (true)
    "#);
}
