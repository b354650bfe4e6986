//! Who may hold connections to the admin port, and how many.
//!
//! Nobody is turned away: a newcomer takes the place of the oldest connection of its own address, or, when all
//! places are taken, of the address that has most. Who opens connections and says nothing, or says it
//! slowly, pushes out its own; a probe, which asks as soon as it is in, has its answer long before.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Notify;

/// Connections at once.
const ALL: usize = 2_048;
/// Of them, connections of one address.
const OF_ONE: usize = 1_024;

/// The connections there are, the oldest first.
#[derive(Default)]
pub(super) struct Places(Mutex<Vec<Held>>);

struct Held {
    peer: IpAddr,
    lost: Arc<Notify>,
}

/// A connection's place, until it is dropped or lost.
pub(super) struct Place {
    places: Arc<Places>,
    lost: Arc<Notify>,
}

impl Places {
    /// A place for a connection from this address.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Place {
        let mut held = self.0.lock();
        if let Some(oldest) = who_must_go(&held, peer) {
            held.remove(oldest).lost.notify_one();
        }
        let lost = Arc::new(Notify::new());
        held.push(Held { peer, lost: Arc::clone(&lost) });
        Place { places: Arc::clone(self), lost }
    }
}

impl Place {
    /// Returns when a newer connection has the place.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.lock().retain(|held| !Arc::ptr_eq(&held.lost, &self.lost));
    }
}

fn who_must_go(held: &[Held], peer: IpAddr) -> Option<usize> {
    let own = held.iter().filter(|held| held.peer == peer).count();
    let from = match held.len() {
        _ if own >= OF_ONE => peer,
        ALL.. => who_has_most(held)?,
        _ => return None,
    };
    held.iter().position(|held| held.peer == from)
}

fn who_has_most(held: &[Held]) -> Option<IpAddr> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for held in held {
        *counts.entry(held.peer).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn is_lost(place: &Place) -> bool {
        timeout(Duration::from_millis(1), place.lost()).await.is_ok()
    }

    fn address(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_too_often_pushes_out_its_own_oldest() {
        let places = Arc::new(Places::default());
        let other = places.take(address(1));
        let mut own: Vec<Place> = (0..OF_ONE).map(|_| places.take(address(2))).collect();
        assert!(!is_lost(&own[0]).await);
        own.push(places.take(address(2)));
        assert!(is_lost(&own[0]).await && !is_lost(&own[1]).await && !is_lost(&other).await);
        drop(own.pop());
        own.push(places.take(address(2)));
        assert!(!is_lost(&own[1]).await, "a place that was given back was free");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_are_taken_the_address_with_most_gives() {
        let places = Arc::new(Places::default());
        let first = places.take(address(0));
        let many: Vec<Place> = (0..OF_ONE).map(|_| places.take(address(1))).collect();
        let rest: Vec<Place> =
            (0..ALL - OF_ONE - 1).map(|number| places.take(address(2 + number as u16))).collect();
        assert!(!is_lost(&many[0]).await);
        let newcomer = places.take(address(u16::MAX));
        assert!(is_lost(&many[0]).await && !is_lost(&first).await && !is_lost(&rest[0]).await);
        assert!(!is_lost(&newcomer).await);
    }
}
