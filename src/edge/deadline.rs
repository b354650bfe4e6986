//! The deadlines only the stream can keep: a whole header block, silence of a tunnel, and what the client has to take.
//!
//! The engine's timeouts are per read, so a byte every few seconds would hold a connection for
//! ever. A head that arrives in one read costs nothing here: the timer is made when a head makes its
//! reader wait. It has begun by then, because the door asks for none before its client has spoken; under
//! TLS that may be part of a record, of which no read tells.

use super::connection::{Connection, Phase};
use super::silence::Silence;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Which deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// The header block was not complete in time.
    Head,
    /// The tunnel was silent both ways for too long.
    Tunnel,
}

/// The deadlines of one connection.
#[derive(Debug)]
pub struct Deadline {
    header_timeout: Duration,
    heads: u32,
    head: Option<Pin<Box<Sleep>>>,
    tunnel: Option<Silence>,
    write: Option<Silence>,
    write_waits: bool,
}

impl Deadline {
    /// `header_timeout` is for a whole header block, from its first byte.
    pub fn new(header_timeout: Duration) -> Self {
        Deadline { header_timeout, heads: 0, head: None, tunnel: None, write: None, write_waits: false }
    }

    /// The time a whole header block has.
    pub fn header_timeout(&self) -> Duration {
        self.header_timeout
    }

    /// Notes that bytes went out: a tunnel is not silent.
    pub fn wrote(&mut self) {
        if let Some(silence) = &mut self.tunnel {
            silence.broken();
        }
    }

    /// Notes that the socket has taken all there was: nothing waits to be written.
    pub fn all_taken(&mut self) {
        self.write_waits = false;
    }

    /// Says whether what there is to write has waited for `limit`, given that it has to wait. Registers the task for
    /// the moment it will have. Nothing is done here for what the socket takes at once.
    pub fn write_is_late(&mut self, limit: Duration, cx: &mut Context<'_>) -> bool {
        let silence = self.write.get_or_insert_default();
        if !std::mem::replace(&mut self.write_waits, true) {
            silence.broken();
        }
        silence.poll_exceeded(limit, cx).is_ready()
    }

    /// Says whether a deadline has passed, given what the read just did (`Ready(n)` = n bytes). Registers
    /// the task for the moment the deadline passes.
    pub fn check(
        &mut self,
        connection: &Connection,
        read: Poll<usize>,
        cx: &mut Context<'_>,
    ) -> Option<Expired> {
        match connection.phase() {
            Phase::Head => self.check_head(connection, read, cx),
            Phase::Tunnel => self.check_tunnel(connection.tunnel_idle(), read, cx),
            Phase::Exchange | Phase::Multiplexed => {
                self.head = None;
                None
            }
        }
    }

    fn check_head(
        &mut self,
        connection: &Connection,
        read: Poll<usize>,
        cx: &mut Context<'_>,
    ) -> Option<Expired> {
        if self.heads != connection.heads() {
            (self.heads, self.head) = (connection.heads(), None);
        }
        if read == Poll::Ready(0) || (self.head.is_none() && read.is_ready()) {
            return None;
        }
        let timer = self.head.get_or_insert_with(|| Box::pin(sleep(self.header_timeout)));
        timer.as_mut().poll(cx).is_ready().then_some(Expired::Head)
    }

    fn check_tunnel(&mut self, idle: Duration, read: Poll<usize>, cx: &mut Context<'_>) -> Option<Expired> {
        let silence = self.tunnel.get_or_insert_with(Silence::default);
        if read.is_ready() {
            silence.broken();
            return None;
        }
        silence.poll_exceeded(idle, cx).is_ready().then_some(Expired::Tunnel)
    }
}
