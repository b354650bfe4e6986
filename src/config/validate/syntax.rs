//! The grammar of single values: host patterns, paths, methods, headers, regular expressions.

use super::super::EncodedSlash;
use super::super::error::{ValueError, quoted};
use std::net::Ipv6Addr;

/// Largest compiled regular expression; the crate's own default is 10 MiB.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A host name, `*.` and a host name, or an IPv6 literal in brackets (RFC 3986 section 3.2.2).
pub(super) fn host(text: &str) -> Result<(), ValueError> {
    let refuse =
        |hint: &str| Err(ValueError::new(format!("{} is not a host name", quoted(text))).with_hint(hint));
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inside.parse::<Ipv6Addr>() {
            Ok(_) => Ok(()),
            Err(_) => refuse("an IPv6 address stands between the brackets, such as [2001:db8::1]"),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return refuse(&format!("write \"[{text}]\""));
    }
    if text == "*" {
        return refuse("leave `hosts` out for any host");
    }
    if text.contains("//") || text.contains('/') {
        return refuse("only the name, without scheme and path");
    }
    if text.contains(':') {
        return refuse("only the name: the port of a request is ignored");
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    if name.contains('*') {
        return refuse("one wildcard, at the start: *.example.com");
    }
    if name.ends_with('.') {
        return refuse("without the dot at the end");
    }
    if !name.is_ascii() {
        return refuse("write names with other letters in their xn-- form");
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    match name.len() <= 253 && name.split('.').all(label) {
        true => Ok(()),
        false => refuse("letters, digits, - and _ in parts of 1 to 63, between dots"),
    }
}

/// A request path: begins with `/`, no query, nothing that cannot stand in one.
pub(super) fn path(text: &str) -> Result<(), ValueError> {
    let refuse = |reason: &str| Err(ValueError::new(format!("{} {reason}", quoted(text))));
    if !text.starts_with('/') {
        return refuse("does not begin with /").map_err(|error| error.with_hint(format!("write /{text}")));
    }
    if text.contains(['?', '#']) {
        return refuse("holds a query or a fragment")
            .map_err(|error| error.with_hint("use `query` for parameters"));
    }
    match text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        true => refuse("holds white space").map_err(|error| error.with_hint("a space is written %20")),
        false => Ok(()),
    }
}

/// A prefix takes whatever is below it. A `*` in it would be a mere character of the path.
pub(super) fn prefix(text: &str) -> Result<(), ValueError> {
    let Some((before, after)) = text.split_once('*') else { return path(text) };
    let hint = match (before.trim_end_matches('/'), after) {
        ("", "") => "leave `path` out for any path".to_owned(),
        (before, "") => format!("write {before}: it takes everything below it as well"),
        _ => "write { regex: … } for patterns, { exact: … } for a path with a *".to_owned(),
    };
    Err(ValueError::new(format!("{} has a *, which is no wildcard here", quoted(text))).with_hint(hint))
}

/// Whether a request whose path was made canonical can ever have this path, and pass the policy for `%2F`
/// of its route.
pub(super) fn reachable(path: &str, merge_slashes: bool, slash: EncodedSlash) -> Result<(), ValueError> {
    let never = |hint: &str| {
        Err(ValueError::new(format!("no request has the path {}", quoted(path))).with_hint(hint))
    };
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return never("`.` and `..` are resolved before routing");
    }
    if slash != EncodedSlash::Keep && path.to_ascii_uppercase().contains("%2F") {
        return never("%2F stays in a path only with `encoded_slash: keep`");
    }
    match merge_slashes && path.contains("//") {
        true => never("`paths.merge_slashes` makes // one /"),
        false => Ok(()),
    }
}

/// A request method (RFC 9110 section 9.1); they are case-sensitive.
pub(super) fn method(text: &str) -> Result<(), ValueError> {
    let refuse = || ValueError::new(format!("{} is not a method", quoted(text)));
    if text.is_empty() || text.len() > 32 || !text.bytes().all(is_token_byte) {
        return Err(refuse().with_hint("such as GET or POST"));
    }
    match text.bytes().any(|b| b.is_ascii_lowercase()) {
        true => Err(refuse().with_hint(format!("did you mean {}?", text.to_ascii_uppercase()))),
        false => Ok(()),
    }
}

/// A header field name (RFC 9110 section 5.1).
pub(super) fn header_name(text: &str) -> Result<(), ValueError> {
    match http::HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(()),
        Err(_) => {
            let error = ValueError::new(format!("{} is not a header name", quoted(text)));
            Err(error.with_hint("letters, digits and -, such as x-env"))
        }
    }
}

/// A header field value (RFC 9110 section 5.5).
pub(super) fn header_value(text: &str) -> Result<(), ValueError> {
    let wrong = http::HeaderValue::from_str(text).is_err() || text.trim() != text;
    match wrong {
        true => {
            let error = ValueError::new(format!("{} cannot be a header value", quoted(text)));
            Err(error.with_hint("printable ASCII, no white space at the ends"))
        }
        false => Ok(()),
    }
}

/// A regular expression of the `regex` crate, of bounded size.
pub(super) fn regex(text: &str) -> Result<(), ValueError> {
    let Err(error) = regex::RegexBuilder::new(text).size_limit(MAX_REGEX_BYTES).build() else {
        return Ok(());
    };
    let reason = match &error {
        regex::Error::CompiledTooBig(limit) => format!("larger than {limit} bytes when compiled"),
        other => {
            // The sentence is the last line; those before it draw the expression.
            let text = other.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    };
    Err(ValueError::new(format!("{} is not a regular expression: {reason}", quoted(text))))
}

/// RFC 9110 section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_leading_wildcards_and_bracketed_addresses() {
        for text in ["app.example.com", "*.example.com", "localhost", "App_1.test", "[::1]", "127.0.0.1"] {
            assert_eq!(host(text), Ok(()), "{text}");
        }
        for text in [
            "*",
            "*.",
            "a.*.test",
            "*x.test",
            "",
            "a..b",
            "https://a.test",
            "a.test:80",
            "a.test.",
            "ä.test",
            "::1",
            "[x]",
            "a b",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_regular_expression_is_refused_with_the_sentence_of_its_error() {
        assert_eq!(regex("^/v[0-9]+/"), Ok(()));
        assert!(regex("^/(v").unwrap_err().reason.ends_with("unclosed group"));
        assert!(regex("(a{1000}){1000}").unwrap_err().reason.contains("larger than"));
    }
}
