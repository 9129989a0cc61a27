//! Changes of what is desired, on real processes.

use super::site::{Site, stderr, stdout, until, workers};

fn apply(site: &Site, file: &str) -> String {
    let path = site.write("next.yaml", file);
    site.ok(&["apply", "--yes", path.to_str().unwrap()])
}

fn names(site: &Site) -> Vec<String> {
    site.attempts().into_iter().map(|(node, _)| node).collect()
}

#[test]
fn scaling_creates_and_removes_exactly_the_right_slots() {
    let site = Site::new();
    let up = site.up(&workers(3, ""));
    site.until_converged();
    let three = site.attempts();
    let told = apply(&site, &workers(6, ""));
    assert!(told.contains("plan: 3 to create, 0 to replace, 0 to delete, 3 unchanged"), "{told}");
    site.until_converged();
    let six = site.attempts();
    assert_eq!((six.len(), &six[..3]), (6, three.as_slice()));
    let told = apply(&site, &workers(2, ""));
    let deleted = told.lines().filter(|line| line.starts_with("- delete"));
    let deleted: Vec<_> = deleted.filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(deleted, ["worker-5", "worker-4", "worker-3", "worker-2"]);
    site.until_converged();
    assert_eq!(site.attempts(), three[..2]);
    assert_eq!(site.leases().len(), 2);
    site.take_down(up);
}

#[test]
fn another_image_replaces_every_node_under_a_new_attempt() {
    let site = Site::new();
    let up = site.up(&workers(3, ", image: a"));
    site.until_converged();
    let before = site.attempts();
    let told = apply(&site, &workers(3, ", image: b"));
    assert!(told.contains(r#"~ worker: shape.image "a" → "b"  (replaces its nodes)"#), "{told}");
    let mut most = 0;
    until("all are replaced", || {
        let leases = site.leases();
        let of = |node: &str| leases.iter().filter(|it| it.contains(&format!(".{node}."))).count();
        most = most.max(of("worker-0")).max(of("worker-1")).max(of("worker-2"));
        site.status().converged.then_some(())
    });
    assert!(most <= 1, "never two machines for one slot");
    let after = site.attempts();
    let newest = before.iter().map(|(_, attempt)| *attempt).max();
    assert!(after.iter().all(|(_, attempt)| Some(*attempt) > newest), "{before:?} {after:?}");
    site.ok(&["down", "--yes"]);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn shapes_applied_quickly_end_with_the_last_and_flipping_back_starts_fresh_attempts() {
    let site = Site::new();
    let up = site.up(&workers(2, ", image: a"));
    site.until_converged();
    let before = site.attempts();
    for image in ["b", "c", "d", "a"] {
        apply(&site, &workers(2, &format!(", image: {image}")));
    }
    site.until_converged();
    let after = site.attempts();
    assert!(before.iter().zip(&after).all(|(old, new)| old.1 < new.1), "{before:?} {after:?}");
    let status = site.status();
    assert_eq!((status.generation, status.observed_generation), (5, 5));
    let record = std::fs::read_to_string(
        site.state().join("leases").join(&site.leases()[0]).join("lease.json"),
    );
    assert!(record.unwrap().contains(r#""image":"a""#));
    site.ok(&["down", "--yes"]);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn a_change_that_takes_ready_nodes_needs_somebody_to_agree() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let renamed = workers(2, "").replace("worker", "reworker");
    let path = site.write("renamed.yaml", &renamed);
    let path = path.to_str().unwrap();
    let refused = site.fails(1, &["apply", path]);
    for line in ["+ create  reworker-0", "- delete  worker-1 (attempt 1, ready now)"] {
        assert!(refused.contains(line), "the plan is shown: {refused}");
    }
    assert!(refused.contains("This takes 2 nodes ready now. Go on?"), "{refused}");
    assert!(refused.ends_with("hint: `--yes` agrees beforehand\n"), "{refused}");
    assert_eq!(names(&site), ["worker-0", "worker-1"]);

    let stale = site.fails(1, &["apply", "--yes", "--if-generation", "9", path]);
    assert!(stale.contains("generation 9 was expected, but 1 is desired by now"), "{stale}");
    let changes = site.run(&["plan", "--detailed-exitcode", path]);
    assert_eq!(changes.status.code(), Some(2), "{}", stdout(&changes));
    site.ok(&["apply", "--yes", "--if-generation", "1", path]);
    site.until_converged();
    assert_eq!(names(&site), ["reworker-0", "reworker-1"]);
    let same = site.run(&["plan", "--detailed-exitcode", path]);
    assert_eq!(same.status.code(), Some(0), "{}", stdout(&same));
    assert_eq!(stdout(&same), "no changes: 2 nodes stay as they are\n");
    site.ok(&["down", "--yes"]);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn a_pause_stops_everything_until_resume() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    site.ok(&["pause"]);
    assert_eq!(site.ok(&["pause"]), "paused already\n");
    let path = site.write("next.yaml", &workers(3, ""));
    site.ok(&["apply", path.to_str().unwrap()]);
    let waiting = site.nodes().into_iter().filter(|node| node.why.code == "paused").count();
    assert_eq!((waiting, site.leases().len()), (2, 1));
    site.ok(&["resume"]);
    site.until_converged();
    assert_eq!(site.leases().len(), 3);
    site.ok(&["down", "--yes"]);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}

#[test]
fn what_an_apply_cannot_change_is_named() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    let later = workers(1, "").replace("heartbeat: 200ms", "heartbeat: 300ms");
    let path = site.write("later.yaml", &later);
    let path = path.to_str().unwrap();
    let line = "~ run: agent.heartbeat \"200ms\" → \"300ms\"  (not before the next `up`)";
    let planned = site.run(&["plan", "--detailed-exitcode", path]);
    assert_eq!(planned.status.code(), Some(0), "it changes nothing");
    assert!(stdout(&planned).contains(line), "{}", stdout(&planned));
    assert!(stdout(&planned).ends_with("no changes: 1 node stays as it is\n"));
    let applied = site.run(&["apply", path]);
    assert!(stdout(&applied).contains(line), "{}", stdout(&applied));
    assert!(stdout(&applied).ends_with("generation 1 stays\n"), "{}", stdout(&applied));
    let warning =
        "warning: agent.heartbeat cannot change while `up` runs; end it and start a new one\n";
    assert_eq!(stderr(&applied), warning);
    site.ok(&["down", "--yes"]);
    assert_eq!(up.end().0, Some(0));
    site.nothing_is_left();
}
