//! A connection that was upgraded: bytes both ways, until both sides have ended.
//!
//! The ways are independent: one that waits does not keep the other waiting, and a side that has said all it has to say
//! hears the rest of what the other has on its way. Nothing is held for a way on which nothing moves.

use super::context::Exchange;
use super::record::{Ended, Records};
use crate::edge::silence::Silence;
use crate::snapshot::Rejection;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a client may be silent to which its upstream will say no more: it may have something on its way.
const LINGER: Duration = Duration::from_secs(2);

/// Most that is read at once.
const READ: usize = 32 * 1024;

thread_local! {
    /// What is read on this worker, until it is written.
    static READ_HERE: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into_boxed_slice());
}

/// The upstream's side of a tunnel.
pub struct Upstream {
    /// Its connection.
    pub stream: Stream,
    /// What came behind the head that granted the upgrade.
    pub begun: Vec<u8>,
}

/// One way of a tunnel.
#[derive(Default)]
struct Way {
    /// What was read and not taken yet, from `written` on.
    waiting: Vec<u8>,
    written: usize,
    is_unflushed: bool,
    /// All that comes was read.
    has_ended: bool,
    /// The other side was told so.
    is_over: bool,
    /// Bytes read.
    bytes: u64,
    /// How often something moved.
    moved: u64,
}

/// Runs a tunnel to its end, and writes its record. Nothing follows on its connection.
pub async fn run(
    session: Box<ServerSession>,
    upstream: Upstream,
    mut exchange: Exchange,
    records: &Records,
) -> Option<Stream> {
    let ServerSession::H1(http1) = *session else { return None };
    let (idle, last) = limits(&exchange);
    let head = http1.req_header().clone();
    let mut client = http1.into_inner();
    let mut server = upstream.stream;
    let mut up = Way::default();
    let mut down = Way { bytes: upstream.begun.len() as u64, waiting: upstream.begun, ..Way::default() };
    let mut silence = Silence::default();
    let mut seen = (0, 0, false);
    let ended = poll_fn(|cx| {
        let there = match up.poll(&mut client, &mut server, cx) {
            // What the upstream has said before it went away is on its way yet.
            Poll::Ready(Err(Broken::To(error))) => up.give_up(&error),
            Poll::Ready(Err(Broken::From(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        let back = match down.poll(&mut server, &mut client, cx) {
            Poll::Ready(Err(Broken::From(error))) => down.end(&error, cx),
            Poll::Ready(Err(Broken::To(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        if there.is_ready() && back.is_ready() {
            return Poll::Ready(Ok(()));
        }
        let one_has_ended = up.has_ended || down.has_ended;
        let now = (up.moved, down.moved, one_has_ended);
        if std::mem::replace(&mut seen, now) != now {
            silence = Silence::default();
        }
        let limit = match (up.has_ended, down.has_ended) {
            (_, true) => LINGER,
            (true, false) => last,
            (false, false) => idle,
        };
        ready!(silence.poll_exceeded(limit, cx));
        Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
    })
    .await;
    if let Err(error) = ended {
        log::debug!("a tunnel has ended: {error}");
    }
    if exchange.connection.as_ref().is_some_and(|connection| connection.is_stalled()) {
        exchange.rejection = Some(Rejection::WriteTimeout);
    }
    let ended = Ended { head: &head, status: Some(101), bytes_in: up.bytes, bytes_out: down.bytes };
    records.end(&ended, None, &mut exchange);
    None
}

/// How long a tunnel may be silent both ways; and how long once the client has ended, when the upstream only has to say
/// what it has on its way.
fn limits(exchange: &Exchange) -> (Duration, Duration) {
    let idle = exchange.route.as_ref().map_or(Duration::ZERO, |route| route.websocket_idle);
    let last = exchange.attempt.timeouts.map_or(idle, |timeouts| timeouts.idle);
    (idle, last.min(idle))
}

/// Which side of a way has broken.
enum Broken {
    From(io::Error),
    To(io::Error),
}

impl Way {
    /// Passes on what comes; ready when it is over.
    fn poll(&mut self, from: &mut Stream, to: &mut Stream, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        while !self.is_over {
            ready!(self.poll_write(to, cx)).map_err(Broken::To)?;
            if self.has_ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx)).map_err(Broken::To)?;
                self.is_over = true;
            } else {
                ready!(self.poll_read(from, to, cx))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Nobody takes any more of it.
    fn give_up(&mut self, error: &io::Error) -> Poll<()> {
        log::debug!("one way of a tunnel is not taken: {error}");
        (self.has_ended, self.is_over) = (true, true);
        Poll::Ready(())
    }

    /// No more comes of it.
    fn end(&mut self, error: &io::Error, cx: &Context<'_>) -> Poll<()> {
        log::debug!("one way of a tunnel has broken: {error}");
        self.has_ended = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes out what waits.
    fn poll_write(&mut self, to: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.written..).filter(|rest| !rest.is_empty()) {
            let count = ready!(Pin::new(&mut *to).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.moved += 1;
            self.is_unflushed = true;
        }
        self.waiting = Vec::new();
        self.written = 0;
        if self.is_unflushed {
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and writes as much of it as is taken at once.
    fn poll_read(
        &mut self,
        from: &mut Stream,
        to: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        READ_HERE.with_borrow_mut(|room| {
            let mut read = ReadBuf::new(room);
            ready!(Pin::new(from).poll_read(cx, &mut read)).map_err(Broken::From)?;
            let read = read.filled();
            self.moved += 1;
            self.bytes += read.len() as u64;
            self.has_ended = read.is_empty();
            if self.has_ended {
                return Poll::Ready(Ok(()));
            }
            let taken = match Pin::new(to).poll_write(cx, read).map_err(Broken::To)? {
                Poll::Ready(taken) => taken,
                Poll::Pending => 0,
            };
            self.is_unflushed = true;
            self.waiting = read.get(taken..).unwrap_or_default().to_vec();
            Poll::Ready(Ok(()))
        })
    }
}
