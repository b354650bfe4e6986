//! What the operator tells the process by signals, from the first moment of `main`.
//!
//! Handlers are installed before anything else happens ([`CaughtSignals::install`]), so that a HUP
//! during start-up never kills the process (a bare process dies of it). They only note the signal;
//! what it means is decided later: a command that serves *listens* ([`CaughtSignals::listen`]), any
//! other command gives the system's own meaning back ([`CaughtSignals::release`]).
//!
//! Handlers and not a blocked mask: children inherit a mask across `exec` but not handlers, and a
//! signal caught before anybody listens is kept either way. One thread waits in the pipe that the
//! handlers write to; there is no polling.

use crate::telemetry::logging;
use log::{info, warn};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals as SignalQueue;
use signal_hook::low_level;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tokio::sync::{Notify, watch};

/// Signals that are caught and kept, but not yet given a meaning.
#[must_use = "caught signals do nothing until somebody listens or releases them"]
pub struct CaughtSignals {
    queue: SignalQueue,
}

/// The signals of a serving process. Clones share what arrived.
#[derive(Clone)]
pub struct Signals {
    inbox: Arc<Inbox>,
}

/// How the process was asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// TERM: drain and leave.
    Terminate,
    /// INT: drain and leave.
    Interrupt,
}

struct Inbox {
    /// A permit and not a count: any number of HUPs during a reload ask for exactly one more.
    reload: Notify,
    reopen: Notify,
    quit: Notify,
    insistence: Notify,
    termination: watch::Sender<Option<Termination>>,
    /// Somebody takes care of [`Inbox::termination`].
    serving: AtomicBool,
}

impl CaughtSignals {
    /// Catches HUP, USR1, USR2, TERM, INT and QUIT. To be called first thing in `main`.
    ///
    /// # Errors
    /// When the system refuses a handler or the pipe behind it.
    pub fn install() -> io::Result<Self> {
        let queue = SignalQueue::new([SIGHUP, SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGQUIT])?;
        Ok(CaughtSignals { queue })
    }

    /// For a command that serves: from here on HUP asks for a reload and USR1 for reopened log
    /// files, now or as soon as somebody waits for them; USR2 does nothing but a line of the log. TERM, INT and QUIT end the process with
    /// exit code 0 until [`Signals::termination`] is called, and complete that from then on.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn listen(mut self) -> io::Result<Signals> {
        let signals = Signals { inbox: Arc::new(Inbox::new()) };
        let inbox = Arc::clone(&signals.inbox);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in self.queue.forever() {
                if inbox.deliver(signal) == Delivered::NobodyServes {
                    // Nothing has been accepted yet, so there is nothing to drain.
                    logging::flush();
                    low_level::exit(0);
                }
            }
        })?;
        Ok(signals)
    }

    /// For a command that does not serve: every signal means again what it means to any program,
    /// those that arrived already included.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn release(mut self) -> io::Result<()> {
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in self.queue.forever() {
                // Ends the process; it fails only for signals that cannot be caught at all.
                let _ = low_level::emulate_default_handler(signal);
            }
        })?;
        Ok(())
    }
}

impl Signals {
    /// Signals nobody sends: for a process that is driven by other means, such as a test.
    pub fn silent() -> Self {
        Signals { inbox: Arc::new(Inbox::new()) }
    }

    /// What HUP does.
    pub fn ask_for_reload(&self) {
        self.inbox.reload.notify_one();
    }

    /// Completes once for all HUPs since it last completed. One waiter.
    pub async fn reload(&self) {
        self.inbox.reload.notified().await;
    }

    /// Completes once for all USR1s since it last completed. One waiter.
    pub async fn reopen(&self) {
        self.inbox.reopen.notified().await;
    }

    /// Completes once for all QUITs since it last completed: leave, if another process serves. One waiter.
    pub async fn quit(&self) {
        self.inbox.quit.notified().await;
    }

    /// Takes over from the default (leaving at once) and completes when the process is asked to
    /// leave; at once when it was asked already. The first signal decides.
    pub async fn termination(&self) -> Termination {
        let mut asked = self.claim();
        loop {
            if let Some(termination) = *asked.borrow_and_update() {
                return termination;
            }
            // The sender lives in the inbox this borrows, so it cannot be gone.
            let _ = asked.changed().await;
        }
    }

    /// Completes when the process is asked to leave once more: now, whatever runs.
    pub async fn insistence(&self) {
        self.inbox.insistence.notified().await;
    }

    /// From here on TERM, INT and QUIT no longer end the process by themselves: the caller
    /// promises to look at [`Signals::termination`].
    pub fn claim(&self) -> watch::Receiver<Option<Termination>> {
        let asked = self.inbox.termination.subscribe();
        self.inbox.serving.store(true, Ordering::SeqCst);
        asked
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Delivered {
    Noted,
    NobodyServes,
}

impl Inbox {
    fn new() -> Self {
        Inbox {
            reload: Notify::new(),
            reopen: Notify::new(),
            quit: Notify::new(),
            insistence: Notify::new(),
            termination: watch::Sender::new(None),
            serving: AtomicBool::new(false),
        }
    }

    fn deliver(&self, signal: i32) -> Delivered {
        let termination = match signal {
            SIGHUP => {
                self.reload.notify_one();
                return Delivered::Noted;
            }
            SIGUSR1 => {
                self.reopen.notify_one();
                return Delivered::Noted;
            }
            SIGUSR2 => {
                // Some programs upgrade by it; by itself it would end the process.
                warn!("USR2 has no meaning here: for an upgrade start a new process with `run --upgrade`");
                return Delivered::Noted;
            }
            SIGQUIT => {
                self.quit.notify_one();
                return self.noted();
            }
            SIGTERM => Termination::Terminate,
            _ => Termination::Interrupt,
        };
        info!("asked to leave by {termination:?}");
        let is_first = self.termination.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(termination);
            is_first
        });
        if !is_first {
            self.insistence.notify_one();
        }
        self.noted()
    }

    /// After the note, so that whoever claims between the two finds it.
    fn noted(&self) -> Delivered {
        if self.serving.load(Ordering::SeqCst) { Delivered::Noted } else { Delivered::NobodyServes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn any_number_of_hups_ask_for_one_reload() {
        let signals = Signals::silent();
        for _ in 0..200 {
            assert_eq!(signals.inbox.deliver(SIGHUP), Delivered::Noted);
        }
        signals.reload().await;
        assert!(timeout(SOON, signals.reload()).await.is_err());
    }

    #[tokio::test]
    async fn a_hup_during_a_reload_asks_for_one_more() {
        let signals = Signals::silent();
        signals.inbox.deliver(SIGHUP);
        signals.reload().await;
        signals.inbox.deliver(SIGHUP);
        signals.reload().await;
    }

    #[tokio::test]
    async fn usr1_does_not_reload() {
        let signals = Signals::silent();
        signals.inbox.deliver(SIGUSR1);
        signals.reopen().await;
        assert!(timeout(SOON, signals.reload()).await.is_err());
    }

    #[tokio::test]
    async fn leaving_before_anybody_serves_is_immediate() {
        let signals = Signals::silent();
        assert_eq!(signals.inbox.deliver(SIGTERM), Delivered::NobodyServes);
        assert_eq!(signals.termination().await, Termination::Terminate);
    }

    #[tokio::test]
    async fn quit_ends_a_process_only_while_nobody_serves() {
        let signals = Signals::silent();
        assert_eq!(signals.inbox.deliver(SIGQUIT), Delivered::NobodyServes);
        let asked = signals.claim();
        assert_eq!(signals.inbox.deliver(SIGQUIT), Delivered::Noted);
        signals.quit().await;
        assert_eq!(*asked.borrow(), None);
    }

    #[tokio::test]
    async fn usr2_does_nothing_at_any_time() {
        let signals = Signals::silent();
        assert_eq!(signals.inbox.deliver(SIGUSR2), Delivered::Noted);
        let asked = signals.claim();
        assert_eq!(signals.inbox.deliver(SIGUSR2), Delivered::Noted);
        assert_eq!(*asked.borrow(), None);
    }

    #[tokio::test]
    async fn the_first_request_to_leave_decides_and_the_next_insists() {
        let signals = Signals::silent();
        let asked = signals.claim();
        assert_eq!(signals.inbox.deliver(SIGINT), Delivered::Noted);
        assert!(timeout(SOON, signals.insistence()).await.is_err());
        assert_eq!(signals.inbox.deliver(SIGTERM), Delivered::Noted);
        assert_eq!(*asked.borrow(), Some(Termination::Interrupt));
        assert_eq!(signals.termination().await, Termination::Interrupt);
        signals.insistence().await;
    }
}
