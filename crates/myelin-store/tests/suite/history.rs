use std::time::Duration;

use myelin_state::{ErrorClass, EventKind, OperationKind};
use myelin_store::{
    Batch, EventQuery, MemoryStore, OperationEnd, OperationQuery, Options, SqliteStore, Store,
    StoredOperation,
};

use crate::{
    fixture::{at, create, dispatch, event, identity, ids, options, state},
    raw,
};

#[tokio::test]
async fn operations_are_what_their_events_say() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path()).await;
    let memory = MemoryStore::new(identity());
    let mut state = state(3);
    let nodes = ids(&state);
    let effect = OperationKind::CreateLease;
    let mut events: Vec<_> = nodes.iter().map(|id| dispatch(&mut state, id, effect)).collect();
    let pending: Vec<_> =
        nodes.iter().map(|id| state.nodes[id].pending.as_ref().unwrap().id).collect();
    let error: Box<str> = "no room".into();
    let ends = [
        (0, EventKind::Succeeded { operation: pending[0], effect }),
        (1, EventKind::Expired { operation: pending[1], effect }),
        (
            1,
            EventKind::EffectFailed {
                operation: pending[1],
                effect,
                class: ErrorClass::NoCapacity,
                error: error.clone(),
            },
        ),
        (2, EventKind::Ready),
    ];
    events.extend(ends.map(|(n, kind)| event(&nodes[n], pending[n].attempt, kind)));
    for store in [&store as &dyn Store, &memory] {
        store.commit(Batch { events: &events, ..Batch::new(at(5), &state) }).await.unwrap();
    }
    let operation = |n: usize, expired: bool, end| StoredOperation {
        id: pending[n],
        node: nodes[n].clone(),
        kind: effect,
        dispatched_at: at(3),
        expired_at: expired.then_some(at(3)),
        ended: Option::map(end, |end| (at(3), end)),
    };
    let expected = [
        operation(0, false, Some(OperationEnd::Succeeded)),
        operation(1, true, Some(OperationEnd::Failed(error))),
        operation(2, false, None),
    ];
    for store in [&store as &dyn Store, &memory] {
        assert_eq!(store.operations(OperationQuery::default()).await.unwrap(), expected);
        let of_node = OperationQuery { node: Some(nodes[1].clone()), ..OperationQuery::default() };
        assert_eq!(store.operations(of_node).await.unwrap(), expected[1..2]);
        let of_attempt =
            OperationQuery { attempt: Some(pending[0].attempt), ..OperationQuery::default() };
        assert_eq!(store.operations(of_attempt).await.unwrap(), expected[..1]);
        let last = OperationQuery { limit: 1, ..OperationQuery::default() };
        assert_eq!(store.operations(last).await.unwrap(), expected[2..]);
        let stored = store.events(EventQuery::default()).await.unwrap();
        assert!(stored.iter().map(|stored| &stored.event).eq(&events));
        let asked = EventQuery { after: 1, node: Some(nodes[0].clone()), limit: 9 };
        assert_eq!(store.events(asked).await.unwrap(), stored[3..4]);
        let last = EventQuery { limit: 2, ..EventQuery::default() };
        assert_eq!(store.events(last).await.unwrap(), stored[5..]);
    }
}

#[tokio::test]
async fn history_is_bounded_by_count_and_age() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path()).await.close().await.unwrap();
    let bounds = Options { max_events: 2000, max_age: Duration::from_mins(1), ..options() };
    let store = SqliteStore::open(dir.path(), bounds).await.unwrap();
    let state = state(1);
    let id = &ids(&state)[0];
    let happened = vec![event(id, state.nodes[id].attempt, EventKind::Ready); 300];
    for n in 0..20 {
        store.commit(Batch { events: &happened, ..Batch::new(at(n), &state) }).await.unwrap();
    }
    let kept = raw::number(dir.path(), "SELECT count(*) FROM events").await;
    assert!((2000..2600).contains(&kept), "{kept}");
    let asked = EventQuery { limit: 1, ..EventQuery::default() };
    assert_eq!(store.events(asked).await.unwrap()[0].seq, 6000);
    for n in 0..3 {
        store
            .commit(Batch { events: &happened[..299], ..Batch::new(at(900 + n), &state) })
            .await
            .unwrap();
    }
    let kept = raw::number(dir.path(), "SELECT count(*) FROM events").await;
    assert!(kept <= 600, "{kept}");
    assert_eq!(store.load().await.unwrap().events_last, 6897);
}
