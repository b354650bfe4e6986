//! The door of the admin port: accepts, bounds, and hands each connection to the router.
//!
//! Everything a client can hold is bounded: connections at once (`places`), bytes and seconds of a
//! request head, seconds of a connection. It goes on answering while the process drains, so that a probe
//! sees "draining" and not a refused connection, and when traffic has used up all descriptors; it ends with
//! the process.

use super::guard::Peer;
use super::places::{Place, Places};
use super::{AdminState, router};
use crate::background::descriptors;
use async_trait::async_trait;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use log::{debug, error, warn};
use parking_lot::Mutex;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Bytes of a request head.
const HEAD_BYTES: usize = 16 * 1024;
/// A whole request head, from the moment the connection is free for one.
const HEAD_DEADLINE: Duration = Duration::from_secs(2);
/// A connection. Bounds clients that ask and never read.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// What an answer that is on its way gets after that.
const CONNECTION_GRACE: Duration = Duration::from_secs(5);
/// Before the next accept when there are no descriptors or no memory at all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the admin API on a socket that is bound already. To be run with one thread.
pub struct AdminService {
    /// Taken by the one start.
    socket: Mutex<Option<std::net::TcpListener>>,
    router: Router,
    turn: watch::Receiver<bool>,
}

impl AdminService {
    /// `socket` is bound before anything starts, so that a port in use ends the process. Connections
    /// are accepted while `turn` is true: another process may have the same socket.
    pub fn new(socket: std::net::TcpListener, state: AdminState, turn: watch::Receiver<bool>) -> Self {
        AdminService { socket: Mutex::new(Some(socket)), router: router(state), turn }
    }

    fn take_socket(&self) -> std::io::Result<TcpListener> {
        let socket = self.socket.lock().take();
        let socket = socket.ok_or_else(|| std::io::Error::other("it was started before"))?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket)
    }
}

#[async_trait]
impl BackgroundService for AdminService {
    async fn start(&self, _shutdown: ShutdownWatch) {
        match self.take_socket() {
            Ok(socket) => accept(socket, self.router.clone(), self.turn.clone()).await,
            Err(error) => error!("cannot serve: {error}"),
        }
    }
}

async fn accept(socket: TcpListener, router: Router, mut turn: watch::Receiver<bool>) {
    let places = Arc::new(Places::default());
    loop {
        match next(&socket, &mut turn).await {
            Ok((stream, peer)) => {
                let place = places.take(peer.ip());
                tokio::spawn(serve(stream, peer, router.clone(), place));
            }
            Err(error) => {
                warn!("cannot accept: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The next connection that comes while it is this process's turn.
async fn next(
    socket: &TcpListener,
    turn: &mut watch::Receiver<bool>,
) -> std::io::Result<(TcpStream, SocketAddr)> {
    loop {
        // It fails when nobody is left to change it: then it is as it was.
        let _ = turn.wait_for(|ours| *ours).await;
        tokio::select! {
            accepted = accept_at_any_rate(socket) => return accepted,
            Ok(_) = turn.wait_for(|ours| !*ours) => {}
        }
    }
}

/// One that needs no descriptor below the limit.
async fn accept_at_any_rate(socket: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    match socket.accept().await {
        Err(error) if descriptors::is_want_of_them(&error) => {
            poll_fn(|context| descriptors::beyond_the_limit(|| socket.poll_accept(context))).await
        }
        accepted => accepted,
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, router: Router, place: Place) {
    // Answers are written at once or nearly so; a failure costs a little delay.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = place.lost() => return,
        () = sleep(CONNECTION_LIFE) => {
            connection.as_mut().graceful_shutdown();
            timeout(CONNECTION_GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!("connection from {peer}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read, Write};

    async fn started(router: Router) -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("bound");
        tokio::spawn(accept(socket, router, watch::channel(true).1));
        address
    }

    fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).expect("accepts");
        stream.write_all(request.as_bytes()).expect("writes");
        let mut answer = String::new();
        // A head that is too long is answered and reset while it is still being sent.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    async fn exchanged(address: SocketAddr, request: String) -> String {
        tokio::task::spawn_blocking(move || exchange(address, &request)).await.expect("no panic")
    }

    #[tokio::test]
    async fn handlers_see_the_peer() {
        async fn peer(axum::Extension(peer): axum::Extension<Peer>) -> String {
            peer.0.ip().to_string()
        }
        let address = started(Router::new().route("/", get(peer))).await;
        let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let answer = exchanged(address, request.to_owned()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("127.0.0.1"), "{answer}");
    }

    #[tokio::test]
    async fn a_long_head_is_refused() {
        let address = started(Router::new()).await;
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(2 * HEAD_BYTES));
        let answer = exchanged(address, head).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_head_is_cut_at_its_deadline() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let address = started(Router::new()).await;
        let mut stream = TcpStream::connect(address).await.expect("accepts");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: ").await.expect("writes");
        let begun = tokio::time::Instant::now();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let took = begun.elapsed();
        assert!(took >= HEAD_DEADLINE / 2 && took < CONNECTION_LIFE, "{took:?}");
    }
}
