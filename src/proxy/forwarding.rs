//! What the upstream is told about the client.
//!
//! X-Forwarded-For, -Proto, -Host, Forwarded (RFC 7239) and X-Request-Id are set after everything
//! a client could do to them. What an untrusted peer says in them is dropped; a trusted proxy's
//! chain is kept and continued. X-Client-Cert-Subject, -San and -Fingerprint say which certificate our
//! own handshake verified; what anybody else says in them is dropped.

use super::context::Exchange;
use crate::edge::connection::Connection;
use crate::snapshot::Rejection;
use http::{HeaderName, HeaderValue, Uri, header};
use pingora::http::RequestHeader;
use pingora::{ErrorType, OrErr, Result};

// Written as they are sent. As text, because the engine copies the name of a `HeaderName` it does not know to
// remember how it is written.
const X_FORWARDED_FOR: &str = "x-forwarded-for";
const X_FORWARDED_PROTO: &str = "x-forwarded-proto";
const X_FORWARDED_HOST: &str = "x-forwarded-host";
const X_REQUEST_ID: &str = "x-request-id";
const X_REAL_IP: &str = "x-real-ip";
const X_CLIENT_CERT_SUBJECT: &str = "x-client-cert-subject";
const X_CLIENT_CERT_SAN: &str = "x-client-cert-san";
const X_CLIENT_CERT_FINGERPRINT: &str = "x-client-cert-fingerprint";
const PROXY: &str = "proxy";
const FORWARDED: &str = "forwarded";
const VIA: &str = "via";

/// Fields whose meaning is the gateway's to give; `Forwarded` has no alias.
const OWN: [&str; 5] = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_REQUEST_ID, X_REAL_IP];

/// Fields that say where a request ends, and for whom it is.
const FRAMING: [&str; 3] = ["transfer-encoding", "content-length", "host"];

/// Fields that end with the client's connection.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What the upstream is told: fields, each in place of whatever the client has written under its name.
pub(super) struct Told {
    /// Names are in lower case.
    pub(super) fields: Vec<(&'static str, HeaderValue)>,
    peer_trusted: bool,
    aliases_pass: bool,
}

impl Told {
    /// What there is to tell with `head`, a request for `host`.
    ///
    /// # Errors
    /// None in practice: every value is one we made or already was a header value.
    pub(super) fn new(
        head: &RequestHeader,
        host: Option<&HeaderValue>,
        exchange: &mut Exchange,
    ) -> Result<Self> {
        let peer_trusted = exchange.peer_trusted;
        let aliases_pass = exchange.snapshot.limits.header_aliases_pass;
        let mut told = Told { fields: Vec::with_capacity(8), peer_trusted, aliases_pass };
        let Some(connection) = exchange.connection.clone() else { return Ok(told) };
        let scheme = exchange.scheme();
        told.certificate(exchange);
        let forwarded = forwarded(&connection, host, scheme);
        let kept = |name| peer_trusted && head.headers.contains_key(name);
        if peer_trusted {
            told.set(X_FORWARDED_FOR, extended(head, X_FORWARDED_FOR, connection.peer_value.as_bytes())?);
            told.set(FORWARDED, extended(head, FORWARDED, &forwarded)?);
        } else {
            told.set(X_FORWARDED_FOR, connection.peer_value.clone());
            told.set(FORWARDED, value(forwarded)?);
        }
        if !kept(X_FORWARDED_PROTO) {
            told.set(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
        }
        if let (Some(host), false) = (host, kept(X_FORWARDED_HOST)) {
            told.set(X_FORWARDED_HOST, host.clone());
        }
        told.set(X_REQUEST_ID, exchange.request_id.value());
        told.via(head, exchange)?;
        Ok(told)
    }

    /// Which way the request has come (RFC 9110 section 7.6.3), whoever says so.
    fn via(&mut self, head: &RequestHeader, exchange: &Exchange) -> Result<()> {
        let Some(via) = &exchange.snapshot.via else { return Ok(()) };
        let entry = via.entry(exchange.version);
        let entry = match head.headers.contains_key(header::VIA) {
            true => extended(head, VIA, entry.as_bytes())?,
            false => entry.clone(),
        };
        self.set(VIA, entry);
        Ok(())
    }

    fn set(&mut self, name: &'static str, value: HeaderValue) {
        self.fields.push((name, value));
    }

    /// Which certificate the client has shown, and nothing when it has shown none.
    fn certificate(&mut self, exchange: &Exchange) {
        let Some(client) = exchange.client_certificate() else { return };
        self.set(X_CLIENT_CERT_SUBJECT, client.subject.clone());
        if !client.san_list.is_empty() {
            self.set(X_CLIENT_CERT_SAN, client.san_list.clone());
        }
        self.set(X_CLIENT_CERT_FINGERPRINT, client.fingerprint.clone());
    }

    /// Whether one of the fields has this name.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.fields.iter().any(|(own, _)| *own == name)
    }

    /// Whether what the client has written under this name is not passed on.
    ///
    /// That is `X_Forwarded_For`, `X.Request.Id` and their like: CGI, WSGI and Rack applications see the
    /// same variable for them as for the fields set here; those of the fields that frame a request go for
    /// the same reason. From an untrusted peer everything named `X-Forwarded-…` goes (Port, Prefix, Ssl and
    /// so on), and X-Real-IP: frameworks believe them, and nobody we trust has set them.
    /// `X-Client-Cert-…` goes whoever the peer is: a trusted proxy that does not know these fields passes
    /// on what its client wrote. Any other name with an underscore is dropped unless aliases may pass, because the
    /// same applications see the field with a hyphen in it, which the upstream may trust; and Proxy, which they see
    /// as the proxy to go out by (CVE-2016-5385).
    pub(super) fn drops(&self, name: &str) -> bool {
        let dropped = match has_alias_byte(name) {
            true => is_alias(name) || (!self.aliases_pass && name.contains('_')),
            false => !self.aliases_pass && name == PROXY,
        };
        dropped
            || reads_as_prefix(name, "x-client-cert-")
            || (!self.peer_trusted && (name == X_REAL_IP || reads_as_prefix(name, "x-forwarded-")))
    }
}

/// Sets the forwarding headers of a request that goes upstream.
///
/// # Errors
/// None in practice: every value is one we made or already was a header value.
pub fn set(head: &mut RequestHeader, exchange: &mut Exchange) -> Result<()> {
    let host = head.headers.get(header::HOST).cloned();
    let told = Told::new(head, host.as_ref(), exchange)?;
    if host.is_none() {
        head.insert_header(header::HOST, endpoint_host(exchange))?;
    }
    let dropped = |name: &&HeaderName| told.drops(name.as_str()) && !told.sets(name.as_str());
    let dropped: Vec<HeaderName> = head.headers.keys().filter(dropped).cloned().collect();
    for name in &dropped {
        head.remove_header(name);
    }
    for (name, value) in told.fields {
        head.insert_header(name, value)?;
    }
    Ok(())
}

/// Fields that concern only the client's connection (RFC 9110 section 7.6.1), and what Connection names;
/// intake has left nothing there that must not be named.
pub(super) struct HopByHop<'a>(Option<&'a HeaderValue>);

impl<'a> HopByHop<'a> {
    /// Those of a request.
    pub(super) fn of(head: &'a RequestHeader) -> Self {
        HopByHop(head.headers.get(header::CONNECTION))
    }

    /// Whether this is one of them.
    pub(super) fn has(&self, name: &HeaderName) -> bool {
        let mut nominated = self.0.map_or(&b""[..], HeaderValue::as_bytes).split(|byte| *byte == b',');
        HOP_BY_HOP.contains(name)
            || nominated.any(|token| token.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    }
}

/// Removes what ends here. What the engine does by itself before [`set`], for those who forward without it;
/// a chunked body has to be said again, and an upgrade would need more.
pub fn strip_hop_by_hop(head: &mut RequestHeader) {
    let hop_by_hop = HopByHop::of(head);
    let stripped: Vec<HeaderName> =
        head.headers.keys().filter(|name| hop_by_hop.has(name)).cloned().collect();
    for name in &stripped {
        head.remove_header(name);
    }
}

/// Gives a request of HTTP/2 the Host that its `:authority` is in HTTP/1 (RFC 9113 section 8.3.1); intake has
/// seen to it that they agree where there are both.
///
/// # Errors
/// When an authority is no header value, which intake refuses.
pub fn name_host(head: &mut RequestHeader) -> Result<()> {
    match authority(head)? {
        Some(host) => head.insert_header(header::HOST, host),
        None => Ok(()),
    }
}

/// Host for a request that came without one, as HTTP/1.0 allows: the endpoint's own address (RFC 9112 section 3.2).
pub(super) fn endpoint_host(exchange: &Exchange) -> HeaderValue {
    let endpoint = exchange.attempt.endpoint.as_ref();
    let label = endpoint.map(|endpoint| &*endpoint.label).filter(|label| !label.starts_with('/'));
    let host = label.and_then(|label| HeaderValue::from_str(label).ok());
    // A Unix socket has no name.
    host.unwrap_or_else(|| HeaderValue::from_static("localhost"))
}

/// The `:authority` of a request of HTTP/2.
///
/// # Errors
/// When it is no header value, which intake refuses.
pub(super) fn authority(head: &RequestHeader) -> Result<Option<HeaderValue>> {
    let Some(authority) = head.uri.authority() else { return Ok(None) };
    let host = HeaderValue::from_str(authority.as_str());
    Ok(Some(host.or_err(ErrorType::InvalidHTTPHeader, "an authority")?))
}

/// The other way round, for an upstream of HTTP/2: Host becomes `:authority` (RFC 9113 section 8.3.1).
///
/// # Errors
/// When there is no Host, or no URI can be made of it.
pub fn address(head: &mut RequestHeader, tls: bool) -> std::result::Result<(), Rejection> {
    let host = head.remove_header(&header::HOST).ok_or(Rejection::Host)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let uri = Uri::builder().scheme(if tls { "https" } else { "http" }).authority(host.as_bytes());
    head.set_uri(uri.path_and_query(target).build().map_err(|_| Rejection::Target)?);
    Ok(())
}

/// Whether the name begins with `prefix` where `_` and `.` read as `-`.
fn reads_as_prefix(name: &str, prefix: &str) -> bool {
    let reads_as = |(own, is): (u8, u8)| own == is || (own == b'-' && matches!(is, b'_' | b'.'));
    name.len() >= prefix.len() && prefix.bytes().zip(name.bytes()).all(reads_as)
}

fn has_alias_byte(name: &str) -> bool {
    memchr::memchr2(b'_', b'.', name.as_bytes()).is_some()
}

/// Of a name that [has such a byte](has_alias_byte): whether it is one of our own otherwise.
fn is_alias(name: &str) -> bool {
    has_alias_byte(name)
        && OWN.iter().chain(&FRAMING).any(|own| own.len() == name.len() && reads_as_prefix(name, own))
}

/// A list header with one more element, whatever number of lines it came in.
fn extended(head: &RequestHeader, name: &'static str, element: &[u8]) -> Result<HeaderValue> {
    let mut list = Vec::with_capacity(128);
    for line in head.headers.get_all(name) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element);
    value(list)
}

fn value(bytes: Vec<u8>) -> Result<HeaderValue> {
    HeaderValue::try_from(bytes).or_err(ErrorType::InvalidHTTPHeader, "a forwarding header")
}

/// One element of Forwarded (RFC 7239 section 4).
fn forwarded(connection: &Connection, host: Option<&HeaderValue>, scheme: &str) -> Vec<u8> {
    let (open, close) = if connection.peer.is_ipv4() { ("for=", "") } else { ("for=\"[", "]\"") };
    let quotable = |byte: &u8| matches!(byte, b'\t' | 32..=126) && !matches!(byte, b'"' | b'\\');
    let host = host.map(HeaderValue::as_bytes).filter(|host| host.iter().all(quotable));
    let (before, host, after) = host.map_or(("", &b""[..], ""), |host| (";host=\"", host, "\""));
    let parts = [
        open.as_bytes(),
        connection.peer_value.as_bytes(),
        close.as_bytes(),
        before.as_bytes(),
        host,
        after.as_bytes(),
        b";proto=",
        scheme.as_bytes(),
    ];
    // One allocation, of the right size.
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untrusted_peer_claims_nothing() {
        let received = |peer_trusted, aliases_pass| {
            let mut head = RequestHeader::build("GET", b"/", None).expect("a head");
            for name in [
                "X-Forwarded-Port",
                "x_forwarded_prefix",
                "X.Forwarded.Proto",
                "X-Forwarded-For",
                "X-Client-Cert-Subject",
                "x_client.cert_san",
                "X-Other",
                "X_Other",
                "X.Other",
                "Proxy",
            ] {
                head.insert_header(name, "1").expect("a field");
            }
            let told = Told { fields: Vec::new(), peer_trusted, aliases_pass };
            let kept = head.headers.keys().filter(|name| !told.drops(name.as_str()));
            let mut names: Vec<String> = kept.map(HeaderName::to_string).collect();
            names.sort();
            names
        };
        assert_eq!(received(false, false), ["x-other", "x.other"]);
        assert_eq!(received(true, false), ["x-forwarded-for", "x-forwarded-port", "x-other", "x.other"]);
        assert_eq!(received(false, true), ["proxy", "x-other", "x.other", "x_other"]);
        assert!(received(true, true).contains(&"x_forwarded_prefix".to_owned()));
    }

    #[test]
    fn other_spellings_of_our_own_fields_are_aliases() {
        for alias in [
            "x_forwarded_for",
            "x-forwarded_for",
            "x.forwarded.for",
            "x_request_id",
            "x-real.ip",
            "transfer_encoding",
            "content.length",
        ] {
            assert!(is_alias(alias), "{alias}");
        }
        for other in ["x-forwarded-for", "x_forwarded_form", "x_other", "accept", "forwarded"] {
            assert!(!is_alias(other), "{other}");
        }
    }
}
