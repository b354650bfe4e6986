//! An exchange over HTTP/2: one stream of a connection that others share.

use super::{Link, Turn};
use bytes::Bytes;
use h2::SendStream;
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::v2::client::Http2Session;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, ready};

/// A request to an upstream of HTTP/2, and its answer.
pub struct Http2Link<'a> {
    stream: &'a mut Http2Session,
    request: SendStream<Bytes>,
    /// What the upstream has not taken yet.
    unsent: Option<Bytes>,
    /// What is unsent is the end.
    is_last: bool,
    is_broken: bool,
    /// Why, until that was told.
    reason: Option<Box<Error>>,
    /// What was taken is to be told.
    is_due: bool,
}

impl<'a> Http2Link<'a> {
    /// Begins an exchange with `head`, which is the whole request if `ended`.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn begin(stream: &'a mut Http2Session, head: RequestHeader, ended: bool) -> Result<Self> {
        stream.write_request_header(Box::new(head), ended)?;
        let Some(request) = stream.take_request_body_writer() else {
            return Error::e_explain(ErrorType::InternalError, "a stream without a body");
        };
        let is_due = false;
        Ok(Http2Link {
            stream,
            request,
            unsent: None,
            is_last: false,
            is_broken: false,
            reason: None,
            is_due,
        })
    }

    /// Sends what there is, as the windows allow.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(piece) = &mut self.unsent {
            let mut part = Bytes::new();
            if !piece.is_empty() {
                self.request.reserve_capacity(piece.len());
                let Some(room) = ready!(self.request.poll_capacity(cx)) else {
                    return Poll::Ready(Error::e_explain(ErrorType::WriteError, "the stream has ended"));
                };
                let room = room.or_err(ErrorType::WriteError, "waiting for the upstream to take more")?;
                part = piece.split_to(room.min(piece.len()));
            }
            let last = piece.is_empty();
            let end = last && self.is_last;
            if last {
                self.unsent = None;
                self.is_due = true;
            }
            if !part.is_empty() || end {
                self.request.send_data(part, end).or_err(ErrorType::WriteError, "sending to the upstream")?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Link for Http2Link<'_> {
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Turn>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            self.is_broken = true;
            self.unsent = None;
            self.reason = Some(error);
        }
        // What it has read so far is kept by the stream.
        if let Poll::Ready(came) = pin!(receive(self.stream)).poll(cx) {
            return Poll::Ready(came.map(Turn::Came));
        }
        if let Some(error) = self.reason.take() {
            return Poll::Ready(Ok(Turn::Broken(error)));
        }
        match std::mem::take(&mut self.is_due) {
            true => Poll::Ready(Ok(Turn::Taken)),
            false => Poll::Pending,
        }
    }

    fn offer(&mut self, piece: Bytes, end: bool) {
        if !self.is_broken {
            self.unsent = Some(piece);
            self.is_last = end;
        }
    }

    fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// What came of an answered request is of use to nobody, and the connection is kept without it.
    fn wants_rest(&self) -> bool {
        false
    }
}

/// What comes next of the answer. May be given up and begun again.
async fn receive(stream: &mut Http2Session) -> Result<HttpTask> {
    if stream.response_header().is_none() {
        stream.read_response_header().await?;
        let end = stream.check_response_end_or_error()?;
        let Some(head) = stream.response_header().cloned() else {
            return Error::e_explain(ErrorType::InternalError, "a head that is not there");
        };
        return Ok(HttpTask::Header(Box::new(head), end));
    }
    loop {
        let Some(piece) = stream.read_response_body().await? else {
            return Ok(match stream.read_trailers().await? {
                Some(trailers) => HttpTask::Trailer(Some(Box::new(trailers))),
                None => HttpTask::Done,
            });
        };
        let end = stream.check_response_end_or_error()?;
        if end || !piece.is_empty() {
            return Ok(HttpTask::Body(Some(piece), end));
        }
    }
}
