//! An `up` that goes on from an earlier one.

use rustix::process::Signal;

use super::site::{Site, workers};

#[test]
fn an_up_with_another_file_ends_when_that_file_is_so_and_not_when_the_last_one_was() {
    let site = Site::new();
    for image in ["a", "b", "c"] {
        let file = site.write("cluster.yaml", &workers(2, &format!(", image: {image}")));
        site.ok(&["up", file.to_str().unwrap(), "--yes", "--until-converged"]);
        for lease in site.leases() {
            let record = site.state().join("leases").join(lease).join("lease.json");
            let record = std::fs::read_to_string(record).unwrap();
            assert!(record.contains(&format!(r#""image":"{image}""#)), "{record}");
        }
        assert_eq!(site.leases().len(), 2);
    }
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}

#[test]
fn an_up_does_not_take_a_node_for_ready_whose_agent_died_while_there_was_no_up() {
    let site = Site::new();
    let file = site.write("cluster.yaml", &workers(2, ""));
    let up = ["up", file.to_str().unwrap(), "--until-converged"];
    site.ok(&up);
    let [dead, living] = ["worker-0", "worker-1"].map(|node| (node, site.agents(node)));
    site.signal_agent(dead.0, Signal::KILL);
    site.ok(&up);
    let repaired = site.agents(dead.0);
    assert_eq!(repaired.len(), 1);
    assert_ne!(repaired, dead.1);
    assert_eq!(site.agents(living.0), living.1);
    site.ok(&["down", "--yes"]);
    site.nothing_is_left();
}
