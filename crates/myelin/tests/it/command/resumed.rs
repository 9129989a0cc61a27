//! An `up` that goes on from an earlier one.

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
