//! What the service manager is told (`sd_notify`), by the process it takes for the service.
//!
//! While a successor serves that is the successor: this process says nothing more, or its leaving would
//! look like that of the service.

use log::warn;
use sd_notify::NotifyState;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Another process is the service.
static HANDED_OVER: AtomicBool = AtomicBool::new(false);

/// The process serves, which it does after a failed reload too.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A reload began; `Type=notify-reload` needs the time beside it.
pub fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    tell(&states);
}

/// The service ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// This process is the service from now on, and not the one that was started as such.
pub fn taken_over() {
    tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
}

/// Whether another process is the service now.
pub fn set_handed_over(handed_over: bool) {
    HANDED_OVER.store(handed_over, SeqCst);
}

fn tell(states: &[NotifyState<'_>]) {
    if HANDED_OVER.load(SeqCst) {
        return;
    }
    // Does nothing where no service manager listens.
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot tell the service manager: {error}");
    }
}
