//! What fails and what is refused, on real processes.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

use super::site::{PATIENCE, Site, stderr, stdout, until, workers};

#[test]
fn a_failing_bootstrap_is_cleaned_up_and_tried_again_and_its_output_is_kept() {
    let site = Site::new();
    let failing = ", boot: {verify_commands: [\"echo the disk is gone >&2; exit 3\"]}";
    let up = site.up(&workers(1, failing));
    until("it fails", || (!site.events("attempt_failed").is_empty()).then_some(()));
    until("a fresh attempt starts", || (!site.events("restarted").is_empty()).then_some(()));
    let events: Vec<myelin::view::EventView> = site.json(&["events", "-n", "10000", "worker-0"]);
    let codes: Vec<_> = events.iter().map(|event| event.code.as_str()).collect();
    let at = |code: &str| codes.iter().position(|it| *it == code).unwrap();
    assert!(at("attempt_failed") < at("destroyed") && at("destroyed") < at("restarted"));
    let explained = site.explain("worker-0");
    let error = explained.retry.last_error.unwrap();
    assert!(error.contains("` exited with status 3"), "{error}");
    let logs = site.ok(&["logs", "worker-0"]);
    assert!(logs.contains("the disk is gone"), "{logs}");
    until("it says so", || up.log().contains("attempt failed: ").then_some(()));
    site.take_down(up);
}

#[test]
fn an_impossible_image_costs_a_group_of_twenty_one_create_and_says_why() {
    let site = Site::new();
    let file = site.write("image.yaml", &workers(20, ", image: /nonexistent/image"));
    let output = site.run(&["up", file.to_str().unwrap(), "--until-converged"]);
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    assert!(err.contains("only a person can help: 20 of 20 nodes are not ready"), "{err}");
    assert!(err.ends_with("hint: nothing is leased; mend the file and try again\n"), "{err}");
    assert_eq!(out.matches("CreateLease 0.0 submitted").count(), 1, "{out}");
    assert!(!out.contains("CreateLease 1.0 submitted"), "{out}");
    assert!(out.contains("image /nonexistent/image does not exist"), "{out}");
    site.nothing_is_left();
}

#[test]
fn words_that_make_no_sense_are_refused_with_a_hint() {
    let site = Site::new();
    site.fails(2, &["frobnicate"]);
    site.fails(2, &["up", "--timeout", "1s", "x.yaml"]);
    site.fails(2, &["down", "--timeout", "soon"]);
    site.fails(1, &["up", "missing.yaml"]);
    site.fails(1, &["up"]);
    site.fails(1, &["nodes"]);
    let wrong = site.write("wrong.yaml", "run: 1\ngroups: [{id: worker, cuont: 3}]\n");
    let errors = site.fails(1, &["up", wrong.to_str().unwrap()]);
    assert!(errors.contains("wrong.yaml:2:23: unknown key \"cuont\" in a group"), "{errors}");
    assert!(errors.ends_with("hint: did you mean \"count\"?\n"), "{errors}");
    let fog = site.write("fog.yaml", "run: 1\ngroups: [{id: worker, count: 3, provider: fog}]\n");
    for verb in ["up", "plan"] {
        let error = site.fails(1, &[verb, fog.to_str().unwrap()]);
        assert!(error.contains("there is no provider \"fog\"; known: process"), "{error}");
    }
    let good = site.write("good.yaml", &workers(1, ""));
    let open = site.fails(1, &["up", good.to_str().unwrap(), "--listen", "0.0.0.0:0"]);
    assert!(open.starts_with("error: 0.0.0.0:0 is no loopback address\nhint: --listen "), "{open}");
    let mut logged = site.command();
    let logged = logged.args(["up", "missing.yaml"]).env("MYELIN_LOG", "a=b=c").output().unwrap();
    assert!(stderr(&logged).starts_with("warning: MYELIN_LOG is no filter: "), "{logged:?}");
    assert!(site.processes().is_empty());

    let up = site.up(&workers(1, ""));
    let unknown = site.fails(1, &["explain", "wroker-0"]);
    assert!(unknown.ends_with("hint: did you mean \"worker-0\"?\n"), "{unknown}");
    site.fails(1, &["logs", "worker-9"]);
    site.fails(1, &["events", "worker-9"]);
    site.fails(1, &["replace", "worker-9"]);
    site.fails(1, &["retry", "w"]);
    site.fails(1, &["abandon", "worker-0"]);
    site.take_down(up);
}

#[test]
fn nonsense_on_the_sockets_is_answered_once_and_harms_nobody() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let run = std::fs::read(site.state().join("run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_slice(&run).unwrap();
    let socket = run["socket"].as_str().unwrap();
    let listen: SocketAddr = run["listen"].as_str().unwrap().parse().unwrap();
    let mut nonsense: Vec<Vec<u8>> = [
        "\n",
        "hello\n",
        "{}\n",
        "{\"version\":1}\n",
        "{\"version\":2,\"request\":{\"status\":{}}}\n",
        "{\"version\":1,\"request\":{\"status\":{\"verbose\":true}}}\n",
        "{\"version\":1,\"request\":{\"launch\":{}}}\n",
        "{\"version\":1,\"request\":{\"events\":{\"limit\":-1}}}\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "\0\0\0\0\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    nonsense.push(vec![0xff; 100].into_iter().chain(*b"\n").collect());
    nonsense.push([vec![b'['; 100_000], b"\n".to_vec()].concat());
    nonsense.push(vec![b'x'; 9 * 1024 * 1024]);
    for bytes in &nonsense {
        let mut control = UnixStream::connect(socket).unwrap();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be refused before all of it is sent.
        control.write_all(bytes).ok();
        let mut answer = String::new();
        control.read_to_string(&mut answer).ok();
        assert_eq!(answer.lines().count(), 1, "one answer: {answer}");
        assert!(answer.starts_with("{\"error\":{\"kind\":\"malformed\""), "{answer}");
    }
    for bytes in &nonsense {
        let mut agent = TcpStream::connect(listen).unwrap();
        agent.set_read_timeout(Some(PATIENCE)).unwrap();
        agent.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        agent.write_all(bytes).ok();
        let mut answer = String::new();
        agent.read_to_string(&mut answer).ok();
        // A flood is read for a second, and what is left of it may reset the connection before the answer is read.
        if answer.is_empty() && bytes.len() > 1024 * 1024 {
            continue;
        }
        assert_eq!(answer.lines().count(), 1, "one answer: {answer}");
        assert!(answer.starts_with("{\"refused\":{\"reason\":{\"malformed\""), "{answer}");
    }
    assert!(site.status().converged, "the loop is as it was");
    site.take_down(up);
}

#[test]
fn strangers_at_the_join_port_leave_files_for_machines_and_people() {
    let site = Site::new();
    let up = site.up_with_files(128, &workers(1, ""));
    site.until_converged();
    let run = std::fs::read(site.state().join("run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_slice(&run).unwrap();
    let listen: SocketAddr = run["listen"].as_str().unwrap().parse().unwrap();
    // As many as the process may have files, all at once and all silent.
    let strangers: Vec<_> = (0..200).map(|_| TcpStream::connect(listen).unwrap()).collect();
    let more = site.write("more.yaml", &workers(2, ""));
    site.ok(&["apply", more.to_str().unwrap()]);
    until("a machine is leased", || (site.leases().len() == 2).then_some(()));
    drop(strangers);
    site.until_converged();
    let log = up.log();
    assert!(!log.contains("cannot accept"), "{log}");
    site.take_down(up);
}

#[test]
fn what_a_bootstrap_prints_never_reaches_the_terminal_as_it_is() {
    let site = Site::new();
    let evil = r#", boot: {verify_commands: ["printf '\\033[31mred\\007\\n' >&2; false"]}, policy: {on_failure: keep}"#;
    let up = site.up(&workers(1, evil));
    until("it is kept", || (site.nodes()[0].state == "kept").then_some(()));
    until("it is told", || up.log().contains("attempt failed: ").then_some(()));
    let file = site.write("same.yaml", &workers(1, evil));
    let readers: [&[&str]; 5] = [
        &["nodes"],
        &["explain", "worker-0"],
        &["events"],
        &["logs", "worker-0"],
        &["plan", file.to_str().unwrap()],
    ];
    let shown = readers.map(|reader| site.ok(reader)).join("") + &up.log();
    assert!(shown.contains("\u{fffd}[31mred\u{fffd}"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    let explained = site.explain("worker-0");
    assert_eq!((explained.join_by, explained.ready_by), (None, None), "it waits for neither");
    site.take_down(up);
}
