//! One configuration, compiled.
//!
//! A [`Snapshot`] is built completely beside the one that serves ([`compile`]), published by one
//! atomic swap ([`store`]) and pinned by each request from its first hook to its log line, so that
//! no request ever sees two generations. It knows nothing of connections or of the engine's hooks.

pub mod compile;
pub mod grpc;
pub mod rejection;
pub mod store;
pub mod target;
pub mod via;

use crate::access::client_addr::TrustedProxies;
use crate::access::policy::AccessPolicy;
pub use crate::config::EncodedSlash;
use crate::config::{Config, ListenerConfig, Source};
use crate::routing::Router;
use crate::telemetry::access_log::policy::AccessLogPolicy;
use crate::telemetry::metrics::{Metrics, RouteMetrics};
pub use crate::tls::client_certificate::ClientCertificate;
pub use crate::tls::store::CertificateInfo;
use crate::tls::store::CertificateStore;
use crate::tls::tickets::TicketKeys;
use crate::upstream::mirror::Mirror;
use crate::upstream::peer::Timeouts;
use crate::upstream::pool::Pool;
use crate::upstream::pool_name::PoolName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use compile::prepare;
pub use rejection::{Cause, Fault, Pages, Rejection};
pub use store::SnapshotStore;
pub use target::{FixedResponse, Redirect, Target};
pub use via::Via;

/// What every snapshot of a process shares and a compile needs.
#[derive(Clone)]
pub struct Shared {
    /// Where metric handles come from; counters of kept names go on across reloads.
    pub metrics: Arc<Metrics>,
    /// Session ticket keys, so that TLS sessions resume across workers and reloads.
    pub tickets: TicketKeys,
}

/// One configuration, compiled. Immutable once published.
pub struct Snapshot {
    /// 1 for the configuration the process started with, one more for each published reload.
    pub generation: u64,
    /// What was written.
    pub config: Arc<Config>,
    /// Where it was written.
    pub source: Source,
    /// Peers that may name the client.
    pub trusted: TrustedProxies,
    /// The global CIDR policy.
    pub access: AccessPolicy,
    /// Chooses among [`Snapshot::routes`].
    pub router: Router<Arc<Route>>,
    /// All routes, in file order.
    pub routes: Vec<Arc<Route>>,
    /// Every pool, by name.
    pub pools: BTreeMap<PoolName, Arc<Pool>>,
    /// Certificates by server name.
    pub certificates: CertificateStore,
    /// Which requests are logged, and how.
    pub access_log: AccessLogPolicy,
    /// The answers the gateway gives itself when it refuses.
    pub pages: Pages,
    /// Bounds on what a client may send.
    pub limits: Limits,
    /// How paths are made canonical.
    pub paths: Paths,
    /// Whether simple exchanges take the straight lane.
    pub lane: bool,
    /// How the gateway stands in `Via`; `None` where it does not.
    pub via: Option<Via>,
    /// Series for requests no route took.
    pub unrouted: Arc<RouteMetrics>,
    /// Series for requests refused before routing.
    pub rejected: Arc<RouteMetrics>,
}

/// A route, compiled: what its requests get.
pub struct Route {
    /// Metric label and log field.
    pub name: String,
    /// Where its requests go.
    pub target: Target,
    /// What happens to `%2F` in its paths.
    pub encoded_slash: EncodedSlash,
    /// Where copies of its requests go.
    pub mirror: Option<Arc<Mirror>>,
    /// Its own CIDR policy, after the global one.
    pub access: Option<AccessPolicy>,
    /// Upstream timeouts.
    pub timeouts: Timeouts,
    /// How long an upgraded connection may be silent both ways.
    pub websocket_idle: Duration,
    /// Largest request body in bytes; `u64::MAX` = no limit.
    pub body_limit: u64,
    /// Its series.
    pub metrics: Arc<RouteMetrics>,
}

/// Bounds on what a client may send, in the units the request path compares.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the request line.
    pub request_line: usize,
    /// Bytes of the header block.
    pub headers: usize,
    /// Header fields.
    pub header_count: usize,
    /// Names with an underscore, and `Proxy`, go upstream.
    pub header_aliases_pass: bool,
    /// A whole header block, from its first byte.
    pub header_timeout: Duration,
    /// A kept-alive connection without a request.
    pub idle_timeout: Duration,
    /// Between two reads of a request body.
    pub body_idle_timeout: Duration,
    /// Requests on one connection.
    pub requests_per_connection: u32,
}

/// How request paths are made canonical.
#[derive(Debug, Clone, Copy)]
pub struct Paths {
    /// `//` becomes `/`.
    pub merge_slashes: bool,
    /// `%2F` becomes `/` before routing.
    pub decode_slashes: bool,
}

impl Limits {
    /// Seconds the engine may wait for one read of a head. Only for connections that may already hold
    /// bytes of it does it wait for the first one; the deadline of the whole head is the door's, which
    /// also says so to the client and to the log, and must come first.
    pub fn head_read_seconds(&self) -> u64 {
        self.idle_timeout.max(self.header_timeout).as_secs() + 1
    }
}

impl Snapshot {
    /// Idle upstream connections one worker keeps, over all pools.
    pub fn upstream_keepalive(&self) -> usize {
        self.pools.values().map(|pool| pool.config().keepalive as usize).sum::<usize>().max(1)
    }

    /// The listeners as configured, in file order.
    pub fn listeners(&self) -> &[ListenerConfig] {
        &self.config.listeners
    }
}
