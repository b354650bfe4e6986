//! A websocket client (RFC 6455) that blocks.

use super::client::{Connection, Stream};
use tokio_tungstenite::tungstenite::{self, HandshakeError, Message, WebSocket, handshake::client::Response};

/// An open websocket.
pub struct Socket {
    inner: WebSocket<Stream>,
}

impl Socket {
    /// Shakes hands over a connection; an answer other than 101 is the error.
    pub fn open(
        connection: Connection,
        host: &str,
        path: &str,
    ) -> Result<(Self, Response), tungstenite::Error> {
        let url = format!("ws://{host}{path}");
        match tungstenite::client(url, connection.into_stream()) {
            Ok((inner, response)) => Ok((Socket { inner }, response)),
            Err(HandshakeError::Failure(error)) => Err(error),
            Err(HandshakeError::Interrupted(_)) => panic!("no answer to the handshake in time"),
        }
    }

    /// Sends a text and waits for the next one.
    pub fn echo(&mut self, text: &str) -> String {
        self.try_echo(text).expect("an echo")
    }

    /// The same, giving what went wrong.
    pub fn try_echo(&mut self, text: &str) -> Result<String, tungstenite::Error> {
        self.inner.send(Message::text(text))?;
        Ok(self.inner.read()?.into_text()?.to_string())
    }

    /// Reads until the other side says Close, answers that and waits for the end; gives its status.
    pub fn wait_close_code(&mut self) -> Option<u16> {
        let mut code = None;
        while let Ok(message) = self.inner.read() {
            if let Message::Close(frame) = message {
                code = frame.map(|frame| frame.code.into());
            }
        }
        code
    }

    /// Waits until the other side closes.
    pub fn wait_closed(&mut self) {
        while self.inner.read().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::origin::{Origin, Reply};
    use super::*;

    #[test]
    fn the_scripted_origin_echoes() {
        let origin = Origin::script(|_| Reply::WebSocketEcho);
        let connection = Connection::open(origin.address().parse().unwrap());
        let (mut socket, response) = Socket::open(connection, "x", "/chat").unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(socket.echo("hello"), "hello");
        assert_eq!(origin.only_request().line(), "GET /chat HTTP/1.1");
    }
}
