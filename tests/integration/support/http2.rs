//! An HTTP/2 client over TLS that blocks.

use super::eventually::DEADLINE;
use super::response::Response;
use super::tls::{TlsClient, TlsOptions};
use bytes::Bytes;
use h2::SendStream;
use h2::client::SendRequest;
use http::Request;
use pingora_core::tls::tokio_ssl::SslStream;
use std::net::SocketAddr;
use std::pin::Pin;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// An open HTTP/2 connection. It only moves while a request runs.
pub struct Http2 {
    runtime: Runtime,
    send: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    /// Connects, offers `h2` by ALPN and shakes hands.
    pub fn open(address: SocketAddr, name: &'static str) -> Self {
        Http2::open_after(b"", address, name)
    }

    /// Connects, sends these bytes, and shakes hands after them.
    pub fn open_after(first: &[u8], address: SocketAddr, name: &'static str) -> Self {
        Http2::start(first, address, TlsOptions { name: Some(name), ..TlsOptions::default() })
    }

    /// Shakes hands with these options.
    pub fn open_with(address: SocketAddr, options: TlsOptions) -> Self {
        Http2::start(b"", address, options)
    }

    fn start(first: &[u8], address: SocketAddr, options: TlsOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = TlsClient::new(TlsOptions { alpn: &["h2"], ..options });
        let (send, connection) = runtime.block_on(async {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(first).await.expect("bytes sent");
            let mut stream = SslStream::new(client.ssl(), stream).expect("a stream");
            Pin::new(&mut stream).connect().await.expect("a handshake");
            assert_eq!(stream.ssl().selected_alpn_protocol(), Some(&b"h2"[..]));
            let (send, connection) = h2::client::handshake(stream).await.expect("a preface");
            (send, tokio::spawn(connection))
        });
        Http2 { runtime, send, connection }
    }

    /// Lets the connection move until the other side has ended it.
    pub fn wait_closed(&mut self) {
        let closed =
            self.runtime.block_on(async { tokio::time::timeout(DEADLINE, &mut self.connection).await });
        let _ = closed.expect("the connection to be closed").expect("no panic");
    }

    /// `GET` of an `https://` URL.
    pub fn get(&mut self, url: &str) -> Response {
        self.request(Request::get(url).body(()).expect("a request"), b"").expect("a response")
    }

    /// Sends a `GET`, waits until `sent` holds and gives the stream up. The reset travels with the
    /// next request.
    pub fn abandon(&mut self, url: &str, mut sent: impl FnMut() -> bool) {
        let request = Request::get(url).body(()).expect("a request");
        let mut send = self.send.clone();
        let exchange = async move {
            send = send.ready().await.expect("an open connection");
            let _stream = send.send_request(request, true).expect("a stream");
            while !sent() {
                tokio::task::yield_now().await;
            }
        };
        self.runtime
            .block_on(async { tokio::time::timeout(DEADLINE, exchange).await })
            .expect("a sent request");
    }

    /// Sends a `POST` that never ends its body; gives the status it gets and the stream, which stays open.
    pub fn stall(&mut self, url: &str) -> (u16, SendStream<Bytes>) {
        let request = Request::post(url).body(()).expect("a request");
        let mut send = self.send.clone();
        let exchange = async move {
            send = send.ready().await.expect("an open connection");
            let (response, mut stream) = send.send_request(request, false).expect("a stream");
            stream.send_data(Bytes::from_static(b"begun"), false).expect("an open stream");
            (response.await.expect("a response").status().as_u16(), stream)
        };
        self.runtime.block_on(async { tokio::time::timeout(DEADLINE, exchange).await }).expect("an answer")
    }

    /// Sends a request with a body (none when empty); gives what went wrong.
    pub fn request(&mut self, request: Request<()>, body: &'static [u8]) -> Result<Response, h2::Error> {
        let mut send = self.send.clone();
        self.runtime.block_on(async move {
            let exchange = async {
                send = send.ready().await?;
                let (response, mut stream) = send.send_request(request, body.is_empty())?;
                if !body.is_empty() {
                    // An answer may come before the body was taken; that is no failure here.
                    let _ = stream.send_data(Bytes::from_static(body), true);
                }
                let (head, mut receive) = response.await?.into_parts();
                let mut received = Vec::new();
                while let Some(data) = receive.data().await {
                    let data = data?;
                    receive.flow_control().release_capacity(data.len())?;
                    received.extend_from_slice(&data);
                }
                Ok(collect(&head, received))
            };
            tokio::time::timeout(DEADLINE, exchange).await.expect("an answer in time")
        })
    }
}

fn collect(head: &http::response::Parts, body: Vec<u8>) -> Response {
    let headers = head.headers.iter();
    let headers =
        headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()));
    Response { status_line: String::new(), status: head.status.as_u16(), headers: headers.collect(), body }
}
