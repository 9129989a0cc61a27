//! How `up` ends, and what it leaves.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use super::site::{Site, until, wait, workers};

#[test]
fn leaving_by_any_signal_leaves_the_machines_and_says_how_to_go_on() {
    let signals = [
        (Signal::INT, "interrupted"),
        (Signal::TERM, "asked to end"),
        (Signal::HUP, "the terminal was closed"),
    ];
    for (signal, why) in signals {
        let site = Site::new();
        let up = site.up(&workers(2, ""));
        site.until_converged();
        let agents = site.all_agents();
        up.signal(signal);
        let (code, log) = up.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains(&format!("{why}: 2 machines stay and go on; ")), "{log}");
        let file = site.write("cluster.yaml", &workers(2, ""));
        let up = format!("\n    myelin up {}\n", file.display());
        let down = format!("\n    myelin down --state-dir {}\n", site.state().display());
        assert!(log.contains(up.trim_end()) && log.contains(&down), "{log}");
        assert_eq!((site.all_agents(), agents.len()), (agents, 2), "they go on");
        assert!(site.run_file().is_none(), "nobody says that a loop is there");
        assert_eq!(site.ok(&["down", "--yes"]), "removed 2 machines; nothing is left\n");
        site.nothing_is_left();
        assert_eq!(site.ok(&["down", "--yes"]), "nothing is left to remove\n");
    }
}

#[test]
fn leaving_before_it_has_converged_is_told_by_the_status_where_that_was_asked_for() {
    let site = Site::new();
    let never = workers(1, ", boot: {start_swactor_command: sleep 1000}");
    let file = site.write("never.yaml", &never);
    let log = site.write("log", "");
    let mut command = site.command();
    let command = command.args(["up", file.to_str().unwrap(), "--until-converged"]);
    let mut up = command.stdout(File::create(&log).unwrap()).spawn().unwrap();
    until("it boots", || (!site.leases().is_empty()).then_some(()));
    kill_process(Pid::from_child(&up), Signal::INT).unwrap();
    assert_eq!(wait(&mut up, "up").code(), Some(1));
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("interrupted: 1 machine stays and goes on; "), "{log}");
    assert_eq!(site.leases().len(), 1);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_bootstrap_goes_on_without_a_loop_and_down_ends_it_alone() {
    let site = Site::new();
    let stubborn = "trap '' TERM; while :; do sleep 0.2; done";
    let file = workers(1, &format!(", boot: {{start_swactor_command: \"{stubborn}\"}}"));
    let up = site.up(&file);
    let boots = || (site.nodes()[0].state == "booting").then_some(());
    until("it boots", boots);
    let shells = || -> Vec<_> {
        let all = site.processes().into_iter();
        all.filter(|(_, it)| it.contains("trap")).map(|(pid, _)| pid).collect()
    };
    until("its shell runs", || (!shells().is_empty()).then_some(()));
    let (before, asked) = (shells(), Instant::now());
    Site::leave(up);
    assert!(asked.elapsed().as_secs() < 30, "nothing is waited for");
    assert_eq!(shells(), before);
    let up = site.up(&file);
    until("it boots still", boots);
    assert_eq!((shells(), site.attempts()), (before, vec![("worker-0".to_owned(), 0)]));
    Site::leave(up);
    assert_eq!(site.ok(&["down", "--yes"]), "removed 1 machine; nothing is left\n");
    site.nothing_is_left();
}

#[test]
fn two_directories_of_one_run_never_touch_each_others_machines() {
    let (one, other) = (Site::new(), Site::new());
    let other_up = other.up(&workers(2, ""));
    other.until_converged();
    let theirs = || (other.all_agents(), other.leases(), other.attempts());
    let before = theirs();
    let file = one.write("cluster.yaml", &workers(3, ""));
    let up = ["up", file.to_str().unwrap(), "--until-converged"];
    one.ok(&up);
    let cluster = |site: &Site| site.leases()[0].split('.').next().unwrap().to_owned();
    assert_ne!(cluster(&one), cluster(&other), "one number, two clusters");
    assert_eq!(theirs(), before);
    one.write("cluster.yaml", &workers(1, ""));
    one.ok(&[&up[..], &["--yes"]].concat());
    assert_eq!((one.leases().len(), theirs()), (1, before.clone()));
    let killed = one.up(&workers(2, ""));
    killed.signal(Signal::KILL);
    killed.end();
    one.ok(&["down", "--yes"]);
    one.nothing_is_left();
    assert_eq!(theirs(), before);

    // Nor does it matter who is there when the other begins anew.
    let up = one.up(&workers(1, ""));
    one.until_converged();
    let ours = (one.all_agents(), one.attempts());
    other.take_down(other_up);
    assert_eq!((one.all_agents(), one.attempts()), ours);
    one.take_down(up);
}

#[test]
fn a_directory_of_another_run_is_refused() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    Site::leave(up);
    let agents = site.all_agents();
    let file = site.write("two.yaml", &workers(1, "").replace("run: 1", "run: 2"));
    let refused = site.fails(1, &["up", file.to_str().unwrap(), "--yes"]);
    assert!(refused.contains("the directory holds run 1, not run 2"), "{refused}");
    assert_eq!(site.all_agents(), agents);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_second_up_is_told_who_drives_the_run() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    let file = site.write("cluster.yaml", &workers(1, ""));
    let refused = site.fails(1, &["up", file.to_str().unwrap()]);
    let pid = up.pid().as_raw_nonzero();
    assert!(refused.contains(&format!("driven by another process (pid {pid})")), "{refused}");
    site.take_down(up);
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
    for name in ["control.sock", "run.json", "state.db", "state.db-wal", "state.mark", "lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    site.take_down(up);
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
fn what_is_too_long_to_be_read_is_not_taken_for_its_beginning() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let path = site.state().join("run.json");
    let run = fs::read_to_string(&path).unwrap();
    let long = run.clone() + &" ".repeat(1024 * 1024);
    fs::write(&path, &long).unwrap();
    for args in [&["status"][..], &["down", "--yes"]] {
        let refused = site.fails(1, args);
        assert!(refused.contains("run.json is damaged: it is larger than"), "{refused}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), long, "it is left as it is");
    fs::write(&path, run).unwrap();
    assert_eq!(site.agents("worker-0").len(), 1);
    site.take_down(up);
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
