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
fn a_survivor_is_explained_by_an_item_of_its_own_wherever_it_moves() {
    let mut explained = explained(
        "# Survivors\n\n- `src/a.rs: replace < with <= in g`: equal times are one.\n  More of it.\n",
    );
    assert!(!take(&mut explained, "src/b.rs:3:4: replace < with <= in g"));
    assert!(!take(&mut explained, "src/a.rs:3:4: replace < with <= in gather"));
    assert!(take(&mut explained, "src/a.rs:3:4: replace < with <= in g"));
    assert!(!take(&mut explained, "src/a.rs:9:4: replace < with <= in g"), "it was another one");
}

#[test]
fn what_was_not_tried_is_no_success() {
    let verdict =
        Verdict { n_files: 2, n_recorded: 2, n_tried: 100, n_missed: 2, ..Verdict::default() };
    let with = |change: fn(&mut Verdict)| {
        let mut verdict = verdict.clone();
        change(&mut verdict);
        verdict.check().map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| ()), Ok(()));
    let failures: [fn(&mut Verdict); 5] = [
        |it| it.n_recorded = 1,
        |it| it.n_missed = 3,
        |it| it.n_tried = 0,
        |it| it.unexplained.push("a".to_owned()),
        |it| it.idle.push("a".to_owned()),
    ];
    for failure in failures {
        assert!(with(failure).is_err());
    }
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
