//! One worker at one listener: what the connections it accepts there share, and how they leave.
//!
//! Leaving is the same whether the listener was removed or the whole process ends. Every answer from
//! then on closes its connection, HTTP/2 clients get GOAWAY. Connections without a request, or with a part of its
//! head, have a moment to send what may be on its way, then they close. What still runs after `shutdown.drain` is cut.

use super::drain::{Drain, Patience};
use super::idle::Waiting;
use super::listener::{Listener, Settings};
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// A client may have sent a request before it could know that its connection closes: for this long
/// it is still answered.
const LINGER: Duration = Duration::from_millis(500);

/// What is left to do for an exchange whose connection was cut: log it.
const CUT: Duration = Duration::from_secs(1);

/// See the module documentation.
pub struct Post {
    settings: Arc<Settings>,
    leaving: watch::Sender<bool>,
    /// Has never looked, so that its clones notice that the value has changed, however late they are.
    unseen: ShutdownWatch,
    waiting: Arc<Waiting>,
    open: Arc<Drain>,
}

impl Post {
    /// Nobody leaves yet.
    pub fn new(settings: Arc<Settings>) -> Self {
        let (leaving, unseen) = watch::channel(false);
        Post { settings, leaving, unseen, waiting: Arc::default(), open: Arc::default() }
    }

    /// What the next connection is.
    pub fn listener(&self) -> Arc<Listener> {
        self.settings.current()
    }

    /// Tells every connection, those to come included, that it is to end.
    pub fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// Turns true when [`Post::leave`] is called.
    pub fn leaving(&self) -> ShutdownWatch {
        self.unseen.clone()
    }

    /// The connections.
    pub fn waiting(&self) -> &Arc<Waiting> {
        &self.waiting
    }

    /// How many connections are open.
    pub fn open(&self) -> &Arc<Drain> {
        &self.open
    }

    /// Returns when the last connection has ended. Call it after [`Post::leave`]; `patience` is how long
    /// what runs may go on.
    pub async fn drained(&self, patience: &Patience) {
        let begun = Instant::now();
        tokio::select! {
            () = self.open.idle() => return,
            () = sleep(LINGER) => {}
            () = patience.over(begun) => {}
        }
        self.waiting.leave();
        tokio::select! {
            // What has ended needs no cut, even if its time is over as well.
            biased;
            () = self.open.idle() => return,
            () = patience.over(begun) => {}
        }
        let (name, after) = (&self.settings.current().name, begun.elapsed());
        log::warn!("listener `{name}`: {} connections cut after {after:.1?}", self.open.open());
        self.waiting.cut();
        let _ = timeout(CUT, self.open.idle()).await;
    }
}
