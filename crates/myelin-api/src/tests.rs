use insta::assert_snapshot;
use proptest::prelude::*;

use myelin_shape::{AttemptKey, ClusterUid, NodeAttemptId, RunId};

use crate::{
    AgentKey, AgentMessage, ControllerMessage, JoinSecret, JoinToken, LineBuffer, LineError,
    MAX_AGENT_LINE, PROTOCOL_VERSION, RefusedReason, WireKey, decode, encode, hello_version,
};

fn key(node: &str) -> AttemptKey {
    AttemptKey {
        cluster: ClusterUid([7; 16]),
        run: RunId(1),
        node: node.into(),
        attempt: NodeAttemptId(3),
    }
}

fn join() -> AgentMessage {
    AgentMessage::Join {
        version: PROTOCOL_VERSION,
        key: WireKey::from(&key("worker-0")),
        token: JoinSecret::new([1; 32]).token(&key("worker-0")),
        agent_key: AgentKey::new([2; 16]),
        pid: 4711,
    }
}

fn text<T: serde::Serialize>(message: &T) -> String {
    String::from_utf8(encode(message)).unwrap()
}

/// Feeds the bytes as one stream and returns the first thing that is wrong, or what was decoded.
fn check(bytes: &[u8]) -> String {
    let mut lines = LineBuffer::new(64);
    lines.push(bytes);
    let message = match lines.next_line() {
        Ok(Some(line)) => decode::<AgentMessage>(&line),
        Ok(None) => lines.finish().map(|()| panic!("nothing was sent")),
        Err(error) => Err(error),
    };
    match message {
        Ok(message) => format!("{message:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn messages_look_like_this_on_the_wire() {
    let swactor = AgentKey::new([2; 16]).swactor();
    let refused = |reason| text(&ControllerMessage::Refused { reason });
    let lines = [
        text(&join()),
        text(&AgentMessage::Heartbeat { sequence: 9 }),
        text(&ControllerMessage::Welcome { swactor, heartbeat_every_ms: 2000 }),
        text(&ControllerMessage::Ack {}),
        refused(RefusedReason::OtherAgent {}),
        refused(RefusedReason::Version { supported: 1 }),
    ];
    assert_snapshot!(lines.concat());
}

#[test]
fn each_kind_of_nonsense_has_its_own_words() {
    let brackets = [b'['; 60];
    let inputs: [&[u8]; 15] = [
        b"{\"heartbeat\":{\"sequence\":1}}\n",
        b"{\"heartbeat\":{\"sequence\":1}}\r\n",
        b"\n",
        b"{\"heartbeat\":{\"sequence\":1}}",
        &[b'x'; 65],
        &[&[b'x'; 65][..], b"\n"].concat(),
        b"{\"a\0\":1}\n",
        b"{\"a\xff\":1}\n",
        b"GET / HTTP/1.1\n",
        b"{\"heartbeat\":{\"sequence\":1,\"x\":2}}\n",
        b"{\"heartbeat\":{}}\n",
        b"{\"heartbeat\":{\"sequence\":-1}}\n",
        b"{\"goodbye\":{}}\n",
        b"[1]\n",
        &[&brackets[..], b"\n"].concat(),
    ];
    let shown = inputs.map(|input| format!("{}\n  => {}\n", input.escape_ascii(), check(input)));
    assert_snapshot!(shown.concat());
}

#[test]
fn a_deeply_nested_line_is_an_error_and_no_overflow() {
    let line = vec![b'['; MAX_AGENT_LINE];
    assert!(matches!(decode::<serde_json::Value>(&line), Err(LineError::NotJson { .. })));
}

#[test]
fn an_error_quotes_only_a_little_of_the_line() {
    let line = format!("{{\"{}\":1}}", "é".repeat(5000));
    let Err(LineError::NotAMessage { message }) = decode::<AgentMessage>(line.as_bytes()) else {
        panic!("an unknown variant is no message");
    };
    assert!(message.ends_with('…') && message.len() < 210, "{message}");
}

#[test]
fn an_error_shows_control_characters_as_escapes() {
    let Err(LineError::NotAMessage { message }) = decode::<AgentMessage>(br#"{"\u001b[31m":1}"#)
    else {
        panic!("an unknown variant is no message");
    };
    assert!(message.starts_with(r"unknown variant `\u{1b}[31m`"), "{message}");
}

#[test]
fn a_token_is_valid_for_its_attempt_and_secret_only() {
    let secret = JoinSecret::new([1; 32]);
    let token = secret.token(&key("worker-0"));
    assert!(secret.verify(&key("worker-0"), &token));
    assert!(!secret.verify(&key("worker-1"), &token));
    assert!(!JoinSecret::new([2; 32]).verify(&key("worker-0"), &token));
    let later = AttemptKey { attempt: NodeAttemptId(4), ..key("worker-0") };
    assert!(!secret.verify(&later, &token));
}

#[test]
fn debug_forms_hold_no_secret() {
    let secret = JoinSecret::new([0xab; 32]);
    let token = secret.token(&key("worker-0"));
    let shown = format!("{secret:?} {token:?} {:?} {:?}", AgentKey::new([0xcd; 16]), join());
    for secret in ["abab", "171", "cdcd", &token.expose()[..8], "0202"] {
        assert!(!shown.contains(secret), "{shown} shows {secret}");
    }
}

#[test]
fn a_swactor_id_does_not_show_the_agent_key() {
    let agent_key = AgentKey::new([0xcd; 16]);
    assert_ne!(agent_key.swactor(), AgentKey::new([0xce; 16]).swactor());
    assert!(!agent_key.swactor().as_str().contains("cdcd"));
    assert_eq!(agent_key.swactor().as_str().len(), 16);
}

#[test]
fn tokens_and_agent_keys_are_lower_case_hexadecimal_of_one_length() {
    for text in ["", "0", "zz", &"0".repeat(63), &"A".repeat(64), &"é".repeat(32)] {
        assert!(text.parse::<JoinToken>().is_err(), "{text}");
    }
    let token: JoinToken = "0f".repeat(32).parse().unwrap();
    assert_eq!(token.expose(), "0f".repeat(32));
}

#[test]
fn a_join_of_a_later_version_is_told_from_nonsense() {
    let later = br#"{"join":{"version":2,"proof":"x"}}"#;
    assert!(decode::<AgentMessage>(later).is_err());
    assert_eq!(hello_version(later), Some(2));
    assert_eq!(hello_version(b"{\"heartbeat\":{}}"), None);
}

#[test]
fn a_key_on_the_wire_must_hold_an_id() {
    let wire = |node: &str| WireKey { node: node.into(), ..WireKey::from(&key("x")) };
    assert_eq!(AttemptKey::try_from(wire("worker-0")), Ok(key("worker-0")));
    assert!(AttemptKey::try_from(wire(&format!("{}-100000", "g".repeat(63)))).is_ok());
    for node in ["", "../x", "A", &"g".repeat(80)] {
        assert!(AttemptKey::try_from(wire(node)).is_err(), "{node}");
    }
}

/// Reads everything a peer sends, and returns the lines with what came after the last.
#[cfg(feature = "io")]
async fn read(bytes: &[u8]) -> Vec<String> {
    let mut reader = crate::LineReader::new(bytes, 4);
    let mut shown = Vec::new();
    loop {
        match reader.next_line().await {
            Ok(Some(line)) => shown.push(String::from_utf8(line).unwrap()),
            Ok(None) => shown.push("the end".to_owned()),
            Err(error) => shown.push(error.to_string()),
        }
        if !matches!(shown.last(), Some(line) if line.len() <= 4) {
            return shown;
        }
    }
}

#[cfg(feature = "io")]
#[tokio::test]
async fn a_reader_gives_whole_lines_and_says_why_there_are_no_more() {
    assert_eq!(read(b"").await, ["the end"]);
    assert_eq!(read(b"ab\n\r\nabcd\n").await, ["ab", "", "abcd", "the end"]);
    assert_eq!(
        read(b"ab\nabc").await,
        ["ab", "connection ended within a line, after 3 bytes of it"]
    );
    assert_eq!(read(b"ab\nabcde\n").await, ["ab", "line is longer than 4 bytes"]);
}

#[cfg(feature = "io")]
#[tokio::test]
async fn a_line_without_an_end_is_not_read_on() {
    let (mut peer, ours) = tokio::io::duplex(16 * 1024);
    let mut reader = crate::LineReader::new(ours, 4);
    let flood = async {
        let mut n = 0_usize;
        while tokio::io::AsyncWriteExt::write(&mut peer, &[b'x'; 1024]).await.is_ok() {
            n += 1;
        }
        n
    };
    let refuse = async move {
        let refused = reader.next_line().await;
        drop(reader);
        refused.unwrap_err().to_string()
    };
    let (n, refused) = tokio::join!(flood, refuse);
    assert_eq!(refused, "line is longer than 4 bytes");
    assert!(n <= 32, "{n} KiB were taken");
}

proptest! {
    #[test]
    fn lines_come_out_as_they_went_in_however_they_are_cut(
        lines in prop::collection::vec("[a-z]{0,30}", 0..20),
        cut in 1_usize..40,
    ) {
        let mut stream = lines.join("\n").into_bytes();
        if !lines.is_empty() {
            stream.push(b'\n');
        }
        let mut buffer = LineBuffer::new(30);
        let mut out = Vec::new();
        for chunk in stream.chunks(cut) {
            buffer.push(chunk);
            while let Some(line) = buffer.next_line().unwrap() {
                out.push(String::from_utf8(line).unwrap());
            }
        }
        prop_assert_eq!(out, lines);
        prop_assert_eq!(buffer.finish(), Ok(()));
    }

    #[test]
    fn any_bytes_decode_or_fail_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<AgentMessage>(&line);
        let _ = hello_version(&line);
    }

    #[test]
    fn different_keys_have_different_tokens(
        a in "[a-z0-9]{1,8}", b in "[a-z0-9]{1,8}", run in 0_u64..3, attempt in 0_u64..3,
    ) {
        let secret = JoinSecret::new([5; 32]);
        let key_a = AttemptKey { run: RunId(run), ..key(&a) };
        let key_b = AttemptKey { attempt: NodeAttemptId(attempt), ..key(&b) };
        let same = key_a == key_b;
        prop_assert_eq!(secret.verify(&key_b, &secret.token(&key_a)), same);
    }
}
