use crate::tamper::{Damage, Verdict, Victim, victim};

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
