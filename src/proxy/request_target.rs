//! The request target, made canonical once before any decision: what routing and access rules see is
//! what goes upstream.
//!
//! One form for every spelling of a path (RFC 3986 §6.2.2): unreserved characters are decoded, the
//! remaining escapes have upper-case digits, characters a path may not have are escaped, dot segments
//! are removed (encoded ones too; above the root they stay at the root, §5.2.4), doubled slashes are
//! merged if asked. What has no safe reading is refused: broken escapes, NUL, control characters, raw
//! backslashes, fragments, and dot segments that only appear when somebody later decodes `%2F` or `%5C`
//! (`/a%2F..%2Fb`) or cuts parameters off (`/a/..;x/b`), or does both. Making a canonical path canonical
//! again changes nothing.
//!
//! It does not look at hosts (`routing::host` does) and leaves queries as they are.

use http::Method;
use std::borrow::Cow;

/// How paths are made canonical: the two values of a snapshot's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetRules {
    /// `//` becomes `/`.
    pub merge_slashes: bool,
    /// `%2F` becomes `/`.
    pub decode_slashes: bool,
}

/// Why a request target was refused; all of them are the client's fault (400).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// `%` without two hexadecimal digits.
    #[error("a percent sign begins no escape")]
    Escape,
    /// NUL, raw or escaped.
    #[error("the target has a NUL")]
    Nul,
    /// A raw control character or space.
    #[error("the target has a control character")]
    Control,
    /// A raw backslash, which some servers take for a slash.
    #[error("the path has a backslash")]
    Backslash,
    /// `#`: fragments are never sent.
    #[error("the target has a fragment")]
    Fragment,
    /// `%2F` where the configuration refuses it.
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// `%2F` that its route decodes, and then another route would take the path.
    #[error("the path belongs to another route once its encoded slashes are decoded")]
    OtherRoute,
    /// A dot segment behind an encoded slash or backslash, or with a parameter.
    #[error("the path hides a dot segment behind an encoded slash or a parameter")]
    HiddenDotSegment,
    /// `*` with a method other than OPTIONS (RFC 9112 §3.2.4).
    #[error("only OPTIONS may ask for *")]
    Asterisk,
    /// Absolute form with a scheme other than http and https.
    #[error("the scheme of the target is not http or https")]
    Scheme,
    /// Absolute form without a host.
    #[error("the target has an empty authority")]
    Authority,
    /// None of the forms of RFC 9112 §3.2 that a gateway serves.
    #[error("the target is neither a path nor a URL")]
    Form,
}

impl TargetError {
    /// The word in access records.
    pub fn as_str(self) -> &'static str {
        match self {
            TargetError::Escape => "escape",
            TargetError::Nul => "nul",
            TargetError::Control => "control",
            TargetError::Backslash => "backslash",
            TargetError::Fragment => "fragment",
            TargetError::EncodedSlash => "encoded_slash",
            TargetError::OtherRoute => "other_route",
            TargetError::HiddenDotSegment => "hidden_dot_segment",
            TargetError::Asterisk => "asterisk",
            TargetError::Scheme => "scheme",
            TargetError::Authority => "authority",
            TargetError::Form => "form",
        }
    }
}

/// A request target in its parts, as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Host and port of an absolute-form target; it takes precedence over Host (RFC 9112 §3.2.2).
    pub authority: Option<&'a str>,
    /// Begins with a slash, or is `*`. Still to be made canonical.
    pub path: &'a str,
    /// What stands behind the first `?`.
    pub query: Option<&'a str>,
}

/// Splits a request target (RFC 9112 §3.2): origin form, absolute form, or `*` for OPTIONS. CONNECT's
/// authority form is refused.
pub fn split_target<'a>(method: &Method, raw_target: &'a str) -> Result<Target<'a>, TargetError> {
    for byte in raw_target.bytes() {
        match CLASSES[usize::from(byte)] {
            Class::Nul => return Err(TargetError::Nul),
            Class::Control => return Err(TargetError::Control),
            Class::Fragment => return Err(TargetError::Fragment),
            _ => {}
        }
    }
    if raw_target == "*" {
        let allowed = *method == Method::OPTIONS;
        return if allowed { Ok(asterisk(None)) } else { Err(TargetError::Asterisk) };
    }
    if *method == Method::CONNECT {
        return Err(TargetError::Form);
    }
    if raw_target.starts_with('/') || raw_target.is_empty() {
        return Ok(split_query(None, raw_target));
    }
    let (scheme, rest) = raw_target.split_once("://").ok_or(TargetError::Form)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(TargetError::Scheme);
    }
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.is_empty() {
        return Err(TargetError::Authority);
    }
    if rest.is_empty() && *method == Method::OPTIONS {
        return Ok(asterisk(Some(authority)));
    }
    Ok(split_query(Some(authority), rest))
}

fn asterisk(authority: Option<&str>) -> Target<'_> {
    Target { authority, path: "*", query: None }
}

fn split_query<'a>(authority: Option<&'a str>, rest: &'a str) -> Target<'a> {
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    Target { authority, path: if path.is_empty() { "/" } else { path }, query }
}

/// The canonical form of a path, without its query. `*` stays `*`. Borrowed, after one look at each
/// byte, when there is nothing to change.
pub fn canonical_path<'a>(raw: &'a str, rules: &TargetRules) -> Result<Cow<'a, str>, TargetError> {
    if raw == "*" {
        return Ok(Cow::Borrowed(raw));
    }
    if !raw.starts_with('/') {
        return Err(TargetError::Form);
    }
    let canonical = if is_canonical(raw.as_bytes(), rules) {
        Cow::Borrowed(raw)
    } else {
        let decoded = normalize_escapes(raw, rules)?;
        Cow::Owned(remove_dot_segments(&decoded, rules.merge_slashes))
    };
    let suspicious = memchr::memchr2(b'%', b';', canonical.as_bytes()).is_some();
    if suspicious && canonical.split('/').any(hides_dot_segment) {
        return Err(TargetError::HiddenDotSegment);
    }
    Ok(canonical)
}

/// Whether a path has an encoded slash, in either spelling.
pub fn has_encoded_slash(path: &str) -> bool {
    let mut escapes = memchr::memchr_iter(b'%', path.as_bytes());
    escapes.any(|at| matches!(path.as_bytes().get(at + 1..at + 3), Some(b"2F" | b"2f")))
}

/// What a byte of a path calls for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Plain,
    Slash,
    Percent,
    /// Not allowed in a path (RFC 3986 §3.3) but harmless: written as an escape.
    Escaped,
    Nul,
    Control,
    Backslash,
    Fragment,
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            0 => Class::Nul,
            0x01..=0x20 | 0x7F => Class::Control,
            b'/' => Class::Slash,
            b'%' => Class::Percent,
            b'\\' => Class::Backslash,
            b'#' => Class::Fragment,
            b'"' | b'<' | b'>' | b'?' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => Class::Escaped,
            _ => Class::Plain,
        };
        byte += 1;
    }
    classes
};

/// Whether nothing has to be changed or refused, hidden dot segments aside.
fn is_canonical(path: &[u8], rules: &TargetRules) -> bool {
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match CLASSES[usize::from(*byte)] {
            Class::Plain => {}
            Class::Slash => match after {
                [b'/', ..] if rules.merge_slashes => return false,
                [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..] => return false,
                _ => {}
            },
            Class::Percent => match escape(after) {
                Some(decoded) if is_kept(decoded, after, rules) => {}
                _ => return false,
            },
            _ => return false,
        }
    }
    true
}

/// Whether an escape stays exactly as it is written.
fn is_kept(decoded: u8, digits: &[u8], rules: &TargetRules) -> bool {
    let lower = digits.iter().take(2).any(u8::is_ascii_lowercase);
    let slash = decoded == b'/' && rules.decode_slashes;
    !lower && !slash && decoded != 0 && !is_unreserved(decoded)
}

/// The byte an escape stands for, given what follows the percent sign.
fn escape(after: &[u8]) -> Option<u8> {
    let [high, low, ..] = after else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// One spelling for every character.
fn normalize_escapes(raw: &str, rules: &TargetRules) -> Result<String, TargetError> {
    let mut out = String::with_capacity(raw.len() + 16);
    let mut rest = raw.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match CLASSES[usize::from(*byte)] {
            Class::Plain | Class::Slash => out.push(char::from(*byte)),
            Class::Escaped => push_escape(&mut out, *byte),
            Class::Nul => return Err(TargetError::Nul),
            Class::Control => return Err(TargetError::Control),
            Class::Backslash => return Err(TargetError::Backslash),
            Class::Fragment => return Err(TargetError::Fragment),
            Class::Percent => {
                let decoded = escape(after).ok_or(TargetError::Escape)?;
                rest = after.get(2..).unwrap_or_default();
                match decoded {
                    0 => return Err(TargetError::Nul),
                    b'/' if rules.decode_slashes => out.push('/'),
                    byte if is_unreserved(byte) => out.push(char::from(byte)),
                    byte => push_escape(&mut out, byte),
                }
            }
        }
    }
    Ok(out)
}

fn push_escape(out: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.extend(['%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xF)]]);
}

/// RFC 3986 §5.2.4, and `//` to `/` if asked. The path begins with a slash.
fn remove_dot_segments(path: &str, merge_slashes: bool) -> String {
    let mut out = String::with_capacity(path.len());
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let dropped = match segment {
            "." => true,
            ".." => {
                out.truncate(out.rfind('/').unwrap_or(0));
                true
            }
            "" => merge_slashes,
            _ => false,
        };
        // A segment that is dropped at the end leaves its slash.
        if !dropped || segments.peek().is_none() {
            out.push('/');
        }
        if !dropped {
            out.push_str(segment);
        }
    }
    out
}

/// Whether a canonical segment would be or hold a dot segment once its encoded slashes are decoded, its
/// parameters are cut off, as servlet containers do (`/..;x/`), or both.
fn hides_dot_segment(segment: &str) -> bool {
    let mut rest = segment;
    loop {
        let (name, after) = rest.split_at(rest.find(['%', ';']).unwrap_or(rest.len()));
        // A plain dot segment is gone by now: what ends here stands behind an encoded slash.
        let ends = after.is_empty() || [";", "%2F", "%5C", "%3B"].iter().any(|end| after.starts_with(end));
        if matches!(name, "." | "..") && ends {
            return true;
        }
        match next_part(after) {
            Some(next) => rest = next,
            None => return false,
        }
    }
}

/// What stands behind the next encoded slash or backslash.
fn next_part(text: &str) -> Option<&str> {
    let separator = |at: usize| matches!(text.as_bytes().get(at + 1..at + 3), Some(b"2F" | b"5C"));
    let at = text.match_indices('%').map(|(at, _)| at).find(|at| separator(*at))?;
    text.get(at + 3..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: TargetRules = TargetRules { merge_slashes: true, decode_slashes: false };

    fn canonical(raw: &str) -> String {
        canonical_path(raw, &RULES).map(Cow::into_owned).unwrap_or_else(|error| error.as_str().into())
    }

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for (raw, expected) in [
            ("/public/../admin", "/admin"),
            ("/%2e%2E/admin", "/admin"),
            ("/a/.%2e/admin", "/admin"),
            ("//admin", "/admin"),
            ("/./admin", "/admin"),
            ("/admin//x", "/admin/x"),
            ("/%61dmin", "/admin"),
            ("/../../..", "/"),
            ("/..", "/"),
            ("/.", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/a//..//b", "/b"),
            ("/a///", "/a/"),
            ("///", "/"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a|b{c}", "/a%7Cb%7Bc%7D"),
            ("/%7e%2d%5f", "/~-_"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/a%5cb", "/a%5Cb"),
            ("/a%0a", "/a%0A"),
        ] {
            assert_eq!(canonical(raw), expected, "{raw}");
        }
    }

    #[test]
    fn canonical_paths_are_returned_as_they_are() {
        for raw in [
            "/",
            "*",
            "/a/b.c/",
            "/.well-known/..x/...",
            "/api/v4/projects/grp%2Frepo",
            "/git%40github.com%3Aorg%2Fx",
            "/a%2Fb%3Fc",
            "/a;b=c,d@e:f!$&'()*+",
        ] {
            assert!(matches!(canonical_path(raw, &RULES), Ok(Cow::Borrowed(same)) if same == raw), "{raw}");
        }
    }

    #[test]
    fn paths_without_a_safe_reading_are_refused_with_their_reason() {
        for (raw, reason) in [
            ("/%", "escape"),
            ("/%4", "escape"),
            ("/%zz", "escape"),
            ("/%+1", "escape"),
            ("/a%00", "nul"),
            ("/a\0", "nul"),
            ("/a\r\nb", "control"),
            ("/a b", "control"),
            ("/a\x7f", "control"),
            ("/a\\..\\b", "backslash"),
            ("/a#b", "fragment"),
            ("/a%2F..%2Fb", "hidden_dot_segment"),
            ("/a/..%2fb", "hidden_dot_segment"),
            ("/a/x%5c..", "hidden_dot_segment"),
            ("/%2e%2fb", "hidden_dot_segment"),
            ("/x/..;/admin", "hidden_dot_segment"),
            ("/x/%2e%2e;a=b/admin", "hidden_dot_segment"),
            ("/.;", "hidden_dot_segment"),
            ("/public%2F..;/admin", "hidden_dot_segment"),
            ("/a%5C.;x=1", "hidden_dot_segment"),
            ("/a/..%3bx/b", "hidden_dot_segment"),
            ("/a;b%2F..", "hidden_dot_segment"),
            ("", "form"),
            ("admin", "form"),
        ] {
            assert_eq!(canonical(raw), reason, "{raw:?}");
        }
    }

    #[test]
    fn encoded_slashes_stay_or_are_decoded() {
        let decoded = |raw| {
            let rules = TargetRules { decode_slashes: true, ..RULES };
            canonical_path(raw, &rules).map(Cow::into_owned).expect("a path")
        };
        for (raw, kept, path) in [
            ("/a%2fb", "/a%2Fb", "/a/b"),
            ("/a%2F%2Fb%2f", "/a%2F%2Fb%2F", "/a/b/"),
            ("/a%252Fb", "/a%252Fb", "/a%252Fb"),
            ("/a%2F..%2Fb%2F", "hidden_dot_segment", "/b/"),
        ] {
            assert_eq!((canonical(raw).as_str(), decoded(raw).as_str()), (kept, path), "{raw}");
            assert_eq!(has_encoded_slash(raw), raw != "/a%252Fb", "{raw}");
        }
    }

    #[test]
    fn doubled_slashes_stay_unless_merging_is_asked_for() {
        let rules = TargetRules { merge_slashes: false, ..RULES };
        for (raw, expected) in [("/a//b", "/a//b"), ("//", "//"), ("/a//../b", "/a/b"), ("/..//", "//")] {
            assert_eq!(canonical_path(raw, &rules).as_deref(), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn targets_are_split_in_each_of_their_forms() {
        let target = |authority, path, query| Ok(Target { authority, path, query });
        let get = |raw| split_target(&Method::GET, raw);
        assert_eq!(get("/a?b?c"), target(None, "/a", Some("b?c")));
        assert_eq!(get("/a?"), target(None, "/a", Some("")));
        assert_eq!(get("//evil.test/x"), target(None, "//evil.test/x", None));
        assert_eq!(get(""), target(None, "/", None));
        assert_eq!(get("http://app.test/x?y"), target(Some("app.test"), "/x", Some("y")));
        assert_eq!(get("HTTPS://app.test:80"), target(Some("app.test:80"), "/", None));
        assert_eq!(get("http://app.test?y=/"), target(Some("app.test"), "/", Some("y=/")));
        assert_eq!(split_target(&Method::OPTIONS, "*"), target(None, "*", None));
        assert_eq!(split_target(&Method::OPTIONS, "http://a.test"), target(Some("a.test"), "*", None));
    }

    #[test]
    fn targets_of_no_known_form_are_refused() {
        for (method, raw, reason) in [
            (Method::GET, "*", TargetError::Asterisk),
            (Method::GET, "*x", TargetError::Form),
            (Method::GET, "admin", TargetError::Form),
            (Method::GET, "http:/a", TargetError::Form),
            (Method::GET, "?a", TargetError::Form),
            (Method::GET, "ftp://a/b", TargetError::Scheme),
            (Method::GET, "http:///b", TargetError::Authority),
            (Method::GET, "/a#b", TargetError::Fragment),
            (Method::GET, "/a?b#c", TargetError::Fragment),
            (Method::GET, "/a?b\tc", TargetError::Control),
            (Method::GET, "/a?b\0", TargetError::Nul),
            (Method::CONNECT, "app.test:80", TargetError::Form),
        ] {
            assert_eq!(split_target(&method, raw), Err(reason), "{raw:?}");
        }
    }
}
