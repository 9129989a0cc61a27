use super::*;

fn rows(begun_at: &str) -> Rows {
    let (cluster, secret) = ("07".repeat(16), "01".repeat(32));
    let meta = [("begun_at", begun_at), ("cluster", &cluster), ("run", "1"), ("secret", &secret)];
    let row = |(id, body): (&str, &str)| (("meta_rows".to_owned(), id.to_owned()), body.to_owned());
    meta.map(row).into()
}

#[test]
fn rows_are_read_as_they_were_written() {
    let rows = rows("5");
    assert_eq!(encode(&decode(&rows).unwrap()).unwrap(), rows);
}

#[test]
fn a_time_that_cannot_be_written_is_not_read_either() {
    for begun_at in [u64::MAX.to_string(), "9223372036854775808".to_owned(), "-1".to_owned()] {
        let error = decode(&rows(&begun_at)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
    assert!(decode(&rows(&i64::MAX.to_string())).is_ok());
}

#[test]
fn a_slot_of_a_mark_is_read_only_as_it_is_written() {
    let mark = Mark {
        sequence: 3,
        next_attempt_id: 4,
        generation: 5,
        cluster: myelin_shape::ClusterUid([7; 16]),
    };
    assert_eq!(rewrite_mark(&mark.slot()), Some(mark.slot()));
    assert_eq!(rewrite_mark(&[b' '; SLOT]), None);
}
