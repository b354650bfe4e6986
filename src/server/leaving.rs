//! Leaving: readiness off, listeners closed after a delay, running exchanges finished, last log
//! lines written; and all of it as soon as possible.

use super::handover::Handover;
use crate::background::readiness::Readiness;
use crate::background::signals::Signals;
use crate::edge::drain::Drain;
use crate::edge::listener_set::ListenerSet;
use crate::snapshot::SnapshotStore;
use crate::telemetry::access_log::writer::AccessLogWriter;
use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Time the last access records get to reach their file.
const FLUSH: Duration = Duration::from_secs(5);

/// Time that cut connections get to end after `shutdown.drain`.
const CUT: Duration = Duration::from_secs(1);

/// Stands in for the engine's own signal handling, whose grace period is a sleep.
pub struct Leaving {
    /// Who asks us to leave.
    pub signals: Signals,
    /// For `shutdown` of the configuration that serves.
    pub store: Arc<SnapshotStore>,
    /// Told first, so that load balancers look elsewhere.
    pub readiness: Arc<Readiness>,
    /// Closed next, which makes the workers drain.
    pub listeners: Arc<ListenerSet>,
    /// Whether another process serves on the same sockets.
    pub handover: Arc<Handover>,
    /// What is waited for.
    pub drain: Arc<Drain>,
    /// Flushed last.
    pub access_log: Arc<AccessLogWriter>,
}

#[async_trait]
impl ShutdownSignalWatch for Leaving {
    async fn recv(&self) -> ShutdownSignal {
        let handed_over = self.asked().await;
        let shutdown = self.store.load().config.shutdown.clone();
        log::info!("draining for at most {:?}", shutdown.drain.0);
        self.readiness.set_draining();
        if !handed_over {
            // With a successor the service goes on, and nobody has to look elsewhere.
            tell_stopping();
            tokio::time::sleep(shutdown.delay.0).await;
        }
        self.handover.leave();
        self.listeners.leave();
        // The workers cut what is late; this is for what they cannot.
        if timeout(shutdown.drain.0 + CUT, self.drain.idle()).await.is_err() {
            log::warn!("leaving with {} connections still open", self.drain.open());
        }
        let access_log = Arc::clone(&self.access_log);
        let flushed = tokio::task::spawn_blocking(move || access_log.shutdown(FLUSH)).await;
        if !flushed.unwrap_or(false) {
            log::warn!("the last access records could not be written");
        }
        ShutdownSignal::FastShutdown
    }
}

impl Leaving {
    /// Waits until the process is to leave; true: another one serves on its sockets.
    async fn asked(&self) -> bool {
        loop {
            tokio::select! {
                _ = self.signals.termination() => return false,
                () = self.signals.quit() => {}
            }
            if self.handover.has_successor() {
                log::info!("QUIT: the new process serves");
                return true;
            }
            log::error!("QUIT: no new process has taken over (`run --upgrade`): this one serves on");
        }
    }
}

fn tell_stopping() {
    // Does nothing where no service manager listens.
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Stopping]) {
        log::warn!("cannot tell the service manager: {error}");
    }
}
