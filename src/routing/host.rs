//! Host names: what a client sent, and the patterns an operator wrote.
//!
//! Canonical form: lower-case, no port, no trailing dot; IPv6 literals in brackets, in the one spelling
//! of RFC 5952. Names are compared as they are: nothing is resolved, and no Unicode is translated.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Longest name (RFC 1035 §2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// Why a host was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing left of the port.
    #[error("the host is empty")]
    Empty,
    /// `user@host`: has no place in a request (RFC 9110 §4.2.4).
    #[error("the host has user information")]
    Userinfo,
    /// A byte no host name has, `%` and non-ASCII included.
    #[error("the host has a forbidden character")]
    Character,
    /// Two dots in a row, or a leading one.
    #[error("the host has an empty label")]
    Label,
    /// In brackets, but no IPv6 address.
    #[error("the host is not an IPv6 address")]
    Literal,
    /// Not a number from 0 to 65535.
    #[error("the port of the host is invalid")]
    Port,
    /// Above 253 bytes.
    #[error("the host is too long")]
    Length,
}

impl HostError {
    /// The word in access records.
    pub fn as_str(self) -> &'static str {
        match self {
            HostError::Empty => "empty",
            HostError::Userinfo => "userinfo",
            HostError::Character => "character",
            HostError::Label => "label",
            HostError::Literal => "literal",
            HostError::Port => "port",
            HostError::Length => "length",
        }
    }
}

/// The canonical form of a Host header or an authority (RFC 3986 §3.2, RFC 9110 §7.2). Borrowed when
/// nothing but the end had to be cut off.
pub fn canonical_host(raw: &str) -> Result<Cow<'_, str>, HostError> {
    if raw.contains('@') {
        return Err(HostError::Userinfo);
    }
    if raw.starts_with('[') {
        return canonical_literal(raw);
    }
    let (name, port) = match raw.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (raw, None),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let upper_case = check_name(name)?;
    check_port(port)?;
    Ok(if upper_case { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) })
}

/// `[::1]` or `[::1]:80`.
fn canonical_literal(raw: &str) -> Result<Cow<'_, str>, HostError> {
    let end = raw.find(']').ok_or(HostError::Literal)?;
    let (literal, rest) = raw.split_at(end + 1);
    let address: Ipv6Addr =
        literal.get(1..end).unwrap_or_default().parse().map_err(|_| HostError::Literal)?;
    match rest.strip_prefix(':') {
        Some(port) => check_port(Some(port))?,
        None if rest.is_empty() => {}
        None => return Err(HostError::Port),
    }
    let canonical = format!("[{address}]");
    Ok(if canonical == literal { Cow::Borrowed(literal) } else { Cow::Owned(canonical) })
}

/// Whether the name has upper-case letters.
fn check_name(name: &str) -> Result<bool, HostError> {
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(HostError::Length);
    }
    let (mut upper_case, mut label_is_empty) = (false, true);
    for byte in name.bytes() {
        match byte {
            b'.' if label_is_empty => return Err(HostError::Label),
            b'.' => label_is_empty = true,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label_is_empty = false,
            b'A'..=b'Z' => (upper_case, label_is_empty) = (true, false),
            _ => return Err(HostError::Character),
        }
    }
    if label_is_empty { Err(HostError::Label) } else { Ok(upper_case) }
}

/// Absent, empty (RFC 3986 §3.2.3) or a number.
fn check_port(port: Option<&str>) -> Result<(), HostError> {
    let port = port.unwrap_or_default();
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let valid = port.is_empty() || (digits && port.len() <= 5 && port.parse::<u16>().is_ok());
    if valid { Ok(()) } else { Err(HostError::Port) }
}

/// A compiled element of `hosts:`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum HostPattern {
    /// This host, canonical.
    Exact(Box<str>),
    /// Every name that ends in `.` and this, at any depth.
    Below(Box<str>),
    /// Every host; what a route without `hosts` has.
    Any,
}

impl HostPattern {
    /// Compiles `app.example.com`, `*.example.com`, `[::1]`; the error is a reason and a hint.
    pub fn compile(written: &str) -> Result<Self, (String, Option<&'static str>)> {
        if written == "*" {
            return Err(("`*` alone is not a host".into(), Some("leave `hosts` out to match every host")));
        }
        let (below, name) = match written.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, written),
        };
        if name.contains('*') {
            return Err((
                format!("`{written}` has a wildcard that is not its first label"),
                Some("only `*.name` is possible"),
            ));
        }
        if below && name.starts_with('[') {
            return Err((format!("`{written}` is not a name with a wildcard"), None));
        }
        let has_port = name.rfind(':').is_some_and(|colon| name.rfind(']').is_none_or(|end| end < colon));
        if has_port {
            return Err((
                format!("`{written}` has a port"),
                Some("ports are ignored when hosts are compared"),
            ));
        }
        let canonical = canonical_host(name).map_err(|error| {
            let hint = (!name.is_ascii()).then_some("write international names in their xn-- form");
            (format!("`{written}`: {error}"), hint)
        })?;
        let canonical = canonical.into_owned().into_boxed_str();
        Ok(if below { HostPattern::Below(canonical) } else { HostPattern::Exact(canonical) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_port_and_one_trailing_dot_do_not_matter() {
        for raw in [
            "app.test",
            "APP.Test",
            "app.test.",
            "app.test:7999",
            "app.test:80",
            "app.test.:1234",
            "app.test:",
        ] {
            assert_eq!(canonical_host(raw).as_deref(), Ok("app.test"), "{raw}");
        }
        assert!(matches!(canonical_host("app.test:80"), Ok(Cow::Borrowed(_))));
        assert_eq!(canonical_host("a_b.x-y.1").as_deref(), Ok("a_b.x-y.1"));
    }

    #[test]
    fn ipv6_literals_have_one_spelling() {
        for raw in ["[::1]", "[::1]:80", "[0:0::0:1]:443", "[::0001]", "[::1]:"] {
            assert_eq!(canonical_host(raw).as_deref(), Ok("[::1]"), "{raw}");
        }
        assert_eq!(canonical_host("[2001:DB8::A]").as_deref(), Ok("[2001:db8::a]"));
    }

    #[test]
    fn hosts_that_are_none_are_refused_with_their_reason() {
        use HostError::*;
        let long = "a".repeat(254);
        for (raw, reason) in [
            ("", Empty),
            (".", Empty),
            (":80", Empty),
            ("u@a.test", Userinfo),
            ("u:p@a.test:80", Userinfo),
            ("a..test", Label),
            (".a.test", Label),
            ("a.test..", Label),
            ("a b", Character),
            ("a/b", Character),
            ("a%2eb", Character),
            ("b\u{fc}cher.test", Character),
            ("a,b", Character),
            ("*.test", Character),
            ("a\0b", Character),
            ("a.test:x", Port),
            ("a.test:65536", Port),
            ("a.test:000080", Port),
            ("a.test:+80", Port),
            ("a:80:80", Port),
            ("::1", Empty),
            ("[::1", Literal),
            ("[::1]80", Port),
            ("[::1].", Port),
            ("[fe80::1%25eth0]", Literal),
            ("[v1.x]", Literal),
            ("[1.2.3.4]", Literal),
            ("[]", Literal),
            (&long, Length),
        ] {
            assert_eq!(canonical_host(raw), Err(reason), "{raw:?}");
        }
    }

    #[test]
    fn patterns_are_exact_or_have_one_leading_wildcard() {
        assert_eq!(HostPattern::compile("App.Test."), Ok(HostPattern::Exact("app.test".into())));
        assert_eq!(HostPattern::compile("*.App.Test"), Ok(HostPattern::Below("app.test".into())));
        assert_eq!(HostPattern::compile("[::0:1]"), Ok(HostPattern::Exact("[::1]".into())));
        for bad in [
            "",
            "*",
            "*.",
            "a.*.test",
            "*a.test",
            "*.*.test",
            "app.test:80",
            "[::1]:80",
            "*.[::1]",
            "b\u{fc}.test",
        ] {
            assert!(HostPattern::compile(bad).is_err(), "{bad}");
        }
    }
}
