//! The least a check can ask: a connection, and the TLS handshake where there is one.

use super::Failure;
use pingora_core::protocols::Stream;

/// The connection is there: that was the question.
pub(super) async fn ask(mut stream: Stream) -> Result<(), Failure> {
    stream.shutdown().await;
    Ok(())
}
