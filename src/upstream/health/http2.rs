//! One exchange over HTTP/2 on a connection of its own, for checks that speak it.

use super::{Failure, MAX_BODY};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, response};
use pingora_core::protocols::Stream;

/// Largest head of an answer, in bytes.
const MAX_HEAD: u32 = 16 * 1024;

/// An answer, as far as it was read.
pub(super) struct Answer {
    pub(super) head: response::Parts,
    /// At most 64 KiB.
    pub(super) body: Vec<u8>,
    /// None if the body was not read to its end.
    pub(super) trailers: HeaderMap,
}

/// Sends `request` with this body and reads the answer until head and body are `enough`, or to its end.
/// The connection is gone afterwards.
pub(super) async fn exchange(
    stream: Stream,
    request: Request<()>,
    body: Bytes,
    enough: impl Fn(&response::Parts, &[u8]) -> bool,
) -> Result<Answer, Failure> {
    let (sender, connection) = h2::client::Builder::new()
        .enable_push(false)
        .max_header_list_size(MAX_HEAD)
        .handshake(stream)
        .await
        .map_err(Failure::protocol)?;
    tokio::select! {
        // First: the answer may have been the last thing of the connection.
        biased;
        answer = answer(sender, request, body, enough) => answer,
        ended = connection => Err(match ended {
            Ok(()) => Failure::protocol("the connection ended before the answer"),
            Err(error) => Failure::protocol(error),
        }),
    }
}

async fn answer(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
    enough: impl Fn(&response::Parts, &[u8]) -> bool,
) -> Result<Answer, Failure> {
    let mut sender = sender.ready().await.map_err(Failure::protocol)?;
    let empty = body.is_empty();
    let (answer, mut stream) = sender.send_request(request, empty).map_err(Failure::protocol)?;
    if !empty {
        stream.send_data(body, true).map_err(Failure::protocol)?;
    }
    let (head, mut received) = answer.await.map_err(Failure::protocol)?.into_parts();
    let mut body = Vec::new();
    while body.len() < MAX_BODY && !enough(&head, &body) {
        let Some(piece) = received.data().await else {
            let trailers = received.trailers().await.map_err(Failure::protocol)?.unwrap_or_default();
            return Ok(Answer { head, body, trailers });
        };
        let piece = piece.map_err(Failure::protocol)?;
        let _ = received.flow_control().release_capacity(piece.len());
        body.extend(piece.iter().take(MAX_BODY - body.len()));
    }
    Ok(Answer { head, body, trailers: HeaderMap::new() })
}
