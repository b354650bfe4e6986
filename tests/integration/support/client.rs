//! An HTTP/1 client that sends exactly the bytes it is given, over TCP or TLS.

use super::eventually::DEADLINE;
use super::response::{self, Response};
use super::tls::{TlsClient, TlsFacts};
use boring::ssl::SslStream;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// A connection and what was read from it too early.
pub struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
}

/// TCP, with or without TLS.
pub enum Stream {
    /// Without.
    Plain(TcpStream),
    /// With.
    Tls(Box<SslStream<TcpStream>>),
}

impl Connection {
    /// Connects; every read and write gets [`DEADLINE`].
    pub fn open(address: SocketAddr) -> Self {
        Connection::from(Stream::Plain(tcp(address)))
    }

    /// Connects and shakes hands.
    pub fn open_tls(address: SocketAddr, client: &TlsClient) -> io::Result<Self> {
        let stream = client.connect(tcp(address))?;
        Ok(Connection::from(Stream::Tls(Box::new(stream))))
    }

    /// Connects, sends these bytes and shakes hands after them.
    pub fn open_tls_after(first: &[u8], address: SocketAddr, client: &TlsClient) -> io::Result<Self> {
        let mut tcp = tcp(address);
        tcp.write_all(first)?;
        let stream = client.connect(tcp)?;
        Ok(Connection::from(Stream::Tls(Box::new(stream))))
    }

    /// Connects from a source address of this machine.
    pub fn open_from(source: IpAddr, address: SocketAddr) -> Self {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(source, 0).into()).expect("a source address");
        socket.connect(&address.into()).expect("a connection");
        Connection::from(Stream::Plain(deadlines(socket.into())))
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("bytes sent");
    }

    /// Sends these bytes; an error when the other side is gone.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends these bytes as they are, TLS or not; an error when the other side is gone.
    pub fn send_beneath_tls(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.get_mut().write_all(bytes),
        }
    }

    /// Reads the response to a request that was not HEAD.
    pub fn response(&mut self) -> Response {
        self.try_response().expect("a response")
    }

    /// The same, giving what went wrong.
    pub fn try_response(&mut self) -> io::Result<Response> {
        self.response_to("GET")
    }

    /// Reads the response to a request with this method.
    pub fn response_to(&mut self, method: &str) -> io::Result<Response> {
        response::read_response(&mut self.stream, &mut self.buffer, method)
    }

    /// Sends a request and reads the response.
    pub fn request(&mut self, request: &str) -> Response {
        self.try_request(request).unwrap_or_else(|error| panic!("no response to {request:?}: {error}"))
    }

    /// The same, giving what went wrong.
    pub fn try_request(&mut self, request: &str) -> io::Result<Response> {
        self.try_send(request)?;
        self.response_to(request.split(' ').next().unwrap_or_default())
    }

    /// `GET` with these further header lines (each with its line break).
    pub fn get(&mut self, host: &str, path: &str, headers: &str) -> Response {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"))
    }

    /// Waits until the other side closes; gives what it sent before that. A reset counts.
    pub fn rest(&mut self) -> Vec<u8> {
        self.try_rest().expect("the connection to be closed")
    }

    /// The same; an error when it is still open after the read timeout.
    pub fn try_rest(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match response::fill(&mut self.stream, &mut self.buffer) {
                Ok(()) => {}
                Err(error) if timed_out(&error) => return Err(error),
                Err(_) => return Ok(std::mem::take(&mut self.buffer)),
            }
        }
    }

    /// Reads on until these bytes have come; they stay unread.
    pub fn wait_bytes(&mut self, wanted: &[u8]) {
        while response::position(&self.buffer, wanted).is_none() {
            response::fill(&mut self.stream, &mut self.buffer).expect("more bytes");
        }
    }

    /// Whether nothing comes and the other side does not close for `span`.
    pub fn is_quiet_for(&mut self, span: Duration) -> bool {
        self.tcp().set_read_timeout(Some(span)).expect("a read timeout");
        let outcome = response::fill(&mut self.stream, &mut self.buffer);
        self.tcp().set_read_timeout(Some(DEADLINE)).expect("a read timeout");
        matches!(outcome, Err(error) if timed_out(&error))
    }

    /// What the handshake settled; panics without TLS.
    pub fn tls(&self) -> TlsFacts {
        match &self.stream {
            Stream::Tls(stream) => TlsFacts::of(stream.ssl()),
            Stream::Plain(_) => panic!("no TLS here"),
        }
    }

    /// The stream underneath, for another protocol.
    pub fn into_stream(self) -> Stream {
        assert!(self.buffer.is_empty(), "bytes were read too early");
        self.stream
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.tcp().local_addr().expect("an address")
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }
}

impl From<Stream> for Connection {
    fn from(stream: Stream) -> Self {
        Connection { stream, buffer: Vec::new() }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// One `GET` on a connection of its own.
pub fn get(address: SocketAddr, host: &str, path: &str) -> Response {
    Connection::open(address).get(host, path, "")
}

/// A TCP connection whose reads and writes have a deadline.
pub fn tcp(address: SocketAddr) -> TcpStream {
    deadlines(TcpStream::connect_timeout(&address, DEADLINE).expect("a connection"))
}

fn deadlines(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).expect("a read timeout");
    stream.set_write_timeout(Some(DEADLINE)).expect("a write timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
