//! The endpoints of a pool at one time, and which of them may be chosen now.
//!
//! Immutable but for a view of the endpoints' states: when endpoints come or go, a pool takes another set;
//! what is known of those that stay is in their states. The view is worked out again after a change, by
//! whoever picks next, and one at a time; the others go by the old one meanwhile. What is put before traffic is
//! brought up to date first. Knows nothing of how endpoints are found out.
//!
//! Who may be chosen: the primaries that are available; when there is none, the backups that are. When
//! fewer primaries than the panic threshold are available and no backup is, all of them, good or bad: too
//! few would only be the next to fail, and so many that are out point at whoever says so. But not those
//! that checks could not even connect to, which is no opinion, unless nobody is available. Drained
//! endpoints, and those whose first check has not ended, never. Another try for a request goes to one that
//! is available as long as there is one.

use super::endpoint::Endpoint;
use super::moment::Moment;
use super::state::{Changes, Health, Mode};
use super::tier::{Tier, Wish};
use crate::config::UpstreamConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Endpoints and their chooser.
#[derive(Debug)]
pub struct Members {
    /// All, in file order.
    endpoints: Box<[Arc<Endpoint>]>,
    primaries: Option<Tier>,
    backups: Option<Tier>,
    /// In percent of the primaries.
    panic_percent: u64,
    changes: Arc<Changes>,
    view: View,
}

/// What was found when states were looked at last.
#[derive(Debug)]
struct View {
    /// The count of changes it covers.
    changes: AtomicU64,
    /// When something changes by itself: an ejection ends, a slow start is over.
    until: AtomicU64,
    serving: AtomicU8,
    updating: AtomicBool,
}

/// Which endpoints get the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Serving {
    /// None: all are out.
    Nobody,
    /// The primaries that are available.
    Primaries,
    /// The backups that are available.
    Backups,
    /// All, whether they are available or not.
    Panic,
}

/// How many endpoints of a tier can be used, and how many are well.
#[derive(Clone, Copy)]
struct Count {
    usable: u64,
    available: u64,
}

impl Members {
    /// A set to choose from; one without endpoints is allowed.
    pub fn new(config: &UpstreamConfig, endpoints: Vec<Arc<Endpoint>>, changes: Arc<Changes>) -> Members {
        let (backups, primaries): (Vec<_>, Vec<_>) =
            endpoints.iter().cloned().partition(|endpoint| endpoint.backup);
        let tier = |endpoints| Tier::new(&config.balance, config.slow_start.0, endpoints);
        Members {
            endpoints: endpoints.into(),
            primaries: tier(primaries),
            backups: tier(backups),
            panic_percent: u64::from(config.panic_percent),
            changes,
            view: View {
                changes: AtomicU64::new(u64::MAX),
                until: AtomicU64::new(0),
                serving: AtomicU8::new(Serving::Nobody as u8),
                updating: AtomicBool::new(false),
            },
        }
        .with_view()
    }

    /// All of them, in the order they were given.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Which of them get the requests now.
    pub fn serving(&self) -> Serving {
        self.look();
        match self.view.serving.load(Ordering::Relaxed) {
            0 => Serving::Nobody,
            1 => Serving::Primaries,
            2 => Serving::Backups,
            _ => Serving::Panic,
        }
    }

    /// Chooses an endpoint that may be chosen and is not in `avoid`; when those that serve are used up, one
    /// of the backups. Neither locks nor allocates.
    pub fn pick(&self, wish: Wish, avoid: &[Arc<Endpoint>]) -> Option<&Arc<Endpoint>> {
        let (first, second) = self.tiers();
        first?.pick(wish, avoid).or_else(|| second?.pick(wish, avoid))
    }

    /// Whether [`Members::pick`] would find one. Uses up nobody's turn.
    pub fn has(&self, avoid: &[Arc<Endpoint>]) -> bool {
        let (first, second) = self.tiers();
        first.is_some_and(|tier| tier.has(avoid)) || second.is_some_and(|tier| tier.has(avoid))
    }

    /// The tier that serves, and the one after it.
    fn tiers(&self) -> (Option<&Tier>, Option<&Tier>) {
        match self.serving() {
            Serving::Nobody => (None, None),
            Serving::Backups => (self.backups.as_ref(), None),
            Serving::Primaries | Serving::Panic => match &self.primaries {
                Some(primaries) => (Some(primaries), self.backups.as_ref()),
                None => (self.backups.as_ref(), None),
            },
        }
    }

    fn with_view(self) -> Members {
        self.look();
        self
    }

    /// Makes the view cover what has changed so far, and waits for somebody who is at it. Traffic goes by an old
    /// view meanwhile, which must not be one in which nobody may be chosen yet; so this comes before traffic.
    pub fn bring_up_to_date(&self) {
        let changes = self.changes.count();
        while self.view.changes.load(Ordering::Acquire) < changes {
            self.look();
            std::thread::yield_now();
        }
    }

    /// Brings the view up to date, unless somebody is at it.
    fn look(&self) {
        let view = &self.view;
        let until = view.until.load(Ordering::Relaxed);
        let changed = || view.changes.load(Ordering::Relaxed) != self.changes.count();
        let over = || until != Moment::NEVER.0 && Moment::now().0 >= until;
        if (changed() || over()) && !view.updating.swap(true, Ordering::Acquire) {
            self.settle();
            view.updating.store(false, Ordering::Release);
        }
    }

    fn settle(&self) {
        let view = &self.view;
        // Counted before states are read: a change in between is seen next time.
        let changes = self.changes.count();
        let now = Moment::now();
        let ejections = self.endpoints.iter().map(|endpoint| endpoint.state.ejected_until());
        let back = ejections.filter(|until| *until > now).min().unwrap_or(Moment::NEVER);
        let well = |endpoint: &Endpoint| endpoint.state.available(now);
        let (primaries, backups) = (self.count(&self.primaries, now), self.count(&self.backups, now));
        let enough = primaries.available * 100 >= primaries.usable * self.panic_percent;
        let serving = match (primaries, backups) {
            (Count { available: 1.., .. }, Count { available: 1.., .. }) => Serving::Primaries,
            (Count { available: 1.., .. }, _) if enough => Serving::Primaries,
            (_, Count { available: 1.., .. }) => Serving::Backups,
            (Count { usable: 1.., .. }, _) | (_, Count { usable: 1.., .. }) if self.panic_percent > 0 => {
                Serving::Panic
            }
            _ => Serving::Nobody,
        };
        let nobody = primaries.available + backups.available == 0;
        let in_panic = |endpoint: &Endpoint| usable(endpoint) && (nobody || endpoint.state.reachable());
        let mut until = back;
        for tier in [&self.primaries, &self.backups].into_iter().flatten() {
            let over = match serving {
                // Where all serve, nobody can be spared for a slow start.
                Serving::Panic => tier.settle(now, false, in_panic, well),
                _ => tier.settle(now, true, well, well),
            };
            until = until.min(over);
        }
        view.serving.store(serving as u8, Ordering::Relaxed);
        view.until.store(until.0, Ordering::Relaxed);
        view.changes.store(changes, Ordering::Release);
    }

    fn count(&self, tier: &Option<Tier>, now: Moment) -> Count {
        let endpoints = tier.as_ref().map_or(&[][..], Tier::endpoints);
        let count = |fit: &dyn Fn(&Endpoint) -> bool| {
            endpoints.iter().filter(|endpoint| fit(endpoint)).count() as u64
        };
        Count { usable: count(&usable), available: count(&|endpoint| endpoint.state.available(now)) }
    }
}

/// Whether it may be tried at all.
fn usable(endpoint: &Endpoint) -> bool {
    endpoint.state.mode() == Mode::Enabled && endpoint.state.health() != Health::Pending
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
