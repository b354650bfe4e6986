//! What is known of one exchange, from its first hook to its log line.

use super::mirror::Copy;
use super::request_body::RequestBody;
use super::request_id::RequestId;
use super::tunnel;
use super::upstream_deadline::{Late, Line, Watch};
use crate::edge::connection::Connection;
use crate::snapshot::{Cause, ClientCertificate, Fault, Rejection, Route, Snapshot};
use crate::upstream::endpoint::Endpoint;
use crate::upstream::moment::Moment;
use crate::upstream::peer::Timeouts;
use crate::upstream::pool::Pool;
use crate::upstream::state::{InFlight, Slot};
use http::Version;
use prometheus::IntGauge;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// One exchange. Holds its snapshot until it is dropped, so that nothing in it can change.
pub struct Exchange {
    /// The configuration this request lives under.
    pub snapshot: Arc<Snapshot>,
    /// What the door knows of its connection.
    pub connection: Option<Arc<Connection>>,
    /// When the head was complete, by the monotonic clock.
    pub started: Instant,
    /// When the head was complete, by the wall clock.
    pub time: SystemTime,
    /// The real client behind trusted proxies.
    pub client: IpAddr,
    /// Whether the peer may speak for others.
    pub peer_trusted: bool,
    /// What the client speaks.
    pub version: Version,
    /// Whether the client speaks TLS.
    pub secure: bool,
    /// Canonical host, without port; empty when the request names none.
    pub host: String,
    /// The path had an encoded slash, which is a slash now.
    pub slash_decoded: bool,
    /// The route that took it.
    pub route: Option<Arc<Route>>,
    /// Why it was refused or failed.
    pub rejection: Option<Rejection>,
    /// Which of the rejection's causes it was.
    pub rejection_detail: Option<&'static str>,
    /// The rejection whose page was sent.
    pub refused: Option<Rejection>,
    /// The status sent, once a response head was written or given up.
    pub status: u16,
    /// The answer was given to the door in one piece, and so many bytes of its body were taken by the socket.
    pub whole: Option<u64>,
    /// Created or kept when something needs it.
    pub request_id: RequestId,
    /// What the client sends behind its head.
    pub body: RequestBody,
    /// Request body bytes seen.
    pub body_bytes: u64,
    /// The copy of it that is being made.
    pub copy: Option<Box<Copy>>,
    /// What happened towards the upstream.
    pub attempt: Attempts,
    _in_flight: Counted,
}

/// The attempts of one exchange to get a response from its upstream.
#[derive(Default)]
pub struct Attempts {
    /// The pool it goes to.
    pub pool: Option<Arc<Pool>>,
    /// The endpoint tried last.
    pub endpoint: Option<Arc<Endpoint>>,
    /// Endpoints that must not be tried again.
    pub failed: Vec<Arc<Endpoint>>,
    /// There is to be another.
    pub again: bool,
    /// Why there were further ones, for the record.
    reasons: String,
    /// The endpoint of the next one, where it is not to be chosen.
    pub next: Option<Arc<Endpoint>>,
    /// Kept connections are no longer trusted: one was dead.
    pub fresh: bool,
    /// Timeouts of the last one.
    pub timeouts: Option<Timeouts>,
    /// When the client, by its own word, waits no longer.
    pub deadline: Option<Instant>,
    /// How many were made.
    pub count: u32,
    /// When the last one began.
    pub started: Option<Instant>,
    /// When the last piece of the request body was on its way, if there was one.
    pub sent: Option<Instant>,
    /// From the start of the last attempt to its response head, or to its end.
    pub took: Option<Duration>,
    /// The last attempt's response head has arrived.
    pub answered: bool,
    /// Its connection took no whole head, or acknowledged nothing: the upstream cannot be at work on the request.
    pub unsent: bool,
    /// The request asks for an upgrade the upstream may grant.
    pub upgrade: bool,
    /// The upstream has granted it: bytes flow both ways.
    pub tunnel: bool,
    /// The upstream's side of it, until it runs.
    pub granted: Option<tunnel::Upstream>,
    /// Its connection is read ahead of the client: the socket does not say whose turn it is.
    pub read_ahead: bool,
    /// Its connection.
    pub line: Option<Line>,
    /// The deadline of its connection.
    pub watch: Option<Arc<Watch>>,
    /// Its connection was shut because somebody was late.
    pub late: Option<Late>,
    /// Its place among the requests of the upstream, through all attempts.
    pub slot: Option<Slot>,
    in_flight: Option<InFlight>,
}

/// What a failure counts as where endpoints are chosen by latency: one that fails fast is not fast.
const FAILURE: Duration = Duration::from_secs(1);

/// Counts in a gauge for as long as it lives, panics included.
struct Counted(IntGauge);

impl Counted {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Exchange {
    /// Begins an exchange under `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>, in_flight: &IntGauge) -> Self {
        Exchange {
            snapshot,
            connection: None,
            started: Instant::now(),
            time: SystemTime::now(),
            client: IpAddr::from([0, 0, 0, 0]),
            peer_trusted: false,
            version: Version::HTTP_11,
            secure: false,
            host: String::new(),
            slash_decoded: false,
            route: None,
            rejection: None,
            rejection_detail: None,
            refused: None,
            status: 0,
            whole: None,
            request_id: RequestId::default(),
            body: RequestBody::default(),
            body_bytes: 0,
            copy: None,
            attempt: Attempts::default(),
            _in_flight: Counted::new(in_flight),
        }
    }

    /// Notes why it is refused, in place of what was noted before.
    pub fn refuse(&mut self, cause: Cause) {
        self.rejection = Some(cause.rejection);
        self.rejection_detail = cause.detail;
    }

    /// The certificate the client has shown, verified.
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.connection.as_ref()?.tls.as_ref()?.client.as_deref()
    }

    /// `https` when the client speaks TLS: to us, or to the trusted proxy before us.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

impl Attempts {
    /// Begins an attempt on an endpoint of `pool`.
    pub fn begin(&mut self, pool: Arc<Pool>, endpoint: Arc<Endpoint>) {
        self.in_flight = Some(endpoint.state.enter());
        self.pool = Some(pool);
        self.endpoint = Some(endpoint);
        self.count += 1;
        self.started = Some(Instant::now());
        self.sent = None;
        self.answered = false;
        self.unsent = false;
        self.read_ahead = false;
        self.late = None;
    }

    /// There is to be another one, for this reason: a word of the metric.
    pub fn once_more(&mut self, reason: &'static str) {
        self.again = true;
        if let Some(pool) = &self.pool {
            pool.metrics().retry(reason);
        }
        if !self.reasons.is_empty() {
            self.reasons.push(',');
        }
        self.reasons.push_str(reason);
    }

    /// The reasons of all after the first, with commas; `None` when there was one.
    pub fn reasons(&self) -> Option<&str> {
        (!self.reasons.is_empty()).then_some(&*self.reasons)
    }

    /// How many of them count: one that found its connection dead was none.
    pub fn counted(&self) -> u32 {
        self.count.saturating_sub(u32::from(self.fresh))
    }

    /// The attempt's response head has arrived with `status`.
    pub fn answer(&mut self, status: u16) {
        if !self.answered {
            self.answered = true;
            self.finish(status, None);
        }
    }

    /// The attempt is over and its connection may be gone; without a response head, `status` is
    /// what the client would get for it, and `fault` says why. Does nothing when it was over before.
    pub fn end(&mut self, status: u16, fault: Option<Fault>) {
        self.lift_deadline();
        if self.in_flight.take().is_none() {
            return;
        }
        if !self.answered {
            self.finish(status, fault);
        }
    }

    /// The endpoint of this attempt has failed.
    pub fn endpoint_failed(&self) {
        if let (Some(pool), Some(endpoint)) = (&self.pool, &self.endpoint) {
            pool.failed(endpoint);
        }
    }

    /// Lifts the deadline, keeping in mind whether it had passed.
    pub fn lift_deadline(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.late = self.late.or(watch.late());
            if self.late == Some(Late::Upstream) {
                self.judge_timeout();
            }
        }
    }

    /// A wait for the upstream took too long: that is nobody's fault where it had only what was left of the
    /// client's own time.
    pub fn judge_timeout(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.late = Some(Late::Nobody);
        }
    }

    fn finish(&mut self, status: u16, fault: Option<Fault>) {
        if let (Some(pool), Some(endpoint), Some(started)) = (&self.pool, &self.endpoint, self.started) {
            let took = started.elapsed();
            self.took = Some(took);
            pool.metrics().observe(status, took.as_secs_f64());
            // An upload takes as long as the client takes.
            let took = self.sent.map_or(took, |sent| sent.elapsed());
            let took = match (fault, status) {
                (Some(Fault::Upstream), _) | (None, 502..=504) => took.max(FAILURE),
                (None, _) => took,
                // How long it would have taken is not known.
                (Some(Fault::Client | Fault::Gateway | Fault::Nobody), _) => return,
            };
            endpoint.state.latency().observe(Moment::now(), took);
        }
    }
}
