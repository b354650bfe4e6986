//! New session ticket keys, now and then: whoever steals one opens few sessions with it.
//!
//! One key seals for `tls.ticket_lifetime` and opens for as long again, so that every ticket can be used
//! for its whole life. Knows nothing of what a key is.

use crate::snapshot::{Shared, SnapshotStore};
use async_trait::async_trait;
use log::{error, info};
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A lifetime that a reload made shorter is noticed after this long at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Rotates the keys until the process leaves.
pub struct TicketRotation {
    /// Whose keys are rotated.
    pub shared: Shared,
    /// Says how long a key seals.
    pub store: Arc<SnapshotStore>,
}

impl TicketRotation {
    async fn rotate_forever(&self) {
        loop {
            let lifetime = self.store.load().config.tls.ticket_lifetime.0;
            // Keys that came from another process have the age they had there.
            let left = lifetime.saturating_sub(self.shared.tickets.age());
            if !left.is_zero() {
                sleep(left.min(LONGEST_SLEEP)).await;
                continue;
            }
            match self.shared.tickets.rotate() {
                Ok(()) => info!("a new key seals session tickets"),
                Err(error) => {
                    error!("no new key for session tickets, the old one goes on: {error}");
                    sleep(LONGEST_SLEEP).await;
                }
            }
        }
    }
}

#[async_trait]
impl BackgroundService for TicketRotation {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            () = self.rotate_forever() => {}
            // A sender that is gone means the same.
            _ = shutdown.wait_for(|ending| *ending) => {}
        }
    }
}
