use myelin_state::{NodeStage, OperationKind};
use myelin_store::{Batch, SqliteStore};

use crate::{
    fixture::{advance, at, commit, copy_files, create, desired, dispatch, ids, options, state},
    tamper::{Damage, Verdict, Victim},
};

/// Makes the files of a process that was killed, with some commits since the last barrier.
async fn victim(dir: &std::path::Path) -> Victim {
    let live = dir.join("live");
    std::fs::create_dir(&live).unwrap();
    let store = create(&live).await;
    let mut state = state(12);
    let nodes = ids(&state);
    commit(&store, 1, &state, false).await;
    store.close().await.unwrap();
    let store = SqliteStore::open(&live, options()).await.unwrap();
    let mut allowed = Vec::new();
    for (n, barrier) in [true, false, true, false, false].into_iter().enumerate() {
        let id = &nodes[n];
        let event = dispatch(&mut state, id, OperationKind::CreateLease);
        if n == 1 {
            advance(&mut state, &nodes[0], NodeStage::LeaseCreated);
        }
        let (desired, events) = (desired(2), [event]);
        let batch = Batch {
            nodes: &nodes,
            cluster: true,
            desired: (n == 0).then_some(&desired),
            events: &events,
            barrier,
            ..Batch::new(at(n as u64), &state)
        };
        myelin_store::Store::commit(&store, batch).await.unwrap();
        if barrier {
            allowed.clear();
        }
        allowed.push(state.clone());
    }
    let killed = dir.join("killed");
    copy_files(&live, &killed);
    Victim { dir: killed, allowed }
}

#[tokio::test]
async fn a_cut_or_changed_file_is_refused_or_gives_what_was_acted_on() {
    let dir = tempfile::tempdir().unwrap();
    let victim = victim(dir.path()).await;
    assert_eq!(victim.allowed.len(), 3);
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let (mut n_loaded, mut n_refused, mut wrong) = (0, 0, Vec::new());
    for file in Victim::FILES {
        assert!(victim.size(file) > 0, "{file} is no part of the test");
        for offset in victim.offsets(file, 1021) {
            for damage in [Damage::Cut(offset), Damage::Flip(offset, 1 << (offset % 8))] {
                match victim.check(&scratch, file, damage).await {
                    Ok(Verdict::Loaded) => n_loaded += 1,
                    Ok(Verdict::Refused) => n_refused += 1,
                    Err(what) => wrong.push(what),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    assert!(n_loaded > 100 && n_refused > 100, "{n_loaded} loaded, {n_refused} refused");
}
