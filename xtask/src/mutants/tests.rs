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
fn every_mutated_crate_exists() {
    for (name, tests) in CRATES {
        for it in std::iter::once(name).chain(*tests) {
            assert!(root().unwrap().join("crates").join(it).is_dir(), "{it}");
        }
        assert_eq!(digest(name).unwrap().len(), 16);
    }
}
