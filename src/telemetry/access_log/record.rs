//! What is known of a request once it is finished, and the keys it is written under.
//!
//! A record borrows everything and lives for one call. Does not know how it is written.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

/// A finished request.
#[derive(Debug, Clone)]
pub struct AccessRecord<'a> {
    /// When the request arrived.
    pub time: SystemTime,
    /// X-Request-Id.
    pub request_id: &'a str,
    /// Client address: the peer, or whom a trusted proxy named.
    pub client: IpAddr,
    /// The other end of the connection.
    pub peer: Option<SocketAddr>,
    /// Name of the listener.
    pub listener: &'a str,
    /// TLS version; `None` for plain HTTP.
    pub tls: Option<&'a str>,
    /// Method as sent.
    pub method: &'a str,
    /// Host asked for.
    pub host: &'a str,
    /// Path as sent, without query.
    pub path: &'a str,
    /// Query without `?`.
    pub query: Option<&'a str>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: &'static str,
    /// Status answered; 499 when the client went away.
    pub status: u16,
    /// Request body bytes.
    pub bytes_in: u64,
    /// Response body bytes.
    pub bytes_out: u64,
    /// From the first byte of the request to the last of the answer.
    pub duration: Duration,
    /// Name of the upstream.
    pub upstream: Option<&'a str>,
    /// Endpoint that was tried last.
    pub endpoint: Option<&'a str>,
    /// Time the upstream took.
    pub upstream_time: Option<Duration>,
    /// Attempts to reach an endpoint.
    pub attempts: u32,
    /// Why there was more than one attempt: a word for each further one, with commas.
    pub retries: Option<&'a str>,
    /// Name of the route, `none` or `rejected`.
    pub route: &'a str,
    /// Generation of the configuration that decided.
    pub generation: u64,
    /// Why the gateway refused, when it did.
    pub rejection: Option<&'a str>,
    /// Which of the causes of [`AccessRecord::rejection`] it was, where there is more than one.
    pub rejection_detail: Option<&'a str>,
    /// User-Agent as sent.
    pub user_agent: Option<&'a [u8]>,
    /// Referer as sent.
    pub referer: Option<&'a [u8]>,
}

macro_rules! fields {
    ($($field:ident $key:literal)*) => {
        /// A part of a record, named as in the JSON record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Field { $($field),* }

        impl Field {
            /// All of them, in the order of the JSON record.
            pub(super) const ALL: &'static [Field] = &[$(Field::$field),*];
            /// Their keys, in the same order.
            pub(super) const KEYS: &'static [&'static str] = &[$($key),*];
            /// How each one starts in a JSON object if it is text, in the same order.
            pub(super) const JSON_KEYS: &'static [&'static str] = &[$(concat!(",\"", $key, "\":\"")),*];
        }
    };
}

fields! {
    Time "time" RequestId "request_id" Client "client" Peer "peer" Listener "listener" Tls "tls"
    Method "method" Host "host" Path "path" Query "query" Protocol "protocol" Status "status"
    BytesIn "bytes_in" BytesOut "bytes_out" Duration "duration_ms" Upstream "upstream"
    Endpoint "endpoint" UpstreamTime "upstream_ms" Attempts "attempts" Retries "retries"
    Route "route" Generation "generation" Rejection "rejection" RejectionDetail "rejection_detail"
    UserAgent "user_agent" Referer "referer"
}

impl Field {
    /// The field written under `key`.
    pub(super) fn from_key(key: &str) -> Option<Field> {
        Field::KEYS.iter().position(|known| *known == key).and_then(|index| Field::ALL.get(index).copied())
    }

    /// The field that shows the value of a request header (lower-case name).
    pub(super) fn from_header(name: &str) -> Option<Field> {
        match name {
            "user-agent" => Some(Field::UserAgent),
            "referer" => Some(Field::Referer),
            "host" => Some(Field::Host),
            "x-request-id" => Some(Field::RequestId),
            _ => None,
        }
    }

    /// Whether its value is a number, which JSON writes without quotes.
    pub(super) fn is_number(self) -> bool {
        use Field::{Attempts, BytesIn, BytesOut, Duration, Generation, Status, UpstreamTime};
        matches!(self, Status | BytesIn | BytesOut | Duration | UpstreamTime | Attempts | Generation)
    }

    /// Its place in [`Field::ALL`].
    pub(super) fn index(self) -> usize {
        self as usize
    }
}
