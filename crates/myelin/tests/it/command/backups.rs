//! The state copied, put back, and read where no loop runs.

use std::fs;

use myelin::view::{CensusView, PlanView};
use rustix::process::Signal;

use super::site::{Site, stderr, stdout, until, workers};

fn converge(site: &Site, count: u32) {
    let file = site.write("cluster.yaml", &workers(count, ""));
    site.ok(&["up", file.to_str().unwrap(), "--until-converged"]);
}

#[test]
fn without_a_loop_the_readers_answer_from_the_state_and_say_so() {
    let site = Site::new();
    let gone = site.fails(1, &["status"]);
    assert!(gone.contains("there is no") || gone.contains("no `myelin up` is running"), "{gone}");
    converge(&site, 2);
    for args in
        [&["status"][..], &["nodes"], &["explain", "worker-0"], &["events"], &["events", "-f"]]
    {
        let output = site.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("not running: as of "), "{}", stderr(&output));
        assert!(!stdout(&output).is_empty());
    }
    let status = site.status();
    assert!(status.converged && status.as_of.is_some() && status.pid == 0, "{status:?}");
    let said = site.ok(&["status"]);
    assert!(said.starts_with("run 1: not running, last recorded "), "{said}");
    assert_eq!(site.explain("worker-0").node.state, "ready");
    assert_eq!(site.explain("worker-0").next, "nothing, as long as no `myelin up` runs");
    let file = site.write("more.yaml", &workers(3, ""));
    let plan: PlanView = site.json(&["plan", file.to_str().unwrap()]);
    assert_eq!((plan.changes.len(), plan.unchanged), (1, 2));
    for args in [&["pause"][..], &["retry", "worker"]] {
        let refused = site.fails(1, args);
        assert!(refused.contains("no `myelin up` is running"), "{refused}");
    }
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_backup_of_a_running_loop_that_is_put_back_later_is_behind_until_a_person_accepts_it() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    site.ok(&["backup", "copy.db"]);
    let exists = site.fails(1, &["backup", "copy.db"]);
    assert!(exists.contains("exists already") && exists.contains("name another file"), "{exists}");
    let held = site.fails(1, &["restore", "copy.db", "--yes"]);
    assert!(held.contains("driven by another process"), "{held}");
    up.signal(Signal::TERM);
    assert_eq!(up.end().0, Some(0));
    converge(&site, 3);
    let asked = site.fails(1, &["restore", "copy.db"]);
    assert!(asked.contains("`--yes` agrees beforehand"), "{asked}");

    let put_back = site.run(&["restore", "copy.db", "--yes"]);
    assert!(put_back.status.success());
    assert!(stdout(&put_back).contains("put back run 1 with 2 nodes, generation 1"));
    assert!(stdout(&put_back).contains("state/replaced-1: `myelin restore "));
    assert!(stderr(&put_back).contains("the state is behind what was acted on: "));
    let behind = site.run(&["status"]);
    assert!(stderr(&behind).contains("warning: the state is behind what was acted on"));
    let file = site.write("cluster.yaml", &workers(3, ""));
    let file = file.to_str().unwrap();
    let refused = site.fails(1, &["up", file]);
    assert!(refused.contains("`myelin restore --accept`"), "{refused}");
    site.fails(1, &["census", "--collect", "--yes"]);
    assert_eq!(site.leases().len(), 3, "nothing is acted on");

    let shown = site.fails(1, &["restore", "--accept"]);
    assert!(shown.contains("taken as true is run 1 with 2 nodes"), "{shown}");
    assert!(shown.contains("worker-2"), "what the state does not know is listed: {shown}");
    site.ok(&["restore", "--accept", "--yes"]);
    site.ok(&["up", file, "--until-converged"]);
    let newest = site.nodes()[2].attempt.unwrap();
    assert!(newest > 1_000_000, "no attempt is given out twice: {newest}");
    assert_eq!(site.leases().len(), 4, "what the state does not know is left alone");
    let output = site.run(&["census", "-o", "json"]);
    let view: CensusView = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(view.doubt_code.as_deref(), Some("restored"));
    until("the agents are heard", || site.nodes().iter().all(|node| node.ready).then_some(()));
    assert_eq!(site.ok(&["down", "--yes"]), "removed 4 machines; nothing is left\n");
    site.nothing_is_left();
}

#[test]
fn what_is_no_backup_changes_nothing() {
    let site = Site::new();
    converge(&site, 1);
    let text = site.write("text.db", "no backup");
    let refused = site.fails(1, &["restore", text.to_str().unwrap(), "--yes"]);
    assert!(refused.contains("text.db is damaged"), "{refused}");
    site.fails(1, &["restore", "missing.db", "--yes"]);
    assert_eq!(site.nodes().len(), 1);
    let nothing = site.ok(&["restore", "--accept", "--yes"]);
    assert!(nothing.starts_with("nothing to accept: run 1 with 1 node"), "{nothing}");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

/// Runs a restore that dies after so many durable writes, if there are as many. Returns whether it did.
fn dies_in_a_restore(site: &Site, backup: &str, n_writes: u32) -> bool {
    let mut command = site.command();
    command.args(["restore", backup, "--yes"]).env("MYELIN_CRASH", format!("write:{n_writes}"));
    let output = command.output().unwrap();
    assert!(output.status.success() || output.status.code().is_none(), "{}", stderr(&output));
    !output.status.success()
}

#[test]
fn a_restore_that_is_killed_keeps_what_it_replaces() {
    let site = Site::new();
    converge(&site, 2);
    site.ok(&["backup", "copy.db"]);
    converge(&site, 3);
    let mut n_kills = 0;
    while dies_in_a_restore(&site, "copy.db", n_kills + 1) {
        n_kills += 1;
        site.ok(&["restore", "copy.db", "--yes"]);
        // The first one kept is what was there before the one that was killed.
        let kept = site.state().join("replaced-1/state.db");
        site.ok(&["restore", kept.to_str().unwrap(), "--yes"]);
        assert_eq!(site.nodes().len(), 3);
        for n in 1..=3 {
            fs::remove_dir_all(site.state().join(format!("replaced-{n}"))).unwrap();
        }
    }
    assert_eq!(n_kills, 3);
    let file = site.write("cluster.yaml", &workers(3, ""));
    site.ok(&["restore", site.state().join("replaced-1/state.db").to_str().unwrap(), "--yes"]);
    site.ok(&["up", file.to_str().unwrap(), "--until-converged"]);
    assert_eq!(site.leases().len(), 3, "nothing was made twice");
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn the_file_that_what_is_wanted_came_from_is_named_and_whether_it_has_changed() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let file = site.status().file.unwrap();
    assert!(file.path.ends_with("/cluster.yaml") && file.digest.len() == 64, "{file:?}");
    let said = site.ok(&["status"]);
    assert!(said.contains(&format!("from {} ({})\n", file.path, &file.digest[..12])), "{said}");
    site.write("more.yaml", &workers(2, ""));
    site.ok(&["apply", "more.yaml"]);
    site.until_converged();
    Site::leave(up);
    let later = site.status().file.unwrap();
    assert!(later.path.ends_with("/more.yaml") && later.path.starts_with('/'), "{later:?}");
    assert_ne!(later.digest, file.digest);
    site.write("more.yaml", &workers(3, ""));
    assert!(site.ok(&["status"]).contains(", which has changed since\n"));
    fs::remove_file(&later.path).unwrap();
    assert!(site.ok(&["status"]).contains(", which cannot be read now\n"));
    site.ok(&["down", "--yes"]);
    assert_eq!(site.status().file, None);
    site.nothing_is_left();
}
