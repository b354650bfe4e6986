//! The pieces of a response on their way to the client, where they are not the engine's to forward.
//!
//! Decides nothing: what is done to a piece are the functions the engine's hooks call, in their order.

use super::context::Exchange;
use super::{response_head, retry, upstream};
use pingora::Result;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v1::client::HttpSession;
use std::future::{Future, ready};
use tokio::select;

/// Pieces that are written at once if they are there at once; as many as the engine.
const PIECES: usize = 4;

/// An exchange with an upstream, as far as its response goes.
pub trait Response {
    /// What comes next of it. May be given up and begun again.
    fn next(&mut self) -> impl Future<Output = Result<HttpTask>> + Send;
}

impl Response for HttpSession {
    async fn next(&mut self) -> Result<HttpTask> {
        self.read_response_task().await
    }
}

/// `first`, and what comes behind it without waiting, each after `pass`.
///
/// # Errors
/// Those of `pass`. What cannot be read is a piece itself: the client is told after what came before.
pub async fn at_hand(
    first: HttpTask,
    response: &mut impl Response,
    mut pass: impl FnMut(&mut HttpTask) -> Result<()>,
) -> Result<Vec<HttpTask>> {
    let mut tasks = Vec::with_capacity(PIECES);
    let mut task = first;
    loop {
        pass(&mut task)?;
        let last = task.is_end() || tasks.len() + 1 == PIECES;
        tasks.push(task);
        if last {
            return Ok(tasks);
        }
        task = select! {
            biased;
            next = response.next() => received(next),
            () = ready(()) => return Ok(tasks),
        };
    }
}

/// What was read, or why it was not.
pub fn received(task: Result<HttpTask>) -> HttpTask {
    task.unwrap_or_else(|error| HttpTask::Failed(error.into_up()))
}

/// What happens to a piece on its way.
///
/// # Errors
/// When the response is given up; the error and the exchange's rejection say why.
pub fn pass(task: &mut HttpTask, session: &mut ServerSession, exchange: &mut Exchange) -> Result<()> {
    match task {
        HttpTask::Header(head, end) => {
            retry::answered(session, head, exchange)?;
            response_head::frame(head, *end, &session.req_header().method)?;
            upstream::answered(session, head, exchange)
        }
        HttpTask::Body(_, end) => {
            upstream::body_arrived(*end, exchange);
            Ok(())
        }
        _ => Ok(()),
    }
}
