//! The old process's side: sockets and secrets to whoever is of the same user, one at a time.

use super::{END, Handover, READY, SOCKET, STICKY_SECRET, Successor, TICKET_KEYS, place};
use crate::background::systemd;
use crate::upstream::sticky;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

/// A successor that does not take what it asked for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the next try to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// From here on this process is the one to be asked; whoever asks waits for [`serve`].
///
/// # Errors
/// When there is no place for it.
pub(super) fn claim(handover: &Handover) -> io::Result<UnixListener> {
    let (place, listener) = place::Place::claim(place::path(handover.admin)?)?;
    let mut successor = handover.successor.lock();
    if successor.left {
        place.remove();
    } else {
        successor.place = Some(place);
    }
    Ok(listener)
}

/// Answers until this process leaves. Blocks.
pub(super) fn serve(handover: &Handover, listener: &UnixListener) {
    loop {
        let connection = accept(listener);
        if let Err(error) = hand_over(handover, connection) {
            log::warn!("a new process did not take over: {error}");
        }
        let mut successor = handover.successor.lock();
        if successor.left {
            return;
        }
        if successor.ready {
            log::warn!("the new process has gone; this one goes on");
        }
        *successor = Successor { place: successor.place.take(), ..Successor::default() };
        systemd::set_handed_over(false);
        handover.turn.send_replace(true);
    }
}

/// The next who asks. What keeps it from being accepted, such as a want of descriptors, passes.
fn accept(listener: &UnixListener) -> UnixStream {
    let mut said = false;
    loop {
        match listener.accept() {
            Ok((connection, _)) => return connection,
            Err(error) => {
                if !std::mem::replace(&mut said, true) {
                    log::warn!("a new process cannot be heard for the time being: {error}");
                }
                thread::park_timeout(ACCEPT_PAUSE);
            }
        }
    }
}

/// Hands everything to one new process and stays with it until it, or this one, has gone.
fn hand_over(handover: &Handover, mut connection: UnixStream) -> io::Result<()> {
    let peer = getsockopt(&connection, PeerCredentials)?;
    if peer.uid() != place::user() {
        return Err(io::Error::other(format!("it belongs to user {}", peer.uid())));
    }
    connection.set_write_timeout(Some(PATIENCE))?;
    for socket in handover.sockets()? {
        send(&connection, &socket)?;
    }
    send_secret(&connection, TICKET_KEYS, &handover.tickets.export())?;
    send_secret(&connection, STICKY_SECRET, &sticky::process_secret())?;
    connection.write_all(&[END])?;
    {
        let mut successor = handover.successor.lock();
        if successor.left {
            return Ok(());
        }
        successor.connection = Some(connection.try_clone()?);
    }
    log::info!("process {} is taking over the listening sockets", peer.pid());
    let mut message = [0];
    while connection.read(&mut message)? > 0 {
        if message == [READY] && !handover.successor.lock().left {
            handover.successor.lock().ready = true;
            systemd::set_handed_over(true);
            handover.turn.send_replace(false);
            connection.write_all(&[READY])?;
            log::info!("process {} serves as well: QUIT makes this one leave", peer.pid());
        }
    }
    Ok(())
}

fn send(connection: &UnixStream, socket: &TcpListener) -> io::Result<()> {
    let rights = [socket.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&rights)];
    let text = [IoSlice::new(&[SOCKET])];
    sendmsg::<()>(connection.as_raw_fd(), &text, &control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

fn send_secret(mut connection: &UnixStream, kind: u8, secret: &[u8]) -> io::Result<()> {
    let length = u8::try_from(secret.len()).map_err(io::Error::other)?;
    connection.write_all(&[kind, length])?;
    connection.write_all(secret)
}
