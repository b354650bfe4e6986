//! The one table of answers the gateway gives when it refuses: reason → status and page.
//!
//! Pages are rendered once per snapshot, as HTML and as a problem document (RFC 9457); which of
//! the two a client gets is decided by its Accept header; calls of gRPC get neither.

use super::grpc;
use super::target::{FixedResponse, put};
use crate::config::{Config, Problems, Source};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::fmt;

/// Why a request was refused, or why its upstream could not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Rejection {
    /// The head could not be parsed.
    Malformed,
    /// The request target is not acceptable (RFC 9112 section 3.2).
    Target,
    /// The Host is missing or not acceptable (RFC 9112 section 3.2).
    Host,
    /// A method this gateway never forwards.
    Method,
    /// An expectation other than `100-continue` (RFC 9110 section 10.1.1).
    Expectation,
    /// The request has passed this gateway before, again and again.
    Loop,
    /// A transfer coding this gateway does not know (RFC 9112 section 6.1).
    TransferEncoding,
    /// The request line is longer than `limits.request_line`.
    RequestLine,
    /// The header block is larger than `limits.headers`.
    HeadersTooLarge,
    /// More header fields than `limits.header_count`.
    TooManyHeaders,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The head did not arrive in time.
    HeaderTimeout,
    /// A CIDR policy keeps the client out.
    AccessDenied,
    /// The connection was made for names that ask for less, or for other clients (RFC 9110 section
    /// 15.5.20).
    Misdirected,
    /// No route takes the request.
    NoRoute,
    /// The upstream has no endpoint to try.
    NoEndpoint,
    /// The upstream has `max_requests` in flight.
    UpstreamLimit,
    /// The endpoint refused the connection, or it broke while being made.
    UpstreamConnect,
    /// The endpoint did not accept the connection in time.
    UpstreamConnectTimeout,
    /// The endpoint's certificate or handshake was not acceptable.
    UpstreamTls,
    /// The endpoint closed the connection before its response was complete.
    UpstreamClosed,
    /// The endpoint's response could not be understood.
    UpstreamInvalid,
    /// The endpoint did not answer in time.
    UpstreamTimeout,
    /// The deadline the client brought along has passed.
    ClientDeadline,
    /// The client went away before its response was complete.
    ClientClosed,
    /// The client did not take its response in time.
    WriteTimeout,
    /// A fault of the gateway itself.
    Internal,
}

/// Whose fault the end of an exchange was. Whether an endpoint is ejected, what its latency is taken to be and
/// whether a request goes out again are decided by this alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client's: it broke a rule, fell silent or went away. Says nothing of the endpoint.
    Client,
    /// That of the endpoint that was tried.
    Upstream,
    /// The gateway's own.
    Gateway,
    /// Nobody's: there was no endpoint or no room, or the client's own time was too short.
    Nobody,
}

/// A rejection, and which of its causes it was: what an operator needs to find the client at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// What it is answered as.
    pub rejection: Rejection,
    /// One word, where the rejection has more than one cause.
    pub detail: Option<&'static str>,
}

impl From<Rejection> for Cause {
    fn from(rejection: Rejection) -> Self {
        Cause { rejection, detail: None }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rejection.reason())?;
        self.detail.map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}

/// Every rejection with its status, its word in logs and metrics, and its sentence for people.
const TABLE: [(Rejection, u16, &str, &str); 28] = {
    use Rejection as R;
    [
        (R::Malformed, 400, "malformed", "The request could not be understood."),
        (R::Target, 400, "target", "The request target is not acceptable."),
        (R::Host, 400, "host", "The Host header is missing or not acceptable."),
        (R::Method, 405, "method", "This method is not served here."),
        (R::Expectation, 417, "expectation", "What the request expects is not known here."),
        (R::Loop, 508, "loop", "The request goes round in circles."),
        (R::TransferEncoding, 501, "transfer_encoding", "This transfer coding is not supported."),
        (R::RequestLine, 414, "request_line", "The request line is too long."),
        (R::HeadersTooLarge, 431, "headers_too_large", "The request headers are too large."),
        (R::TooManyHeaders, 431, "header_count", "The request has too many headers."),
        (R::BodyTooLarge, 413, "body_too_large", "The request body is too large."),
        (R::BodyTimeout, 408, "body_timeout", "The request body did not arrive in time."),
        (R::HeaderTimeout, 408, "header_timeout", "The request did not arrive in time."),
        (R::AccessDenied, 403, "access_denied", "You may not access this."),
        (R::Misdirected, 421, "misdirected", "This connection cannot be used for this host."),
        (R::NoRoute, 404, "no_route", "There is nothing here."),
        (R::NoEndpoint, 503, "no_endpoint", "The service is not available."),
        (R::UpstreamLimit, 503, "upstream_limit", "The service is busy."),
        (R::UpstreamConnect, 502, "upstream_connect", "The service could not be reached."),
        (
            R::UpstreamConnectTimeout,
            504,
            "upstream_connect_timeout",
            "The service could not be reached in time.",
        ),
        (R::UpstreamTls, 502, "upstream_tls", "The service could not be reached safely."),
        (R::UpstreamClosed, 502, "upstream_closed", "The service ended the exchange early."),
        (R::UpstreamInvalid, 502, "upstream_invalid", "The service gave an answer that makes no sense."),
        (R::UpstreamTimeout, 504, "upstream_timeout", "The service did not answer in time."),
        (R::ClientDeadline, 504, "client_deadline", "The service did not answer in the time you gave it."),
        (R::ClientClosed, 499, "client_closed", "The client went away."),
        (R::WriteTimeout, 499, "write_timeout", "The client did not take the response in time."),
        (R::Internal, 500, "internal", "Something went wrong here."),
    ]
};

impl Rejection {
    /// The status the client gets. 499 is only ever logged: that client is gone.
    pub fn status(self) -> u16 {
        TABLE[self as usize].1
    }

    /// Whose fault it is.
    pub fn fault(self) -> Fault {
        use Rejection as R;
        match self {
            R::UpstreamConnect
            | R::UpstreamConnectTimeout
            | R::UpstreamTls
            | R::UpstreamClosed
            | R::UpstreamInvalid
            | R::UpstreamTimeout => Fault::Upstream,
            R::NoEndpoint | R::UpstreamLimit | R::ClientDeadline => Fault::Nobody,
            R::Internal | R::Loop => Fault::Gateway,
            R::Malformed
            | R::Target
            | R::Host
            | R::Method
            | R::Expectation
            | R::TransferEncoding
            | R::RequestLine
            | R::HeadersTooLarge
            | R::TooManyHeaders
            | R::BodyTooLarge
            | R::BodyTimeout
            | R::HeaderTimeout
            | R::AccessDenied
            | R::Misdirected
            | R::NoRoute
            | R::ClientClosed
            | R::WriteTimeout => Fault::Client,
        }
    }

    /// The word for it in the access log and in `portcullis_rejections_total`.
    pub fn reason(self) -> &'static str {
        TABLE[self as usize].2
    }

    /// With the word for its cause.
    pub fn because(self, detail: &'static str) -> Cause {
        Cause { rejection: self, detail: Some(detail) }
    }
}

/// The rendered pages of one snapshot.
pub struct Pages {
    pages: Vec<Page>,
}

struct Page {
    html: FixedResponse,
    json: FixedResponse,
    grpc: FixedResponse,
}

impl Pages {
    /// Renders every page; `not_found.body_file` takes the place of the built-in HTML for
    /// [`Rejection::NoRoute`], and an unreadable one is a problem.
    pub fn compile(config: &Config, source: &Source, problems: &mut Problems) -> Self {
        let mut pages: Vec<Page> =
            TABLE.iter().map(|(rejection, _, _, text)| Page::render(*rejection, text)).collect();
        if let Some(page) = pages.get_mut(Rejection::Method as usize) {
            // RFC 9110 section 15.5.6: a 405 must say what is allowed.
            for response in [&mut page.html, &mut page.json] {
                put(&mut response.head, header::ALLOW, HeaderValue::from_static(ALLOWED));
            }
        }
        if let Some(page) = pages.get_mut(Rejection::UpstreamLimit as usize) {
            // RFC 9110 section 10.2.3: one of those in flight may be done any moment.
            for response in [&mut page.html, &mut page.json] {
                put(&mut response.head, header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
        }
        if let Some(file) = &config.not_found.body_file {
            let body = super::target::read_body(file, "not_found.body_file", source, problems);
            if let (Some(body), Some(page)) = (body, pages.get_mut(Rejection::NoRoute as usize)) {
                page.html = FixedResponse::new(StatusCode::NOT_FOUND, HTML, body);
            }
        }
        Pages { pages }
    }

    /// The page for a rejection, in the form the client asks for.
    pub fn page(&self, rejection: Rejection, headers: &HeaderMap) -> &FixedResponse {
        let page = &self.pages[rejection as usize];
        match () {
            () if grpc::is_call(headers) => &page.grpc,
            () if prefers_json(headers) => &page.json,
            () => &page.html,
        }
    }

    /// A whole HTTP/1.1 response that closes the connection, for requests whose head is not known.
    pub fn wire(&self, rejection: Rejection) -> Vec<u8> {
        let page = &self.pages[rejection as usize].html;
        let mut wire = format!("HTTP/1.1 {}\r\n", page.head.status).into_bytes();
        let headers = page.head.headers.iter().filter(|(_, value)| !value.is_empty());
        for (name, value) in headers {
            wire.extend_from_slice(name.as_str().as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value.as_bytes());
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"connection: close\r\n\r\n");
        wire.extend_from_slice(&page.body);
        wire
    }
}

/// Every method but TRACE and CONNECT is forwarded; these are the ones with a name.
pub const ALLOWED: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH";
const HTML: &str = "text/html; charset=utf-8";
const PROBLEM: &str = "application/problem+json";

impl Page {
    fn render(rejection: Rejection, text: &'static str) -> Self {
        let (status, reason) = (rejection.status(), rejection.reason());
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let title = code.canonical_reason().unwrap_or("Error");
        let html = format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{status} {title}</title>\n\
             <h1>{status} {title}</h1>\n<p>{text}</p>\n</html>\n"
        );
        let json = serde_json::json!({
            "type": "about:blank", "title": title, "status": status, "detail": text, "reason": reason,
        });
        Page {
            html: FixedResponse::new(code, HTML, Bytes::from(html)),
            json: FixedResponse::new(code, PROBLEM, Bytes::from(format!("{json}\n"))),
            grpc: grpc::trailers_only(rejection, text),
        }
    }
}

/// Whether the Accept header names JSON before HTML. Quality values are not weighed: clients that
/// want JSON say so first, browsers say `text/html` first, and curl says `*/*`.
fn prefers_json(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(header::ACCEPT) else { return false };
    let accept = accept.as_bytes();
    match (memchr::memmem::find(accept, b"json"), memchr::memmem::find(accept, b"html")) {
        (Some(json), Some(html)) => json < html,
        (json, _) => json.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_reasons_are_unique() {
        let mut seen = HashSet::new();
        for (index, (rejection, _, reason, _)) in TABLE.iter().enumerate() {
            assert_eq!(*rejection as usize, index, "{reason}");
            assert!(seen.insert(reason), "{reason} twice");
        }
    }

    /// The table an operator searches at night.
    #[test]
    fn the_operations_guide_names_exactly_these_reasons_and_statuses() {
        let guide = include_str!("../../docs/operations.md").lines();
        let guide = guide.skip_while(|line| !line.starts_with("## Trouble")).skip(1);
        let rows = guide.take_while(|line| !line.starts_with("Other")).filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let reason = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            Some((reason, cells.next()?.parse().ok()?))
        });
        let documented: HashSet<(&str, u16)> = rows.collect();
        let given: HashSet<(&str, u16)> =
            TABLE.iter().map(|(_, status, reason, _)| (*reason, *status)).collect();
        assert_eq!(documented, given);
    }

    #[test]
    fn json_is_given_to_those_who_ask_for_it_first() {
        let accept = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, value.parse().expect("value"));
            prefers_json(&headers)
        };
        assert!(accept("application/json"));
        assert!(accept("application/problem+json, text/html;q=0.5"));
        assert!(!accept("text/html,application/xhtml+xml,application/json"));
        assert!(!accept("*/*"));
        assert!(!prefers_json(&HeaderMap::new()));
    }
}
