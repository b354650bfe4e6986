//! Who is chosen: by every policy, and in every state endpoints can be in.

use super::*;
use crate::config::{BalanceConfig, EndpointConfig, HashBy, HumanDuration};
use crate::upstream::slots::key;
use crate::upstream::state::EndpointStates;
use crate::upstream::transport::Transport;
use std::time::Duration;

const PICKS: usize = 100_000;

struct Room {
    members: Members,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Room {
    /// Endpoints with these weights; a negative one is a backup's.
    fn new(weights: &[i32], change: impl FnOnce(&mut UpstreamConfig)) -> Room {
        let endpoint = |(port, weight): (u16, &i32)| EndpointConfig {
            weight: weight.unsigned_abs(),
            backup: *weight < 0,
            ..EndpointConfig::at(([10, 0, 0, 1], port).into())
        };
        let mut config = UpstreamConfig::inline((9000..).zip(weights).map(endpoint).collect());
        change(&mut config);
        let states = EndpointStates::default();
        let endpoint = |config: &EndpointConfig| {
            Arc::new(Endpoint::new(
                config,
                config.address.socket().unwrap(),
                &Transport::default(),
                true,
                &states,
                Health::Unchecked,
                Moment::ZERO,
            ))
        };
        let endpoints: Vec<_> = config.endpoints.iter().map(endpoint).collect();
        Room { members: Members::new(&config, endpoints.clone(), Arc::clone(states.changes())), endpoints }
    }

    /// What traffic finds while somebody is looking at the states and has not come to an end.
    fn pick_meanwhile(&self) -> Option<usize> {
        assert!(!self.members.view.updating.swap(true, Ordering::SeqCst));
        let picked = self.pick();
        self.members.view.updating.store(false, Ordering::SeqCst);
        picked
    }

    fn with(balance: BalanceConfig, weights: &[i32]) -> Room {
        Room::new(weights, |config| config.balance = balance)
    }

    fn index(&self, endpoint: &Endpoint) -> usize {
        self.endpoints.iter().position(|it| it.is(endpoint)).unwrap()
    }

    fn pick(&self) -> Option<usize> {
        self.members.pick(Wish::default(), &[]).map(|endpoint| self.index(endpoint))
    }

    /// How often each is chosen in so many picks, in percent.
    fn shares(&self, picks: usize) -> Vec<f64> {
        let mut shares = vec![0.0; self.endpoints.len()];
        for _ in 0..picks {
            shares[self.pick().unwrap()] += 100.0 / picks as f64;
        }
        shares
    }

    fn health(&self, states: &[Health]) {
        for (endpoint, health) in self.endpoints.iter().zip(states) {
            endpoint.state.set_health(*health);
        }
    }

    /// Those that are chosen at all.
    fn chosen(&self) -> Vec<usize> {
        let shares = if self.pick().is_none() { vec![] } else { self.shares(1_000) };
        (0..shares.len()).filter(|member| shares[*member] > 0.0).collect()
    }
}

fn near(shares: &[f64], expected: &[f64]) {
    let off = shares.iter().zip(expected).any(|(share, expected)| (share - expected).abs() > 1.0);
    assert!(!off && shares.len() == expected.len(), "{shares:?} is not {expected:?}");
}

fn policies() -> [BalanceConfig; 4] {
    [BalanceConfig::RoundRobin, BalanceConfig::Random, BalanceConfig::LeastRequests, BalanceConfig::P2c]
}

#[test]
fn every_policy_shares_by_weight_within_a_percent_when_nothing_else_differs() {
    for balance in policies() {
        let room = Room::with(balance, &[5, 3, 2]);
        near(&room.shares(PICKS), &[50.0, 30.0, 20.0]);
    }
}

#[test]
fn the_share_of_one_that_is_out_goes_to_all_others_by_weight() {
    for balance in policies() {
        let room = Room::with(balance, &[5, 5, 3, 2]);
        room.health(&[Health::Down]);
        near(&room.shares(PICKS), &[0.0, 50.0, 30.0, 20.0]);
        room.health(&[Health::Up]);
        near(&room.shares(PICKS), &[33.3, 33.3, 20.0, 13.3]);
    }
}

#[test]
fn requests_go_where_fewest_are_in_flight_for_the_weight() {
    for weights in [vec![2, 1, 1], vec![1; 100]] {
        let room = Room::with(BalanceConfig::LeastRequests, &weights);
        let mut guards: Vec<Vec<_>> = (0..weights.len()).map(|_| Vec::new()).collect();
        for _ in 0..weights.iter().sum::<i32>() * 50 {
            let next = room.pick().unwrap();
            guards[next].push(room.endpoints[next].state.enter());
        }
        for (guards, weight) in guards.iter().zip(&weights) {
            let fair = *weight as usize * 50;
            // Of a hundred, some are compared for each request.
            let off = if weights.len() > 16 { 5 } else { 0 };
            assert!(guards.len().abs_diff(fair) <= off, "{} instead of {fair}", guards.len());
        }
        if weights.len() > 16 {
            continue;
        }
        // Two are done with all they had: everything goes to them.
        guards[0].clear();
        guards[1].clear();
        let picked: Vec<_> = (0..100).map(|_| room.pick().unwrap()).collect();
        assert!(picked.iter().all(|member| *member < 2), "{picked:?}");
        assert!(picked.contains(&0) && picked.contains(&1));
    }
}

#[test]
fn of_two_the_one_that_answers_sooner_is_taken() {
    let room = Room::with(BalanceConfig::P2c, &[1, 1, 1]);
    let now = Moment::now();
    for (endpoint, ms) in room.endpoints.iter().zip([200, 1, 1]) {
        endpoint.state.latency().observe(now, Duration::from_millis(ms));
    }
    near(&room.shares(PICKS), &[0.0, 50.0, 50.0]);
    // Until the fast ones have so much to do that the slow one is as soon done.
    let busy: Vec<_> = (0..500).map(|turn| room.endpoints[1 + turn % 2].state.enter()).collect();
    assert!(room.shares(1_000)[0] > 50.0);
    drop(busy);
    assert!(room.shares(1_000)[0] < 1.0);
}

#[test]
fn an_endpoint_nobody_has_measured_gets_one_request_at_a_time() {
    let room = Room::with(BalanceConfig::P2c, &[1, 1]);
    room.endpoints[0].state.latency().observe(Moment::now(), Duration::from_millis(1));
    assert_eq!(room.pick(), Some(1));
    let _first = room.endpoints[1].state.enter();
    near(&room.shares(1_000), &[100.0, 0.0]);
}

#[test]
fn equal_keys_go_to_one_endpoint_and_requests_without_a_key_to_all() {
    let room = Room::with(BalanceConfig::Hash(HashBy::Path), &[1; 5]);
    let of = |number: u64| {
        let wish = Wish { key: Some(key(&number.to_le_bytes())), token: None };
        room.index(room.members.pick(wish, &[]).unwrap())
    };
    let before: Vec<_> = (0..10_000).map(of).collect();
    room.health(&[Health::Down]);
    for (number, owner) in (0..).zip(&before) {
        assert!(of(number) == *owner || *owner == 0, "only keys of the one that is out move");
        assert_ne!(of(number), 0);
    }
    room.health(&[Health::Up]);
    assert_eq!((0..10_000).map(of).collect::<Vec<_>>(), before);
    near(&room.shares(PICKS), &[20.0; 5]);
}

#[test]
fn backups_serve_when_no_primary_is_available_and_as_a_last_try() {
    let room = Room::new(&[1, 1, -1], |_| {});
    assert_eq!((room.chosen(), room.members.serving()), (vec![0, 1], Serving::Primaries));
    room.health(&[Health::Down]);
    assert_eq!(room.chosen(), [1], "no panic beside a backup");
    let tried = [Arc::clone(&room.endpoints[1])];
    assert!(room.members.has(&tried));
    assert!(room.members.pick(Wish::default(), &tried).unwrap().is(&room.endpoints[2]));
    room.health(&[Health::Down, Health::Down]);
    assert_eq!((room.chosen(), room.members.serving()), (vec![2], Serving::Backups));
    room.health(&[Health::Down, Health::Up]);
    assert_eq!(room.chosen(), [1]);
}

#[test]
fn below_the_panic_threshold_all_serve_but_those_that_never_may() {
    use Health::{Down, Pending, Up};
    let room = Room::new(&[1; 5], |config| config.panic_percent = 50);
    room.health(&[Up, Up, Down, Down]);
    assert_eq!(room.chosen(), [0, 1, 4]);
    room.health(&[Up, Down, Down, Down]);
    assert_eq!((room.chosen(), room.members.serving()), (vec![0, 1, 2, 3, 4], Serving::Panic));
    room.endpoints[1].state.set_reachable(false);
    room.endpoints[4].state.set_reachable(false);
    assert_eq!(room.chosen(), [0, 2, 3, 4], "that nothing listens there is no opinion");
    room.health(&[Pending, Down, Down, Down, Down]);
    assert_eq!(room.chosen(), [1, 2, 3, 4], "none is better than another");
    room.endpoints[1].state.set_mode(Mode::Drained);
    assert_eq!(room.chosen(), [2, 3, 4]);
    for endpoint in &room.endpoints {
        endpoint.state.set_mode(Mode::Drained);
    }
    assert_eq!((room.chosen(), room.members.serving()), (vec![], Serving::Nobody));
    let never = Room::new(&[1, 1, 1], |config| config.panic_percent = 0);
    never.health(&[Down, Down, Up]);
    assert_eq!(never.chosen(), [2]);
    never.health(&[Down, Down, Down]);
    assert_eq!((never.chosen(), never.members.has(&[])), (vec![], false));
}

#[test]
fn in_panic_what_is_tried_again_goes_to_those_that_are_well() {
    for balance in policies() {
        let room = Room::new(&[1; 5], |config| {
            config.panic_percent = 50;
            config.balance = balance.clone();
        });
        room.health(&[Health::Up, Health::Up, Health::Down, Health::Down, Health::Down]);
        let again = |tried: &[usize]| {
            let tried: Vec<_> = tried.iter().map(|member| Arc::clone(&room.endpoints[*member])).collect();
            room.members.pick(Wish::default(), &tried).map(|endpoint| room.index(endpoint))
        };
        assert!((0..100).all(|_| again(&[2]).is_some_and(|member| member < 2)));
        assert!((0..100).all(|_| again(&[2, 0]) == Some(1)));
        assert!((0..100).all(|_| again(&[2, 0, 1]).is_some_and(|member| member > 2)), "the last resort");
        assert_eq!(again(&[0, 1, 2, 3, 4]), None);
    }
}

#[test]
fn by_default_a_small_upstream_uses_the_one_that_is_left() {
    for count in 2..=10 {
        let room = Room::new(&vec![1; count], |_| {});
        let mut states = vec![Health::Down; count];
        states[0] = Health::Up;
        room.health(&states);
        assert_eq!((room.chosen(), room.members.serving()), (vec![0], Serving::Primaries));
        room.health(&[Health::Down]);
        assert_eq!(room.chosen().len(), count, "with none, every one is worth a try");
    }
}

#[test]
fn an_ejected_endpoint_comes_back_by_itself() {
    let room = Room::new(&[1, 1], |_| {});
    let until = Moment::now().plus(Duration::from_millis(30));
    room.endpoints[0].state.eject_until(until);
    assert_eq!(room.pick(), Some(1));
    while Moment::now() < until {
        std::hint::spin_loop();
    }
    assert_eq!(room.chosen(), [0, 1]);
}

#[test]
fn a_newcomer_starts_slowly_and_alone_it_serves_at_once() {
    for balance in policies() {
        let slowly = |config: &mut UpstreamConfig| {
            config.slow_start = HumanDuration::secs(3600);
            config.balance = balance.clone();
        };
        let room = Room::new(&[1, 1, 1, 1, 1], slowly);
        for endpoint in &room.endpoints {
            // Known to answer, so that latency tells nothing apart.
            endpoint.state.latency().observe(Moment::now(), Duration::from_millis(1));
        }
        near(&room.shares(PICKS), &[20.0; 5]);
        room.health(&[Health::Down]);
        room.health(&[Health::Up]);
        let share = room.shares(PICKS)[0];
        assert!((0.5..5.0).contains(&share), "{balance:?}: {share}");
        room.health(&[Health::Up, Health::Down, Health::Down, Health::Down, Health::Down]);
        let room = Room::new(&[1], slowly);
        room.health(&[Health::Down]);
        room.health(&[Health::Up]);
        assert_eq!(room.pick(), Some(0));
    }
}

#[test]
fn workers_see_each_others_requests() {
    let room = Room::with(BalanceConfig::LeastRequests, &[1, 1, 1, 1]);
    let guards: Vec<_> = std::thread::scope(|scope| {
        let worker = || {
            let pick = |_| room.members.pick(Wish::default(), &[]).unwrap().state.enter();
            (0..1_000).map(pick).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    // Workers that look at the same time may choose the same.
    let loads: Vec<_> = room.endpoints.iter().map(|endpoint| endpoint.state.in_flight()).collect();
    assert!(loads.iter().all(|load| (990..=1_010).contains(load)), "{loads:?}");
    drop(guards);
    assert!(room.endpoints.iter().all(|endpoint| endpoint.state.in_flight() == 0));
}

#[test]
fn what_was_brought_up_to_date_is_found_by_all_who_pick_at_once() {
    let room = Room::new(&[1], |_| {});
    let state = &room.endpoints[0].state;
    state.set_health(Health::Pending);
    assert_eq!(room.pick(), None);
    state.set_health(Health::Up);
    assert_eq!(room.pick_meanwhile(), None, "the old view is one of nobody");
    room.members.bring_up_to_date();
    assert_eq!(room.pick_meanwhile(), Some(0));
}
