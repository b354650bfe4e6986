//! Endpoints that stand in for each other, and which of them is next, by the policy of the upstream.
//!
//! Who may be chosen is kept as bits, worked out by [`super::members`] when something changes: a choice
//! looks at nothing but them. Neither locks nor allocates.

use super::balance::{Balancer, random};
use super::endpoint::Endpoint;
use super::moment::Moment;
use super::slots::Slots;
use crate::config::BalanceConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a request asks of the choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// Requests with equal keys go to one endpoint, where the upstream hashes; `None` = to any.
    pub key: Option<u64>,
    /// The endpoint that served this client before, by the token it was given.
    pub token: Option<u128>,
}

/// Endpoints that stand in for each other.
#[derive(Debug)]
pub struct Tier {
    endpoints: Box<[Arc<Endpoint>]>,
    /// A bit per endpoint: it may be chosen.
    eligible: Box<[AtomicU64]>,
    /// A bit per endpoint: it may be chosen, and nothing speaks against it.
    well: Box<[AtomicU64]>,
    /// A bit per endpoint: it has started lately.
    starting: Box<[AtomicU64]>,
    slow_start: Duration,
    policy: Policy,
    /// Whom each token ties to, in the order of tokens.
    ties: Box<[(u128, u32)]>,
}

/// Each with the turns it falls back on, or begins with.
#[derive(Debug)]
enum Policy {
    Turns(Balancer),
    LeastRequests(Balancer),
    PeakEwma(Balancer),
    Hash(Slots, Balancer),
}

/// Most endpoints that are compared for one request, from anywhere on: the least loaded of so many is hardly
/// more loaded than that of all, and a choice among hundreds costs no more than one among these.
const COMPARED: usize = 16;

/// A newcomer gets at least this part of its share, in 1,024ths.
const LEAST_START: u64 = 102;

/// A whole share.
const WHOLE: u64 = 1_024;

impl Tier {
    /// `None` when none of the endpoints has weight.
    pub fn new(balance: &BalanceConfig, slow_start: Duration, endpoints: Vec<Arc<Endpoint>>) -> Option<Tier> {
        let weights: Vec<u32> = endpoints.iter().map(|endpoint| endpoint.weight).collect();
        let in_turn = || Balancer::in_turn(&weights);
        let policy = match balance {
            BalanceConfig::RoundRobin => Policy::Turns(in_turn()?),
            BalanceConfig::Random => Policy::Turns(Balancer::at_random(&weights)?),
            BalanceConfig::LeastRequests => Policy::LeastRequests(in_turn()?),
            BalanceConfig::P2c => Policy::PeakEwma(Balancer::at_random(&weights)?),
            BalanceConfig::Hash(_) => {
                let members: Vec<(&str, u32)> =
                    endpoints.iter().map(|endpoint| (&*endpoint.label, endpoint.weight)).collect();
                Policy::Hash(Slots::new(&members)?, in_turn()?)
            }
        };
        let tie = |(member, endpoint): (u32, &Arc<Endpoint>)| Some((endpoint.tie.as_ref()?.token, member));
        let mut ties: Box<[(u128, u32)]> = (0..).zip(&endpoints).filter_map(tie).collect();
        ties.sort_unstable();
        let bits = || (0..endpoints.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Some(Tier {
            eligible: bits(),
            well: bits(),
            starting: bits(),
            slow_start,
            policy,
            ties,
            endpoints: endpoints.into(),
        })
    }

    /// All of its endpoints.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Settles who may be chosen: those that are `fit`, and of them those that are `well` when a request is
    /// tried again; `slowly` = at first less, after they have started. Gives the moment at which somebody's
    /// start is over.
    pub fn settle(
        &self,
        now: Moment,
        slowly: bool,
        fit: impl Fn(&Endpoint) -> bool,
        well: impl Fn(&Endpoint) -> bool,
    ) -> Moment {
        let mut over = Moment::NEVER;
        let words = self.eligible.iter().zip(&self.well).zip(&self.starting).zip(self.endpoints.chunks(64));
        for (((eligible, sound), starting), endpoints) in words {
            let (mut fit_bits, mut well_bits, mut start_bits) = (0, 0, 0);
            for (bit, endpoint) in endpoints.iter().enumerate() {
                fit_bits |= u64::from(fit(endpoint)) << bit;
                well_bits |= u64::from(fit(endpoint) && well(endpoint)) << bit;
                let since = endpoint.state.up_since();
                let until = since.plus(self.slow_start);
                if slowly && !self.slow_start.is_zero() && since > Moment::ZERO && now < until {
                    start_bits |= 1 << bit;
                    over = over.min(until);
                }
            }
            eligible.store(fit_bits, Ordering::Relaxed);
            sound.store(well_bits, Ordering::Relaxed);
            starting.store(start_bits, Ordering::Relaxed);
        }
        over
    }

    /// Whether an endpoint may be chosen that is not in `avoid`.
    pub fn has(&self, avoid: &[Arc<Endpoint>]) -> bool {
        (0..self.endpoints.len()).any(|member| self.allows(&self.eligible, member, avoid))
    }

    /// The endpoint for a request; `None` when every one that may be chosen is in `avoid`.
    pub fn pick(&self, wish: Wish, avoid: &[Arc<Endpoint>]) -> Option<&Arc<Endpoint>> {
        // A request that was tried in vain already is not risked again.
        let safe = if avoid.is_empty() { None } else { self.pick_among(&self.well, wish, avoid) };
        safe.or_else(|| self.pick_among(&self.eligible, wish, avoid))
    }

    fn pick_among(
        &self,
        allowed: &[AtomicU64],
        wish: Wish,
        avoid: &[Arc<Endpoint>],
    ) -> Option<&Arc<Endpoint>> {
        let free = |member: usize| self.allows(allowed, member, avoid) && self.takes_its_turn(member);
        let any = |member: usize| self.allows(allowed, member, avoid);
        if let Some(member) = wish.token.and_then(|token| self.tied(token)).filter(|member| any(*member)) {
            return self.endpoints.get(member);
        }
        let member = match (&self.policy, wish.key) {
            (Policy::Hash(slots, _), Some(key)) => slots.pick(key, any),
            (Policy::Turns(turns) | Policy::Hash(_, turns), _) => turns.pick(free, any),
            (Policy::LeastRequests(turns), _) => {
                turns.pick(free, any).map(|first| self.least_loaded(first, any))
            }
            (Policy::PeakEwma(draws), _) => draws.pick(free, any).map(|first| {
                let other = draws.pick(|member| member != first && free(member), |_| false);
                other.map_or(first, |other| self.cheaper(first, other))
            }),
        };
        self.endpoints.get(member?)
    }

    fn tied(&self, token: u128) -> Option<usize> {
        let found = self.ties.binary_search_by_key(&token, |(token, _)| *token).ok()?;
        self.ties.get(found).map(|(_, member)| *member as usize)
    }

    fn allows(&self, allowed: &[AtomicU64], member: usize, avoid: &[Arc<Endpoint>]) -> bool {
        bit(allowed, member)
            && (avoid.is_empty()
                || self.endpoints.get(member).is_some_and(|endpoint| !avoid.iter().any(|it| it.is(endpoint))))
    }

    /// An endpoint that has started lately passes on most of its turns at first.
    fn takes_its_turn(&self, member: usize) -> bool {
        !bit(&self.starting, member) || random() % WHOLE < self.progress(member, Moment::now())
    }

    /// How far an endpoint's start has come, in 1,024ths.
    fn progress(&self, member: usize, now: Moment) -> u64 {
        let Some(endpoint) = self.endpoints.get(member) else { return WHOLE };
        let whole = u64::try_from(self.slow_start.as_nanos()).unwrap_or(u64::MAX).max(1);
        let since = now.since(endpoint.state.up_since()).as_nanos();
        let part = since * u128::from(WHOLE) / u128::from(whole);
        u64::try_from(part).unwrap_or(WHOLE).clamp(LEAST_START, WHOLE)
    }

    /// Requests in flight, and the weight they are measured by.
    fn load(&self, member: usize, now: Option<Moment>) -> (u64, u64) {
        let Some(endpoint) = self.endpoints.get(member) else { return (u64::MAX, 1) };
        let progress = match bit(&self.starting, member) {
            true => self.progress(member, now.unwrap_or_else(Moment::now)),
            false => WHOLE,
        };
        (u64::from(endpoint.state.in_flight()), u64::from(endpoint.weight) * progress)
    }

    /// Whose turn it is goes first; it passes to whoever has fewer requests for its weight. Where all have
    /// as few, turns decide, so that idle endpoints share by weight.
    fn least_loaded(&self, first: usize, free: impl Fn(usize) -> bool) -> usize {
        let (mut best, (mut requests, mut weight)) = (first, self.load(first, None));
        let count = self.endpoints.len();
        let start = below(count);
        for member in (start..count).chain(0..start).take(COMPARED) {
            if requests == 0 {
                break;
            }
            let (other, its_weight) = self.load(member, None);
            // Cross-multiplied: neither weight is zero where it matters.
            if other.saturating_mul(weight) < requests.saturating_mul(its_weight) && free(member) {
                (best, requests, weight) = (member, other, its_weight);
            }
        }
        best
    }

    /// Of two the one that will answer sooner: latency × (requests in flight for its weight + 1).
    fn cheaper(&self, first: usize, other: usize) -> usize {
        let now = Moment::now();
        if self.cost(first, now) <= self.cost(other, now) { first } else { other }
    }

    fn cost(&self, member: usize, now: Moment) -> f64 {
        let (requests, weight) = self.load(member, Some(now));
        let latency = self.endpoints.get(member).and_then(|endpoint| endpoint.state.latency().micros(now));
        let latency = match latency {
            Some(micros) => micros,
            // Nothing is known of it: one request finds out, others wait for what it says.
            None if requests == 0 => 0,
            None => u32::MAX,
        };
        f64::from(latency) * ((requests * WHOLE) as f64 / weight as f64 + 1.0)
    }
}

/// Any number below `count`.
fn below(count: usize) -> usize {
    ((u128::from(random()) * count as u128) >> 64) as usize
}

fn bit(words: &[AtomicU64], member: usize) -> bool {
    words.get(member / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (member % 64) & 1 == 1)
}
