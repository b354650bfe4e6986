//! Leaving: readiness off, listeners closed after a delay, running exchanges finished, last log
//! lines written; and all of it as soon as possible.
//!
//! Who asks once more does not want to wait: what runs is cut. A worker that is stuck would keep the process
//! for ever, because the engine waits for its threads: then the process ends without it.

use super::handover::Handover;
use crate::background::heartbeat::Heartbeats;
use crate::background::readiness::Readiness;
use crate::background::signals::Signals;
use crate::background::systemd;
use crate::edge::drain::{Drain, Patience};
use crate::edge::listener_set::ListenerSet;
use crate::snapshot::SnapshotStore;
use crate::telemetry::access_log::writer::AccessLogWriter;
use crate::telemetry::logging;
use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use signal_hook::low_level;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time the last access records get to reach their file.
const FLUSH: Duration = Duration::from_secs(5);
/// Time that cut connections get to end after `shutdown.drain`.
const CUT: Duration = Duration::from_secs(1);
/// Time the threads of the process get to end after that.
const END: Duration = Duration::from_secs(3);
/// How a process ends of which a thread did not: docs/operations.md has the others.
const STUCK: i32 = 4;

/// Stands in for the engine's own signal handling, whose grace period is a sleep.
pub struct Leaving {
    /// Who asks us to leave.
    pub signals: Signals,
    /// For `shutdown.delay` of the configuration that serves.
    pub store: Arc<SnapshotStore>,
    /// Told first, so that load balancers look elsewhere.
    pub readiness: Arc<Readiness>,
    /// Closed next, which makes the workers drain.
    pub listeners: Arc<ListenerSet>,
    /// Whether another process serves on the same sockets.
    pub handover: Arc<Handover>,
    /// What is waited for.
    pub drain: Arc<Drain>,
    /// For how long.
    pub patience: Arc<Patience>,
    /// Flushed last.
    pub access_log: Arc<AccessLogWriter>,
    /// Says who does not end.
    pub heartbeats: Arc<Heartbeats>,
}

#[async_trait]
impl ShutdownSignalWatch for Leaving {
    async fn recv(&self) -> ShutdownSignal {
        self.asked().await;
        log::info!("draining for at most {:?}", self.patience.limit());
        self.readiness.set_draining();
        tokio::select! {
            () = self.drained() => {}
            () = self.cut_short() => {}
        }
        let access_log = Arc::clone(&self.access_log);
        let flushed = tokio::task::spawn_blocking(move || access_log.shutdown(FLUSH)).await;
        if !flushed.unwrap_or(false) {
            log::warn!("the last access records could not be written");
        }
        self.end_without_the_stuck();
        ShutdownSignal::FastShutdown
    }
}

impl Leaving {
    /// Waits until the process is to leave.
    async fn asked(&self) {
        loop {
            tokio::select! {
                _ = self.signals.termination() => return,
                () = self.signals.quit() => {}
            }
            if self.handover.has_successor() {
                log::info!("QUIT: the new process serves");
                return;
            }
            log::error!("QUIT: no new process has taken over (`run --upgrade`): this one serves on");
        }
    }

    /// Takes nothing new, and returns when what runs has ended or has had its time.
    async fn drained(&self) {
        // With a successor the service goes on, and nobody has to look elsewhere.
        if !self.handover.has_successor() {
            systemd::stopping();
            let delay = self.store.load().config.shutdown.delay.0;
            sleep(delay).await;
        }
        self.close();
        let begun = Instant::now();
        tokio::select! {
            () = self.drain.idle() => {}
            // The workers cut what is late; this is for what they cannot.
            () = async { self.patience.over(begun).await; sleep(CUT).await } => self.say_what_is_left(),
        }
    }

    /// Waits for somebody to insist, then ends what runs.
    async fn cut_short(&self) {
        self.signals.insistence().await;
        log::warn!("asked to leave once more: {} connections are cut", self.drain.open());
        self.patience.end();
        self.close();
        tokio::select! {
            () = self.drain.idle() => {}
            () = sleep(CUT) => self.say_what_is_left(),
        }
    }

    fn close(&self) {
        self.handover.leave();
        self.listeners.leave();
    }

    fn say_what_is_left(&self) {
        match self.drain.open() {
            0 => {}
            open => log::warn!("leaving with {open} connections still open"),
        }
    }

    /// Ends the process if it is still there in a moment.
    fn end_without_the_stuck(&self) {
        let heartbeats = Arc::clone(&self.heartbeats);
        let ending = thread::Builder::new().name("end".to_owned()).spawn(move || {
            thread::park_timeout(END);
            let stuck = heartbeats.stuck().unwrap_or_else(|| "a thread does not end".to_owned());
            log::error!("{stuck}: leaving without it");
            logging::flush();
            low_level::exit(STUCK);
        });
        if let Err(error) = ending {
            log::warn!("nothing ends the process if a worker is stuck: {error}");
        }
    }
}
