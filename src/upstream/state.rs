//! How is an endpoint doing? What changes while it serves: one [`EndpointState`] per upstream and address.
//!
//! It lives as long as somebody holds it: through reloads that keep the address, whatever else they
//! change of the upstream, and through changes of what a name resolves to. [`EndpointStates`] finds it
//! again. Everything is atomic; only the search takes a lock, never on the request path. Decides nothing:
//! active checks write `health`, passive ejection `ejected_until`, operators `mode`.

use super::ejection::Failures;
use super::kept_alive::KeptAlive;
use super::latency::Latency;
use super::moment::Moment;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What active checks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Health {
    /// Nobody checks: it is taken to work.
    Unchecked,
    /// Checks are configured and none has ended yet: no requests, even when all others are out.
    Pending,
    /// The checks are good.
    Up,
    /// The checks are bad.
    Down,
}

impl Health {
    /// As the admin API says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Unchecked => "unchecked",
            Health::Pending => "pending",
            Health::Up => "up",
            Health::Down => "down",
        }
    }
}

/// What the operator says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// It may get requests.
    Enabled,
    /// It gets no new ones, even when all others are out.
    Drained,
}

/// Counts what has changed of an upstream's endpoints, so that who depends on it can tell.
#[derive(Debug, Default)]
pub struct Changes(AtomicU64);

impl Changes {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// What changes of one endpoint. It has cache lines of its own: every worker writes it.
#[derive(Debug)]
#[repr(align(128))]
pub struct EndpointState {
    /// How long it keeps idle connections.
    pub kept_alive: KeptAlive,
    in_flight: AtomicU32,
    health: AtomicU8,
    /// Checks cannot even connect to it.
    unreachable: AtomicBool,
    mode: AtomicU8,
    ejected_until: AtomicU64,
    up_since: AtomicU64,
    latency: Latency,
    failures: Failures,
    changes: Arc<Changes>,
}

impl EndpointState {
    fn new(health: Health, up_since: Moment, changes: Arc<Changes>) -> EndpointState {
        EndpointState {
            kept_alive: KeptAlive::default(),
            in_flight: AtomicU32::new(0),
            health: AtomicU8::new(health as u8),
            unreachable: AtomicBool::new(false),
            mode: AtomicU8::new(Mode::Enabled as u8),
            ejected_until: AtomicU64::new(0),
            up_since: AtomicU64::new(up_since.0),
            latency: Latency::default(),
            failures: Failures::default(),
            changes,
        }
    }

    /// Whether it should get requests: enabled, not ejected, its checks good or absent.
    pub fn available(&self, now: Moment) -> bool {
        self.mode() == Mode::Enabled
            && matches!(self.health(), Health::Unchecked | Health::Up)
            && !self.ejected(now)
    }

    /// What active checks said last.
    pub fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            0 => Health::Unchecked,
            1 => Health::Pending,
            2 => Health::Up,
            _ => Health::Down,
        }
    }

    /// Sets what active checks say. Gives back what they said before.
    pub fn set_health(&self, health: Health) -> Health {
        let before = self.health();
        // What is there from the start only waits for its first check.
        let is_back = match before {
            Health::Down => true,
            Health::Pending => self.up_since() > Moment::ZERO,
            Health::Unchecked | Health::Up => false,
        };
        if is_back && health == Health::Up {
            self.came_up(Moment::now());
        }
        self.health.store(health as u8, Ordering::Relaxed);
        self.changes.add();
        before
    }

    /// Whether there is a point in trying it though its checks are bad: they could at least connect.
    pub fn reachable(&self) -> bool {
        self.health() != Health::Down || !self.unreachable.load(Ordering::Relaxed)
    }

    /// Sets whether the last check could connect.
    pub fn set_reachable(&self, reachable: bool) {
        if self.unreachable.swap(!reachable, Ordering::Relaxed) == reachable {
            self.changes.add();
        }
    }

    /// What the operator said last.
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            0 => Mode::Enabled,
            _ => Mode::Drained,
        }
    }

    /// Sets what the operator says. Gives back what was said before. [`EndpointStates::set_mode`] remembers it.
    pub(super) fn set_mode(&self, mode: Mode) -> Mode {
        let before = self.mode();
        if before == Mode::Drained && mode == Mode::Enabled {
            self.came_up(Moment::now());
        }
        self.mode.store(mode as u8, Ordering::Relaxed);
        self.changes.add();
        before
    }

    /// Whether it is out because its answers were bad.
    pub fn ejected(&self, now: Moment) -> bool {
        now < self.ejected_until()
    }

    /// Until when it is, or was, out; [`Moment::ZERO`] when it never was.
    pub fn ejected_until(&self) -> Moment {
        Moment(self.ejected_until.load(Ordering::Relaxed))
    }

    /// Takes it out until then, from when on it starts slowly.
    pub fn eject_until(&self, until: Moment) {
        self.came_up(until);
        self.ejected_until.store(until.0, Ordering::Relaxed);
        self.changes.add();
    }

    /// Since when it gets requests, for a slow start; [`Moment::ZERO`] for what was there at the start.
    pub fn up_since(&self) -> Moment {
        Moment(self.up_since.load(Ordering::Relaxed))
    }

    fn came_up(&self, at: Moment) {
        self.up_since.fetch_max(at.0, Ordering::Relaxed);
    }

    /// How often it failed.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// How fast it answers.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Requests it is working on.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a request as in flight for as long as the guard lives.
    pub fn enter(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }
}

/// A request an endpoint is working on.
#[derive(Debug)]
pub struct InFlight(Arc<EndpointState>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What changes of one upstream as a whole. Finds the states of its endpoints by address, for as long as
/// somebody holds them.
#[derive(Debug, Default)]
pub struct EndpointStates {
    by_label: Mutex<HashMap<Arc<str>, Weak<EndpointState>>>,
    /// Those that are drained are held: their addresses may leave what a name stands for, and come back.
    drained: Mutex<HashMap<Arc<str>, Arc<EndpointState>>>,
    changes: Arc<Changes>,
    in_flight: AtomicU32,
    /// Held while an endpoint is taken out, so that no two together are one too many.
    ejecting: Mutex<()>,
}

/// A request an upstream is working on.
#[derive(Debug)]
pub struct Slot(Arc<EndpointStates>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EndpointStates {
    /// Counts a request as in flight for as long as the slot lives; `None` when there are `max` already
    /// (0 = no limit).
    pub fn enter(self: &Arc<Self>, max: u32) -> Option<Slot> {
        if max == 0 {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
        } else {
            let more = |count: u32| (count < max).then_some(count + 1);
            self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        }
        Some(Slot(Arc::clone(self)))
    }

    /// Sets what the operator says of the endpoint with this label. Gives back what was said before.
    pub fn set_mode(&self, label: &Arc<str>, state: &Arc<EndpointState>, mode: Mode) -> Mode {
        let mut drained = self.drained.lock();
        match mode {
            Mode::Drained => drop(drained.insert(Arc::clone(label), Arc::clone(state))),
            Mode::Enabled => drop(drained.remove(label)),
        }
        state.set_mode(mode)
    }

    /// Forgets that endpoints are drained, but for those whose label is `kept`.
    pub fn forget_drained(&self, kept: impl Fn(&str) -> bool) {
        self.drained.lock().retain(|label, _| kept(label));
    }

    /// Requests the upstream is working on.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The right to take an endpoint out; `None` while somebody else has it.
    pub fn ejecting(&self) -> Option<MutexGuard<'_, ()>> {
        self.ejecting.try_lock()
    }

    /// Counts what changes of any of them.
    pub fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// The state of the endpoint with this label; a new one when nobody holds it. `health` is what is known
    /// of a new one, `since` since when it gets requests.
    pub fn of(&self, label: &Arc<str>, health: Health, since: Moment) -> Arc<EndpointState> {
        let mut by_label = self.by_label.lock();
        if let Some(state) = by_label.get(label).and_then(Weak::upgrade) {
            return state;
        }
        by_label.retain(|_, state| state.strong_count() > 0);
        let state = Arc::new(EndpointState::new(health, since, Arc::clone(&self.changes)));
        by_label.insert(Arc::clone(label), Arc::downgrade(&state));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn state() -> Arc<EndpointState> {
        EndpointStates::default().of(&"127.0.0.1:9000".into(), Health::Unchecked, Moment::ZERO)
    }

    #[test]
    fn it_is_available_unless_checks_operator_or_ejection_object() {
        let (state, now) = (state(), Moment::now());
        assert!(state.available(now));
        for (health, available) in
            [(Health::Pending, false), (Health::Down, false), (Health::Up, true), (Health::Unchecked, true)]
        {
            state.set_health(health);
            assert_eq!((state.health(), state.available(now)), (health, available));
        }
        assert_eq!(state.set_mode(Mode::Drained), Mode::Enabled);
        assert!(!state.available(now));
        assert_eq!(state.set_mode(Mode::Enabled), Mode::Drained);
        let until = now.plus(Duration::from_secs(1));
        state.eject_until(until);
        assert!(!state.available(now) && state.available(until));
    }

    #[test]
    fn its_start_is_when_it_last_came_back() {
        let state = state();
        assert_eq!(state.up_since(), Moment::ZERO);
        state.set_health(Health::Up);
        assert_eq!(state.up_since(), Moment::ZERO, "it was not out");
        state.set_health(Health::Pending);
        state.set_health(Health::Up);
        assert_eq!(state.up_since(), Moment::ZERO, "it was there from the start, and only not asked yet");
        state.set_health(Health::Down);
        state.set_health(Health::Up);
        let came_up = state.up_since();
        assert!(came_up > Moment::ZERO);
        let until = came_up.plus(Duration::from_secs(30));
        state.eject_until(until);
        assert_eq!(state.up_since(), until);
    }

    #[test]
    fn requests_are_counted_while_their_guards_live() {
        let state = state();
        let guards = [state.enter(), state.enter()];
        assert_eq!(state.in_flight(), 2);
        drop(guards);
        assert_eq!(state.in_flight(), 0);
    }

    #[test]
    fn no_more_requests_are_let_in_than_allowed() {
        let states = Arc::new(EndpointStates::default());
        let slots = std::thread::scope(|scope| {
            let worker = || (0..100).filter_map(|_| states.enter(10)).collect::<Vec<_>>();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!((slots.len(), states.in_flight()), (10, 10));
        assert!(states.enter(10).is_none() && states.enter(0).is_some());
        drop(slots);
        assert_eq!(states.in_flight(), 0);
    }

    #[test]
    fn a_state_is_found_again_while_somebody_holds_it() {
        let states = EndpointStates::default();
        let (one, other) = ("127.0.0.1:9000".into(), "127.0.0.1:9001".into());
        let first = states.of(&one, Health::Unchecked, Moment::ZERO);
        assert!(Arc::ptr_eq(&first, &states.of(&one, Health::Unchecked, Moment::now())));
        assert!(!Arc::ptr_eq(&first, &states.of(&other, Health::Unchecked, Moment::ZERO)));
        drop(first);
        assert!(states.of(&one, Health::Unchecked, Moment::now()).up_since() > Moment::ZERO, "another one");
    }

    #[test]
    fn that_it_is_drained_is_remembered_until_it_is_enabled_or_taken_out() {
        let states = EndpointStates::default();
        let label: Arc<str> = "127.0.0.1:9000".into();
        let of = || states.of(&label, Health::Unchecked, Moment::ZERO);
        assert_eq!(states.set_mode(&label, &of(), Mode::Drained), Mode::Enabled);
        assert_eq!(of().mode(), Mode::Drained);
        states.forget_drained(|kept| kept == &*label);
        assert_eq!(states.set_mode(&label, &of(), Mode::Enabled), Mode::Drained);
        assert_eq!(of().mode(), Mode::Enabled);
        states.set_mode(&label, &of(), Mode::Drained);
        states.forget_drained(|_| false);
        assert_eq!(of().mode(), Mode::Enabled);
    }
}
