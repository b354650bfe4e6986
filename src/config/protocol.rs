//! `protocol:` of an upstream: what is spoken to its endpoints.

use serde::{Deserialize, Serialize};

/// The version of HTTP an upstream is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 over TLS, and nothing else.
    Http2,
    /// HTTP/2 without TLS, with prior knowledge (RFC 9113 section 3.3).
    H2c,
    /// HTTP/2 where the endpoint chooses it in the TLS handshake, else HTTP/1.1.
    Auto,
}

impl UpstreamProtocol {
    /// Whether requests may share a connection.
    pub fn may_multiplex(self) -> bool {
        self != UpstreamProtocol::Http1
    }
}
