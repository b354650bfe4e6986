//! A scripted HTTP/2 origin inside the test process, with TLS or with prior knowledge, and the same for
//! clients of the gateway's plain port: both ends of streams that flow both ways.

use super::certificates::Identity;
use super::eventually::DEADLINE;
use boring::ssl::{AlpnError, Ssl, SslAcceptor, SslMethod, select_next_proto};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use pingora_core::tls::tokio_ssl::SslStream;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A request and the way to answer it.
pub struct Call {
    /// Head and body.
    pub request: Request<RecvStream>,
    /// For the answer.
    pub respond: SendResponse<Bytes>,
}

type Served = Pin<Box<dyn Future<Output = ()> + Send>>;
type Script = dyn Fn(Call) -> Served + Send + Sync;

/// The origin. Ends when dropped.
pub struct Http2Origin {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _stop: oneshot::Sender<()>,
}

impl Http2Origin {
    /// Serves every stream as the script says, without TLS.
    pub fn plain<F, R>(script: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Http2Origin::start(Arc::new(move |call| Box::pin(script(call))), None)
    }

    /// The same over TLS with this certificate; `h2` is all it speaks.
    pub fn tls<F, R>(identity: &Identity, script: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).expect("an acceptor");
        builder.set_certificate(&identity.certificate).expect("a certificate");
        builder.set_private_key(&identity.key).expect("a key");
        builder.set_alpn_select_callback(|_, offered| {
            select_next_proto(b"\x02h2", offered).ok_or(AlpnError::NOACK)
        });
        Http2Origin::start(Arc::new(move |call| Box::pin(script(call))), Some(builder.build()))
    }

    fn start(script: Arc<Script>, acceptor: Option<SslAcceptor>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        std::thread::spawn(move || {
            runtime().block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(listener, script, acceptor, accepted) => {}
                    _ = stopped => {}
                }
            });
        });
        Http2Origin { address, connections, _stop: stop }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    script: Arc<Script>,
    acceptor: Option<SslAcceptor>,
    connections: Arc<AtomicUsize>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        connections.fetch_add(1, Ordering::SeqCst);
        let _ = stream.set_nodelay(true);
        let (script, acceptor) = (Arc::clone(&script), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                None => serve(stream, script).await,
                Some(acceptor) => {
                    let ssl = Ssl::new(acceptor.context()).expect("a TLS session");
                    let mut stream = SslStream::new(ssl, stream).expect("a stream");
                    if Pin::new(&mut stream).accept().await.is_ok() {
                        serve(stream, script).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, script: Arc<Script>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(script(Call { request, respond }));
    }
}

impl Call {
    /// Answers with a head; more follows on the stream.
    pub fn answer(&mut self, head: Response<()>) -> SendStream<Bytes> {
        self.respond.send_response(head, false).expect("an open stream")
    }

    /// Answers 200 with this body and no length.
    pub fn ok(mut self, body: &'static str) {
        let mut stream = self.answer(Response::new(()));
        stream.send_data(Bytes::from_static(body.as_bytes()), true).expect("an open stream");
    }

    /// The same for a client that may have given up.
    pub fn ok_if_wanted(mut self, body: &'static str) {
        if let Ok(mut stream) = self.respond.send_response(Response::new(()), false) {
            let _ = stream.send_data(Bytes::from_static(body.as_bytes()), true);
        }
    }

    /// The next piece of the request body; `None` at its end, or when the client has given up.
    pub async fn next(&mut self) -> Option<Bytes> {
        next(self.request.body_mut()).await
    }

    /// The whole request body.
    pub async fn body(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await {
            whole.extend_from_slice(&piece);
        }
        whole
    }
}

/// The next piece of a body; `None` at its end, or when it broke off.
pub async fn next(body: &mut RecvStream) -> Option<Bytes> {
    let piece = body.data().await?.ok()?;
    body.flow_control().release_capacity(piece.len()).ok()?;
    Some(piece)
}

/// Sends all of it, as fast as the other side takes it.
pub async fn send_all(stream: &mut SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(room)) => {
                let piece = data.split_to(room.min(data.len()));
                stream.send_data(piece, false).expect("an open stream");
            }
            _ => return,
        }
    }
}

/// Fields by name and value.
pub fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// Runs a client of a gateway's plain port, with prior knowledge; it has [`DEADLINE`].
pub fn client<T, R>(address: SocketAddr, run: impl FnOnce(SendRequest<Bytes>) -> R) -> T
where
    R: Future<Output = T>,
{
    runtime().block_on(async move {
        let work = async {
            let stream = TcpStream::connect(address).await.expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            let (send, connection) = h2::client::handshake(stream).await.expect("a preface");
            tokio::spawn(connection);
            run(send.ready().await.expect("an open connection")).await
        };
        tokio::time::timeout(DEADLINE, work).await.expect("an end in time")
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
