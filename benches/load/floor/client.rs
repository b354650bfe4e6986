//! A client that can tell when everybody is connected: what it measures begins after that, so no handshake lies in it.
//!
//! A closed loop, or an open one at a fixed rate, in which latency counts from the moment a request was due. It looks
//! at every status. Prints `measuring` when it begins to, and its figures as one line of JSON. One thread; answers
//! must carry a Content-Length.

use super::histogram::Histogram;
use boring::ssl::{SslConnector, SslMethod, SslVerifyMode};
use pingora_core::tls::tokio_ssl::SslStream;
use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// For all connections together.
const CONNECT: Duration = Duration::from_secs(60);
const BUFFER: usize = 32 * 1024;

/// What is asked, how often, and for how long.
#[derive(clap::Args, Clone)]
pub struct ClientArguments {
    /// The server.
    #[arg(long)]
    connect: SocketAddr,
    /// Speak TLS; the certificate is not checked.
    #[arg(long)]
    tls: bool,
    /// Host of the request.
    #[arg(long)]
    host: String,
    /// Path of the request.
    #[arg(long, default_value = "/")]
    path: String,
    /// Status that must come back.
    #[arg(long, default_value_t = 200)]
    status: u16,
    /// Connections that are kept.
    #[arg(long)]
    connections: usize,
    /// Length of the measurement.
    #[arg(long)]
    seconds: f64,
    /// Seconds of load before it, once everybody is connected.
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Requests a second, over all connections; left out: as fast as the answers come.
    #[arg(long)]
    rate: Option<f64>,
}

/// Runs once.
///
/// # Errors
/// When not everybody could connect.
pub fn run(arguments: ClientArguments) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, measure(Rc::new(arguments)))
}

#[derive(Default)]
struct Figures {
    /// Requests count when they begin (or are due) at or after this.
    since: Option<Instant>,
    requests: u64,
    bytes: u64,
    socket_errors: u64,
    wrong: u64,
    latency: Histogram,
}

async fn measure(arguments: Rc<ClientArguments>) -> Result<(), Box<dyn Error>> {
    let streams = timeout(CONNECT, connect_all(&arguments)).await??;
    let begin = Instant::now();
    let figures = Rc::new(RefCell::new(Figures::default()));
    for (number, stream) in streams.into_iter().enumerate() {
        let (arguments, figures) = (Rc::clone(&arguments), Rc::clone(&figures));
        tokio::task::spawn_local(async move {
            if ask_on(stream, number, begin, &arguments, &figures).await.is_err() {
                figures.borrow_mut().socket_errors += 1;
            }
        });
    }
    sleep(Duration::from_secs_f64(arguments.warm_up)).await;
    println!("measuring");
    let since = Instant::now();
    figures.borrow_mut().since = Some(since);
    sleep(Duration::from_secs_f64(arguments.seconds)).await;
    let (figures, seconds) = (figures.take(), since.elapsed().as_secs_f64());
    println!(
        "{{\"requests\":{},\"bytes\":{},\"seconds\":{seconds},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\
         \"max_us\":{},\"socket_errors\":{},\"wrong\":{}}}",
        figures.requests,
        figures.bytes,
        figures.latency.percentile(0.5),
        figures.latency.percentile(0.99),
        figures.latency.percentile(0.999),
        figures.latency.percentile(1.0),
        figures.socket_errors,
        figures.wrong,
    );
    Ok(())
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

async fn connect_all(arguments: &ClientArguments) -> Result<Vec<Box<dyn Stream>>, Box<dyn Error>> {
    let mut connector = SslConnector::builder(SslMethod::tls())?;
    connector.set_verify(SslVerifyMode::NONE);
    connector.set_curves_list("X25519")?;
    let connector = connector.build();
    let mut streams: Vec<Box<dyn Stream>> = Vec::new();
    for _ in 0..arguments.connections {
        let socket = TcpStream::connect(arguments.connect).await?;
        socket.set_nodelay(true)?;
        if !arguments.tls {
            streams.push(Box::new(socket));
            continue;
        }
        let session = connector.configure()?.verify_hostname(false).into_ssl(&arguments.host)?;
        let mut stream = SslStream::new(session, socket)?;
        Pin::new(&mut stream).connect().await?;
        streams.push(Box::new(stream));
    }
    Ok(streams)
}

/// One request after the other, until the runtime ends.
async fn ask_on(
    mut stream: Box<dyn Stream>,
    number: usize,
    begin: Instant,
    arguments: &ClientArguments,
    figures: &RefCell<Figures>,
) -> io::Result<()> {
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", arguments.path, arguments.host);
    let interval = arguments.rate.map(|rate| arguments.connections as f64 / rate);
    let mut due = begin
        + interval.map_or(Duration::ZERO, |interval| {
            Duration::from_secs_f64(interval * number as f64 / arguments.connections as f64)
        });
    let mut buffer = vec![0; BUFFER];
    loop {
        match interval {
            Some(_) => sleep_until(due).await,
            None => due = Instant::now(),
        }
        stream.write_all(request.as_bytes()).await?;
        let (status, length) = read_answer(&mut stream, &mut buffer).await?;
        figures.borrow_mut().answered(due, status == arguments.status, length);
        if let Some(interval) = interval {
            due += Duration::from_secs_f64(interval);
        }
    }
}

impl Figures {
    fn answered(&mut self, due: Instant, as_expected: bool, length: usize) {
        if !as_expected {
            self.wrong += 1;
        }
        if self.since.is_some_and(|since| due >= since) {
            self.requests += 1;
            self.bytes += length as u64;
            self.latency.add(due.elapsed());
        }
    }
}

/// Status and length of head and body together.
async fn read_answer(stream: &mut Box<dyn Stream>, buffer: &mut [u8]) -> io::Result<(u16, usize)> {
    let mut filled = 0;
    let head = loop {
        let count = stream.read(buffer.get_mut(filled..).unwrap_or_default()).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        if let Some(end) = memchr::memmem::find(&buffer[..filled], b"\r\n\r\n") {
            break end + 4;
        }
    };
    let (status, body) = parse(&buffer[..head]).ok_or(io::ErrorKind::InvalidData)?;
    let mut left = (head + body).saturating_sub(filled);
    while left > 0 {
        let room = left.min(buffer.len());
        let count = stream.read(&mut buffer[..room]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= count;
    }
    Ok((status, head + body))
}

fn parse(head: &[u8]) -> Option<(u16, usize)> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let (_, length) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    Some((status, length.trim().parse().ok()?))
}
