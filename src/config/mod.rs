//! What the operator wrote: one YAML file, as serde types.
//!
//! Types here end in `Config` (or are the values they are made of), hold what was written and are
//! never used on the request path; [`crate::snapshot`] compiles them. This room knows nothing of
//! the other rooms and nothing of Pingora.

pub mod access;
mod address;
mod balance;
mod bounds;
mod cidr;
mod defaults;
mod each;
mod endpoint_address;
pub mod error;
pub mod file;
pub mod health_check;
pub mod listener;
pub mod load;
pub mod mirror;
pub mod protocol;
mod read;
mod record;
pub mod resolver;
pub mod retry;
pub mod route;
mod source;
mod suggest;
pub mod telemetry;
mod text;
pub mod tls;
mod tree;
pub mod units;
pub mod upstream;
pub mod validate;
pub mod via;
mod workers;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use access::{AccessConfig, Cidr, CidrEntry, DefaultAction, EmptyList, OnDeny};
pub use balance::{BalanceConfig, HashBy};
pub use endpoint_address::EndpointAddress;
pub use error::{Problem, Problems, ValueError};
pub use health_check::{HealthCheckConfig, HealthCheckMethod, HealthCheckType, StatusRange};
pub use listener::{ListenerConfig, ListenerTls, ProxyProtocol};
pub use load::{Loaded, effective, load};
pub use mirror::MirrorConfig;
pub use protocol::UpstreamProtocol;
pub use resolver::ResolverConfig;
pub use retry::{RetryConfig, RetryMethods, RetryOn};
pub use route::{
    ClientCertificateConfig, PathConfig, RedirectConfig, RespondConfig, RouteConfig, TimeoutsConfig,
    ValueMatchConfig,
};
pub use source::Source;
pub use telemetry::{AccessLogConfig, AccessLogFormat, AccessLogOutput, LogConfig, LogFormat, LogLevel};
pub use tls::{CertificateConfig, ClientAuthConfig, ClientAuthMode, TlsConfig, TlsVersion, UnknownNames};
pub use units::{ByteSize, HumanDuration};
pub use upstream::{EjectionConfig, EndpointConfig, StickyConfig, UpstreamConfig, UpstreamProxyProtocol};
pub use upstream::{UpstreamTargetConfig, UpstreamTlsConfig};
pub use via::ViaConfig;
pub use workers::Workers;

/// The whole file. Every field has a default except [`Config::routes`].
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Threads that serve traffic.
    #[serde(default)]
    pub workers: Workers,
    /// Port 7998.
    #[serde(default)]
    pub admin: AdminConfig,
    /// Sockets that accept traffic; at least one.
    #[serde(default = "listener::default_listeners", deserialize_with = "each::list")]
    pub listeners: Vec<ListenerConfig>,
    /// Certificates, chosen by the server names in their own SANs.
    #[serde(default, deserialize_with = "each::list")]
    pub certificates: Vec<CertificateConfig>,
    /// TLS policy of every listener.
    #[serde(default)]
    pub tls: TlsConfig,
    /// CIDR policy for every request, before routing.
    #[serde(default)]
    pub access: AccessConfig,
    /// Where requests go; at least one.
    #[serde(default, deserialize_with = "each::list")]
    pub routes: Vec<RouteConfig>,
    /// Named upstreams.
    #[serde(default, deserialize_with = "each::map")]
    pub upstreams: BTreeMap<String, UpstreamConfig>,
    /// How names of endpoints become addresses.
    #[serde(default)]
    pub resolver: ResolverConfig,
    /// The page for requests no route takes.
    #[serde(default)]
    pub not_found: NotFoundConfig,
    /// Bounds on what a client may send.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// How request paths are made canonical.
    #[serde(default)]
    pub paths: PathsConfig,
    /// How requests are passed on.
    #[serde(default)]
    pub proxy: ProxyConfig,
    /// One record per request.
    #[serde(default)]
    pub access_log: AccessLogConfig,
    /// The process's own log, on stderr.
    #[serde(default)]
    pub log: LogConfig,
    /// How the process leaves.
    #[serde(default)]
    pub shutdown: ShutdownConfig,
}

/// `admin:`, the operators' port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address of `/livez`, `/readyz`, `/metrics` and `/v1`.
    #[serde(deserialize_with = "address::socket")]
    pub address: SocketAddr,
}

impl Default for AdminConfig {
    fn default() -> Self {
        AdminConfig { address: SocketAddr::from(([127, 0, 0, 1], 7998)) }
    }
}

/// `not_found:`, the 404 page.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotFoundConfig {
    /// An HTML file, read when the configuration is compiled; left out: a small built-in page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
}

/// `limits:`, bounds on what a client may send.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Longest request line; above it 414.
    pub request_line: ByteSize,
    /// Largest header block; above it 431.
    pub headers: ByteSize,
    /// Most header fields; above it 431.
    pub header_count: u32,
    /// What becomes of fields that CGI applications take for others.
    pub header_aliases: HeaderAliases,
    /// Longest time a whole header block may take, from its first byte.
    pub header_timeout: HumanDuration,
    /// How long a kept-alive connection may be idle, HTTP/1 and HTTP/2.
    pub idle_timeout: HumanDuration,
    /// Largest request body, 0 = no limit; above it 413.
    pub body: ByteSize,
    /// Longest pause between two reads of a request body; above it 408.
    pub body_idle_timeout: HumanDuration,
    /// Requests served on one connection before it is closed.
    pub requests_per_connection: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig {
            request_line: ByteSize::kib(8),
            headers: ByteSize::kib(32),
            header_count: 100,
            header_aliases: HeaderAliases::Drop,
            header_timeout: HumanDuration::secs(10),
            idle_timeout: HumanDuration::secs(75),
            body: ByteSize(0),
            body_idle_timeout: HumanDuration::secs(60),
            requests_per_connection: 10_000,
        }
    }
}

/// What becomes of fields that CGI applications take for others: names with an underscore, and `Proxy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderAliases {
    /// They are not passed on.
    Drop,
    /// They are.
    Pass,
}

/// `paths:`, how request paths are made canonical before any decision.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathsConfig {
    /// `//` becomes `/`.
    pub merge_slashes: bool,
    /// What happens to `%2F`.
    pub encoded_slash: EncodedSlash,
}

impl Default for PathsConfig {
    fn default() -> Self {
        PathsConfig { merge_slashes: true, encoded_slash: EncodedSlash::Keep }
    }
}

/// What happens to `%2F` in a request path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EncodedSlash {
    /// It stays as written, an opaque part of its segment.
    Keep,
    /// The request is refused with 400.
    Reject,
    /// It becomes `/`: before routing, or, where only the route says so, before the request goes on.
    Decode,
}

/// `proxy:`, how requests are passed on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// Whether simple exchanges take the straight lane.
    pub lane: Lane,
    /// Who the gateway says it is in `Via`.
    pub via: ViaConfig,
}

/// Whether simple exchanges take the straight lane, which costs less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// They do.
    #[default]
    On,
    /// Everything goes through the engine.
    Off,
}

/// `shutdown:`, what TERM and INT do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// Between readiness turning off and the listeners closing, so that load balancers notice.
    pub delay: HumanDuration,
    /// Longest time that running requests get after that.
    pub drain: HumanDuration,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        ShutdownConfig { delay: HumanDuration::secs(0), drain: HumanDuration::secs(30) }
    }
}
