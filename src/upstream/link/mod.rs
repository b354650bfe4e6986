//! One exchange with an upstream, over a connection that is there: both directions at once.
//!
//! A request goes up as the upstream takes it, and its answer is read meanwhile: neither waits for the other, or an
//! upstream that gives back what it gets would stand still as soon as the buffers between are full. Whoever holds a
//! link asks it for its next [`Turn`]; what may be sent or passed on, and for how long anybody is waited for, is not
//! decided here.

mod acknowledged;
mod http1;
mod http2;

pub use self::acknowledged::queued;
pub use self::http1::{Http1Link, RequestFraming};
pub use self::http2::Http2Link;

use bytes::Bytes;
use pingora::{Error, Result};
use pingora_core::protocols::http::HttpTask;
use std::future::Future;
use std::task::{Context, Poll};

/// What happens next on a link.
pub enum Turn {
    /// A part of the answer came.
    Came(HttpTask),
    /// All that was offered of the request is on its way.
    Taken,
    /// The upstream takes no more of the request. Its answer may come all the same, and say why.
    Broken(Box<Error>),
}

/// An exchange with an upstream.
pub trait Link: Send {
    /// Goes on with both directions until something happens. An answer that is there comes before what became of
    /// the request. Errors are of the upstream.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Turn>>;

    /// Offers a piece of the request's body, or its end, or both. There must be nothing unsent; does nothing once the
    /// request is broken.
    fn offer(&mut self, piece: Bytes, end: bool);

    /// Whether something that was offered is not on its way yet.
    fn has_unsent(&self) -> bool;

    /// Whether the request can be taken no further.
    fn is_broken(&self) -> bool;

    /// Whether the upstream goes on reading a request it has answered.
    fn wants_rest(&self) -> bool;

    /// Waits for the next turn. May be given up and begun again.
    fn turn(&mut self) -> impl Future<Output = Result<Turn>> + Send {
        std::future::poll_fn(|cx| self.poll_turn(cx))
    }
}
