//! How many connections a listener has, in all and of each client.
//!
//! One for each listener, shared by every worker. A client is an IPv4 address or an IPv6 network of 64
//! bits, which is what one customer gets. Holds one small entry for each client that has a connection,
//! gone with its last one, so it is bounded by the connections themselves. Clients are always counted,
//! limit or not, so that a limit set by a reload sees who is there. It takes a lock once when a
//! connection comes and once when it goes, never for a request.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Locks the clients are spread over.
const SHARDS: usize = 16;
/// A map that was this large is made smaller when it empties.
const ROOMY: usize = 64;

type Shard = Mutex<HashMap<Client, u32, ahash::RandomState>>;

/// Counts the connections of one listener.
pub struct Census {
    open: AtomicU32,
    hasher: ahash::RandomState,
    shards: [Shard; SHARDS],
}

/// One connection among those of its listener; dropping it says that it ended.
pub struct Place(Arc<Census>);

/// One connection among those of its client; dropping it says that it ended.
pub struct ClientPlace {
    census: Arc<Census>,
    client: Client,
}

/// What counts as one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    V4(u32),
    /// The upper half of the address.
    V6(u64),
}

impl Default for Census {
    fn default() -> Self {
        // Random keys, others for each map: nobody can choose addresses that meet in one place.
        let shards = std::array::from_fn(|_| Shard::default());
        Census { open: AtomicU32::new(0), hasher: ahash::RandomState::new(), shards }
    }
}

impl Census {
    /// Counts one more connection; `None` when there are `limit` already.
    pub fn enter(self: &Arc<Self>, limit: u32) -> Option<Place> {
        let take = |open: u32| (open < limit).then_some(open + 1);
        self.open.fetch_update(Relaxed, Relaxed, take).ok()?;
        Some(Place(Arc::clone(self)))
    }

    /// Counts one more connection of a client; `None` when it has `limit` already. Zero = no limit.
    pub fn enter_client(self: &Arc<Self>, address: IpAddr, limit: u32) -> Option<ClientPlace> {
        let client = Client::from(address);
        let mut shard = self.shard(client)?.lock();
        let count = shard.entry(client).or_insert(0);
        if limit != 0 && *count >= limit {
            return None;
        }
        *count = count.saturating_add(1);
        drop(shard);
        Some(ClientPlace { census: Arc::clone(self), client })
    }

    /// Always there: the index is below the number of shards.
    fn shard(&self, client: Client) -> Option<&Shard> {
        let index = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards.get(index)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let Some(shard) = self.census.shard(self.client) else { return };
        let mut shard = shard.lock();
        let Some(count) = shard.get_mut(&self.client) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        shard.remove(&self.client);
        if shard.capacity() > ROOMY && shard.len() < shard.capacity() / 8 {
            let room = shard.len() * 2;
            shard.shrink_to(room);
        }
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Client::V4(address.to_bits()),
            IpAddr::V6(address) => Client::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn entries(census: &Census) -> usize {
        census.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    #[test]
    fn a_full_listener_takes_one_when_one_leaves() {
        let census = Arc::new(Census::default());
        let first = census.enter(2).expect("room");
        let _second = census.enter(2).expect("room");
        assert!(census.enter(2).is_none());
        assert!(census.enter(3).is_some(), "a limit that was raised holds at once");
        drop(first);
        assert!(census.enter(2).is_some());
    }

    #[test]
    fn clients_are_addresses_and_networks_of_64_bits() {
        let census = Arc::new(Census::default());
        let _v4 = census.enter_client(ip("192.0.2.1"), 1).expect("room");
        let _v6 = census.enter_client(ip("2001:db8:0:1::1"), 1).expect("room");
        for taken in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:0:1::1", "2001:db8:0:1:ffff::2"] {
            assert!(census.enter_client(ip(taken), 1).is_none(), "{taken}");
        }
        for free in ["192.0.2.2", "2001:db8:0:2::1", "::1"] {
            assert!(census.enter_client(ip(free), 1).is_some(), "{free}");
        }
    }

    #[test]
    fn without_a_limit_clients_are_counted_all_the_same() {
        let census = Arc::new(Census::default());
        let _places: Vec<_> = (0..3).filter_map(|_| census.enter_client(ip("::1"), 0)).collect();
        assert!(census.enter_client(ip("::1"), 3).is_none());
        assert!(census.enter_client(ip("::1"), 4).is_some());
    }

    #[test]
    fn entries_and_their_room_go_with_the_connections() {
        let census = Arc::new(Census::default());
        let places: Vec<_> =
            (0..100_000u32).filter_map(|n| census.enter_client(IpAddr::V4(n.into()), 1)).collect();
        assert_eq!((places.len(), entries(&census)), (100_000, 100_000));
        drop(places);
        assert_eq!(entries(&census), 0);
        let room: usize = census.shards.iter().map(|shard| shard.lock().capacity()).sum();
        assert!(room <= SHARDS * ROOMY, "{room}");
    }

    #[test]
    fn a_refused_client_leaves_no_entry() {
        let census = Arc::new(Census::default());
        let place = census.enter_client(ip("192.0.2.1"), 1).expect("room");
        assert!(census.enter_client(ip("192.0.2.1"), 1).is_none());
        drop(place);
        assert_eq!(entries(&census), 0);
    }
}
