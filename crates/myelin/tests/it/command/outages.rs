//! Agents that die or stand still, and a listener that is cut off, on real processes.

use std::{
    collections::BTreeSet,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::site::{Site, until, workers};

#[test]
fn a_killed_agent_is_noticed_and_replaced() {
    let site = Site::new();
    let up = site.up(&workers(2, ""));
    site.until_converged();
    let before = site.attempts();
    site.signal_agent("worker-1", Signal::KILL);
    until("it is noticed", || (!site.nodes()[1].ready).then_some(()));
    until("it is replaced", || (site.attempts()[1].1 > before[1].1).then_some(()));
    site.until_converged();
    assert_eq!(site.attempts()[0], before[0]);
    assert_eq!(site.leases().len(), 2);
    site.take_down(up);
}

#[test]
fn an_agent_that_stands_still_for_a_while_loses_nothing() {
    let site = Site::new();
    let patient = workers(2, "").replace("lost_after: 4s", "lost_after: 60s");
    let up = site.up(&patient);
    site.until_converged();
    let before = site.attempts();
    site.signal_agent("worker-0", Signal::STOP);
    until("it is silent", || (site.nodes()[0].state == "silent").then_some(()));
    let explained = site.ok(&["explain", "worker-0"]);
    assert!(explained.contains("why          the agent is silent since "), "{explained}");
    assert!(explained.contains("if the agent is heard by then nothing is lost"), "{explained}");
    site.signal_agent("worker-0", Signal::CONT);
    site.until_converged();
    assert_eq!(site.attempts(), before);
    site.take_down(up);
}

#[test]
fn ten_agents_killed_at_once_are_repaired_one_at_a_time() {
    let site = Site::new();
    let up = site.up(&workers(10, ""));
    site.until_converged();
    let before: BTreeSet<_> = site.attempts().into_iter().collect();
    for index in 0..10 {
        site.signal_agent(&format!("worker-{index}"), Signal::KILL);
    }
    let held =
        until("the brake shows", || site.nodes().into_iter().find(|node| node.why.code == "brake"));
    assert!(held.why.text.starts_with("brake of group worker: "), "{}", held.why.text);
    until("the brake is told", || up.log().contains("worker brake on: ").then_some(()));
    let mut most_under_repair = 0;
    until("everything is repaired", || {
        let status = site.status();
        if status.groups[0].brake.on {
            most_under_repair = most_under_repair.max(status.groups[0].brake.repairs);
        }
        status.converged.then_some(())
    });
    assert!(most_under_repair <= 1, "a trickle");
    until("full speed is told", || up.log().contains("worker brake off: ").then_some(()));
    assert!(before.is_disjoint(&site.attempts().into_iter().collect()), "all are repaired");
    site.take_down(up);
}

#[test]
fn a_listener_that_is_cut_off_ends_at_most_one_machine() {
    let site = Site::new();
    let up = site.up(&workers(6, ""));
    site.until_converged();
    let before = site.attempts();
    site.ok(&["debug", "sever", "on"]);
    until("one is taken for lost", || (!site.events("delete_began").is_empty()).then_some(()));
    // Time enough for the next to be taken as well, if it could be.
    let deadline = Instant::now() + Duration::from_secs(6);
    while Instant::now() < deadline {
        let ended: BTreeSet<_> =
            site.events("delete_began").into_iter().filter_map(|event| event.node).collect();
        assert_eq!(ended.len(), 1, "{ended:?}");
        sleep(Duration::from_millis(300));
    }
    site.ok(&["debug", "sever", "off"]);
    site.until_converged();
    let after = site.attempts();
    let n_lost = before.iter().zip(&after).filter(|(old, new)| old != new).count();
    assert_eq!(n_lost, 1, "{before:?} {after:?}");
    site.take_down(up);
}

#[test]
fn a_down_waits_for_a_loop_that_stands_still_no_longer_than_it_was_told() {
    let site = Site::new();
    let up = site.up(&workers(1, ""));
    site.until_converged();
    up.signal(Signal::STOP);
    let asked = Instant::now();
    let late = site.fails(1, &["down", "--yes", "--timeout", "1s"]);
    assert!(asked.elapsed() < Duration::from_mins(1), "its own deadline is 90 seconds");
    assert!(
        late.contains("error: the loop did not answer in time\nhint: the process of"),
        "{late}"
    );
    up.signal(Signal::CONT);
    assert_eq!(up.end().0, Some(0), "it was asked all the same");
    site.nothing_is_left();
}
