//! The life of an HTTP connection: requests one after the other, or many at once.

use super::connection::Connection;
use super::http2;
use super::idle::{Wait, Waited};
use super::refusal::Refusals;
use super::stream::EdgeStream;
use crate::snapshot::SnapshotStore;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::{ALPN, Shutdown, Ssl};
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;

/// Serves a connection until it ends.
pub async fn serve<A: HttpServerApp + Send + Sync + 'static>(
    app: &Arc<A>,
    stream: Box<EdgeStream>,
    wait: Wait,
    refusals: &Refusals,
    shutdown: &ShutdownWatch,
) {
    if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
        // Far larger than what a connection of HTTP/1 needs of its task.
        Box::pin(http2::serve(app, stream, refusals, shutdown)).await;
    } else {
        serve_http1(app, stream, wait, &refusals.snapshots, shutdown).await;
    }
}

/// The engine has a loop of its own; this one waits for the next request outside the engine, takes
/// the idle timeout of the configuration that serves at that moment, and keeps a connection whose
/// last exchange failed if its client was answered in full.
async fn serve_http1<A: HttpServerApp + Send + Sync + 'static>(
    app: &Arc<A>,
    mut stream: Box<EdgeStream>,
    mut wait: Wait,
    snapshots: &SnapshotStore,
    shutdown: &ShutdownWatch,
) {
    let connection = stream.connection();
    let _kept = ForgetKept(Arc::clone(&connection));
    let mut settings = None;
    loop {
        let limits = snapshots.load().limits;
        if !stream.may_hold_next() {
            match wait.next_byte(stream.socket_mut(), limits.idle_timeout).await {
                Waited::Spoken(_) => {}
                Waited::Closed => return,
                Waited::Silent | Waited::Leaving => return stream.shutdown().await,
            }
        }
        let mut session = ServerSession::new_http1(stream);
        match settings.take() {
            Some(settings) => HttpPersistentSettings::apply_to_session(settings, &mut session),
            None => session.set_keepalive(Some(limits.head_read_seconds())),
        }
        match app.process_new_http(session, shutdown).await {
            Some(reused) => {
                let (next, persistent) = reused.consume();
                // It is the stream the session was made of.
                let Ok(same) = next.into_any().downcast() else { return };
                (stream, settings) = (same, persistent);
            }
            None => {
                let Some(mut kept) = connection.take_kept() else { return };
                if !kept.awaits_head() {
                    return;
                }
                stream = kept;
            }
        }
    }
}

/// A kept stream holds its connection, which holds the stream: whatever ends the task ends that too.
pub(super) struct ForgetKept(pub(super) Arc<Connection>);

impl Drop for ForgetKept {
    fn drop(&mut self) {
        self.0.keep(false);
        drop(self.0.take_kept());
    }
}
