use proptest::prelude::*;

use super::strategies::valid_id;
use crate::{
    AttemptKey, ClusterUid, LogicalNodeId, NodeAttemptId, NodeGroupId, OperationId, RunId, check_id,
};

/// Returns the answer to each text, one a line.
fn check(texts: &[&str]) -> String {
    let answer = |text: &&str| match check_id(text) {
        Ok(()) => format!("{text:?}: ok"),
        Err(error) => format!("{text:?}: {error}"),
    };
    texts.iter().map(answer).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_grammar_of_ids() {
    let texts = [
        "a",
        "0",
        "worker",
        "gpu-a100-80",
        "a--b",
        "",
        "-",
        "-a",
        "a-",
        "Worker",
        "a_b",
        "a.b",
        "a b",
        "a\n",
        "a\0",
        "wörker",
        "ａ",
    ];
    insta::assert_snapshot!(check(&texts), @r#"
    "a": ok
    "0": ok
    "worker": ok
    "gpu-a100-80": ok
    "a--b": ok
    "": must not be empty
    "-": may hold only a-z, 0-9 and inner '-', not '-'
    "-a": may hold only a-z, 0-9 and inner '-', not '-'
    "a-": may hold only a-z, 0-9 and inner '-', not '-'
    "Worker": may hold only a-z, 0-9 and inner '-', not 'W'
    "a_b": may hold only a-z, 0-9 and inner '-', not '_'
    "a.b": may hold only a-z, 0-9 and inner '-', not '.'
    "a b": may hold only a-z, 0-9 and inner '-', not ' '
    "a\n": may hold only a-z, 0-9 and inner '-', not '\n'
    "a\0": may hold only a-z, 0-9 and inner '-', not '\0'
    "wörker": may hold only a-z, 0-9 and inner '-', not 'ö'
    "ａ": may hold only a-z, 0-9 and inner '-', not 'ａ'
    "#);
}

#[test]
fn an_id_has_at_most_63_bytes() {
    assert_eq!(check_id(&"a".repeat(63)), Ok(()));
    let error = check_id(&"a".repeat(64)).unwrap_err();
    assert_eq!(error.to_string(), "has 64 bytes, at most 63 are allowed");
}

#[test]
fn ids_render_as_people_type_them() {
    let attempt = NodeAttemptId(7);
    let key = AttemptKey {
        cluster: ClusterUid([0xab; 16]),
        run: RunId(3),
        node: LogicalNodeId::slot(&"worker".into(), 2),
        attempt,
    };
    assert_eq!(key.to_string(), format!("{}.3.worker-2.7", "ab".repeat(16)));
    let operation = OperationId { attempt, sequence: 4 };
    assert_eq!(operation.to_string(), "7.4");
    assert_eq!(format!("{:<4}|{:?}", NodeGroupId::from("a"), NodeGroupId::from("a")), "a   |\"a\"");
}

#[test]
fn ids_are_one_word_wide_or_three() {
    assert!(size_of::<LogicalNodeId>() <= 24);
    assert_eq!(size_of::<RunId>(), 8);
}

#[test]
fn only_the_canonical_text_is_a_cluster_uid() {
    let wrong = [
        String::new(),
        "0".repeat(31),
        "0".repeat(33),
        "A".repeat(32),
        "g".repeat(32),
        format!("+{}", "0".repeat(31)),
        format!("0x{}", "0".repeat(30)),
        "é".repeat(16),
    ];
    for text in wrong {
        let error = text.parse::<ClusterUid>().unwrap_err();
        assert_eq!(error.to_string(), "a cluster uid is 32 hexadecimal digits", "{text}");
    }
}

proptest! {
    #[test]
    fn every_text_of_the_grammar_is_an_id(id in valid_id(1..=63)) {
        prop_assert_eq!(check_id(&id), Ok(()));
    }

    #[test]
    fn whatever_is_accepted_fits_the_grammar(text in "[a-c0-1A. -]{0,8}|.{0,8}") {
        let inner = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
        let fits = (1..=63).contains(&text.len())
            && text.chars().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        prop_assert_eq!(check_id(&text).is_ok(), fits);
    }

    #[test]
    fn a_cluster_uid_is_read_back(bits: [u8; 16]) {
        let uid = ClusterUid(bits);
        prop_assert_eq!(uid.to_string().parse(), Ok(uid));
        prop_assert_eq!(uid.to_string().len(), 32);
    }
}
