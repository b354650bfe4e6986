//! The new process's side: asks the old one for its sockets, and says when it serves.

use super::{END, MAX_SOCKETS, READY, SOCKET, STICKY_SECRET, TICKET_KEYS, place};
use crate::upstream::sticky::ProcessSecret;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A process that does not answer is busy with another successor, or stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process that is taken over from. Dropping it before [`Predecessor::confirm`] leaves everything
/// to it.
pub struct Predecessor {
    connection: UnixStream,
}

/// What the old process hands over.
#[derive(Default)]
pub struct Inheritance {
    /// Of its listeners and of its admin port.
    pub sockets: Vec<TcpListener>,
    /// As `TicketKeys::export` gave them.
    pub ticket_keys: Vec<u8>,
    /// Of sticky cookies, unless the old one is too old to tell.
    pub sticky_secret: Option<ProcessSecret>,
}

enum Message {
    Socket(TcpListener),
    /// Of which kind, and what it is.
    Secret(u8, Vec<u8>),
    End,
}

/// Why nothing could be taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// No folder a process could be asked in.
    #[error("{0}")]
    Folder(io::Error),
    /// Nobody answers there.
    #[error("no gateway with this admin address answers at {}: {error}", path.display())]
    Nobody {
        /// The socket file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The talk broke off.
    #[error("the running gateway did not hand over its sockets: {0}")]
    Broken(#[from] io::Error),
}

impl Predecessor {
    /// Asks the gateway with this admin address, of the same user, for what it hands over.
    ///
    /// # Errors
    /// When there is none, or it does not answer.
    pub fn ask(admin: SocketAddr) -> Result<(Self, Inheritance), TakeError> {
        let path = place::path(admin).map_err(TakeError::Folder)?;
        let connection =
            UnixStream::connect(&path).map_err(|error| TakeError::Nobody { path: path.clone(), error })?;
        let peer = getsockopt(&connection, PeerCredentials).map_err(io::Error::from)?;
        if peer.uid() != place::user() {
            let error = io::Error::other(format!("it belongs to user {}", peer.uid()));
            return Err(TakeError::Nobody { path, error });
        }
        connection.set_read_timeout(Some(PATIENCE))?;
        let mut inherited = Inheritance::default();
        loop {
            match receive(&connection)? {
                Message::End => break,
                Message::Secret(TICKET_KEYS, keys) => inherited.ticket_keys = keys,
                Message::Secret(STICKY_SECRET, secret) => inherited.sticky_secret = secret.try_into().ok(),
                Message::Secret(..) => {}
                Message::Socket(_) if inherited.sockets.len() == MAX_SOCKETS => {
                    return Err(io::Error::other("too many sockets").into());
                }
                Message::Socket(socket) => inherited.sockets.push(socket),
            }
        }
        Ok((Predecessor { connection }, inherited))
    }

    /// This process serves: the other one may leave. Returns when that knows, or has gone.
    pub fn confirm(&self) {
        let mut connection = &self.connection;
        let noted = connection.write_all(&[READY]).and_then(|()| connection.read_exact(&mut [0]));
        // From now on it is waited for without a deadline.
        if let Err(error) = noted.and(connection.set_read_timeout(None)) {
            log::warn!("the process before this one does not answer: {error}");
        }
    }

    /// Returns when the other one leaves or has gone. Blocks.
    pub fn wait_gone(&self) {
        // It has nothing more to say: an end or an error is what is waited for.
        while matches!((&self.connection).read(&mut [0]), Ok(1..)) {}
    }
}

fn receive(mut connection: &UnixStream) -> io::Result<Message> {
    let mut byte = [0];
    let (length, socket) = receive_byte(connection, &mut byte)?;
    match (length, byte, socket) {
        (1, [SOCKET], Some(socket)) => Ok(Message::Socket(TcpListener::from(socket))),
        (1, [END], None) => Ok(Message::End),
        (1, [kind], None) if kind.is_ascii_uppercase() && kind != SOCKET => {
            let mut length = [0];
            connection.read_exact(&mut length)?;
            let mut secret = vec![0; usize::from(length[0])];
            connection.read_exact(&mut secret)?;
            Ok(Message::Secret(kind, secret))
        }
        (0, ..) => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::Error::other("it says what this version does not understand")),
    }
}

/// One byte, unless the other side has gone, and the socket that may come with it.
fn receive_byte(connection: &UnixStream, byte: &mut [u8; 1]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut text = [IoSliceMut::new(byte)];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(connection.as_raw_fd(), &mut text, Some(&mut space), flags)?;
    let mut rights = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made these descriptors, for us alone.
            rights.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((message.bytes, rights.pop()))
}
