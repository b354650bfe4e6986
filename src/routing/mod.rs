//! Which route takes a request.
//!
//! Generic: a [`Router`] finds a value for a [`RequestView`] and knows nothing of upstreams, filters or
//! responses. [`host`] makes Host canonical, [`rule`] compiles what the operator wrote, `path` and
//! `predicate` are the two halves of a rule, [`router`] holds the order in which rules are tried.

pub mod host;
pub mod router;
pub mod rule;

mod path;
mod predicate;
mod query;
mod text;

pub use router::{Router, Shadowed};
pub use rule::{ClientPredicate, Rule};

use std::net::IpAddr;

/// What a route may look at. Host and path are canonical already.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    /// As [`host::canonical_host`] gives it.
    pub host: &'a str,
    /// Canonical path, or `*`.
    pub path: &'a str,
    /// What stands behind `?`, as written.
    pub query: Option<&'a str>,
    /// The method.
    pub method: &'a http::Method,
    /// The header fields.
    pub headers: &'a http::HeaderMap,
    /// The client address.
    pub client: IpAddr,
    /// The certificate the client has shown, verified.
    pub client_certificate: Option<ClientCertificateView<'a>>,
}

/// What a route may look at of a client's certificate.
#[derive(Debug, Clone, Copy)]
pub struct ClientCertificateView<'a> {
    /// As RFC 4514 writes names.
    pub subject: &'a [u8],
    /// `DNS:…`, `URI:…`, `email:…`.
    pub sans: &'a [String],
    /// SHA-256, lower-case hexadecimal.
    pub fingerprint: &'a [u8],
}
