//! Texts of others, made safe to print and to repeat.

/// How many characters of a name that nobody knows are repeated.
const MAX_REPEATED: usize = 100;

/// Returns the beginning of a text that is repeated to whoever sent it.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_REPEATED) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Replaces what could move the cursor of a terminal or reverse its direction; a tab becomes one space.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}
