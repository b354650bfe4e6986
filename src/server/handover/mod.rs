//! An upgrade without a closed port: the listening sockets go to a new process while the old serves.
//!
//! The old process listens on a Unix socket in a private folder ([`place`]). A new one, started with
//! `run --upgrade`, asks there ([`take`]), gets every listening socket, the admin port's included, and
//! says when it serves; from then on both accept, and only then may the old one be told to leave (QUIT).
//! A new process that fails is a connection that ends: the old one serves on as if nothing had been.
//! While a ready successor lives the admin port is its own, so that probes and scrapes see one process.
//!
//! Ticket keys and the secret of sticky cookies go the same way, from memory to memory, so that TLS sessions
//! resume on the new process and clients stay with their endpoints.
//!
//! The talk: one byte for each message, the sockets as rights (SCM_RIGHTS) beside theirs, secrets with their
//! length behind theirs. A secret it does not know is left out by the one that takes over.

mod give;
mod place;
mod take;

pub use self::take::{Inheritance, Predecessor, TakeError};

use crate::background::{Readiness, systemd};
use crate::edge::listener_set::ListenerSet;
use crate::tls::tickets::TicketKeys;
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use tokio::sync::watch;

/// Old to new: a socket comes with this byte.
const SOCKET: u8 = b'S';
/// Old to new: the keys of session tickets follow, their length (one byte) first.
const TICKET_KEYS: u8 = b'T';
/// Old to new: the secret of sticky cookies follows, its length (one byte) first.
const STICKY_SECRET: u8 = b'C';
/// Old to new: that was the last one.
const END: u8 = b'.';
/// New to old: the new process serves. Old to new: noted, QUIT works from now on.
const READY: u8 = b'R';
/// Most sockets handed over.
const MAX_SOCKETS: usize = 1024;

/// What the process knows of the one before it and the one after it. Lives as long as the process.
pub struct Handover {
    admin: SocketAddr,
    admin_socket: TcpListener,
    listeners: Arc<ListenerSet>,
    tickets: TicketKeys,
    /// Whether the admin port is this process's to serve.
    turn: watch::Sender<bool>,
    successor: Mutex<Successor>,
}

#[derive(Default)]
struct Successor {
    connection: Option<UnixStream>,
    ready: bool,
    /// This process leaves: nobody takes over any more.
    left: bool,
    /// Where this process can be asked, once it can.
    place: Option<place::Place>,
}

impl Handover {
    /// Offers the sockets of `listeners` and the admin port, and the `tickets`' keys. One that takes over (`upgrade`) serves the
    /// admin port only when it is ready.
    pub fn new(
        admin: SocketAddr,
        admin_socket: TcpListener,
        listeners: Arc<ListenerSet>,
        tickets: TicketKeys,
        upgrade: bool,
    ) -> Self {
        let turn = watch::Sender::new(!upgrade);
        Handover { admin, admin_socket, listeners, tickets, turn, successor: Mutex::default() }
    }

    /// For a process that takes over from nobody: from here on it can be asked. Without a place for that
    /// it serves all the same.
    pub fn claim(&self) -> Option<UnixListener> {
        give::claim(self).inspect_err(cannot_be_asked).ok()
    }

    /// Whether the admin port is this process's to serve, now and later.
    pub fn turn(&self) -> watch::Receiver<bool> {
        self.turn.subscribe()
    }

    /// Whether another process serves on the same sockets.
    pub fn has_successor(&self) -> bool {
        self.successor.lock().ready
    }

    /// This process leaves. A successor hears of it and becomes the one to be asked.
    pub fn leave(&self) {
        let mut successor = self.successor.lock();
        successor.left = true;
        match (successor.connection.take(), successor.place.take()) {
            // It has gone if it does not hear this; the place is for it to take.
            (Some(connection), _) => drop(connection.shutdown(std::net::Shutdown::Both)),
            (None, Some(place)) => place.remove(),
            (None, None) => {}
        }
    }

    /// Every socket that is to be handed over now.
    fn sockets(&self) -> std::io::Result<Vec<TcpListener>> {
        let listeners = self.listeners.now();
        let listeners = listeners.iter().map(|bound| bound.socket().try_clone());
        listeners.chain([self.admin_socket.try_clone()]).collect()
    }
}

/// Takes over, then can be taken over from.
pub struct HandoverService {
    /// Shared with those who leave and who serve the admin port.
    pub handover: Arc<Handover>,
    /// The process that is taken over from.
    pub predecessor: Mutex<Option<Predecessor>>,
    /// Where it is asked already; else it will be where the predecessor was.
    pub asked: Mutex<Option<UnixListener>>,
    /// For when this process serves.
    pub readiness: Arc<Readiness>,
}

#[async_trait]
impl BackgroundService for HandoverService {
    async fn start(&self, _shutdown: ShutdownWatch) {
        self.readiness.until_ready().await;
        let predecessor = self.predecessor.lock().take();
        let (handover, asked) = (Arc::clone(&self.handover), self.asked.lock().take());
        // It waits for other processes for as long as this one lives.
        let waiting = thread::Builder::new().name("handover".to_owned()).spawn(move || {
            handover.turn.send_replace(true);
            let asked = match predecessor {
                Some(predecessor) => succeed(&handover, &predecessor),
                None => asked,
            };
            if let Some(asked) = asked {
                give::serve(&handover, &asked);
            }
        });
        if let Err(error) = waiting {
            cannot_be_asked(&error);
        }
    }
}

/// Serves beside the predecessor until that has gone, then is the one to be asked.
fn succeed(handover: &Handover, predecessor: &Predecessor) -> Option<UnixListener> {
    predecessor.confirm();
    // It watches the process it started: from now on it is this one.
    systemd::taken_over();
    predecessor.wait_gone();
    let asked = handover.claim();
    log::info!("the process before this one has handed over");
    asked
}

fn cannot_be_asked(error: &std::io::Error) {
    log::warn!("upgrades need a restart: {error}");
}
