//! How `up` ends, and what it leaves.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio, time::Instant};

use rustix::process::Signal;

use super::site::{Site, until, wait, workers};

#[test]
fn leaving_by_any_signal_removes_the_machines_and_says_so() {
    let signals = [
        (Signal::INT, "interrupted"),
        (Signal::TERM, "asked to end"),
        (Signal::HUP, "the terminal was closed"),
    ];
    for (signal, why) in signals {
        let site = Site::new();
        let up = site.up(&workers(2, ""));
        site.until_converged();
        up.signal(signal);
        let (code, log) = up.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains(&format!("{why}: removing 2 machines")), "{log}");
        assert!(log.contains(&format!("{why}: all machines are removed")), "{log}");
        site.nothing_is_left();
        assert_eq!(site.ok(&["down", "--yes"]), "nothing is left to remove\n");
    }
}

#[test]
fn a_second_interrupt_leaves_at_once_and_names_what_is_left() {
    let site = Site::new();
    let stubborn = "trap '' TERM; while :; do sleep 0.2; done";
    let up = site.up(&workers(1, &format!(", boot: {{start_swactor_command: \"{stubborn}\"}}")));
    until("it boots", || (site.nodes()[0].state == "booting").then_some(()));
    up.signal(Signal::INT);
    until("it removes", || up.log().contains("removing 1 machine").then_some(()));
    let asked = Instant::now();
    up.signal(Signal::INT);
    let (code, log) = up.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(asked.elapsed().as_secs() < 30);
    assert!(log.contains("error: left at once: 1 machine is left"), "{log}");
    assert!(log.contains("1.worker-0.0"), "it is named: {log}");
    assert!(log.contains("hint: remove it with `myelin down --state-dir "), "{log}");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_new_up_after_a_sigkill_leaves_the_strangers_alone_and_down_removes_both() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    up.signal(Signal::KILL);
    up.end();
    let strangers = site.leases();
    assert_eq!(strangers.len(), 2);
    let gone = site.fails(1, &["status"]);
    assert!(gone.contains("no `myelin up` is running"), "{gone}");

    let up = site.up(&workers(2, ""));
    site.until_converged();
    let log = up.log();
    assert!(log.contains("2 machines of an earlier `up` are still there"), "{log}");
    let leases = site.leases();
    assert_eq!(leases.len(), 4);
    let ours: Vec<_> = site.nodes().into_iter().filter_map(|node| node.lease).collect();
    assert!(ours.iter().all(|lease| !strangers.contains(lease)));
    let told = site.ok(&["down", "--yes"]);
    assert_eq!(told, "removed 4 machines; nothing is left\n");
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn down_leaves_other_state_directories_alone() {
    let (one, other) = (Site::new(), Site::new());
    for site in [&one, &other] {
        let file = site.write("cluster.yaml", &workers(1, ""));
        site.ok(&["up", file.to_str().unwrap(), "--until-converged"]);
    }
    one.ok(&["down", "--yes"]);
    one.nothing_is_left();
    assert_eq!(other.leases().len(), 1);
    assert_eq!(other.agents("worker-0").len(), 1);
    other.ok(&["down", "--yes"]);
    other.nothing_is_left();
}

#[test]
fn a_second_up_is_told_who_drives_the_run() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    let file = site.write("cluster.yaml", &workers(1, ""));
    let refused = site.fails(1, &["up", file.to_str().unwrap()]);
    let pid = up.pid().as_raw_nonzero();
    assert!(refused.contains(&format!("driven by another process (pid {pid})")), "{refused}");
    up.signal(Signal::TERM);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn the_state_is_its_owners_alone() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let mode = |name: &str| {
        let metadata = fs::symlink_metadata(site.state().join(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(""), 0o700);
    for name in ["control.sock", "run.json", "clusters.jsonl", "lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    up.signal(Signal::TERM);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn a_directory_in_use_for_something_else_is_left_as_it_is() {
    let site = Site::new();
    let file = site.write("cluster.yaml", &workers(1, ""));
    let up = ["up", file.to_str().unwrap(), "--until-converged"];
    fs::create_dir(site.state()).unwrap();
    fs::set_permissions(site.state(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(site.state().join("novel.txt"), "It was a dark and stormy night").unwrap();
    let refused = site.fails(1, &up);
    assert!(refused.contains("is no state directory: it is open to other users"), "{refused}");
    let told = site.ok(&["down", "--yes"]);
    assert!(told.starts_with("nothing is left to remove: nothing was begun in "), "{told}");
    assert_eq!(fs::metadata(site.state()).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_dir(site.state()).unwrap().count(), 1, "nothing was added");

    fs::remove_file(site.state().join("novel.txt")).unwrap();
    site.ok(&up);
    assert_eq!(fs::metadata(site.state()).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(site.state(), fs::Permissions::from_mode(0o755)).unwrap();
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_list_of_clusters_too_long_to_be_read_is_not_taken_for_its_beginning() {
    let site = Site::new();
    let file = site.write("cluster.yaml", &workers(1, ""));
    let up = ["up", file.to_str().unwrap(), "--until-converged"];
    site.ok(&up);
    let path = site.state().join("clusters.jsonl");
    let one = fs::read_to_string(&path).unwrap();
    let other = one.replace("\"cluster\":\"", "\"cluster\":\"f");
    let other = format!("{}{}", &other[..12], &other[13..]);
    let many = other.repeat(1024 * 1024 / other.len() + 1) + &one;
    fs::write(&path, &many).unwrap();
    for args in [&up[..], &["down", "--yes"]] {
        let refused = site.fails(1, args);
        assert!(refused.contains("clusters.jsonl is damaged: it is larger than"), "{refused}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), many, "nothing of it is forgotten");
    fs::write(&path, one).unwrap();
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_run_that_was_killed_does_not_stand_in_the_way_of_the_one_that_runs() {
    let site = Site::new();
    let home = site.write("unused", "").with_file_name("home");
    let run = |args: &[&str]| {
        let mut command = site.command();
        command.env_remove("MYELIN_STATE_DIR").env("XDG_STATE_HOME", &home).args(args);
        command
    };
    let status = |n: u32| {
        let answer = run(&["status", "-o", "json"]).output().unwrap();
        let status = serde_json::from_slice::<serde_json::Value>(&answer.stdout).ok()?;
        (status["run"] == n).then_some(())
    };
    let mut ups = Vec::new();
    for n in [1, 2] {
        let text = workers(1, "").replace("run: 1", &format!("run: {n}"));
        let file = site.write(&format!("{n}.yaml"), &text);
        let mut command = run(&["up", file.to_str().unwrap()]);
        let mut up = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the only run answers", || status(n));
        if n == 1 {
            up.kill().unwrap();
            up.wait().unwrap();
        }
        ups.push(up);
    }
    for (n, up) in ["1", "2"].into_iter().zip(&mut ups) {
        assert!(run(&["down", "--yes", "--run", n]).status().unwrap().success());
        wait(up, "up");
    }
    site.nothing_is_left();
}
