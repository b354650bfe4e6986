//! The engine, for exchanges of HTTP/1 where `proxy.lane` is off.
//!
//! An exchange comes here decided on ([`Engine::take_over`]); the hooks, in the order the engine runs them,
//! call the same functions as `forward`: a hook that gains one gives it to that as well.

use super::context::Exchange;
use super::record::{Ended, Records};
use super::upstream_deadline::Line;
use super::{failure, forwarding, mirror, protocol, retry, upstream};
use crate::snapshot::Rejection;
use crate::upstream::identity;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};
use pingora_core::apps::{HttpServerApp, HttpServerOptions};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use std::any::Any;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// The engine of one worker, with upstream connections of its own.
pub struct Engine(Arc<HttpProxy<Hooks>>);

/// An exchange of HTTP/1 on its way to the first hook. The engine reads the head once more, as the client
/// wrote it, and forgets what was settled about the connection.
struct Reread {
    exchange: Exchange,
    head: RequestHeader,
    keepalive: Option<u64>,
}

/// An exchange of HTTP/2 on its way to the first hook, which takes it. In the head, of which the engine makes copies.
#[derive(Clone)]
struct InHead(Arc<Mutex<Option<Exchange>>>);

impl Engine {
    /// An engine that puts its exchanges on `records`.
    pub fn new(conf: &Arc<ServerConf>, records: Records) -> Self {
        let mut proxy = pingora_proxy::http_proxy(conf, Hooks(records));
        let mut options = HttpServerOptions::default();
        // Intake refuses CONNECT. The engine would do so before any hook: in its own name, and without a
        // record or a count.
        options.allow_connect_method_proxying = true;
        proxy.server_options = Some(options);
        Engine(Arc::new(proxy))
    }

    /// Forwards a request that was decided on, to its record. Gives the connection back if another request
    /// may follow on it.
    pub async fn take_over(&self, mut session: Box<ServerSession>, exchange: Exchange) -> Option<Stream> {
        // A session without one is not the door's.
        let connection = Arc::clone(exchange.connection.as_ref()?);
        match &mut *session {
            ServerSession::H1(http1) => {
                let (head, keepalive) = (http1.req_header().clone(), http1.get_keepalive_timeout());
                http1.set_pipelined_prefix(BytesMut::from(&*http1.get_headers_raw_bytes()));
                http1.set_connection_user_context(Some(Box::new(Reread { exchange, head, keepalive })));
            }
            other => {
                let exchange = InHead(Arc::new(Mutex::new(Some(exchange))));
                other.req_header_mut().extensions_mut().insert(exchange);
            }
        }
        let (stream, _) = self.0.process_new_http(*session, connection.leaving()).await?.consume();
        Some(stream)
    }
}

/// The gateway, as the engine sees it.
struct Hooks(Records);

#[async_trait]
impl ProxyHttp for Hooks {
    type CTX = Exchange;

    /// Stands in until the first hook has the exchange that was begun.
    fn new_ctx(&self) -> Exchange {
        self.0.begin()
    }

    /// None: the engine's compression module would cost a box for every request.
    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    /// Of HTTP/1: the exchange goes on as it came.
    fn on_connection_reuse(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
        before: Box<dyn Any + Send + Sync>,
    ) {
        if let Ok(reread) = before.downcast::<Reread>() {
            *exchange = reread.exchange;
            *session.req_header_mut() = reread.head;
            session.set_keepalive(reread.keepalive);
        }
    }

    /// Of HTTP/2: the exchange goes on as it came.
    async fn early_request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        if let Some(InHead(carried)) = session.req_header_mut().extensions_mut().remove()
            && let Some(carried) = carried.lock().take()
        {
            *exchange = carried;
        }
        match exchange.connection {
            Some(_) => Ok(()),
            // What stands in never saw a request.
            None => upstream::refuse(exchange, Rejection::Internal),
        }
    }

    /// An endpoint of the remembered route.
    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
        upstream::peer(&session.downstream_session, exchange)
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
        digest: Option<&Digest>,
        exchange: &mut Exchange,
    ) -> Result<()> {
        identity::verify(digest.and_then(|digest| digest.ssl_digest.as_deref()))
            .map_err(|error| retry::connect_failed(error, exchange))?;
        upstream::connected(reused, Line::Engine(fd), exchange);
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
        protocol::sending(&mut session.downstream_session, head, exchange).await?;
        mirror::head_sent(&mut session.downstream_session, head, exchange);
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
        retry::answered(&mut session.downstream_session, head, exchange)
    }

    /// The response head: timed, stripped of what concerns only the upstream's connection.
    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        upstream::answered(&mut session.downstream_session, head, exchange)
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
        let rejection = failure::tell(error, &mut session.downstream_session, exchange).await;
        FailToProxy { error_code: rejection.status(), can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _: &Session, _: &Exchange, _: &Error) -> bool {
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
        self.0.end(&Ended::of(&session.downstream_session), error, exchange);
    }
}
