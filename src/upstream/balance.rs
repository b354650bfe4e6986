//! Whose turn is it? A choice among weighted members without locks and without allocation.
//!
//! In turn: a smooth schedule is worked out once (the algorithm of nginx: members of high weight are
//! spread out instead of repeated), then a counter walks it. Schedules that would be too long are not
//! stored; a stride through all units of weight gives the same shares per cycle, nearly as smoothly.
//! At random: a draw by weight. Knows nothing of what the members are.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest schedule kept, in turns; 4 bytes each.
const MAX_SCHEDULE: u64 = 1 << 16;

/// Most work spent on making a schedule, in turns × members.
const MAX_SCHEDULE_WORK: u64 = 1 << 22;

/// Turns taken for a member that is free, before they are tried one by one.
const PROBES: u32 = 32;

/// Chooses among members `0..n` by weight.
#[derive(Debug)]
pub struct Balancer {
    /// As given; 0 = never chosen.
    weights: Box<[u32]>,
    order: Order,
    turn: Turn,
}

#[derive(Debug)]
enum Order {
    /// Always this one.
    Only(u32),
    /// The members of one cycle in order.
    Schedule(Box<[u32]>),
    /// Turn t falls on unit t × `step` of a cycle.
    Stride { units: Units, step: u64 },
    /// Each turn falls on any unit.
    Random(Units),
}

/// Each member owns as many consecutive units as it has weight; `ends` are where they end.
#[derive(Debug)]
struct Units {
    ends: Box<[u64]>,
    total: u64,
}

/// The counter has a cache line of its own: every worker writes it, and must not slow down the readers
/// of what lies beside it.
#[derive(Debug)]
#[repr(align(64))]
struct Turn(AtomicU64);

impl Balancer {
    /// Members take turns, smoothly by weight; `None` when no weight is above 0.
    pub fn in_turn(weights: &[u32]) -> Option<Balancer> {
        Balancer::new(weights, |units, divisor| {
            let work = units.total.saturating_mul(weights.len() as u64);
            match units.total <= MAX_SCHEDULE && work <= MAX_SCHEDULE_WORK {
                true => Order::Schedule(smooth_schedule(weights, divisor, units.total)),
                false => Order::Stride { step: golden_step(units.total), units },
            }
        })
    }

    /// Members are drawn by weight; `None` when no weight is above 0.
    pub fn at_random(weights: &[u32]) -> Option<Balancer> {
        Balancer::new(weights, |units, _| Order::Random(units))
    }

    fn new(weights: &[u32], order: impl FnOnce(Units, u64) -> Order) -> Option<Balancer> {
        let divisor = weights.iter().fold(0, |divisor, weight| gcd(divisor, u64::from(*weight)));
        if divisor == 0 {
            return None;
        }
        let mut weighty = (0..).zip(weights).filter(|(_, weight)| **weight > 0).map(|(member, _)| member);
        let order = match (weighty.next(), weighty.next()) {
            (Some(only), None) => Order::Only(only),
            _ => order(Units::new(weights, divisor), divisor),
        };
        // Gateways that start together should not all begin with the same member.
        let turn = Turn(AtomicU64::new(random() >> 1));
        Some(Balancer { weights: weights.into(), order, turn })
    }

    /// The next member.
    pub fn next(&self) -> usize {
        match self.order {
            Order::Only(only) => only as usize,
            Order::Random(_) => self.at(0),
            _ => self.at(self.turn.0.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The next member that is `free`. A turn that falls on another one is used up, so that its share goes
    /// to all others by weight. When members that are not free own nearly all turns, they are looked at
    /// one by one for `any`; `None` when that fails too.
    pub fn pick(&self, free: impl Fn(usize) -> bool, any: impl Fn(usize) -> bool) -> Option<usize> {
        if let Order::Only(only) = self.order {
            return Some(only as usize).filter(|only| any(*only) || free(*only));
        }
        (0..PROBES).map(|_| self.next()).find(|member| free(*member)).or_else(|| {
            let count = self.weights.len();
            let start = self.turn.0.fetch_add(1, Ordering::Relaxed) % count.max(1) as u64;
            let weighty = |member: &usize| self.weights.get(*member).is_some_and(|weight| *weight > 0);
            let mut members = (start as usize..count).chain(0..start as usize);
            members.find(|member| weighty(member) && any(*member))
        })
    }

    fn at(&self, turn: u64) -> usize {
        match &self.order {
            Order::Only(only) => *only as usize,
            Order::Schedule(members) => members[(turn % members.len() as u64) as usize] as usize,
            Order::Stride { units, step } => {
                let unit = u128::from(turn % units.total) * u128::from(*step) % u128::from(units.total);
                units.owner(unit as u64)
            }
            // The high half of a 128-bit product maps the draw onto 0..total evenly.
            Order::Random(units) => {
                units.owner(((u128::from(random()) * u128::from(units.total)) >> 64) as u64)
            }
        }
    }
}

impl Units {
    fn new(weights: &[u32], divisor: u64) -> Units {
        let mut total = 0;
        let end = |weight: &u32| {
            total += u64::from(*weight) / divisor;
            total
        };
        Units { ends: weights.iter().map(end).collect(), total }
    }

    /// The member that owns a unit below `total`.
    fn owner(&self, unit: u64) -> usize {
        self.ends.partition_point(|end| *end <= unit)
    }
}

/// One cycle of smooth weighted round robin: every member gains its weight each turn, the richest one
/// is chosen and pays the total.
fn smooth_schedule(weights: &[u32], divisor: u64, total: u64) -> Box<[u32]> {
    let gains: Vec<i64> = weights.iter().map(|weight| (u64::from(*weight) / divisor) as i64).collect();
    let mut purses = vec![0; gains.len()];
    let richest = |_| {
        let mut richest = 0;
        for (member, gain) in gains.iter().enumerate() {
            purses[member] += gain;
            if purses[member] > purses[richest] {
                richest = member;
            }
        }
        purses[richest] -= total as i64;
        richest as u32
    };
    (0..total).map(richest).collect()
}

/// A step that visits every unit of a cycle once and spreads neighbours: coprime with the total, near
/// its golden section.
fn golden_step(total: u64) -> u64 {
    let near = (total as f64 * 0.618_033_988_749_895) as u64;
    (near.max(1)..).find(|step| gcd(*step, total) == 1).unwrap_or(1)
}

/// The greatest common divisor; of 0 and a number, the number.
pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A draw from this thread's own generator (xorshift64*): fast, and good enough to share out requests.
pub(super) fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
    }
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_turn(weights: &[u32]) -> Balancer {
        Balancer::in_turn(weights).unwrap()
    }

    fn pick(balancer: &Balancer, avoid: &[usize]) -> Option<usize> {
        let free = |member: usize| !avoid.contains(&member);
        balancer.pick(free, free)
    }

    fn shares(balancer: &Balancer, members: usize, picks: usize) -> Vec<usize> {
        let mut shares = vec![0; members];
        for _ in 0..picks {
            shares[balancer.next()] += 1;
        }
        shares
    }

    #[test]
    fn turns_are_shared_exactly_by_weight() {
        assert_eq!(shares(&in_turn(&[5, 3, 2]), 3, 100_000), [50_000, 30_000, 20_000]);
        assert_eq!(shares(&in_turn(&[90, 0, 10]), 3, 100_000), [90_000, 0, 10_000]);
        assert_eq!(shares(&in_turn(&[1; 4]), 4, 100_000), [25_000; 4]);
        assert_eq!(shares(&in_turn(&[1_000, 500]), 2, 99_999), [66_666, 33_333]);
    }

    #[test]
    fn schedules_too_long_to_keep_share_exactly_too() {
        // Coprime weights, 160,000 units, and 8,000 members of equal weight.
        let balancer = in_turn(&[99_999, 60_001]);
        assert!(matches!(balancer.order, Order::Stride { .. }));
        assert_eq!(shares(&balancer, 2, 160_000), [99_999, 60_001]);
        let balancer = in_turn(&[7; 8_000]);
        assert!(matches!(balancer.order, Order::Stride { .. }));
        assert!(shares(&balancer, 8_000, 80_000).iter().all(|share| *share == 10));
    }

    #[test]
    fn heavy_members_are_spread_out() {
        assert_eq!(*smooth_schedule(&[5, 1, 1], 1, 7), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(*smooth_schedule(&[4, 4], 4, 2), [0, 1]);
        let balancer = in_turn(&[99_999, 60_001]);
        let picks: Vec<_> = (0..1_000).map(|_| balancer.next()).collect();
        assert!(picks.windows(5).all(|run| run.contains(&0) && run.contains(&1)), "{picks:?}");
    }

    #[test]
    fn random_choice_follows_the_weights() {
        let balancer = Balancer::at_random(&[5, 0, 3, 2]).unwrap();
        let shares = shares(&balancer, 4, 100_000);
        for (share, expected) in shares.iter().zip([50_000_f64, 0.0, 30_000.0, 20_000.0]) {
            // Six standard deviations.
            assert!((*share as f64 - expected).abs() < 1_000.0, "{shares:?}");
        }
        assert_eq!(shares[1], 0);
    }

    #[test]
    fn workers_together_share_exactly() {
        let balancer = in_turn(&[3, 1]);
        let counts: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| shares(&balancer, 2, 25_000))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(counts.iter().map(|shares| shares[0]).sum::<usize>(), 75_000);
    }

    #[test]
    fn without_weight_there_is_no_balancer() {
        assert!(Balancer::in_turn(&[]).is_none());
        assert!(Balancer::at_random(&[0, 0]).is_none());
    }

    #[test]
    fn a_member_of_little_weight_is_found_when_the_heavy_one_is_avoided() {
        for balancer in [Balancer::in_turn(&[1_000, 0, 1]), Balancer::at_random(&[1_000, 0, 1])] {
            let balancer = balancer.unwrap();
            for _ in 0..1_000 {
                assert_eq!(pick(&balancer, &[0]), Some(2));
                assert_eq!(pick(&balancer, &[0, 2]), None, "a member without weight is never chosen");
            }
        }
    }

    #[test]
    fn what_is_avoided_goes_to_all_others_by_weight() {
        let balancer = in_turn(&[1, 1, 1, 1]);
        let mut shares = [0; 4];
        for _ in 0..4_000 {
            shares[pick(&balancer, &[1]).unwrap()] += 1;
        }
        assert_eq!(shares[1], 0);
        let fair = |share: usize| (1_332..=1_335).contains(&share);
        assert!(fair(shares[0]) && fair(shares[2]) && fair(shares[3]), "{shares:?}");
    }

    proptest! {
        #[test]
        fn a_cycle_holds_every_member_as_often_as_it_weighs(weights in prop::collection::vec(0_u32..1_000, 1..30)) {
            let total: u32 = weights.iter().sum();
            prop_assume!(total > 0);
            let balancer = in_turn(&weights);
            let shares = shares(&balancer, weights.len(), total as usize);
            prop_assert!(shares.iter().zip(&weights).all(|(share, weight)| *share == *weight as usize));
        }

        #[test]
        fn a_pick_is_never_avoided_nor_weightless(
            weights in prop::collection::vec(0_u32..5, 1..12),
            avoid in prop::collection::vec(0_usize..12, 0..12),
            random: bool,
        ) {
            let balancer = if random { Balancer::at_random(&weights) } else { Balancer::in_turn(&weights) };
            let Some(balancer) = balancer else { return Ok(()) };
            let usable = |member: usize| weights[member] > 0 && !avoid.contains(&member);
            match pick(&balancer, &avoid) {
                Some(member) => prop_assert!(usable(member)),
                None => prop_assert!(!(0..weights.len()).any(usable)),
            }
        }
    }
}
