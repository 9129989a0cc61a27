use super::*;

#[test]
fn a_record_is_read_as_it_was_written() {
    let record = Record {
        digest: "00ff".to_owned(),
        caught: vec!["a.rs:1:2: replace f -> bool with true".to_owned()],
        missed: vec!["a.rs:3:4: replace < with <= in g".to_owned()],
        timeout: Vec::new(),
        unviable: vec!["b.rs:5:6: replace h with ()".to_owned()],
    };
    assert_eq!(Record::parse(&record.render()).unwrap(), record);
    assert!(Record::parse("nonsense").is_err());
    assert!(Record::parse("lost a.rs").is_err());
}

#[test]
fn a_survivor_is_explained_wherever_it_moves() {
    assert_eq!(without_place("src/a.rs:3:4: replace < with <= in g"), "replace < with <= in g");
}

#[test]
fn every_mutated_crate_has_sources_that_are_no_tests() {
    for (name, _) in CRATES {
        let paths: Vec<_> = shards(Some(name)).unwrap().into_iter().map(|it| it.path).collect();
        assert!(paths.contains(&Path::new("crates").join(name).join("src/lib.rs")), "{paths:?}");
        assert!(!paths.iter().any(|it| it.ends_with("tests.rs")), "{paths:?}");
    }
    assert!(shards(Some("myelin-nothing")).is_err());
}

#[test]
fn the_name_of_a_mutant_is_found_as_it_is() {
    assert_eq!(escape("a.rs:3:4: replace < with (b)"), r"a\.rs:3:4: replace < with \(b\)");
}
