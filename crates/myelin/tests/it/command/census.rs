//! What exists, and what becomes of it, with a running loop and without one.

use std::fs;

use myelin::view::CensusView;
use rustix::process::Signal;

use super::{
    site::{Site, Up, stderr, stdout, until, wait},
    terminal::Terminal,
};

/// A machine may be told from one that is being made after so few seconds here.
const HASTY: &str = "
agent: {heartbeat: 200ms, silent_after: 1s}
retry: {lost_after: 60s, initial_delay: 100ms, max_delay: 1s, operation_timeout: 1s, answer_timeout: 1s}
";

fn workers(count: u32) -> String {
    format!("run: 1\ngroups:\n  - {{id: worker, count: {count}}}\n{HASTY}")
}

/// Starts a loop and waits until it has the run.
fn up(site: &Site, count: u32) -> Up {
    let up = site.up(&workers(count));
    until("it runs", || site.status().as_of.is_none().then_some(()));
    site.until_converged();
    up
}

fn detach(up: Up) {
    up.signal(Signal::INT);
    assert_eq!(up.end().0, Some(0));
}

/// Returns a census, whatever its exit status.
fn census(site: &Site, more: &[&str]) -> CensusView {
    let output = site.run(&[&["census", "-o", "json"], more].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// Returns the class of each machine, by its node and attempt.
fn classes(view: &CensusView) -> Vec<String> {
    let leases = view.leases.iter();
    let mut classes: Vec<_> = leases.map(|it| format!("{} {}", it.node, it.class)).collect();
    classes.sort();
    classes
}

#[test]
fn a_machine_that_was_given_up_and_still_exists_is_taken_by_the_next_sweeps() {
    let site = Site::new();
    let up = up(&site, 2);
    site.ok(&["abandon", "worker-0", "--yes"]);
    until("it starts anew", || (site.nodes()[0].attempt == Some(2)).then_some(()));
    site.until_converged();
    assert_eq!(site.leases().len(), 3);
    until("it is nobody's", || {
        let view = census(&site, &["--fresh"]);
        (view.leases.len() == 2 || view.counts.contains_key("orphan")).then_some(())
    });
    let view = census(&site, &["--collect"]);
    assert_eq!(classes(&view), ["worker-0 owned", "worker-1 owned"]);
    assert!(!view.needs_person, "{view:?}");
    assert_eq!(site.leases().len(), 2);
    let told = site.events("collecting").pop().unwrap();
    assert_eq!((told.node.as_deref(), told.attempt), (Some("worker-0"), Some(0)));
    assert_eq!(site.events("collected").len(), 1);
    detach(up);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn without_a_loop_a_census_takes_nothing_and_a_collection_does() {
    let site = Site::new();
    let up = up(&site, 2);
    site.ok(&["abandon", "worker-0", "--yes"]);
    until("it starts anew", || (site.nodes()[0].attempt == Some(2)).then_some(()));
    site.until_converged();
    detach(up);
    if site.leases().len() == 3 {
        for _ in 0..3 {
            assert_eq!(census(&site, &[]).counts["owned"], 2);
        }
        assert_eq!(site.leases().len(), 3, "who only looks takes nothing");
    }
    until("it is taken", || {
        site.run(&["census", "--collect", "--yes"]);
        (site.leases().len() == 2).then_some(())
    });
    assert_eq!(site.events("collected").len(), 1);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_provider_that_lists_nothing_is_held_and_status_says_so() {
    let site = Site::new();
    let up = up(&site, 2);
    // What was not recorded at an earlier look is never missing.
    assert_eq!(census(&site, &["--fresh"]).counts["owned"], 2);
    let away = site.state().join("away");
    fs::create_dir(&away).unwrap();
    let leases = site.leases();
    let leases: Vec<_> =
        leases.iter().map(|it| (site.state().join("leases").join(it), away.join(it))).collect();
    for (here, away) in &leases {
        fs::rename(here, away).unwrap();
    }
    let held = site.fails(1, &["census", "--fresh"]);
    assert!(held.contains("process does not list 2 of the 2 leases it should"), "{held}");
    let status = site.ok(&["status"]);
    assert!(status.contains("nothing it lists is acted on since "), "{status}");
    assert_eq!(site.events("provider_held").len(), 1);
    for (here, away) in &leases {
        fs::rename(away, here).unwrap();
    }
    assert_eq!(census(&site, &["--fresh"]).counts["owned"], 2);
    assert_eq!(site.events("provider_released").len(), 1);
    detach(up);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn with_a_damaged_state_the_machines_are_listed_and_none_is_taken() {
    let site = Site::new();
    detach(up(&site, 2));
    let database = site.state().join("state.db");
    let size = fs::metadata(&database).unwrap().len();
    fs::write(&database, vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
    for args in [&["--collect", "--yes"][..], &[]] {
        let refused = site.fails(1, &[&["census"], args].concat());
        assert!(refused.contains("nothing is given back: the state cannot be read"), "{refused}");
        let view = census(&site, args);
        assert_eq!(classes(&view), ["worker-0 unknown", "worker-1 unknown"]);
    }
    assert_eq!(site.agents("worker-0").len() + site.agents("worker-1").len(), 2);
}

/// Returns a run whose first machine was given up and is nobody's, with its loop gone.
fn with_a_stray(site: &Site) {
    let up = up(site, 2);
    site.ok(&["abandon", "worker-0", "--yes"]);
    until("it starts anew", || (site.nodes()[0].attempt == Some(2)).then_some(()));
    site.until_converged();
    up.signal(Signal::KILL);
    up.end();
    assert_eq!(site.leases().len(), 3, "nothing was old enough to be taken");
}

#[test]
fn a_collection_asks_a_person_on_a_terminal_and_takes_no_for_an_answer() {
    let site = Site::new();
    with_a_stray(&site);
    // A state from a backup takes nothing unasked.
    fs::write(site.state().join("restored"), "").unwrap();
    until("it is nobody's", || census(&site, &[]).counts.contains_key("orphan").then_some(()));
    for (answer, told, status, n_left) in
        [("no", "error: not agreed, nothing was changed", 1, 3), ("y", "gave back ", 0, 2)]
    {
        let mut terminal = Terminal::run(&site, &["census", "--collect"]);
        terminal.until_shown("Give back 1 machine that is nobody's? [y/N] ");
        terminal.type_line(answer);
        terminal.until_shown(told);
        assert_eq!(wait(&mut terminal.child, "census").code(), Some(status));
        assert_eq!(site.leases().len(), n_left);
    }
    assert_eq!(classes(&census(&site, &[])), ["worker-0 owned", "worker-1 owned"]);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_second_machine_of_nobodys_within_a_day_waits_for_a_person_after_a_restart_too() {
    let site = Site::new();
    for n_taken in 1..=2 {
        let up = up(&site, 2);
        let attempt = site.nodes()[0].attempt;
        site.ok(&["abandon", "worker-0", "--yes"]);
        until("it starts anew", || (site.nodes()[0].attempt > attempt).then_some(()));
        site.until_converged();
        detach(up);
        until("it is nobody's", || {
            census(&site, &["--collect"]);
            let view = census(&site, &[]);
            (view.leases.len() == 2 || view.stop.is_some()).then_some(())
        });
        assert_eq!(site.leases().len(), 1 + n_taken);
    }
    let refused = site.fails(1, &["census", "--collect"]);
    assert!(
        refused.contains("1 machine of nobody's waits for your word (1 more after 1 within a day"),
        "{refused}"
    );
    site.ok(&["census", "--collect", "--yes"]);
    assert_eq!(site.leases().len(), 2);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_state_directory_that_was_moved_does_nothing_until_its_provider_is_accepted() {
    let mut site = Site::new();
    detach(up(&site, 2));
    site.move_state();
    let file = site.write("cluster.yaml", &workers(1));
    for args in [&["up", file.to_str().unwrap(), "--yes"][..], &["down", "--yes"]] {
        let refused = site.fails(1, args);
        assert!(refused.contains("process is another one: it was "), "{refused}");
        assert!(refused.contains("`myelin census --accept-identity"), "{refused}");
    }
    assert_eq!(site.leases().len(), 2);
    let held = site.fails(1, &["census"]);
    assert!(held.contains("`myelin census --accept-identity process`"), "{held}");
    let unasked = site.fails(1, &["census", "--accept-identity", "docker"]);
    assert!(unasked.contains("nobody asks who answers for \"docker\""), "{unasked}");
    let view = census(&site, &["--accept-identity", "process"]);
    assert_eq!((view.held.len(), view.counts["owned"]), (0, 2));
    site.fails(1, &["census", "--accept-identity", "process"]);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn machines_beside_a_lost_state_are_told_of_and_nothing_new_begins_there() {
    let site = Site::new();
    detach(up(&site, 2));
    for name in ["state.db", "state.db-wal", "state.db-shm", "state.mark"] {
        fs::remove_file(site.state().join(name)).ok();
    }
    let file = site.write("cluster.yaml", &workers(2));
    for args in [&["up", file.to_str().unwrap()][..], &["down", "--yes"], &["census"]] {
        let refused = site.fails(1, args);
        assert!(
            refused.contains("holds 2 machines, but the state that knew of them is gone"),
            "{refused}"
        );
        assert!(refused.contains("`myelin down --without-state`"), "{refused}");
    }
    assert_eq!(site.agents("worker-0").len() + site.agents("worker-1").len(), 2);
    site.ok(&["down", "--without-state", "--yes"]);
    site.nothing_is_left();
    site.ok(&["up", file.to_str().unwrap(), "--until-converged"]);
    site.ok(&["down", "--yes"]);
}

#[test]
fn machines_say_under_which_generation_they_were_made() {
    let site = Site::new();
    let up = up(&site, 1);
    let file = site.write("more.yaml", &workers(2));
    site.ok(&["apply", file.to_str().unwrap()]);
    site.until_converged();
    let label = |node: &str| {
        let lease = site.leases().into_iter().find(|it| it.contains(node)).unwrap();
        let record = site.state().join("leases").join(lease).join("lease.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        record["labels"]["myelin.generation"].as_str().unwrap().to_owned()
    };
    assert_eq!((label("worker-0"), label("worker-1")), ("1".to_owned(), "2".to_owned()));
    detach(up);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn a_down_warns_of_machines_that_the_state_knows_and_nobody_lists() {
    let site = Site::new();
    detach(up(&site, 2));
    let (leases, away) = (site.state().join("leases"), site.state().join("away"));
    fs::rename(&leases, &away).unwrap();
    fs::create_dir(&leases).unwrap();
    let refused = site.fails(1, &["down"]);
    assert!(
        refused.contains("warning: 2 machines that the state knows are not listed"),
        "{refused}"
    );
    fs::remove_dir(&leases).unwrap();
    fs::rename(&away, &leases).unwrap();
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}
