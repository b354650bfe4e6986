//! Query strings, read in place: which values does a parameter have?
//!
//! Parameters are separated by `&`; names and values are compared percent-decoded, `+` as a space.
//! Escapes that are none stand for themselves. Nothing is allocated unless a value with escapes has to
//! be seen whole.

use std::borrow::Cow;

/// The values of every parameter of that name, as written. One without `=` has an empty value.
pub(super) fn values<'a>(query: &'a str, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    query.as_bytes().split(|byte| *byte == b'&').filter_map(move |pair| {
        let equals = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let (written, value) = pair.split_at(equals);
        let found = !pair.is_empty() && equals_decoded(written, name);
        found.then(|| value.strip_prefix(b"=").unwrap_or_default())
    })
}

/// Whether `written`, decoded, is `wanted`.
pub(super) fn equals_decoded(written: &[u8], wanted: &[u8]) -> bool {
    if memchr::memchr2(b'%', b'+', written).is_none() {
        written == wanted
    } else {
        decode(written).eq(wanted.iter().copied())
    }
}

/// The decoded form; allocates only when there is something to decode.
pub(super) fn decoded(written: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr2(b'%', b'+', written) {
        None => Cow::Borrowed(written),
        Some(_) => Cow::Owned(decode(written).collect()),
    }
}

fn decode(written: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = written;
    std::iter::from_fn(move || {
        let (first, after) = rest.split_first()?;
        rest = after;
        match (first, after) {
            (b'+', _) => Some(b' '),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    Some(high << 4 | low)
                }
                _ => Some(b'%'),
            },
            (byte, _) => Some(*byte),
        }
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(query: &str, name: &str) -> Vec<String> {
        values(query, name.as_bytes())
            .map(|value| String::from_utf8_lossy(&decoded(value)).into_owned())
            .collect()
    }

    #[test]
    fn every_occurrence_is_found_decoded() {
        assert_eq!(texts("a=1&b=2&a=%33+4&%61=5&a&a=", "a"), ["1", "3 4", "5", "", ""]);
        assert_eq!(texts("a=b=c", "a"), ["b=c"]);
        assert_eq!(texts("aa=1&A=2", "a"), Vec::<String>::new());
    }

    #[test]
    fn escapes_that_are_none_stand_for_themselves() {
        assert_eq!(texts("a=%&a=%4&a=%zz&a=100%25", "a"), ["%", "%4", "%zz", "100%"]);
    }

    #[test]
    fn empty_pairs_are_no_parameter() {
        assert_eq!(texts("&&", ""), Vec::<String>::new());
        assert_eq!(texts("", "a"), Vec::<String>::new());
    }
}
