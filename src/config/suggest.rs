//! "Did you mean": the known word nearest to an unknown one. Knows nothing of keys or files.

/// The candidate nearest to `word` if it is near enough to be a slip of the pen (two letters, or one
/// in a word of up to four, wrong, missing, added or swapped), whatever its case.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Words longer than any key are not slips, and the distance costs their product.
    if word.is_empty() || word.len() > 256 {
        return None;
    }
    let word = word.to_lowercase();
    let length = word.chars().count();
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= tolerance(length.max(candidate.chars().count())))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Words that other programs have for the same.
const ELSEWHERE: [(&str, &str); 10] = [
    ("grpc", "h2c"),
    ("h2", "http2"),
    ("http", "http1"),
    ("http/1.1", "http1"),
    ("http/2", "http2"),
    ("least_connections", "least_requests"),
    ("least_conn", "least_requests"),
    ("retries", "attempts"),
    ("warning", "warn"),
    ("debugging", "debug"),
];

/// The candidate that is meant by a word for a value: one that another program has for it, or the nearest.
pub fn meant<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| other.eq_ignore_ascii_case(word));
    let ours = elsewhere.and_then(|(_, ours)| candidates.clone().into_iter().find(|known| known == ours));
    ours.or_else(|| nearest(word, candidates))
}

/// The hint for an unknown word: the nearest candidate, or all of them when they are few.
pub fn hint(word: &str, candidates: &[&str]) -> Option<String> {
    match meant(word, candidates.iter().copied()) {
        Some(candidate) => Some(format!("did you mean `{candidate}`?")),
        None if candidates.is_empty() => None,
        None => Some(format!("known here: {}", candidates.join(", "))),
    }
}

fn tolerance(length: usize) -> usize {
    match length {
        0..=2 => 0,
        3..=4 => 1,
        5..=9 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_does_not() {
        let keys = ["upstream", "redirect", "respond", "path"];
        assert_eq!(nearest("upstrem", keys), Some("upstream"));
        assert_eq!(nearest("Redirect", keys), Some("redirect"));
        assert_eq!(nearest("paht", keys), Some("path"));
        assert_eq!(nearest("certificate", keys), None);
        assert_eq!(nearest("", keys), None);
        assert_eq!(meant("Warning", ["error", "warn"]), Some("warn"));
        assert_eq!(meant("grpc", ["error", "warn"]), None);
    }
}
