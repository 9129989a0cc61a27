//! Scenarios, each named after the symptom it guards against, with their golden output.
//!
//! A file is a script, a line `----`, and the story of the run. `UPDATE_SCENARIOS=1 cargo test -p myelin-sim` writes the
//! stories anew; read what changed.

use std::{env, fs, path::Path};

use myelin_sim::{Scenario, run, script};

/// Plays a file. Returns what is wrong with it.
fn play(path: &Path, update: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).expect("a scenario is a readable file");
    let (history, golden) = script::split(&text);
    let parsed = script::parse(history).map_err(|error| error.to_string())?;
    let outcome = run(&Scenario { traced: true, ..parsed });
    let story = outcome.story();
    if update {
        fs::write(path, format!("{}\n----\n{story}", history.trim_end()))
            .expect("a scenario can be written");
    }
    match outcome.breach {
        Some(breach) => Err(breach.to_string()),
        None if update || Some(story.as_str()) == golden => Ok(()),
        None => Err(difference(golden.unwrap_or_default(), &story)),
    }
}

fn difference(golden: &str, story: &str) -> String {
    let same = golden.lines().zip(story.lines()).take_while(|(left, right)| left == right).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("the end").to_owned();
    let (expected, found) = (line(golden), line(story));
    format!("line {} after ----:\n  expected {expected}\n  found    {found}", same + 1)
}

#[test]
fn every_scenario_goes_as_written() {
    let update = env::var_os("UPDATE_SCENARIOS").is_some();
    assert!(!update || env::var_os("CI").is_none(), "nobody would read what is written here");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(folder).expect("the scenarios are there");
    let mut paths: Vec<_> = entries.map(|it| it.expect("an entry is readable").path()).collect();
    paths.sort();
    assert!(paths.len() >= 32, "{} scenarios only", paths.len());
    let name = |path: &Path| path.file_stem().expect("it has a name").display().to_string();
    let wrong: Vec<_> = paths
        .iter()
        .filter_map(|path| Some(format!("{}: {}", name(path), play(path, update).err()?)))
        .collect();
    assert!(wrong.is_empty(), "UPDATE_SCENARIOS=1 writes them anew\n{}", wrong.join("\n"));
}
