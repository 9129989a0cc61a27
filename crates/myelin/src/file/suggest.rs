//! Near misses.

/// Longer keys have no near miss worth the comparison.
const MAX_CHARS: usize = 64;

/// Returns "did you mean …?" for the known word nearest to `text`, if one is near.
pub(super) fn suggest<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    if text.chars().count() > MAX_CHARS {
        return None;
    }
    let text = text.to_lowercase().replace(['-', ' '], "_");
    let near = |word: &str| {
        let distance = strsim::damerau_levenshtein(&text, word);
        (distance <= word.len().max(text.len()) / 3 + 1 && distance < word.len())
            .then_some(distance)
    };
    let nearest = known.into_iter().filter_map(|word| Some((near(word)?, word)));
    let (_, word) = nearest.min_by_key(|(distance, _)| *distance)?;
    Some(format!("did you mean {word:?}?"))
}
