//! The cluster file.

use myelin::file::{ClusterFile, FileErrors, Format, defaults_shown, parse};

/// Only clusters up to this size are expanded: a count costs one byte of input and a record of output.
const MOST_EXPANDED: u64 = 1000;

/// Reads a cluster file. The first byte chooses the format: `0` YAML, `1` JSON, `2` TOML.
///
/// # Panics
///
/// What is read does not read back as it is shown, or an error does not point into the text.
pub fn cluster_file(bytes: &[u8]) {
    let Some((first, text)) = bytes.split_first() else { return };
    let format = match first % 3 {
        0 => Format::Yaml,
        1 => Format::Json,
        _ => Format::Toml,
    };
    match parse(text, format, "any") {
        Ok(file) => check_file(&file),
        Err(errors) => check_errors(&errors, text),
    }
}

fn check_file(file: &ClusterFile) {
    let shown = defaults_shown(file);
    let again = parse(shown.as_bytes(), Format::Yaml, "shown");
    assert_eq!(again.as_ref(), Ok(file), "{shown}");
    assert_eq!(defaults_shown(file), shown);

    let n_nodes: u64 = file.groups.iter().map(|group| u64::from(group.count)).sum();
    assert!(n_nodes <= file.max_nodes, "{n_nodes} nodes are more than allowed");
    if n_nodes <= MOST_EXPANDED {
        let nodes = file.shape(1).expand_up_to(file.max_nodes).expect("a file is checked");
        assert_eq!(nodes.len() as u64, n_nodes);
        assert!(file.shape(1).expand_up_to(file.max_nodes).is_ok_and(|again| again == nodes));
    }
}

fn check_errors(errors: &FileErrors, text: &[u8]) {
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
    assert!(errors.n_errors() >= errors.shown().len() && !errors.shown().is_empty());
    for error in errors.shown() {
        let (line, column) = error.place.expect("a text of this size is read");
        let in_text =
            (1..=lines.len()).contains(&line) && (1..=lines[line - 1].len() + 1).contains(&column);
        assert!(in_text, "{line}:{column} is not in the text: {errors}");
        assert!(!error.message.contains(char::is_control), "{errors:?}");
    }
    let shown = errors.to_string();
    assert!(shown.len() < 40_000, "{} bytes are no message", shown.len());
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
}
