//! What a route does with its requests: send them on, redirect, or answer.
//!
//! Answers are rendered here once; a request clones the head at most.

use crate::config::{Problems, RedirectConfig, RespondConfig, Source, file};
use crate::upstream::split::Split;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use pingora::http::ResponseHeader;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a route's requests go.
pub enum Target {
    /// To an endpoint of one of these pools.
    Upstream(Split),
    /// Back to the client with a Location.
    Redirect(Redirect),
    /// Back to the client with a fixed response.
    Respond(FixedResponse),
}

impl Target {
    /// The word the admin API uses for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Upstream(_) => "upstream",
            Target::Redirect(_) => "redirect",
            Target::Respond(_) => "respond",
        }
    }
}

/// A response rendered at compile. The head carries content-length, and has room for the date and
/// connection headers the engine puts in: empty ones it replaces, because a head that grows is
/// allocated twice.
pub struct FixedResponse {
    /// No other response of the process has it.
    pub id: u64,
    /// Status and headers.
    pub head: ResponseHeader,
    /// The whole body.
    pub body: Bytes,
}

impl FixedResponse {
    /// A body of one type.
    pub fn new(status: StatusCode, content_type: &'static str, body: Bytes) -> Self {
        let mut head = bare_head(status);
        put(&mut head, http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        put(&mut head, http::header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        FixedResponse::of(with_room(head), body)
    }

    /// A head that is sent as it is.
    pub(super) fn of(head: ResponseHeader, body: Bytes) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        FixedResponse { id: NEXT.fetch_add(1, Relaxed), head, body }
    }

    /// What `respond:` at `path` stands for; an unreadable body file is a problem.
    pub fn compile(
        config: &RespondConfig,
        source: &Source,
        path: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let body = match (&config.body, &config.body_file) {
            (_, Some(file)) => read_body(file, &format!("{path}.body_file"), source, problems)?,
            (Some(text), None) => Bytes::from(text.clone().into_bytes()),
            (None, None) => Bytes::new(),
        };
        let Ok(status) = StatusCode::from_u16(config.status) else {
            problems.push(source.problem(format!("{path}.status"), "not an HTTP status"));
            return None;
        };
        let mut head = bare_head(status);
        for (name, value) in &config.headers {
            match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str())) {
                (Ok(name), Ok(value)) => put(&mut head, name, value),
                _ => problems.push(
                    source.problem(format!("{path}.headers.{name}"), "not a valid header name or value"),
                ),
            }
        }
        // RFC 9110 section 8.6: a 204 must not carry Content-Length.
        if status != StatusCode::NO_CONTENT {
            put(&mut head, http::header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        Some(FixedResponse::of(with_room(head), body))
    }
}

/// `redirect:` with its template taken apart.
pub struct Redirect {
    status: StatusCode,
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Scheme,
    Host,
    Authority,
    Path,
    Query,
    PathAndQuery,
}

/// What a redirect template can speak of.
#[derive(Debug, Clone, Copy)]
pub struct RedirectView<'a> {
    /// `http` or `https`, as the client sees it.
    pub scheme: &'a str,
    /// Host without port.
    pub host: &'a str,
    /// Host with the port the client named, if any.
    pub authority: &'a str,
    /// Canonical path.
    pub path: &'a str,
    /// Without the question mark.
    pub query: Option<&'a str>,
}

impl Redirect {
    /// The redirect of plain HTTP to the same URL under https. The port stays: it speaks both.
    pub fn to_https() -> Self {
        let parts = vec![Part::Text("https://".to_owned()), Part::Authority, Part::PathAndQuery];
        Redirect { status: StatusCode::PERMANENT_REDIRECT, parts }
    }

    /// What `redirect:` stands for; validation has checked status and placeholders.
    pub fn compile(config: &RedirectConfig) -> Self {
        let status = StatusCode::from_u16(config.status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
        Redirect { status, parts: parse_template(&config.to) }
    }

    /// The response for one request. `None` when the Location would not be a valid header value.
    pub fn render(&self, view: RedirectView<'_>) -> Option<ResponseHeader> {
        let mut location = String::with_capacity(128);
        for part in &self.parts {
            match part {
                Part::Text(text) => location.push_str(text),
                Part::Scheme => location.push_str(view.scheme),
                Part::Host => location.push_str(view.host),
                Part::Authority => location.push_str(view.authority),
                Part::Path => location.push_str(view.path),
                Part::Query => location.push_str(view.query.unwrap_or("")),
                Part::PathAndQuery => {
                    location.push_str(view.path);
                    if let Some(query) = view.query {
                        location.push('?');
                        location.push_str(query);
                    }
                }
            }
        }
        let mut head = bare_head(self.status);
        put(&mut head, http::header::LOCATION, HeaderValue::try_from(location).ok()?);
        put(&mut head, http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        Some(head)
    }
}

fn parse_template(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (text, tail) = rest.split_at(open);
        let known = [
            ("{scheme}", Part::Scheme),
            ("{host}", Part::Host),
            ("{path}", Part::Path),
            ("{query}", Part::Query),
            ("{path_and_query}", Part::PathAndQuery),
        ];
        let (token, part) = known
            .into_iter()
            .find(|(token, _)| tail.starts_with(token))
            .unwrap_or(("{", Part::Text("{".to_owned())));
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(part);
        rest = &tail[token.len()..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    parts
}

/// Largest body file taken into memory, in MiB.
const MAX_BODY_MEBIBYTES: u64 = 16;

/// Reads a body file; what goes wrong is a problem at `path`.
pub(super) fn read_body(
    file: &std::path::Path,
    path: &str,
    source: &Source,
    problems: &mut Problems,
) -> Option<Bytes> {
    match file::read(&source.resolve(file), MAX_BODY_MEBIBYTES) {
        Ok(bytes) => Some(Bytes::from(bytes)),
        Err(reason) => {
            problems.push(source.problem(path, reason));
            None
        }
    }
}

pub(super) fn bare_head(status: StatusCode) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    ResponseHeader::from(parts)
}

fn with_room(mut head: ResponseHeader) -> ResponseHeader {
    put(&mut head, http::header::DATE, HeaderValue::from_static(""));
    put(&mut head, http::header::CONNECTION, HeaderValue::from_static(""));
    head
}

pub(super) fn put(head: &mut ResponseHeader, name: HeaderName, value: HeaderValue) {
    // Typed name and value: cannot fail.
    let _ = head.append_header(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(to: &str) -> String {
        let redirect = Redirect::compile(&RedirectConfig { to: to.to_owned(), status: 301 });
        let view = RedirectView {
            scheme: "http",
            host: "app.test",
            authority: "app.test:81",
            path: "/a",
            query: Some("b=1"),
        };
        let head = redirect.render(view).expect("renders");
        head.headers["location"].to_str().expect("text").to_owned()
    }

    #[test]
    fn placeholders_are_filled() {
        assert_eq!(location("https://{host}{path_and_query}"), "https://app.test/a?b=1");
        assert_eq!(location("{scheme}://x{path}?{query}&c"), "http://x/a?b=1&c");
    }

    #[test]
    fn unknown_braces_stay_text() {
        assert_eq!(location("/{who}/{host}"), "/{who}/app.test");
    }
}
