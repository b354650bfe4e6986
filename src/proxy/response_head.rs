//! The response head on its way from the upstream to the client.
//!
//! The engine has checked what frames the body it reads; here is what it passes on all the same:
//! framing a client may read otherwise, fields that concern only the connection to the upstream, and
//! what a client of HTTP/1.0 does not know. Knows nothing of the exchange.

use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use pingora::Result;
use pingora::http::ResponseHeader;

/// RFC 9110 section 7.6.1: these concern only the connection to the upstream. `connection` itself is
/// written anew by the engine.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// How a client finds the end of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The head says so.
    Explicit,
    /// When the connection is closed.
    UntilClose,
}

/// Whether a final head, or that of a granted upgrade, may be passed on at all. `upgrade`: the
/// request asked for one.
pub fn makes_sense(head: &ResponseHeader, upgrade: bool) -> bool {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // RFC 9110 section 7.8: only to a protocol the client asked for.
        return upgrade;
    }
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        // RFC 9112 section 6.1: no other coding unless the client asked, and TE is never passed on;
        // in HTTP/1.0 the framing of such a message is faulty.
        (Some(coding), None) => {
            coding.as_bytes().eq_ignore_ascii_case(b"chunked") && head.version == Version::HTTP_11
        }
        _ => false,
    }
}

/// Whether a body may follow a head that answers `method` (RFC 9110 section 6.4.1).
pub fn may_have_body(head: &ResponseHeader, method: &Method) -> bool {
    !head.status.is_informational()
        && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        && *method != Method::HEAD
}

/// Says where the body ends when the upstream did not, because it ends with its connection or stream: in
/// chunks, so that the client's connection can be kept. `end`: there is none.
///
/// # Errors
/// None in practice: name and value are typed.
pub fn frame(head: &mut ResponseHeader, end: bool, method: &Method) -> Result<()> {
    let framed = head.headers.contains_key(header::TRANSFER_ENCODING)
        || head.headers.contains_key(header::CONTENT_LENGTH);
    if framed || !may_have_body(head, method) {
        return Ok(());
    }
    head.set_version(Version::HTTP_11);
    if end {
        return head.insert_header(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))
}

/// Makes the head this gateway's own, for a client that speaks `client`.
pub fn adapt(head: &mut ResponseHeader, client: Version) -> Framing {
    // RFC 9110 section 2.5: a gateway says its own version.
    head.set_version(Version::HTTP_11);
    strip_hop_by_hop(head);
    if head.status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6, RFC 9112 section 6.1.
        head.remove_header(&header::CONTENT_LENGTH);
        head.remove_header(&header::TRANSFER_ENCODING);
        return Framing::Explicit;
    }
    settle_length(head);
    // RFC 9112 section 6.1: only a client of HTTP/1.1 knows of transfer codings.
    if client == Version::HTTP_10 && head.remove_header(&header::TRANSFER_ENCODING).is_some() {
        return Framing::UntilClose;
    }
    Framing::Explicit
}

/// The same for an interim head, which has no body: RFC 9110 section 8.6 and RFC 9112 section 6.1 forbid
/// it to frame one, and a client that reads one all the same takes the final head for it.
pub fn adapt_interim(head: &mut ResponseHeader) {
    head.set_version(Version::HTTP_11);
    strip_hop_by_hop(head);
    head.remove_header(&header::CONTENT_LENGTH);
    head.remove_header(&header::TRANSFER_ENCODING);
}

fn strip_hop_by_hop(head: &mut ResponseHeader) {
    let nominates_nothing = |line: &HeaderValue| matches!(line.as_bytes(), b"keep-alive" | b"close");
    if !head.headers.get_all(header::CONNECTION).iter().all(nominates_nothing) {
        let nominated: Vec<HeaderName> = head
            .headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
            .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
            .filter(|name| *name != header::TRANSFER_ENCODING && *name != header::CONTENT_LENGTH)
            .collect();
        for name in &nominated {
            head.remove_header(name);
        }
    }
    head.remove_header(&header::CONNECTION);
    // One look at what there is costs less than six at what there mostly is not.
    if head.headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        for name in &HOP_BY_HOP {
            head.remove_header(name);
        }
    }
}

/// RFC 9110 section 8.6: a length that is said more than once, which the engine has found to be the
/// same, is passed on once.
fn settle_length(head: &mut ResponseHeader) {
    let mut lines = head.headers.get_all(header::CONTENT_LENGTH).iter();
    let (Some(first), second) = (lines.next(), lines.next()) else { return };
    if second.is_none() && !first.as_bytes().contains(&b',') {
        return;
    }
    let once = first.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    if let Ok(once) = HeaderValue::from_bytes(once) {
        // Replaces a field that is there: cannot fail.
        let _ = head.insert_header(header::CONTENT_LENGTH, once);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, fields: &[(&'static str, &'static str)]) -> ResponseHeader {
        let mut head = ResponseHeader::build(status, None).expect("a head");
        head.set_version(Version::HTTP_11);
        for (name, value) in fields {
            head.append_header(*name, *value).expect("a field");
        }
        head
    }

    fn shown(head: &ResponseHeader, name: &str) -> Vec<String> {
        let values = head.headers.get_all(name).iter();
        values.map(|value| value.to_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn a_switch_is_believed_only_when_the_client_asked() {
        assert!(makes_sense(&head(101, &[("upgrade", "websocket")]), true));
        assert!(!makes_sense(&head(101, &[("upgrade", "websocket")]), false));
    }

    #[test]
    fn only_plain_chunked_is_passed_on() {
        assert!(makes_sense(&head(200, &[("transfer-encoding", "Chunked")]), false));
        for fields in [
            &[("transfer-encoding", "gzip")][..],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        ] {
            assert!(!makes_sense(&head(200, fields), false), "{fields:?}");
        }
        let mut old = head(200, &[("transfer-encoding", "chunked")]);
        old.set_version(Version::HTTP_10);
        assert!(!makes_sense(&old, false));
    }

    #[test]
    fn every_line_of_connection_is_heeded_but_not_for_framing() {
        let fields = [
            ("connection", "x-a, Content-Length"),
            ("connection", "X-B, \"odd\""),
            ("x-a", "1"),
            ("x-b", "2"),
            ("x-c", "3"),
            ("content-length", "5"),
            ("keep-alive", "timeout=5"),
        ];
        let mut head = head(200, &fields);
        assert_eq!(adapt(&mut head, Version::HTTP_11), Framing::Explicit);
        let names: Vec<&str> = head.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.contains(&"x-c") && names.contains(&"content-length"), "{names:?}");
    }

    #[test]
    fn a_length_is_said_once_and_never_without_a_body() {
        for lines in [&["5", "5"][..], &["5, 5"], &["5 ,5", "5"]] {
            let fields: Vec<_> = lines.iter().map(|line| ("content-length", *line)).collect();
            let mut twice = head(200, &fields);
            adapt(&mut twice, Version::HTTP_11);
            assert_eq!(shown(&twice, "content-length"), ["5"], "{lines:?}");
        }
        let mut empty = head(204, &[("content-length", "5")]);
        adapt(&mut empty, Version::HTTP_11);
        assert!(empty.headers.is_empty());
    }

    #[test]
    fn an_old_client_reads_until_the_connection_closes() {
        let mut chunked = head(200, &[("transfer-encoding", "chunked")]);
        assert_eq!(adapt(&mut chunked, Version::HTTP_10), Framing::UntilClose);
        assert!(chunked.headers.is_empty());
    }
}
