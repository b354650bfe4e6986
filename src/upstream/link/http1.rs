//! An exchange over HTTP/1.

use super::{Link, Turn, acknowledged};
use crate::http1::response_body::{ResponseBody, keeps_connection};
use crate::http1::response_head;
use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode};
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::HttpTask;
use std::cell::RefCell;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Most that is read at once, and what a client that does not read holds of an answer.
const READ: usize = 32 * 1024;

/// A piece up to this size is copied behind what frames it, where that saves a write.
const COPIED: usize = 16 * 1024;

/// Most of a request that is one TLS record (RFC 8446 section 5.1).
const RECORD: usize = 16 * 1024;

thread_local! {
    /// What is read on this worker, until it is taken: an exchange that waits holds no room for its answer.
    static READ_HERE: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into_boxed_slice());
}

/// A request to an upstream of HTTP/1, and its answer.
pub struct Http1Link {
    stream: Stream,
    method: Method,
    sending: Sending,
    receiving: Receiving,
    /// Another request may follow: the last head allows it.
    is_kept: bool,
}

/// The request on its way.
struct Sending {
    /// What is to be written, in this order: the head, then what is offered of the body and what frames it.
    parts: [Bytes; 4],
    /// How much of the head is still to be written.
    head: usize,
    /// How much of the request was written.
    written: usize,
    /// Something was written and may wait in the stream.
    is_unflushed: bool,
    /// The body goes in chunks.
    chunked: bool,
    /// What became of the last piece is to be told: nothing, that it is gone, or why not.
    told: Told,
    state: State,
}

enum Told {
    Nothing,
    Due,
    Broken(Box<Error>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// More of the body is to come.
    Open,
    /// All was offered.
    Ended,
    Broken,
}

/// The answer on its way.
struct Receiving {
    /// Bytes that came and were not taken: of a head that is not complete, or behind one.
    rest: BytesMut,
    /// `None` before the final head.
    body: Option<ResponseBody>,
    /// The end of the answer was given.
    is_done: bool,
    /// The connection was closed in order.
    has_closed: bool,
}

impl Http1Link {
    /// Begins an exchange: `head` is the head of a `method` request, with as much of the body behind it as is to go in
    /// the same write. The body is complete if `ended`, else it goes up in chunks if `chunked`, or as it is.
    pub fn new(stream: Stream, method: Method, request: Vec<u8>, head: usize, body: RequestFraming) -> Self {
        let (chunked, state) = match body {
            RequestFraming::Complete => (false, State::Ended),
            RequestFraming::Length => (false, State::Open),
            RequestFraming::Chunked => (true, State::Open),
        };
        let parts = [Bytes::from(request), Bytes::new(), Bytes::new(), Bytes::new()];
        // A body is read when its head is gone.
        let told = if state == State::Open { Told::Due } else { Told::Nothing };
        let sending = Sending { parts, head, written: 0, is_unflushed: false, chunked, told, state };
        let receiving = Receiving { rest: BytesMut::new(), body: None, is_done: false, has_closed: false };
        Http1Link { stream, method, sending, receiving, is_kept: false }
    }

    /// Gives the connection back if another request may follow on it; else it is closed.
    pub async fn release(mut self) -> Option<Stream> {
        let is_whole = self.receiving.is_done && self.receiving.rest.is_empty() && self.is_kept;
        if is_whole && self.sending.state == State::Ended && !self.has_unsent() {
            return Some(self.stream);
        }
        // Of no consequence: it is gone either way.
        let _ = self.stream.shutdown().await;
        None
    }

    /// Whether the upstream cannot be at work on the request: it has no whole head of it, or has acknowledged nothing.
    /// Asked when the exchange has failed.
    pub async fn is_unseen(&self) -> bool {
        let sending = &self.sending;
        let receiving = &self.receiving;
        let has_only_ended = receiving.has_closed && receiving.body.is_none() && receiving.rest.is_empty();
        sending.head > 0
            || (has_only_ended
                && sending.written <= RECORD
                && acknowledged::nothing(self.stream.id(), sending.written).await)
    }

    /// The connection, and what came behind the head that was read last: it is another protocol's from there on.
    pub fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.receiving.rest.into())
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<HttpTask>> {
        if !self.receiving.rest.is_empty() {
            let rest = std::mem::take(&mut self.receiving.rest);
            if let Some(task) = self.take(&rest)? {
                return Poll::Ready(Ok(task));
            }
        }
        READ_HERE.with_borrow_mut(|room| {
            loop {
                let mut read = ReadBuf::new(room);
                let came = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read));
                came.or_err(ErrorType::ReadError, "reading an answer")?;
                if read.filled().is_empty() {
                    return Poll::Ready(self.closed());
                }
                if let Some(task) = self.take(read.filled())? {
                    return Poll::Ready(Ok(task));
                }
            }
        })
    }

    /// Takes what came; what is behind it is kept. `None`: more has to come.
    fn take(&mut self, came: &[u8]) -> Result<Option<HttpTask>> {
        if self.receiving.body.is_some() {
            return self.take_body(came);
        }
        if self.receiving.rest.is_empty() {
            return self.take_head(came);
        }
        // The head has come in parts.
        self.receiving.rest.extend_from_slice(came);
        let all = std::mem::take(&mut self.receiving.rest);
        self.take_head(&all)
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<HttpTask>> {
        let Some(response_head::Read { head, length, taken }) = response_head::read(bytes)? else {
            self.receiving.rest.extend_from_slice(bytes);
            return Ok(None);
        };
        self.receiving.rest.extend_from_slice(bytes.get(taken..).unwrap_or_default());
        if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(HttpTask::Header(head, false)));
        }
        let body = ResponseBody::of(&head, length, &self.method);
        let end = body.has_ended();
        self.is_kept = keeps_connection(&head) && body != ResponseBody::UntilClose;
        self.receiving.body = Some(body);
        self.receiving.is_done = end;
        Ok(Some(HttpTask::Header(head, end)))
    }

    fn take_body(&mut self, bytes: &[u8]) -> Result<Option<HttpTask>> {
        let Some(body) = &mut self.receiving.body else { return Ok(None) };
        let piece = body.take(bytes).or_else(|fault| Error::e_explain(ErrorType::H1Error, fault))?;
        let end = body.has_ended();
        self.receiving.is_done = end;
        self.receiving.rest.extend_from_slice(bytes.get(piece.taken..).unwrap_or_default());
        let is_something = end || !piece.data.is_empty();
        Ok(is_something.then_some(HttpTask::Body(Some(piece.data), end)))
    }

    /// What the end of the connection means.
    fn closed(&mut self) -> Result<HttpTask> {
        self.receiving.has_closed = true;
        if self.receiving.body != Some(ResponseBody::UntilClose) {
            return Error::e_explain(ErrorType::ConnectionClosed, "before the end of an answer");
        }
        self.receiving.is_done = true;
        Ok(HttpTask::Body(None, true))
    }

    /// Writes what there is, and sees it out.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let sending = &mut self.sending;
        while sending.parts.iter().any(|part| !part.is_empty()) {
            let written = ready!(write_parts(Pin::new(&mut self.stream), cx, &sending.parts));
            let written = written.or_err(ErrorType::WriteError, "sending a request")?;
            if written == 0 {
                return Poll::Ready(Error::e_explain(ErrorType::WriteError, "a request is not taken"));
            }
            sending.is_unflushed = true;
            sending.wrote(written);
        }
        if sending.is_unflushed {
            let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
            flushed.or_err(ErrorType::WriteError, "sending a request")?;
            sending.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// How the body behind a head goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFraming {
    /// It stands behind its head already, or there is none.
    Complete,
    /// As it is: the head says how long it is.
    Length,
    /// In chunks.
    Chunked,
}

impl Sending {
    fn wrote(&mut self, mut written: usize) {
        self.head = self.head.saturating_sub(written);
        self.written += written;
        for part in &mut self.parts {
            let here = written.min(part.len());
            part.advance(here);
            written -= here;
        }
    }

    fn fail(&mut self, error: Box<Error>) {
        self.state = State::Broken;
        self.parts = Default::default();
        self.is_unflushed = false;
        self.told = Told::Broken(error);
    }

    fn tell(&mut self) -> Option<Turn> {
        match std::mem::replace(&mut self.told, Told::Nothing) {
            Told::Nothing => None,
            Told::Due => Some(Turn::Taken),
            Told::Broken(error) => Some(Turn::Broken(error)),
        }
    }
}

impl Link for Http1Link {
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Turn>> {
        if self.has_unsent()
            && let Poll::Ready(Err(error)) = self.poll_send(cx)
        {
            self.sending.fail(error);
        }
        if let Poll::Ready(came) = self.poll_receive(cx) {
            return Poll::Ready(came.map(Turn::Came));
        }
        if !self.has_unsent()
            && let Some(turn) = self.sending.tell()
        {
            return Poll::Ready(Ok(turn));
        }
        Poll::Pending
    }

    fn offer(&mut self, piece: Bytes, end: bool) {
        if self.sending.state != State::Open {
            return;
        }
        if end {
            self.sending.state = State::Ended;
        }
        self.sending.told = Told::Due;
        let [before, piece, after] = match self.sending.chunked {
            false => [Bytes::new(), piece, Bytes::new()],
            true => chunk(piece, end, self.stream.is_write_vectored()),
        };
        let [head, ..] = std::mem::take(&mut self.sending.parts);
        self.sending.parts = [head, before, piece, after];
    }

    fn has_unsent(&self) -> bool {
        self.sending.is_unflushed || self.sending.parts.iter().any(|part| !part.is_empty())
    }

    fn is_broken(&self) -> bool {
        self.sending.state == State::Broken
    }

    fn wants_rest(&self) -> bool {
        self.is_kept
    }
}

/// A piece as a chunk, and the last chunk behind it at the end (RFC 9112 section 7.1).
fn chunk(piece: Bytes, end: bool, vectored: bool) -> [Bytes; 3] {
    const LAST: &[u8] = b"0\r\n\r\n";
    if piece.is_empty() {
        return [Bytes::from_static(if end { LAST } else { b"" }), Bytes::new(), Bytes::new()];
    }
    let size = format!("{:X}\r\n", piece.len());
    let after: &'static [u8] = if end { b"\r\n0\r\n\r\n" } else { b"\r\n" };
    if vectored && piece.len() > COPIED {
        return [Bytes::from(size), piece, Bytes::from_static(after)];
    }
    [Bytes::from([size.as_bytes(), &piece, after].concat()), Bytes::new(), Bytes::new()]
}

fn write_parts(
    stream: Pin<&mut Stream>,
    cx: &mut Context<'_>,
    parts: &[Bytes; 4],
) -> Poll<std::io::Result<usize>> {
    let mut left = parts.iter().filter(|part| !part.is_empty());
    match (left.next(), left.next()) {
        (Some(only), None) => stream.poll_write(cx, only),
        _ => stream.poll_write_vectored(cx, &parts.each_ref().map(|part| IoSlice::new(part))),
    }
}
