//! Cuts the values of chosen parameters out of a query.
//!
//! A parameter is meant when its name, percent-decoded and in any case, is one that the operator listed,
//! also as `name[…]`: the application behind us may read it either way, so hiding one too many is right.
//! Works on slices and allocates nothing.

use crate::telemetry::escape::{self, Style};

/// What stands in the place of a hidden value.
pub(super) const REDACTED: &[u8] = b"-redacted-";

/// Names of the query parameters whose value is hidden.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryRedaction {
    names: Vec<Box<[u8]>>,
}

impl QueryRedaction {
    /// Hides the parameters of these names.
    pub(super) fn new(names: &[String]) -> Self {
        QueryRedaction {
            names: names.iter().map(|name| name.to_ascii_lowercase().into_bytes().into()).collect(),
        }
    }

    /// Appends a query (without `?`), escaped for `style`.
    pub(super) fn append(&self, out: &mut Vec<u8>, query: &[u8], style: Style) {
        if self.names.is_empty() {
            return escape::append(out, query, style);
        }
        for (index, pair) in query.split(|byte| *byte == b'&').enumerate() {
            if index > 0 {
                out.push(b'&');
            }
            self.append_pair(out, pair, style);
        }
    }

    /// Appends a URL, whose query is treated like [`Self::append`] does.
    pub(super) fn append_url(&self, out: &mut Vec<u8>, url: &[u8], style: Style) {
        match memchr::memchr(b'?', url) {
            Some(mark) if !self.names.is_empty() => {
                let (before, query) = url.split_at(mark + 1);
                escape::append(out, before, style);
                self.append(out, query, style);
            }
            _ => escape::append(out, url, style),
        }
    }

    /// Some servers also split at `;`. A hidden value reaches up to the next `&` all the same, because
    /// for the others the `;` is a part of it.
    fn append_pair(&self, out: &mut Vec<u8>, pair: &[u8], style: Style) {
        let mut start = 0;
        for part in pair.split(|byte| *byte == b';') {
            let name = memchr::memchr(b'=', part).unwrap_or(part.len());
            let (name, value) = part.split_at(name);
            if !value.is_empty() && self.names.iter().any(|hidden| is_named(name, hidden)) {
                let shown = pair.get(..start + name.len() + 1).unwrap_or_default();
                escape::append(out, shown, style);
                out.extend_from_slice(REDACTED);
                return;
            }
            start += part.len() + 1;
        }
        escape::append(out, pair, style);
    }
}

/// Whether an encoded name is `hidden` (lower case), or `hidden[…`.
fn is_named(encoded: &[u8], hidden: &[u8]) -> bool {
    let mut decoded = Decoded(encoded);
    for expected in hidden {
        if decoded.next() != Some(*expected) {
            return false;
        }
    }
    matches!(decoded.next(), None | Some(b'['))
}

/// The bytes of a percent-encoded name, in lower case.
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match self.0 {
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), rest)
            }
            [b'+', rest @ ..] => (b' ', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        self.0 = rest;
        Some(byte.to_ascii_lowercase())
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(query: &str) -> String {
        let mut out = Vec::new();
        let redaction = QueryRedaction::new(&["token".into(), "API key".into()]);
        redaction.append(&mut out, query.as_bytes(), Style::Json);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_of_listed_parameters_are_hidden() {
        assert_eq!(redacted("a=1&token=s3cret&b=2"), "a=1&token=-redacted-&b=2");
        assert_eq!(redacted("token=a=b&token="), "token=-redacted-&token=-redacted-");
        assert_eq!(redacted("tokens=1&atoken=2&token"), "tokens=1&atoken=2&token");
    }

    #[test]
    fn no_spelling_of_the_name_escapes() {
        for name in ["%74oken", "TOKEN", "tok%65N", "token[]", "token%5Ba%5d", "api+key", "api%20KEY"] {
            assert_eq!(redacted(&format!("{name}=x")), format!("{name}=-redacted-"));
        }
        assert_eq!(redacted("a=1;token=x;b=2&c=3"), "a=1;token=-redacted-&c=3");
    }

    #[test]
    fn odd_queries_are_kept() {
        for query in ["", "&", "=", "&&=&", "%", "%7", "%zz=1", ";;", "a;b"] {
            assert_eq!(redacted(query), query);
        }
    }

    #[test]
    fn the_query_of_a_url_is_treated_too() {
        let redaction = QueryRedaction::new(&["token".into()]);
        let mut out = Vec::new();
        redaction.append_url(&mut out, b"https://a/token=x?token=y&z=\"", Style::Quoted);
        assert_eq!(out, br#"https://a/token=x?token=-redacted-&z=\""#);
    }
}
