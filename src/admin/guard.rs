//! Who may read `/v1`: clients on this machine, and no web page they happen to have open.
//!
//! Three checks. What changes something must not carry an Origin: a web page may send it here though it
//! never learns the answer (Fetch Standard, section 3.2). The peer must be a loopback address. And the Host must be an address or `localhost`:
//! a web page whose own name was re-pointed at 127.0.0.1 (DNS rebinding) sends that name. Knows
//! nothing of tokens.

use super::problem::ProblemDocument;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};

/// The other end of the connection a request came in on.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Runs before every `/v1` handler.
pub async fn local_only(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>();
    if !peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback()) {
        return ProblemDocument::new(StatusCode::FORBIDDEN, "/v1 answers clients on this machine only")
            .hint("ask from the machine the gateway runs on, over a loopback address")
            .into_response();
    }
    if !names_an_address(request.uri(), request.headers()) {
        return ProblemDocument::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host of a request to /v1 must be an IP address or localhost",
        )
        .hint("ask for http://127.0.0.1:7998/v1/…")
        .into_response();
    }
    if !request.method().is_safe() && request.headers().contains_key(header::ORIGIN) {
        return ProblemDocument::new(StatusCode::FORBIDDEN, "a web page cannot change anything here")
            .hint("browsers send Origin; ask with curl or another program")
            .into_response();
    }
    next.run(request).await
}

/// Every name the request gives its target (RFC 9112 section 3.2) must be harmless; HTTP/1.0
/// without any is refused as well.
fn names_an_address(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    host.to_str().is_ok_and(is_address)
        && uri.authority().is_none_or(|authority| is_address(authority.as_str()))
}

/// `127.0.0.1:7998`, `[::1]`, `::1`, `localhost:7998`.
fn is_address(authority: &str) -> bool {
    if authority.parse::<SocketAddr>().is_ok() || authority.parse::<IpAddr>().is_ok() {
        return true;
    }
    if let Some(bracketed) = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return bracketed.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => authority,
    };
    host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_pass() {
        for host in ["127.0.0.1:7998", "127.0.0.1", "[::1]:7998", "[::1]", "localhost", "LOCALHOST:80"] {
            assert!(is_address(host), "{host}");
        }
    }

    #[test]
    fn names_do_not_pass() {
        let names = ["evil.test", "evil.test:7998", "127.0.0.1.evil.test", "localhost.evil.test", "", ":80"];
        for host in names.into_iter().chain(["localhost:evil", "user@127.0.0.1", "[evil]", "0x7f.1"]) {
            assert!(!is_address(host), "{host}");
        }
    }

    #[test]
    fn one_host_and_a_harmless_target_are_needed() {
        let headers = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, header::HeaderValue::from_static(host));
            }
            headers
        };
        let origin_form = Uri::from_static("/v1/status");
        assert!(names_an_address(&origin_form, &headers(&["127.0.0.1"])));
        assert!(!names_an_address(&origin_form, &headers(&[])));
        assert!(!names_an_address(&origin_form, &headers(&["127.0.0.1", "evil.test"])));
        let absolute_form = Uri::from_static("http://evil.test/v1/status");
        assert!(!names_an_address(&absolute_form, &headers(&["127.0.0.1"])));
    }
}
