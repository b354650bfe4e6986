//! Choosing an endpoint allocates nothing, by whatever policy and whoever is out.
//!
//! A test program of its own, because it counts what its whole process allocates: on the thread that asks.

use portcullis::config::{BalanceConfig, EndpointConfig, HashBy, UpstreamConfig};
use portcullis::upstream::endpoint::Endpoint;
use portcullis::upstream::members::Members;
use portcullis::upstream::moment::Moment;
use portcullis::upstream::slots::key;
use portcullis::upstream::state::{EndpointStates, Health};
use portcullis::upstream::tier::Wish;
use portcullis::upstream::transport::Transport;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> usize {
    let before = COUNT.with(Cell::get);
    run();
    COUNT.with(Cell::get) - before
}

fn members(balance: BalanceConfig) -> (Members, Vec<Arc<Endpoint>>) {
    let endpoint = |port: u16| EndpointConfig {
        weight: u32::from(port % 5) + 1,
        backup: port >= 90,
        ..EndpointConfig::at(([10, 0, 0, 1], 1_000 + port).into())
    };
    let slow_start = portcullis::config::HumanDuration(Duration::from_secs(3600));
    let config =
        UpstreamConfig { balance, slow_start, ..UpstreamConfig::inline((0..100).map(endpoint).collect()) };
    let states = EndpointStates::default();
    let endpoint = |config: &EndpointConfig| {
        let (transport, address) = (Transport::default(), config.address.clone());
        Arc::new(Endpoint::new(config, address, &transport, true, &states, Health::Up, Moment::now()))
    };
    let endpoints: Vec<_> = config.endpoints.iter().map(endpoint).collect();
    (Members::new(&config, endpoints.clone(), Arc::clone(states.changes())), endpoints)
}

fn down(endpoints: &[Arc<Endpoint>]) {
    for endpoint in endpoints {
        endpoint.state.set_health(Health::Down);
    }
}

#[test]
fn the_count_sees_an_allocation() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn a_choice_allocates_nothing_by_any_policy() {
    for balance in [
        BalanceConfig::RoundRobin,
        BalanceConfig::Random,
        BalanceConfig::LeastRequests,
        BalanceConfig::P2c,
        BalanceConfig::Hash(HashBy::Client),
    ] {
        let name = format!("{balance:?}");
        let (members, endpoints) = members(balance);
        let choose = |avoid: &[Arc<Endpoint>]| {
            for number in 0..10_000_u64 {
                let wish = Wish { key: Some(key(&number.to_le_bytes())), token: Some(u128::from(number)) };
                assert!(members.pick(wish, avoid).is_some());
            }
        };
        // The first choice of a thread seeds its generator.
        choose(&[]);
        assert_eq!(allocations(|| choose(&[])), 0, "{name}");
        assert_eq!(allocations(|| choose(&endpoints[..3])), 0, "{name}, some avoided");
        down(&endpoints[..50]);
        endpoints[50].state.eject_until(Moment::now().plus(Duration::from_secs(60)));
        assert_eq!(allocations(|| choose(&[])), 0, "{name}, half of them out");
        down(&endpoints[..90]);
        assert_eq!(allocations(|| choose(&[])), 0, "{name}, by backups");
    }
}
