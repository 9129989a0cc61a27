//! Texts of others, made safe to print.

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
