//! The stream handed to the proxy: plain or TLS, with a write buffer that is only there while it
//! holds something.
//!
//! Head and body of an answer leave in one write, and in one TLS record where they fit. An idle
//! connection holds no buffer. The engine's own refusals (a head it cannot parse never reaches a
//! hook) are replaced by ours on their way out.

mod digests;

pub use digests::Digests;

use super::connection::{Connection, Phase};
use super::deadline::{Deadline, Expired};
use super::framing::{Framing, Refused};
use super::http2::inspection::Inspection;
use super::refusal::Refusals;
use super::socket::Socket;
use super::transport::Transport;
use super::websocket::Goodbye;
use crate::snapshot::{Cause, Rejection};
use async_trait::async_trait;
use bytes::{Buf, Bytes};
use pingora_core::protocols::Shutdown;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// One TLS record's plaintext (RFC 8446 section 5.1).
const BUFFER: usize = 16 * 1024;

/// How long, and for how much, a client is listened to that was told of the end.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_LIMIT: usize = 4 * 1024 * 1024;

thread_local! {
    /// The buffer of the last answer, for the next one: a worker writes one answer at a time
    /// nearly always, so one spare serves them all.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// See the module documentation.
pub struct EdgeStream {
    transport: ManuallyDrop<Transport>,
    out: Vec<u8>,
    sent: usize,
    /// What is still to be written of a response that was given in one piece.
    answer: Bytes,
    deadline: Deadline,
    framing: Framing,
    /// Of HTTP/2.
    inspection: Option<Box<Inspection>>,
    connection: Arc<Connection>,
    refusals: Refusals,
    /// The client may still be sending what nobody will read.
    refused: bool,
    digests: Digests,
    /// Of a websocket, from its first byte on.
    goodbye: Option<Box<Goodbye>>,
}

impl EdgeStream {
    /// Wraps a connection that is ready for HTTP.
    pub fn new(
        transport: Transport,
        connection: Arc<Connection>,
        digests: Digests,
        refusals: Refusals,
        deadline: Deadline,
    ) -> Self {
        EdgeStream {
            transport: ManuallyDrop::new(transport),
            out: Vec::new(),
            sent: 0,
            answer: Bytes::new(),
            deadline,
            framing: Framing::default(),
            inspection: None,
            connection,
            refusals,
            refused: false,
            digests,
            goodbye: None,
        }
    }

    /// Whether bytes of the next request may be here already: then nothing more need come.
    pub fn may_hold_next(&self) -> bool {
        let pending = match &*self.transport {
            Transport::Plain(_) => false,
            Transport::Tls(tls) => tls.ssl().pending() > 0,
        };
        pending || self.framing.holds()
    }

    /// Whether nothing of the last request is left to read.
    pub fn awaits_head(&mut self) -> bool {
        self.framing.awaits_head(&self.connection)
    }

    /// Whether its client was refused, and may still be sending.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// What is known of the connection.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Has the frames of HTTP/2 followed, from its first byte on.
    pub(super) fn inspect(&mut self, inspection: Inspection) {
        self.inspection = Some(Box::new(inspection));
    }

    /// What the bytes come from.
    pub fn socket_mut(&mut self) -> &mut Socket {
        self.transport.socket_mut()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = SPARE.take();
            self.out.reserve_exact(BUFFER);
        }
        &mut self.out
    }

    /// Writes out what is buffered and gives the buffer back.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let count = ready!(self.transport.poll_write(cx, &self.out[self.sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        if self.out.capacity() > 0 {
            self.out.clear();
            self.sent = 0;
            let out = std::mem::take(&mut self.out);
            // A stream may be dropped, with what it holds, when its thread ends.
            let _ = SPARE.try_with(|spare| spare.set(out));
        }
        if !self.answer.is_empty() {
            ready!(self.poll_write_answer(cx))?;
        }
        self.deadline.all_taken();
        Poll::Ready(Ok(()))
    }

    fn poll_write_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.answer.is_empty() {
            let count = ready!(self.transport.poll_write(cx, &self.answer))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.answer.advance(count);
        }
        self.answer = Bytes::new();
        Poll::Ready(Ok(()))
    }

    /// The engine answers a head it cannot parse by itself, before any hook: it says so with a
    /// write while the connection still waits for a head.
    fn is_engine_refusal(&self, buf: &[u8]) -> bool {
        self.connection.phase() == Phase::Head && buf.starts_with(b"HTTP/1.1 4")
    }

    fn refuse(&mut self, cause: Cause, waited: Duration) {
        let asked = self.framing.head.asked(self.connection.heads());
        let page = self.refusals.refuse(&self.connection, cause, waited, asked);
        self.connection.head_complete();
        self.refused = true;
        self.buffer().extend_from_slice(&page);
    }

    /// Two fields named Host are malformed for the engine, and so are too many fields of any name.
    fn refuse_malformed(&mut self) {
        let many = self.framing.head.has_too_many_fields();
        let cause = match (many, self.connection.head_fault()) {
            (true, _) => Rejection::TooManyHeaders.into(),
            (false, Some(detail)) => Rejection::Malformed.because(detail),
            (false, None) => Rejection::Malformed.into(),
        };
        self.refuse(cause, Duration::ZERO);
    }

    /// The head will not be read to its end: the client is told so if the socket takes it at once.
    fn give_up_head(&mut self, cause: Cause, waited: Duration, cx: &mut Context<'_>) -> io::Error {
        self.refuse(cause, waited);
        let _ = self.poll_drain(cx);
        io::ErrorKind::TimedOut.into()
    }

    /// Reads what belongs to the request being read, and no byte of the next one: those are waited with
    /// until the exchange is over, which wakes whoever asks for them.
    fn poll_request(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.framing.is_broken() {
            return self.poll_discard(cx);
        }
        let start = buf.filled().len();
        let enough = self.framing.give(&self.connection, buf);
        let given = buf.filled().len();
        if !enough.map_err(|refused| self.give_up(refused, cx))? {
            match self.transport.poll_read(cx, buf)? {
                Poll::Pending if given == start => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(())),
                Poll::Ready(()) if buf.filled().len() == given => return Poll::Ready(Ok(())),
                Poll::Ready(()) => {}
            }
            let cut = self.framing.cut(&self.connection, buf, given);
            cut.map_err(|refused| self.give_up(refused, cx))?;
        }
        if buf.filled().len() == start { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Whoever reads on only waits for the client to end: it must not be reset before it has its answer.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut scratch = [0; 4096];
            let mut read = ReadBuf::new(&mut scratch);
            ready!(self.transport.poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn give_up(&mut self, refused: Refused, cx: &mut Context<'_>) -> io::Error {
        match refused {
            Refused::Head(cause) => self.give_up_head(cause, Duration::ZERO, cx),
            Refused::Body(bad) => bad.into(),
        }
    }

    fn head_exceeds(&self) -> Option<Rejection> {
        if self.connection.phase() != Phase::Head {
            return None;
        }
        self.framing.head.exceeds(self.connection.heads(), || self.refusals.snapshots.load().limits)
    }

    /// Listens on after the last word. A socket closed with unread bytes is reset, and the reset may
    /// overtake the answer on its way to a client that is still sending.
    pub(super) async fn linger(&mut self) {
        let mut scratch = [0; 4096];
        let mut read = 0;
        let listen = async {
            while let Ok(count) = self.socket_mut().read(&mut scratch).await {
                read += count;
                if count == 0 || read > LINGER_LIMIT {
                    return;
                }
            }
        };
        // Whatever comes of it, the connection closes now.
        let _ = tokio::time::timeout(LINGER, listen).await;
    }
}

impl AsyncRead for EdgeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.inspection.as_ref().is_some_and(|inspection| inspection.is_over()) {
            // Whoever serves the connection was told, and ends it.
            return Poll::Pending;
        }
        if let Some(rejection) = this.head_exceeds() {
            return Poll::Ready(Err(this.give_up_head(rejection.into(), Duration::ZERO, cx)));
        }
        let before = buf.filled().len();
        let read = this.poll_request(cx, buf)?;
        let count = read.map(|()| buf.filled().len() - before);
        if count.is_ready()
            && let Some(inspection) = &mut this.inspection
        {
            inspection.read(&mut buf.filled_mut()[before..]);
        }
        if count.is_pending() && this.goodbye.is_some() {
            this.poll_goodbye(cx)?;
        }
        if count.is_pending() && !this.out.is_empty() && this.connection.phase() == Phase::Exchange {
            this.poll_pass_on(cx)?;
        }
        match this.deadline.check(&this.connection, count, cx) {
            None => read.map(Ok),
            Some(Expired::Head) => {
                let waited = this.deadline.header_timeout();
                Poll::Ready(Err(this.give_up_head(Rejection::HeaderTimeout.into(), waited, cx)))
            }
            Some(Expired::Tunnel) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl AsyncWrite for EdgeStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.is_engine_refusal(buf) {
            this.refuse_malformed();
            return Poll::Ready(Ok(buf.len()));
        }
        let put = match this.connection.is_websocket() {
            true => this.poll_write_websocket(cx, buf),
            false => this.poll_put(cx, buf),
        };
        if let Poll::Ready(Ok(count)) = put {
            this.deadline.wrote();
            this.inspect_written(buf.get(..count).unwrap_or_default());
        }
        this.in_time(put, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(answer) = self.connection.take_answer() {
            self.answer = answer;
        }
        if let Some(inspection) = &mut self.inspection {
            let interims = inspection.interims(cx);
            if !interims.is_empty() {
                self.buffer().extend_from_slice(&interims);
            }
        }
        let drained = self.poll_drain(cx);
        ready!(self.in_time(drained, cx))?;
        self.transport.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let drained = self.poll_drain(cx);
        ready!(self.in_time(drained, cx))?;
        self.transport.poll_shutdown(cx)
    }
}

impl EdgeStream {
    /// The one deadline of everything that is written to a client, whoever writes it: the client has as long to take what
    /// there is as for a piece of a response; in a tunnel, as long as that may be silent.
    fn in_time<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let limit = match self.connection.phase() {
            Phase::Tunnel => self.connection.tunnel_idle(),
            _ => self.refusals.snapshots.load().limits.body_idle_timeout,
        };
        if !self.deadline.write_is_late(limit, cx) {
            return Poll::Pending;
        }
        self.connection.stalled();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Records what the library behind HTTP/2 refuses by itself.
    fn inspect_written(&mut self, bytes: &[u8]) {
        let Some(inspection) = &mut self.inspection else { return };
        for _ in 0..inspection.wrote(bytes) {
            self.refusals.record(&self.connection, Rejection::Malformed.into(), Duration::ZERO, 0);
        }
    }

    fn poll_put(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.out.is_empty() && buf.len() >= BUFFER {
            let count = ready!(self.transport.poll_write(cx, buf))?;
            self.deadline.all_taken();
            return Poll::Ready(Ok(count));
        }
        let room = BUFFER.saturating_sub(self.out.len());
        if room == 0 {
            ready!(self.poll_drain(cx))?;
            return Poll::Ready(Ok(self.take(buf, BUFFER)));
        }
        Poll::Ready(Ok(self.take(buf, room)))
    }

    /// Whoever waits for the client while a response is on its way has nothing more of it for now: what there is goes out
    /// without the rest. While pieces come one behind the other nobody waits, and they leave together.
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let drained = self.poll_drain(cx);
        if self.in_time(drained, cx)?.is_ready() {
            let _ = self.transport.poll_flush(cx)?;
        }
        Ok(())
    }

    /// Follows the frames. What comes after the client was told is dropped.
    fn poll_write_websocket(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.goodbye.as_ref().is_some_and(|goodbye| goodbye.is_said()) {
            return Poll::Ready(Ok(buf.len()));
        }
        let put = self.poll_put(cx, buf)?;
        let goodbye = self.goodbye.get_or_insert_default();
        match put {
            Poll::Ready(count) => goodbye.wrote(buf.get(..count)),
            Poll::Pending => goodbye.wrote(None),
        }
        // The engine flushes what it writes, and this along with it.
        self.say_goodbye();
        put.map(Ok)
    }

    /// Tells the client if that is due, and is woken when it becomes so.
    fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.transport.socket().register(cx.waker());
        self.say_goodbye();
        if self.goodbye.as_ref().is_some_and(|goodbye| goodbye.is_said()) && self.poll_drain(cx)?.is_ready() {
            let _ = self.transport.poll_flush(cx)?;
        }
        Ok(())
    }

    fn say_goodbye(&mut self) {
        if self.connection.is_leaving()
            && let Some(frame) = self.goodbye.as_mut().and_then(|goodbye| goodbye.say())
        {
            self.buffer().extend_from_slice(frame);
        }
    }

    fn take(&mut self, buf: &[u8], room: usize) -> usize {
        let count = buf.len().min(room);
        self.buffer().extend_from_slice(&buf[..count]);
        count
    }
}

/// The engine drops the stream after an exchange that failed, whatever the client was told. One that
/// was answered in full and is to be kept finds its way back here; another gives the client what there is
/// of its response, if the socket takes it at once.
impl Drop for EdgeStream {
    fn drop(&mut self) {
        let _ = self.poll_drain(&mut Context::from_waker(Waker::noop()));
        // SAFETY: taken once, and nothing of this value is used after its drop.
        let transport = unsafe { ManuallyDrop::take(&mut self.transport) };
        if self.connection.wants_back() {
            let kept = EdgeStream {
                transport: ManuallyDrop::new(transport),
                out: std::mem::take(&mut self.out),
                deadline: std::mem::replace(&mut self.deadline, Deadline::new(Duration::ZERO)),
                framing: std::mem::take(&mut self.framing),
                inspection: None,
                connection: Arc::clone(&self.connection),
                refusals: self.refusals.clone(),
                refused: self.refused,
                digests: self.digests.clone(),
                sent: self.sent,
                answer: std::mem::take(&mut self.answer),
                goodbye: None,
            };
            self.connection.give_back(Box::new(kept));
        }
    }
}

impl fmt::Debug for EdgeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeStream").field("peer", &self.connection.peer).finish_non_exhaustive()
    }
}

#[async_trait]
impl Shutdown for EdgeStream {
    async fn shutdown(&mut self) {
        if let Err(error) = AsyncWriteExt::shutdown(self).await {
            log::debug!("closing the connection from {}: {error}", self.connection.peer);
        } else if self.refused || self.framing.is_broken() {
            self.linger().await;
        }
    }
}
