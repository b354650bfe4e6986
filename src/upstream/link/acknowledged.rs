//! What of a request has reached the other side? The kernel knows what was acknowledged.
//!
//! A connection that was closed, in order, before a request came answers that with a reset, and acknowledges nothing: the
//! request was read by nobody, whatever it asks for (RFC 9110 section 9.2.2). A reset alone says nothing: who crashes may
//! have read what its system had not acknowledged yet.

use std::os::fd::RawFd;
use std::time::Duration;

/// How often, and how many times, is looked whether the reset has come.
const LOOK: Duration = Duration::from_millis(2);
const LOOKS: usize = 50;

/// Whether the other side, which has ended the connection, has reset it since and acknowledged none of the last `written` bytes. `written` are at
/// most those of one TLS record: of more, some records may be whole without the rest.
pub(super) async fn nothing(fd: RawFd, written: usize) -> bool {
    for _ in 0..LOOKS {
        match (is_closed(fd), queued(fd, libc::TIOCOUTQ)) {
            (Some(closed), Some(left)) if usize::try_from(left).is_ok_and(|left| left >= written) => {
                if closed {
                    return true;
                }
            }
            _ => return false,
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

/// Whether the connection is over in both directions, which only a reset brings about from outside.
fn is_closed(fd: RawFd) -> Option<bool> {
    /// `TCP_CLOSE` of the kernel.
    const CLOSED: u8 = 7;
    let mut state: u8 = 0;
    let mut length: libc::socklen_t = 1;
    // SAFETY: at most `length` bytes are written, which live as long as the call; the state is the first of them.
    let asked = unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length)
    };
    (asked == 0 && length == 1).then_some(state == CLOSED)
}

/// How many bytes the kernel holds in a direction: `FIONREAD` for us, `TIOCOUTQ` for the other side.
/// `None` when the descriptor is no socket.
pub fn queued(fd: RawFd, direction: libc::Ioctl) -> Option<libc::c_int> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int, which lives as long as the call.
    let asked = unsafe { libc::ioctl(fd, direction, &raw mut bytes) };
    (asked == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connect");
        (client, listener.accept().await.expect("accept").0)
    }

    #[tokio::test]
    async fn what_a_closed_connection_is_sent_was_read_by_nobody() {
        let (mut client, server) = pair().await;
        drop(server);
        assert_eq!(client.read(&mut [0]).await.expect("the end"), 0);
        client.write_all(b"request").await.expect("written");
        assert!(nothing(client.as_raw_fd(), 7).await);
    }

    #[tokio::test]
    async fn what_was_acknowledged_may_have_been_read() {
        let (mut client, mut server) = pair().await;
        server.shutdown().await.expect("half closed");
        client.write_all(b"request").await.expect("written");
        assert!(!nothing(client.as_raw_fd(), 7).await, "it goes on reading");
        let (mut client, mut server) = pair().await;
        client.write_all(b"request").await.expect("written");
        server.read_exact(&mut [0; 7]).await.expect("read");
        client.write_all(b"more").await.expect("written");
        drop(server);
        let _ = client.read(&mut [0]).await;
        assert!(!nothing(client.as_raw_fd(), 11).await, "part of it was read");
    }
}
