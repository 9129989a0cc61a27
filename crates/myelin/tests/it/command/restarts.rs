//! A run that is left or killed, and taken up again.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    ops::Range,
    path::Path,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustix::process::{Pid, Signal};

use super::site::{PATIENCE, Site, processes_with, stderr, stdout, until, workers};

/// What must be the same before and after a restart.
#[derive(Debug, PartialEq, Eq)]
struct Machines {
    attempts: Vec<(String, u64)>,
    leases: Vec<String>,
    agents: Vec<Pid>,
    /// How many were ever asked for.
    n_creates: usize,
    address: String,
}

fn machines(site: &Site) -> Machines {
    let creates = site.events("dispatched").into_iter();
    let creates = creates.filter(|event| event.text.contains("CreateLease"));
    Machines {
        attempts: site.attempts(),
        leases: site.leases(),
        agents: site.all_agents(),
        n_creates: creates.count(),
        address: site.run_file().unwrap()["listen"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn a_second_up_takes_the_machines_over_under_the_same_attempts() {
    let site = Site::new();
    let up = site.up(&workers(3, ""));
    site.until_converged();
    let before = machines(&site);
    assert_eq!((before.agents.len(), before.n_creates), (3, 3));
    let mut partings = Vec::new();
    let mut leave = |up| {
        let began = Timestamp::now();
        let log = Site::leave(up);
        partings.push(began..Timestamp::now());
        log
    };
    leave(up);
    for _ in 0..2 {
        let up = site.up(&workers(3, ""));
        site.until_converged();
        assert_eq!(machines(&site), before);
        let log = leave(up);
        assert!(log.starts_with("taking up 3 machines of this run\n"), "{log}");
        assert!(!log.contains(" leased"), "what happened before is not told again: {log}");
    }
    let up = site.up(&workers(3, ""));
    site.until_converged();
    let silent = site.events("silent");
    let hung_up = |at| partings.iter().any(|parting: &Range<Timestamp>| parting.contains(at));
    assert!(
        !silent.iter().any(|event| hung_up(&event.at)),
        "an agent we leave is not lost: {silent:?}"
    );
    assert_eq!(site.ok(&["down", "--yes"]), "removed 3 machines; nothing is left\n");
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn a_new_up_after_a_sigkill_takes_everything_over_with_nothing_created_twice() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let before = machines(&site);
    up.signal(Signal::KILL);
    up.end();
    let gone = site.fails(1, &["pause"]);
    assert!(gone.contains("no `myelin up` is running"), "{gone}");
    assert_eq!(site.all_agents(), before.agents, "they look for a listener, and wait");

    let up = site.up(&workers(2, ""));
    site.until_converged();
    assert_eq!(machines(&site), before);
    let told = site.ok(&["down", "--yes"]);
    assert_eq!(told, "removed 2 machines; nothing is left\n");
    let (code, log) = up.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("taking up 2 machines of this run"), "{log}");
    site.nothing_is_left();
}

#[test]
fn what_dies_while_no_loop_runs_is_repaired_by_the_next_and_nothing_else_is() {
    let site = Site::new();
    let up = site.up(&workers(3, ""));
    site.until_converged();
    let before = machines(&site);
    Site::leave(up);
    site.signal_agent("worker-1", Signal::KILL);
    let up = site.up(&workers(3, ""));
    until("it is replaced", || (site.attempts()[1].1 > before.attempts[1].1).then_some(()));
    site.until_converged();
    let after = machines(&site);
    assert_eq!(
        (&after.attempts[0], &after.attempts[2]),
        (&before.attempts[0], &before.attempts[2])
    );
    assert_eq!((after.leases.len(), after.agents.len(), after.n_creates), (3, 3, 4));
    site.take_down(up);
}

#[test]
fn a_run_that_is_taken_up_has_not_converged_before_its_agents_are_heard() {
    let site = Site::new();
    let file = site.write("cluster.yaml", &workers(2, ""));
    let up = ["up", file.to_str().unwrap(), "--until-converged"];
    site.ok(&up);
    let agents = site.all_agents();
    site.ok(&up);
    assert_eq!(site.all_agents(), agents, "both were heard, and nothing was to do");
    site.signal_agent("worker-1", Signal::KILL);
    site.ok(&up);
    assert_eq!((site.agents("worker-0").len(), site.agents("worker-1").len()), (1, 1));
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn nothing_is_said_of_agents_of_before_that_were_not_heard_yet() {
    let site = Site::new();
    let file = "run: 1\ngroups:\n  - {id: worker, count: 2}\n\
                agent: {heartbeat: 200ms, silent_after: 30s}\nretry: {lost_after: 60s}\n";
    let up = site.up(file);
    site.until_converged();
    Site::leave(up);
    let before = site.attempts();
    site.signal_agent("worker-1", Signal::STOP);
    let up = site.up(file);
    until("the other is heard", || (site.nodes()[0].state == "ready").then_some(()));
    let status = site.status();
    assert!(!status.converged, "{status:?}");
    let unheard = status.unheard.unwrap();
    assert!(unheard.agents == 1 && unheard.until.unwrap() > Timestamp::now(), "{unheard:?}");
    assert_eq!(status.groups[0].ready, 1, "{:?}", status.groups);
    let told = site.ok(&["status"]);
    assert!(told.starts_with("run 1: being taken up, "), "{told}");
    assert!(told.contains("\n1 agent is not heard yet since the run was taken up; in "), "{told}");
    let node = site.explain("worker-1");
    assert_eq!((node.node.state.as_str(), node.node.ready), ("unheard", false));
    assert_eq!(node.agent.unwrap().last_contact, None);
    let late = ["up", "cluster.yaml", "--until-converged", "--timeout", "1s"];
    site.signal_agent("worker-1", Signal::CONT);
    site.until_converged();
    assert_eq!(site.status().unheard, None);
    Site::leave(up);

    site.signal_agent("worker-1", Signal::STOP);
    site.fails(3, &late);
    site.signal_agent("worker-1", Signal::CONT);
    site.ok(&late[..3]);
    assert_eq!(site.attempts(), before);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn agents_dial_where_they_always_did() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let before = machines(&site);
    let address: SocketAddr = before.address.parse().unwrap();
    Site::leave(up);
    let file = site.write("cluster.yaml", &workers(2, ""));
    let up = ["up", file.to_str().unwrap()];

    let moved = site.fails(1, &[&up[..], &["--listen", "127.0.0.1:0"]].concat());
    assert!(moved.contains(&format!("agents of this run dial {address}, which")), "{moved}");
    let taken = TcpListener::bind(address).unwrap();
    let refused = site.fails(1, &up);
    assert!(refused.contains(&format!("cannot listen for agents on {address}")), "{refused}");
    drop(taken);
    assert_eq!(site.all_agents(), before.agents);

    let up = site.up(&workers(2, ""));
    site.until_converged();
    assert_eq!(machines(&site), before);
    site.take_down(up);
}

#[test]
fn a_changed_file_asks_before_it_takes_ready_nodes_of_a_run_that_is_taken_up() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let agents = site.all_agents();
    Site::leave(up);
    let file = site.write("cluster.yaml", &workers(1, ""));
    let up = ["up", file.to_str().unwrap(), "--until-converged"];
    let output = site.run(&up);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("- delete  worker-1 (attempt 1, ready now)"), "{output:?}");
    let refused = site.fails(1, &up);
    assert!(refused.contains("Nobody is there to answer"), "{refused}");
    assert!(refused.ends_with("hint: `--yes` agrees beforehand\n"), "{refused}");
    assert_eq!((site.all_agents(), site.leases().len()), (agents, 2), "nothing was changed");

    site.ok(&[&up[..], &["--yes"]].concat());
    assert_eq!((site.all_agents().len(), site.leases().len()), (1, 1));
    // More of the same takes nothing.
    site.write("cluster.yaml", &workers(3, ""));
    site.ok(&up);
    assert_eq!(site.all_agents().len(), 3);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_loop_that_is_stopped_is_not_waited_for_and_what_it_recorded_is_shown() {
    let site = Site::new();
    let up = site.up(&workers(1, ", boot: {verify_commands: [echo all is well]}"));
    site.until_converged();
    up.signal(Signal::STOP);
    let began = Instant::now();
    let shown = site.run(&["status"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let (out, err) = (stdout(&shown), stderr(&shown));
    let pid = up.pid().as_raw_nonzero();
    let absent = format!("run 1: not answering (pid {pid}), last recorded ");
    assert!(out.starts_with(&absent) && out.contains(": converged, generation 1\n"), "{out}");
    assert!(
        err.starts_with(&format!("`myelin up` (pid {pid}) is there and does not answer")),
        "{err}"
    );
    let logs = site.ok(&["logs", "worker-0"]);
    assert!(logs.contains("all is well"), "{logs}");
    up.signal(Signal::CONT);
    site.until_converged();
    site.take_down(up);
}

#[test]
fn what_bootstraps_have_printed_is_shown_without_a_loop() {
    let site = Site::new();
    let up = site.up(&workers(1, ", boot: {verify_commands: [echo all is well]}"));
    site.until_converged();
    let before = site.ok(&["logs", "worker-0"]);
    Site::leave(up);
    for follow in [&[][..], &["-f"]] {
        let logs = site.ok(&[&["logs", "worker-0"], follow].concat());
        assert!(before.contains("all is well") && logs.contains("all is well"), "{before}{logs}");
    }
    let unknown = site.fails(1, &["logs", "worker-7"]);
    assert!(unknown.contains("there is no node or group \"worker-7\""), "{unknown}");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

/// Makes an image that takes a while to copy, so that creates are under way for long enough.
fn image(site: &Site) -> String {
    let path = site.write("image.d", "").with_file_name("image");
    fs::create_dir(&path).unwrap();
    for n in 0..400 {
        fs::write(path.join(n.to_string()), [b'x'; 4096]).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

/// Starts an `up` of ten and kills it while machines are being made. Returns the cluster's uid.
fn kill_amid_ten_creates(site: &Site, file: &str) -> String {
    let path = site.write("cluster.yaml", file);
    let mut command = site.command();
    command.arg("up").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    let mut up = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // A few are there and run something, others are on their way, others were not begun.
    while site.leases().is_empty() {
        assert!(Instant::now() < deadline && up.try_wait().unwrap().is_none());
        sleep(Duration::from_millis(1));
    }
    up.kill().unwrap();
    up.wait().unwrap();
    assert!(site.leases().len() < 10, "it was too fast to be killed amid them");
    site.run_file().unwrap()["cluster"].as_str().unwrap().to_owned()
}

/// Returns the processes of a cluster's leases, by the mark that the provider put on them.
fn leased(cluster: &str) -> Vec<(Pid, String)> {
    processes_with(format!("MYELIN_LEASE={cluster}.").as_bytes())
}

fn entries(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn down_after_a_sigkill_amid_ten_creates_leaves_no_process_and_no_directory() {
    let site = Site::new();
    let file = workers(10, &format!(", image: {}", image(&site)));
    let cluster = kill_amid_ten_creates(&site, &file);
    site.ok(&["down", "--yes"]);
    assert_eq!(leased(&cluster), []);
    assert_eq!(entries(&site.state().join("leases")), Vec::<String>::new(), "nor a half-made one");
    site.nothing_is_left();
}

#[test]
fn up_after_a_sigkill_amid_ten_creates_ends_with_ten() {
    let site = Site::new();
    let file = workers(10, &format!(", image: {}", image(&site)));
    let cluster = kill_amid_ten_creates(&site, &file);
    let up = site.up(&file);
    site.until_converged();
    let after = machines(&site);
    assert_eq!(site.run_file().unwrap()["cluster"], *cluster);
    assert_eq!((after.agents.len(), after.leases.len()), (10, 10));
    let mut ids: Vec<_> = after.attempts.iter().map(|(_, attempt)| *attempt).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10);
    assert_eq!(leased(&cluster).len(), leased_agents(&cluster), "each lease runs its agent alone");
    site.take_down(up);
    assert_eq!(leased(&cluster), []);
}

/// Returns how many of a cluster's processes are agents.
fn leased_agents(cluster: &str) -> usize {
    leased(cluster).iter().filter(|(_, command)| command.contains("--join-file")).count()
}
