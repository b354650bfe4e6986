//! The server behind the gateways: the same for all of them, on one thread, as cheap as it gets.
//!
//! `/small` is 13 bytes, `/bytes/N` is N bytes, `/slow` is `/small` after 50 ms; a request body is read and dropped,
//! chunked or not; `Upgrade: websocket` is answered with 101, and from then on every frame comes back. It knows loopback
//! peers that speak HTTP/1.1 well, and does not defend itself against others.

use bytes::{Buf, BytesMut};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const BACKLOG: u32 = 4096;
const SMALL: &[u8] = b"Hello, World!";
const SLOW: Duration = Duration::from_millis(50);
const LARGEST: usize = 64 * 1024 * 1024;
/// Appended to the client's key before hashing (RFC 6455 section 1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Serves until it is killed.
///
/// # Errors
/// When the address cannot be bound.
pub fn run(listen: SocketAddr) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.set_nodelay(true)?;
        socket.bind(listen)?;
        accept(socket.listen(BACKLOG)?).await
    })
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    loop {
        // Out of descriptors: the harness raises the limit, so let it be seen.
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // A gateway that closes is no event here.
            let _ = serve(stream).await;
        });
    }
}

/// A request head, as far as it matters here.
struct Head {
    length: usize,
    path: String,
    body: Body,
    websocket_key: Option<String>,
}

enum Body {
    Sized(usize),
    Chunked,
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut input = BytesMut::with_capacity(4096);
    let mut output = Vec::with_capacity(512);
    loop {
        let Some(head) = read_head(&mut stream, &mut input).await? else { return Ok(()) };
        input.advance(head.length);
        if let Some(key) = &head.websocket_key {
            return echo(stream, key, &input).await;
        }
        drop_body(&mut stream, &mut input, &head.body).await?;
        output.clear();
        answer(&head.path, &mut output).await;
        stream.write_all(&output).await?;
        if output.capacity() > 64 * 1024 {
            output = Vec::with_capacity(512);
        }
    }
}

async fn read_head(stream: &mut TcpStream, input: &mut BytesMut) -> io::Result<Option<Head>> {
    loop {
        if let Some(head) = parse(input) {
            return Ok(Some(head));
        }
        input.reserve(4096);
        if stream.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

fn parse(input: &[u8]) -> Option<Head> {
    let end = memchr::memmem::find(input, b"\r\n\r\n")?;
    let text = std::str::from_utf8(input.get(..end)?).ok()?;
    let mut lines = text.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let (mut body, mut upgrade, mut key) = (Body::Sized(0), false, None);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            body = Body::Sized(value.parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            body = Body::Chunked;
        } else if name.eq_ignore_ascii_case("upgrade") {
            upgrade = value.eq_ignore_ascii_case("websocket");
        } else if name.eq_ignore_ascii_case("sec-websocket-key") {
            key = Some(value.to_owned());
        }
    }
    Some(Head { length: end + 4, path, body, websocket_key: key.filter(|_| upgrade) })
}

async fn drop_body(stream: &mut TcpStream, input: &mut BytesMut, body: &Body) -> io::Result<()> {
    match body {
        Body::Sized(length) => skip(stream, input, *length).await,
        Body::Chunked => loop {
            let line = loop {
                if let Some(end) = memchr::memmem::find(input, b"\r\n") {
                    break end;
                }
                more(stream, input).await?;
            };
            let size = input.get(..line).and_then(|size| std::str::from_utf8(size).ok());
            let size = size.and_then(|size| usize::from_str_radix(size.split(';').next()?.trim(), 16).ok());
            let size = size.ok_or(io::ErrorKind::InvalidData)?;
            skip(stream, input, line + 2 + size + 2).await?;
            if size == 0 {
                return Ok(());
            }
        },
    }
}

async fn skip(stream: &mut TcpStream, input: &mut BytesMut, mut count: usize) -> io::Result<()> {
    loop {
        let here = count.min(input.len());
        input.advance(here);
        count -= here;
        if count == 0 {
            return Ok(());
        }
        more(stream, input).await?;
    }
}

async fn more(stream: &mut TcpStream, input: &mut BytesMut) -> io::Result<()> {
    input.reserve(64 * 1024);
    if stream.read_buf(input).await? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

async fn answer(path: &str, output: &mut Vec<u8>) {
    if path == "/slow" {
        tokio::time::sleep(SLOW).await;
    }
    let size = path.strip_prefix("/bytes/").and_then(|size| size.parse().ok());
    let length = size.unwrap_or(SMALL.len()).min(LARGEST);
    output.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ");
    output.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    output.extend_from_slice(b"\r\n\r\n");
    match size {
        Some(_) => output.resize(output.len() + length, b'x'),
        None => output.extend_from_slice(SMALL),
    }
}

async fn echo(mut stream: TcpStream, key: &str, rest: &[u8]) -> io::Result<()> {
    let accept = boring::base64::encode_block(&boring::sha::sha1(&[key.as_bytes(), WEBSOCKET_GUID].concat()));
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut input = BytesMut::from(rest);
    let mut output = Vec::new();
    loop {
        while let Some(length) = echo_frame(&input, &mut output) {
            input.advance(length);
        }
        stream.write_all(&output).await?;
        output.clear();
        more(&mut stream, &mut input).await?;
    }
}

/// Appends the first frame of `input` as a server sends it, unmasked (RFC 6455 section 5.2); gives its length there.
fn echo_frame(input: &[u8], output: &mut Vec<u8>) -> Option<usize> {
    let (first, second) = (*input.first()?, *input.get(1)?);
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask_at = 2 + extended;
    let size = match extended {
        0 => usize::from(second & 0x7f),
        _ => input.get(2..mask_at)?.iter().fold(0, |size, byte| size << 8 | usize::from(*byte)),
    };
    let mask_length = if second & 0x80 == 0 { 0 } else { 4 };
    let begin = mask_at + mask_length;
    let payload = input.get(begin..begin + size)?;
    output.extend_from_slice(&[first, second & 0x7f]);
    output.extend_from_slice(input.get(2..mask_at)?);
    match input.get(mask_at..begin)? {
        [] => output.extend_from_slice(payload),
        mask => output.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask)),
    }
    Some(begin + size)
}
