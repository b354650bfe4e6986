//! The one place where the serving configuration is swapped.

use super::Snapshot;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// Holds the snapshot that serves. Readers never wait; a publish is one atomic swap, and the old
/// snapshot is freed when the last request that pinned it ends.
pub struct SnapshotStore {
    current: ArcSwap<Snapshot>,
}

impl SnapshotStore {
    /// Starts with the configuration the process was given.
    pub fn new(first: Snapshot) -> Self {
        SnapshotStore { current: ArcSwap::from_pointee(settled(first)) }
    }

    /// A short-lived look at the serving snapshot; must not be held across an await.
    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Pins the serving snapshot for as long as the caller needs it.
    pub fn pin(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Makes `next` the serving snapshot.
    pub fn publish(&self, next: Snapshot) {
        self.current.store(Arc::new(settled(next)));
    }
}

/// What has no problems needs no lines to show them on: they are as large as the file.
fn settled(mut snapshot: Snapshot) -> Snapshot {
    snapshot.source = snapshot.source.without_lines();
    snapshot
}
