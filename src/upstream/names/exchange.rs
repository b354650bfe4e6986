//! One question to one server: over UDP, and over TCP when the answer does not fit (RFC 7766).
//!
//! A datagram counts only when it comes from the server asked, to the port it was asked from, with the
//! identifier and the question that were sent, all but the server chosen at random: others are dropped,
//! and the wait goes on. Bounded by one timeout.

use super::message::{Family, Question, Reply};
use rand::Rng;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Asks `server` for addresses of `name`.
///
/// # Errors
/// What the system said, `TimedOut` when nothing fitting came in time.
pub(super) async fn ask(
    server: SocketAddr,
    name: &str,
    family: Family,
    patience: Duration,
) -> io::Result<Reply> {
    let id = rand::thread_rng().r#gen();
    let question = Question::new(id, name, family)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is no name"))?;
    let answered = async {
        let reply = over_udp(server, &question).await?;
        if reply.truncated { over_tcp(server, &question).await } else { Ok(reply) }
    };
    timeout(patience, answered).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn over_udp(server: SocketAddr, question: &Question) -> io::Result<Reply> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    // From here on the kernel drops what others send.
    socket.connect(server).await?;
    socket.send(question.message()).await?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(reply) = buffer.get(..length).and_then(|message| question.reply(message)) {
            return Ok(reply);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &Question) -> io::Result<Reply> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.message().len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes(), question.message()].concat()).await?;
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    let reply = question.reply(&message).filter(|reply| !reply.truncated);
    reply.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer that is none"))
}
