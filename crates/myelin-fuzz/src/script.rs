//! The scripts of `myelin sim`.

use myelin_sim::script::{ScriptError, parse, render, split};

/// Reads a script, up to the mark that ends it.
///
/// # Panics
///
/// What is read does not read back as it is written, or an error does not point into the script.
pub fn sim_script(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let (script, _) = split(text);
    match parse(script) {
        Ok(scenario) => {
            let written = render(&scenario);
            let again = parse(&written);
            assert_eq!(again.as_ref(), Ok(&scenario), "{written}");
            assert_eq!(render(&scenario), written);
        }
        Err(error) => check_error(&error, script),
    }
}

fn check_error(error: &ScriptError, script: &str) {
    let line = error.line.checked_sub(1).and_then(|line| script.lines().nth(line));
    let line = line.unwrap_or_else(|| panic!("{error}: there is no such line"));
    assert!((1..=line.chars().count() + 1).contains(&error.column), "{error}: not in the line");
    let shown = error.to_string();
    assert!(shown.len() < 1000 && !shown.contains(char::is_control), "{shown:?}");
}
