//! The request path, phase by phase, in the order the engine runs them.
//!
//! What happens between `request_filter` and `logging` happens on the straight lane too (`lane`), by the same
//! functions: a hook that gains one there gives it to the lane as well.

use super::context::Exchange;
use super::lane::Lane;
use super::{answer, decide, failure, forwarding, http2, intake, mirror, protocol, record, retry, upstream};
use crate::snapshot::{Rejection, SnapshotStore};
use crate::telemetry::access_log::writer::AccessLogWriter;
use crate::telemetry::metrics::Metrics;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// The gateway, as the engine sees it: one for each worker, sharing everything here.
pub struct Gateway {
    /// The configuration that serves.
    pub snapshots: Arc<SnapshotStore>,
    /// Where series are.
    pub metrics: Arc<Metrics>,
    /// Where access records go.
    pub access_log: Arc<AccessLogWriter>,
    /// Forwards what needs no more than it can do.
    pub lane: Lane,
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    /// Pins the snapshot until the exchange is logged.
    fn new_ctx(&self) -> Exchange {
        Exchange::new(self.snapshots.pin(), self.metrics.requests_in_flight())
    }

    /// None: the engine's compression module would cost a box for every request.
    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    /// The head is made canonical or refused. Refusals are answered by the next phase, because an
    /// error here would cost the client its connection.
    async fn early_request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        intake::accept(&mut session.downstream_session, exchange);
        Ok(())
    }

    /// Client address, access, route; then the gateway's own answers, and what is forwarded without the
    /// engine: by the lane, or to upstreams of HTTP/2.
    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        let verdict = decide::decide(session.downstream_session.req_header_mut(), exchange, &self.metrics);
        if answer::give(verdict, &mut session.downstream_session, exchange).await? {
            return Ok(true);
        }
        Ok(self.lane.forward(session, exchange).await? || http2::forward(session, exchange).await?)
    }

    /// An endpoint of the remembered route.
    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
        upstream::peer(session, exchange)
    }

    /// Another endpoint gets a try if there is one.
    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        exchange: &mut Exchange,
        error: Box<Error>,
    ) -> Box<Error> {
        retry::connect_failed(error, exchange)
    }

    async fn connected_to_upstream(
        &self,
        _: &mut Session,
        reused: bool,
        _: &HttpPeer,
        fd: RawFd,
        _: Option<&Digest>,
        exchange: &mut Exchange,
    ) -> Result<()> {
        upstream::connected(reused, fd, exchange);
        Ok(())
    }

    /// After the engine has stripped hop-by-hop headers: what the upstream is told of the client.
    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        head: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        forwarding::set(head, exchange)?;
        protocol::sending(session, head, exchange).await?;
        mirror::head_sent(session, head, exchange);
        Ok(())
    }

    /// Counts the body on its way up; a body over its limit is cut off. At its end, which a request
    /// without a body has at once, the upstream's time begins.
    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        // The engine would write it as the chunk that ends the body, and then end the body.
        if end && body.as_ref().is_some_and(Bytes::is_empty) {
            *body = None;
        }
        upstream::sending(body.as_ref().map_or(0, Bytes::len), end, exchange)?;
        mirror::body_sent(body.as_ref(), end, exchange);
        Ok(())
    }

    /// An answer that another attempt may better is given up for it.
    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        retry::answered(session, head, exchange)
    }

    /// The response head: timed, stripped of what concerns only the upstream's connection.
    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        upstream::answered(session, head, exchange)
    }

    /// Each piece of the response body gives the upstream its time anew.
    fn response_body_filter(
        &self,
        _: &mut Session,
        _: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<Option<Duration>> {
        upstream::body_arrived(end, exchange);
        Ok(None)
    }

    /// Nothing of an answer has been passed on: there may be another attempt.
    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        exchange: &mut Exchange,
        reused: bool,
    ) -> Box<Error> {
        retry::exchange_failed(error, session, exchange, reused)
    }

    /// What the client gets for what went wrong.
    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        exchange: &mut Exchange,
    ) -> FailToProxy {
        let rejection = failure::rejection(error, exchange);
        exchange.rejection = Some(rejection);
        failure::tell_client(rejection, &mut session.downstream_session, exchange).await;
        FailToProxy { error_code: rejection.status(), can_reuse_downstream: false }
    }

    /// The access record says it; a client must not be able to fill the process log.
    fn suppress_error_log(&self, _: &Session, exchange: &Exchange, error: &Error) -> bool {
        if exchange.rejection != Some(Rejection::ClientClosed) {
            log::debug!("exchange failed: {error}");
        }
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Exchange,
        _: &Error,
        _: pingora_proxy::ProxyWarnLogContext,
    ) -> bool {
        true
    }

    /// One access record, every metric once.
    async fn logging(&self, session: &mut Session, error: Option<&Error>, exchange: &mut Exchange) {
        record::write(&session.downstream_session, error, exchange, &self.metrics, &self.access_log);
        exchange.end_on_connection();
    }
}
