//! Damages the files of a killed store at every `STEP`th byte and loads them:
//! `cargo run --release -p myelin-store --example sweep -- STEP`. 1 tries every byte, which takes hours.

#![expect(clippy::unwrap_used, reason = "what cannot go on has failed")]

#[path = "../tests/suite/fixture.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod fixture;
#[path = "../tests/suite/tamper.rs"]
mod tamper;

use std::{error::Error, fs};

use crate::tamper::{Damage, Verdict, Victim, victim};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "what it is for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let step = std::env::args().nth(1).map_or(Ok(97), |text| text.parse())?;
    if step == 0 {
        return Err("a step is at least 1 byte".into());
    }
    let dir = tempfile::tempdir()?;
    let victim = victim(dir.path()).await;
    let scratch = dir.path().join("scratch");
    fs::create_dir(&scratch)?;
    let mut n_wrong = 0;
    for file in Victim::FILES {
        let (mut n_loaded, mut n_refused) = (0, 0);
        for offset in victim.offsets(file, step) {
            for damage in [
                Damage::Cut(offset),
                Damage::Flip(offset, 1 << (offset % 8)),
                Damage::Flip(offset, 0xff),
            ] {
                match victim.check(&scratch, file, damage).await {
                    Ok(Verdict::Loaded) => n_loaded += 1,
                    Ok(Verdict::Refused) => n_refused += 1,
                    Err(what) => {
                        n_wrong += 1;
                        println!("WRONG: {what}");
                    }
                }
            }
        }
        println!("{file}: {n_loaded} loaded, {n_refused} refused");
        // A load that refuses everything is never wrong, and one that believes everything is caught only by what it was given.
        if n_loaded == 0 || n_refused == 0 {
            return Err(format!("{file} is always or never refused").into());
        }
    }
    if n_wrong == 0 { Ok(()) } else { Err(format!("{n_wrong} wrong").into()) }
}
