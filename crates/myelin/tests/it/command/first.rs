//! The first thing a new user does.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
};

use super::site::{QUICK, Site, stderr, stdout, until, wait, workers};

fn quickstart() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart.yaml");
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn the_quickstart_converges_stays_and_is_removed_by_down() {
    let site = Site::new();
    let shown = site.ok(&["up", &quickstart(), "--until-converged"]);
    for node in ["worker-0", "worker-1", "worker-2"] {
        assert!(shown.contains(&format!("{node}  ready")), "{shown}");
        assert_eq!(site.agents(node).len(), 1, "its agent runs on");
    }
    assert!(shown.contains("myelin down --state-dir "), "{shown}");
    assert_eq!(site.leases().len(), 3);

    let refused = site.fails(1, &["down"]);
    assert!(refused.contains("Remove 3 machines?"), "{refused}");
    for lease in site.leases() {
        assert!(refused.contains(&lease), "each machine is listed: {refused}");
    }
    assert_eq!(site.leases().len(), 3, "nothing was removed");
    assert_eq!(site.ok(&["down", "--yes"]), "removed 3 machines; nothing is left\n");
    site.nothing_is_left();
    assert_eq!(site.ok(&["down", "--yes"]), "nothing is left to remove\n");
}

#[test]
fn a_bootstrap_that_never_joins_ends_with_who_waits_for_what_until_when() {
    let site = Site::new();
    let never = workers(2, ", boot: {start_swactor_command: sleep 1000}");
    let file = site.write("never.yaml", &never);
    let args = ["up", file.to_str().unwrap(), "--until-converged", "--timeout", "1s"];
    let output = site.run(&args);
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(3), "{out}{err}");
    assert!(err.contains("not converged in time: 2 of 2 nodes are not ready"), "{err}");
    assert!(err.contains("hint: what is leased stays"), "{err}");
    for node in ["worker-0", "worker-1"] {
        let line = out.lines().find(|it| it.starts_with(&format!("{node}  booting"))).unwrap();
        assert!(line.contains("waiting for the agent to join, at most "), "{line}");
    }
    let until = out.lines().find(|line| line.starts_with("  until ")).unwrap();
    assert!(until.contains('T') && until.contains("Z (in "), "{until}");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn every_reader_speaks_json_and_yaml_and_explains_every_node() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let file = site.write("next.yaml", &workers(3, ""));
    let readers: [&[&str]; 6] = [
        &["status"],
        &["nodes"],
        &["explain", "worker-0"],
        &["events"],
        &["logs", "worker-0"],
        &["plan", file.to_str().unwrap()],
    ];
    for reader in readers {
        let json: serde_json::Value = site.json(reader);
        assert!(json.is_object() || json.is_array());
        let yaml = site.ok(&[reader, &["-o", "yaml"]].concat());
        let from_yaml: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(from_yaml.is_object(), json.is_object(), "{yaml}");
        let table = site.ok(reader);
        assert!(!table.contains('\x1b'), "no colours where nobody sees them: {table}");
    }
    let lines = site.ok(&["logs", "worker-0"]);
    assert!(lines.contains("agent: joined as worker-0"), "{lines}");
    let explained = site.ok(&["explain", "worker-0"]);
    assert!(explained.starts_with("worker-0: ready\n  why          as desired\n"), "{explained}");
    let status = site.status();
    assert_eq!(status.pid.cast_signed(), up.pid().as_raw_nonzero().get());
    site.ok(&["down", "--yes"]);
    let (code, log) = up.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("taken down by `myelin down`: all machines are removed"), "{log}");
    site.nothing_is_left();
}

#[test]
fn plain_lines_say_what_happens_to_each_node() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    until("it is ready", || up.log().contains("worker-0 ready").then_some(()));
    site.signal_agent("worker-0", rustix::process::Signal::KILL);
    until("it is ready again", || (up.log().matches("worker-0 ready").count() == 2).then_some(()));
    let log = up.log();
    let said: Vec<_> = log.lines().filter_map(|line| line.split_once("worker-0 ")).collect();
    let said: Vec<_> = said.into_iter().map(|(_, what)| what).collect();
    assert_eq!(
        said,
        [
            "leased",
            "booting",
            "ready",
            "agent silent",
            "cleanup began: agent lost",
            "cleaned up",
            "starting anew as attempt 1",
            "leased",
            "booting",
            "ready",
        ]
    );
    let clock = log.lines().next().unwrap().split_once(' ').unwrap().0;
    assert_eq!(clock.len(), "12:00:01".len(), "{log}");
    site.take_down(up);
}

#[test]
fn followers_go_on_until_the_loop_ends() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let follow = |args: &[&str]| {
        let mut command = site.command();
        command.args(args).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let events = follow(&["events", "-f", "-o", "json", "worker-0"]);
    let logs = follow(&["logs", "-f", "worker-0"]);
    let joined = || site.ok(&["logs", "worker-0"]).matches("joined as worker-0").count();
    // Output is followed at some distance, and what was not read goes with the machine.
    until("its output has come", || (joined() == 1).then_some(()));
    site.ok(&["replace", "worker-0"]);
    until("it is replaced", || (site.attempts() == [("worker-0".into(), 1)]).then_some(()));
    site.until_converged();
    until("the output of the next has come", || (joined() == 2).then_some(()));
    Site::leave(up);
    let events = stdout(&events.wait_with_output().unwrap());
    let events: Vec<myelin::view::EventView> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    assert_eq!(events.iter().filter(|event| event.code == "ready").count(), 2);
    let logs = stdout(&logs.wait_with_output().unwrap());
    assert_eq!(logs.matches("joined as worker-0").count(), 2, "{logs}");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn the_command_describes_itself() {
    let site = Site::new();
    let schema: serde_json::Value = serde_json::from_str(&site.ok(&["schema"])).unwrap();
    assert_eq!(schema["title"], "myelin cluster file");
    for shell in ["bash", "zsh", "fish"] {
        assert!(site.ok(&["completions", shell]).contains("myelin"));
    }
    let man = site.ok(&["man"]);
    assert!(man.contains(".TH myelin") && man.contains("myelin\\-up"), "{man}");
    let help = site.ok(&["--help"]);
    assert!(!help.contains("agent ") && !help.contains("debug"), "{help}");
    let file = site.write("short.yaml", &format!("run: 1\ngroups: [{{id: a, count: 1}}]\n{QUICK}"));
    let shown = site.ok(&["plan", "--show-defaults", file.to_str().unwrap()]);
    let whole = site.write("whole.yaml", &shown);
    assert_eq!(site.ok(&["plan", "--show-defaults", whole.to_str().unwrap()]), shown);
}

#[test]
fn a_state_directory_with_a_long_path_works_too() {
    let site = Site::with_long_path();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let run: serde_json::Value =
        serde_json::from_slice(&fs::read(site.state().join("run.json")).unwrap()).unwrap();
    let socket = Path::new(run["socket"].as_str().unwrap()).to_owned();
    assert!(!socket.starts_with(site.state()) && socket.exists());
    Site::leave(up);
    assert!(!socket.parent().unwrap().exists(), "its directory is removed");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_follower_whose_reader_has_gone_ends() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    until("it has printed", || (!site.ok(&["logs", "worker-0"]).is_empty()).then_some(()));
    for args in [["events", "-f"], ["logs", "-f"]] {
        let mut command = site.command();
        let mut follower =
            command.args(args).arg("worker-0").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        // Nothing happens from here on that it could stumble over.
        BufReader::new(follower.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        assert_eq!(wait(&mut follower, "a follower nobody reads").code(), Some(0));
    }
    site.take_down(up);
}

#[test]
fn a_follower_may_begin_with_nothing_of_what_has_been() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let before: Vec<myelin::view::EventView> = site.json(&["events", "-n", "1"]);
    let shown = site.write("shown", "");
    let mut command = site.command();
    command.args(["events", "-f", "-n", "0", "-o", "json"]);
    let mut follower = command.stdout(File::create(&shown).unwrap()).spawn().unwrap();
    let first = until("something is followed", || {
        site.ok(&["pause"]);
        site.ok(&["resume"]);
        let text = fs::read_to_string(&shown).unwrap();
        let line = text.lines().next()?;
        Some(serde_json::from_str::<myelin::view::EventView>(line).unwrap())
    });
    assert!(first.sequence > before[0].sequence, "{first:?}");
    Site::leave(up);
    assert_eq!(wait(&mut follower, "the follower").code(), Some(0));
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn times_longer_than_time_itself_are_never_reached() {
    let site = Site::new();
    let long = "silent_after: 400000000000y}\nretry: {lost_after: 400000000000y";
    let file = workers(1, "").replace("silent_after: 1s}\nretry: {lost_after: 4s", long);
    assert!(file.contains(long));
    let file = site.write("long.yaml", &file);
    let never = "584000000000y";
    site.ok(&["up", file.to_str().unwrap(), "--until-converged", "--timeout", never]);
    assert_eq!(site.leases().len(), 1);
    site.ok(&["down", "--yes", "--timeout", never]);
    site.nothing_is_left();
}
