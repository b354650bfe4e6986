//! The life of an HTTP connection: requests one after the other, or many at once.

use super::connection::Connection;
use super::http2;
use super::idle::{Wait, Waited};
use super::refusal::{self, Refusals};
use super::stream::EdgeStream;
use crate::snapshot::{Limits, SnapshotStore};
use pingora::{Error, ErrorType};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::{ALPN, Shutdown, Ssl, Stream};
use pingora_core::server::ShutdownWatch;
use std::future::Future;
use std::sync::Arc;

/// What the door leads to.
pub trait Application: Send + Sync + 'static {
    /// Serves the request whose head `session` has read. Gives the connection back if another request may
    /// follow on it, which with HTTP/2 is not its business.
    fn serve(&self, session: Box<ServerSession>) -> impl Future<Output = Option<Stream>> + Send;
}

/// Serves a connection until it ends.
pub async fn serve<A: Application>(
    app: &Arc<A>,
    stream: Box<EdgeStream>,
    wait: Wait,
    refusals: &Refusals,
    leaving: &ShutdownWatch,
) {
    if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
        // Far larger than what a connection of HTTP/1 needs of its task.
        Box::pin(http2::serve(app, stream, refusals, leaving)).await;
    } else {
        serve_http1(&**app, stream, wait, &refusals.snapshots).await;
    }
}

/// Waits for each request with nothing but the stream, takes the idle timeout of the configuration that
/// serves at that moment, and keeps a connection whose last exchange failed if its client was answered
/// in full.
async fn serve_http1<A: Application>(
    app: &A,
    mut stream: Box<EdgeStream>,
    mut wait: Wait,
    snapshots: &SnapshotStore,
) {
    let connection = stream.connection();
    let _kept = ForgetKept(Arc::clone(&connection));
    loop {
        let limits = snapshots.load().limits;
        if !stream.may_hold_next() {
            match wait.next_byte(stream.socket_mut(), limits.idle_timeout).await {
                Waited::Spoken(_) => {}
                Waited::Closed => return,
                Waited::Silent | Waited::Leaving => return stream.shutdown().await,
            }
        }
        // In a box, because a connection has no use for its room while it waits.
        let served = Box::pin(serve_request(app, stream, &wait, &limits, &connection)).await;
        let Some(mut next) = served.or_else(|| connection.take_kept()) else { return };
        // Also what ended well: should its reader and the door ever disagree on where a body ends, nothing
        // that follows is taken for a request.
        if !next.awaits_head() {
            return;
        }
        stream = next;
    }
}

async fn serve_request<A: Application>(
    app: &A,
    stream: Box<EdgeStream>,
    wait: &Wait,
    limits: &Limits,
    connection: &Connection,
) -> Option<Box<EdgeStream>> {
    // In a box, because it is handed on from one to the next.
    let mut session = Box::new(ServerSession::new_http1(stream));
    session.set_keepalive(Some(limits.head_read_seconds()));
    match wait.unless_leaving(session.read_request()).await? {
        Ok(true) => {}
        Ok(false) => {
            // To the engine, a client whose first bytes are refused has left.
            if let Some(mut stream) = stream_of(session).filter(|stream| stream.is_refused()) {
                stream.shutdown().await;
            }
            return None;
        }
        Err(error) => {
            connection.set_head_fault(refusal::detail(&error));
            refuse_head(session, &error).await;
            return None;
        }
    }
    // It is the stream the session was made of.
    app.serve(session).await?.into_any().downcast().ok()
}

/// What the engine cannot read, the stream has an answer for: it puts that in the place of the engine's. It is closed by its
/// own `shutdown`, which listens on: the engine's would only close what it writes to.
async fn refuse_head(mut session: Box<ServerSession>, error: &Error) {
    log::debug!("a head cannot be read: {error}");
    if *error.etype() == ErrorType::InvalidHTTPHeader
        && let Err(error) = session.respond_error(400).await
    {
        log::debug!("the client could not be told: {error}");
    }
    if let Some(mut stream) = stream_of(session) {
        stream.shutdown().await;
    }
}

/// The stream a session was made of.
fn stream_of(session: Box<ServerSession>) -> Option<Box<EdgeStream>> {
    let ServerSession::H1(http1) = *session else { return None };
    http1.into_inner().into_any().downcast().ok()
}

/// A kept stream holds its connection, which holds the stream: whatever ends the task ends that too.
pub(super) struct ForgetKept(pub(super) Arc<Connection>);

impl Drop for ForgetKept {
    fn drop(&mut self) {
        self.0.keep(false);
        drop(self.0.take_kept());
    }
}
