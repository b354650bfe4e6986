//! Two deadlines only the stream can keep: a whole header block, and silence of a tunnel.
//!
//! The engine's timeouts are per read, so a byte every few seconds would hold a connection for
//! ever. A head that arrives in one read costs nothing here: the timer is made when a head that
//! has begun makes the reader wait.

use super::connection::{Connection, Phase};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

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
    begun: bool,
    active: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// `header_timeout` is for a whole header block, from its first byte.
    pub fn new(header_timeout: Duration) -> Self {
        Deadline { header_timeout, heads: 0, begun: false, active: None, timer: None }
    }

    /// Notes that bytes went out: a tunnel is not silent.
    pub fn wrote(&mut self, connection: &Connection) {
        if connection.phase() == Phase::Tunnel {
            self.active = Some(Instant::now());
        }
    }

    /// Says whether a deadline has passed, given what the read just did (`Ready(n)` = n bytes).
    /// Registers the task for the moment the deadline passes.
    pub fn check(
        &mut self,
        connection: &Connection,
        read: Poll<usize>,
        cx: &mut Context<'_>,
    ) -> Option<Expired> {
        match connection.phase() {
            Phase::Head => self.check_head(connection.heads(), read, cx),
            Phase::Tunnel => self.check_tunnel(connection.tunnel_idle(), read, cx),
            Phase::Exchange | Phase::Multiplexed => {
                self.timer = None;
                None
            }
        }
    }

    fn check_head(&mut self, heads: u32, read: Poll<usize>, cx: &mut Context<'_>) -> Option<Expired> {
        if self.heads != heads {
            (self.heads, self.begun, self.timer) = (heads, false, None);
        }
        match read {
            Poll::Ready(0) => return None,
            Poll::Ready(_) => self.begun = true,
            Poll::Pending => {}
        }
        if self.timer.is_none() && (read.is_ready() || !self.begun) {
            return None;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.header_timeout)));
        timer.as_mut().poll(cx).is_ready().then_some(Expired::Head)
    }

    fn check_tunnel(&mut self, idle: Duration, read: Poll<usize>, cx: &mut Context<'_>) -> Option<Expired> {
        if read.is_ready() {
            self.active = Some(Instant::now());
            return None;
        }
        let active = *self.active.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(active + idle)));
        while timer.as_mut().poll(cx).is_ready() {
            if active.elapsed() >= idle {
                return Some(Expired::Tunnel);
            }
            timer.as_mut().reset(active + idle);
        }
        None
    }
}
