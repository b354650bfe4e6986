//! Who asks, whether they may, and which route takes it: in this order, for every request,
//! upgrade requests included.

use super::context::Exchange;
use super::intake::{declared_length, rewrite_path};
use super::request_target::{TargetError, TargetRules, canonical_path, has_encoded_slash};
use crate::access::policy::{AccessPolicy, Decision, DenyReason};
use crate::config::OnDeny;
use crate::routing::{ClientCertificateView, RequestView};
use crate::snapshot::rejection::ALLOWED;
use crate::snapshot::target::RedirectView;
use crate::snapshot::{Cause, EncodedSlash, FixedResponse, Redirect, Rejection, Route, Target};
use crate::telemetry::metrics::Metrics;
use http::{HeaderValue, Method, StatusCode, header};
use pingora::http::{RequestHeader, ResponseHeader};
use std::sync::{Arc, LazyLock};

/// What `request_filter` does with a request.
pub enum Verdict {
    /// It goes to the route's upstream.
    Forward,
    /// The gateway answers: the route's own response.
    Respond(Arc<Route>),
    /// The gateway answers with a head alone, such as a redirect.
    Head(Box<ResponseHeader>),
    /// The gateway refuses with the page of a rejection.
    Reject(Rejection),
    /// The connection is closed without an answer.
    Close,
}

static TO_HTTPS: LazyLock<Redirect> = LazyLock::new(Redirect::to_https);

/// Decides; notes client, route and rejection in the exchange.
pub fn decide(head: &mut RequestHeader, exchange: &mut Exchange, metrics: &Metrics) -> Verdict {
    let verdict = evaluate(head, exchange, metrics);
    if let Verdict::Reject(rejection) = verdict {
        exchange.rejection = Some(rejection);
    }
    verdict
}

fn evaluate(head: &mut RequestHeader, exchange: &mut Exchange, metrics: &Metrics) -> Verdict {
    identify_client(head, exchange);
    if let Some(denied) = deny(&exchange.snapshot.access, exchange, "global", metrics) {
        return refuse(denied, exchange);
    }
    if let Some(rejection) = exchange.rejection {
        return Verdict::Reject(rejection);
    }
    if must_be_https(exchange) {
        return redirect(&TO_HTTPS, head, exchange);
    }
    if is_misdirected(exchange) {
        return Verdict::Reject(Rejection::Misdirected);
    }
    let snapshot = Arc::clone(&exchange.snapshot);
    let route = snapshot.router.find(&view(head, head.uri.path(), exchange));
    let Some(route) = route else { return Verdict::Reject(Rejection::NoRoute) };
    exchange.route = Some(Arc::clone(route));
    if let Some(access) = &route.access
        && let Some(denied) = deny(access, exchange, "route", metrics)
    {
        return refuse(denied, exchange);
    }
    if route.encoded_slash != EncodedSlash::Keep
        && let Err(cause) = settle_encoded_slashes(route, head, exchange)
    {
        exchange.refuse(cause);
        return Verdict::Reject(cause.rejection);
    }
    match &route.target {
        // A length that is already known to be too much is refused before anything is sent on.
        Target::Upstream(_) if declared_length(head) > route.body_limit => {
            Verdict::Reject(Rejection::BodyTooLarge)
        }
        Target::Upstream(_) => last_hop(head).unwrap_or(Verdict::Forward),
        Target::Respond(_) => Verdict::Respond(Arc::clone(route)),
        Target::Redirect(to) => redirect(to, head, exchange),
    }
}

/// What routes may look at of a request, if it had this path.
fn view<'a>(head: &'a RequestHeader, path: &'a str, exchange: &'a Exchange) -> RequestView<'a> {
    RequestView {
        host: &exchange.host,
        path,
        query: head.uri.query(),
        method: &head.method,
        headers: &head.headers,
        client: exchange.client,
        client_certificate: exchange.client_certificate().map(|certificate| ClientCertificateView {
            subject: certificate.subject.as_bytes(),
            sans: &certificate.sans,
            fingerprint: certificate.fingerprint.as_bytes(),
        }),
    }
}

/// What a route that does not keep encoded slashes does with them. A decoded path must still be this
/// route's: else it would be a way around the access rules of another.
fn settle_encoded_slashes(
    route: &Arc<Route>,
    head: &mut RequestHeader,
    exchange: &Exchange,
) -> Result<(), Cause> {
    let encoded = has_encoded_slash(head.uri.path());
    if route.encoded_slash == EncodedSlash::Reject {
        let had = encoded || exchange.slash_decoded;
        return if had { Err(TargetError::EncodedSlash.into()) } else { Ok(()) };
    }
    if !encoded {
        return Ok(());
    }
    let rules = TargetRules { merge_slashes: exchange.snapshot.paths.merge_slashes, decode_slashes: true };
    let path = canonical_path(head.uri.path(), &rules)?.into_owned();
    match exchange.snapshot.router.find(&view(head, &path, exchange)) {
        Some(same) if Arc::ptr_eq(same, route) => rewrite_path(head, path),
        _ => Err(TargetError::OtherRoute.into()),
    }
}

fn identify_client(head: &RequestHeader, exchange: &mut Exchange) {
    let peer = exchange.client;
    exchange.peer_trusted = exchange.snapshot.trusted.is_trusted(peer);
    if exchange.peer_trusted {
        exchange.client = exchange.snapshot.trusted.client_addr(peer, &head.headers);
        if let Some(id) = head.headers.get("x-request-id") {
            exchange.request_id.keep(id);
        }
        // A proxy that ended the client's TLS would be redirected to https for ever. Of several words,
        // which nobody agrees on, none is believed.
        match head.headers.get("x-forwarded-proto").map(|scheme| scheme.as_bytes()) {
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => exchange.secure = true,
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => exchange.secure = false,
            _ => {}
        }
    }
}

fn deny(
    policy: &AccessPolicy,
    exchange: &Exchange,
    scope: &'static str,
    metrics: &Metrics,
) -> Option<(OnDeny, DenyReason)> {
    if policy.is_open() {
        return None;
    }
    match policy.decide(exchange.client) {
        Decision::Allow => None,
        Decision::Deny(reason) => {
            metrics.access_denied(scope, reason.as_str());
            Some((policy.on_deny(), reason))
        }
    }
}

fn refuse((on_deny, reason): (OnDeny, DenyReason), exchange: &mut Exchange) -> Verdict {
    exchange.refuse(Rejection::AccessDenied.because(reason.as_str()));
    match on_deny {
        OnDeny::Respond => Verdict::Reject(Rejection::AccessDenied),
        OnDeny::Close => Verdict::Close,
    }
}

/// A client that looks for where its requests go (RFC 9110 section 7.6.2): one hop less, or an answer from here.
/// TRACE, the other method it is for, is never forwarded.
fn last_hop(head: &mut RequestHeader) -> Option<Verdict> {
    if head.method != Method::OPTIONS {
        return None;
    }
    let left: u64 = head.headers.get(header::MAX_FORWARDS)?.to_str().ok()?.parse().ok()?;
    match left.checked_sub(1) {
        Some(less) => {
            head.insert_header(header::MAX_FORWARDS, HeaderValue::from(less)).err().map(|_| Verdict::Close)
        }
        None => Some(Verdict::Head(Box::new(here()?))),
    }
}

/// What this gateway says of itself.
fn here() -> Option<ResponseHeader> {
    let mut head = ResponseHeader::build(StatusCode::OK, Some(2)).ok()?;
    head.insert_header(header::ALLOW, ALLOWED).ok()?;
    head.insert_header(header::CONTENT_LENGTH, "0").ok()?;
    Some(head)
}

fn must_be_https(exchange: &Exchange) -> bool {
    !exchange.secure
        && exchange.connection.as_ref().is_some_and(|connection| connection.listener.redirect_http)
}

/// Whether the host demands another kind of connection than the one its request came on.
fn is_misdirected(exchange: &Exchange) -> bool {
    let tls = exchange.connection.as_ref().and_then(|connection| connection.tls.as_ref());
    !exchange.snapshot.certificates.demands().allow(&exchange.host, tls.map(|tls| &tls.settled))
}

fn redirect(to: &Redirect, head: &RequestHeader, exchange: &Exchange) -> Verdict {
    let view = RedirectView {
        scheme: exchange.scheme(),
        host: &exchange.host,
        authority: authority(head).unwrap_or(&exchange.host),
        path: head.uri.path(),
        query: head.uri.query(),
    };
    match to.render(view) {
        Some(head) => Verdict::Head(Box::new(head)),
        None => Verdict::Reject(Rejection::Target),
    }
}

/// Host and port as the client named them.
fn authority(head: &RequestHeader) -> Option<&str> {
    match head.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => head.headers.get(http::header::HOST)?.to_str().ok(),
    }
}

/// The response of a `respond:` route.
pub fn fixed(route: &Route) -> Option<&FixedResponse> {
    match &route.target {
        Target::Respond(response) => Some(response),
        _ => None,
    }
}
