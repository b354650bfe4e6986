//! A gRPC server that knows one method, `grpc.health.v1.Health/Check`, over HTTP/2 without TLS.

use bytes::Bytes;
use http::{HeaderMap, Response};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};

/// Status by service; a service that is not there is not known.
type Statuses = Arc<Mutex<HashMap<String, u8>>>;

/// The server.
pub struct GrpcHealth {
    address: SocketAddr,
    statuses: Statuses,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    _runtime: tokio::runtime::Runtime,
}

impl GrpcHealth {
    /// Knows no service yet.
    pub fn start() -> GrpcHealth {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (statuses, seen) = (Statuses::default(), Arc::default());
        let (known, kept) = (Arc::clone(&statuses), Arc::clone(&seen));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&known), Arc::clone(&kept)));
            }
        });
        GrpcHealth { address, statuses, seen, _runtime: runtime }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what it says of a service: 1 = SERVING, 2 = NOT_SERVING.
    pub fn set(&self, service: &str, status: u8) {
        self.statuses.lock().unwrap().insert(service.to_owned(), status);
    }

    /// URI and headers of what was asked so far.
    pub fn seen(&self) -> Vec<(String, HeaderMap)> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, known: Statuses, seen: Arc<Mutex<Vec<(String, HeaderMap)>>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (head, mut body) = request.into_parts();
        seen.lock().unwrap().push((head.uri.to_string(), head.headers));
        let known = Arc::clone(&known);
        tokio::spawn(async move {
            let mut message = Vec::new();
            while let Some(Ok(piece)) = body.data().await {
                message.extend_from_slice(&piece);
            }
            // Behind the prefix: tag, length, name; an empty message asks about the server.
            let service = String::from_utf8_lossy(message.get(7..).unwrap_or_default()).into_owned();
            let status = known.lock().unwrap().get(&service).copied();
            let head = Response::builder().header("content-type", "application/grpc");
            let Some(status) = status else {
                let head = head.header("grpc-status", "5").body(()).unwrap();
                let _ = respond.send_response(head, true);
                return;
            };
            let mut stream = respond.send_response(head.body(()).unwrap(), false).unwrap();
            let _ = stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false);
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            let _ = stream.send_trailers(trailers);
        });
    }
}
