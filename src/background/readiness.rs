//! Whether this process should get traffic, and why not.
//!
//! Everything is kept in memory: a report never touches a file, a socket or an upstream. The lock
//! is held for a copy only and is never taken by traffic. A failed reload does not turn readiness
//! off: the last good configuration serves on, and the report names the failure.

use crate::config::Problems;
use crate::snapshot::Snapshot;
use crate::upstream::moment::Moment;
use parking_lot::Mutex;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// What the process knows of its own state. Lives as long as the process.
pub struct Readiness {
    workers_wanted: usize,
    facts: Mutex<Facts>,
    state: watch::Sender<State>,
}

/// A reload that takes this long is told of: a file system that hangs, or far more than there was before.
const LONG_RELOAD: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
struct Facts {
    workers_up: usize,
    listeners: Vec<BoundListener>,
    last_reload: Option<ReloadOutcome>,
    /// When the reload began that runs now.
    reloading: Option<Instant>,
    draining: bool,
}

/// Where the process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not everything that serves is up yet.
    Starting,
    /// Serves.
    Ready,
    /// Was asked to leave and finishes what runs.
    Draining,
}

/// A socket that accepts traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BoundListener {
    /// As in the configuration.
    pub name: String,
    /// As the system bound it.
    pub address: SocketAddr,
}

/// How a reload ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadOutcome {
    /// When it ended.
    pub at: SystemTime,
    /// The generation that served afterwards.
    pub generation: u64,
    /// What went wrong, if anything did.
    pub result: Result<(), ReloadFailure>,
}

/// Why a reload changed nothing: the first problem and how many more there were. The log has all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadFailure {
    /// With file and line.
    pub first: String,
    /// Problems after the first.
    pub others: usize,
}

/// The part of the serving snapshot that a report names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Its generation.
    pub generation: u64,
    /// Its pools.
    pub upstreams: usize,
    /// Endpoints of all of them.
    pub endpoints: usize,
    /// Endpoints that get requests.
    pub available: usize,
    /// Its certificates.
    pub certificates: usize,
    /// What of them is not good, one sentence each.
    pub overdue: Vec<String>,
}

/// The body of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadinessReport {
    /// Whether this process should get traffic.
    pub ready: bool,
    /// Where it is in its life.
    pub state: State,
    /// The configuration that serves.
    pub generation: u64,
    /// What readiness is made of.
    pub checks: Checks,
}

/// What readiness is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// A configuration serves; a failed reload is named here and does not turn readiness off.
    pub configuration: Check,
    /// Every listener is bound.
    pub listeners: Check,
    /// Every worker runs and turns.
    pub workers: Check,
    /// Never turns readiness off: an upstream that is down concerns its own routes only.
    pub upstreams: Check,
    /// Never turns readiness off: a certificate that has expired concerns its own names only.
    pub certificates: Check,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Whether it holds.
    pub ok: bool,
    /// What was seen, for a human.
    pub detail: String,
}

impl Readiness {
    /// Starts in [`State::Starting`], waiting for this many workers.
    pub fn new(workers_wanted: usize) -> Self {
        let (state, _) = watch::channel(State::Starting);
        Readiness { workers_wanted, facts: Mutex::default(), state }
    }

    /// A worker began to serve.
    pub fn worker_up(&self) {
        self.update(|facts| facts.workers_up += 1);
    }

    /// A worker stopped serving.
    pub fn worker_down(&self) {
        self.update(|facts| facts.workers_up = facts.workers_up.saturating_sub(1));
    }

    /// Every listener is bound: name and address of each.
    pub fn listeners_bound(&self, listeners: Vec<(String, SocketAddr)>) {
        let bound = listeners.into_iter().map(|(name, address)| BoundListener { name, address });
        self.update(|facts| facts.listeners = bound.collect());
    }

    /// The process was asked to leave. There is no way back.
    pub fn set_draining(&self) {
        self.update(|facts| facts.draining = true);
    }

    /// A reload begins.
    pub fn reload_begins(&self) {
        self.update(|facts| facts.reloading = Some(Instant::now()));
    }

    /// A reload ended, well or not.
    pub fn reload_finished(&self, outcome: ReloadOutcome) {
        self.update(|facts| {
            facts.last_reload = Some(outcome);
            facts.reloading = None;
        });
    }

    /// Where the process is in its life.
    pub fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Completes when the process has become ready, at once if it is or was.
    pub async fn until_ready(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = state.wait_for(|state| *state != State::Starting).await;
    }

    /// Workers that serve, and workers there should be.
    pub fn workers(&self) -> (usize, usize) {
        (self.facts.lock().workers_up, self.workers_wanted)
    }

    /// The bound listeners; empty while starting.
    pub fn listeners(&self) -> Vec<BoundListener> {
        self.facts.lock().listeners.clone()
    }

    /// How the last reload ended; `None` before the first.
    pub fn last_reload(&self) -> Option<ReloadOutcome> {
        self.facts.lock().last_reload.clone()
    }

    /// Everything `/readyz` says; `stuck` names the workers that do not turn.
    pub fn report(&self, serving: &Serving, stuck: Option<String>) -> ReadinessReport {
        let facts = self.facts.lock().clone();
        let state = facts.state(self.workers_wanted);
        ReadinessReport {
            ready: state == State::Ready && stuck.is_none(),
            state,
            generation: serving.generation,
            checks: Checks {
                configuration: configuration_check(serving.generation, &facts),
                listeners: listeners_check(&facts.listeners),
                workers: self.workers_check(facts.workers_up, stuck),
                upstreams: Check {
                    ok: true,
                    detail: format!(
                        "upstreams: {}, endpoints: {}, available: {}",
                        serving.upstreams, serving.endpoints, serving.available
                    ),
                },
                certificates: certificates_check(serving),
            },
        }
    }

    fn workers_check(&self, up: usize, stuck: Option<String>) -> Check {
        let ok = up >= self.workers_wanted && stuck.is_none();
        let mut detail = format!("{up} of {} workers up", self.workers_wanted);
        if let Some(stuck) = stuck {
            detail.push_str(", ");
            detail.push_str(&stuck);
        }
        Check { ok, detail }
    }

    fn update(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock();
        change(&mut facts);
        let state = facts.state(self.workers_wanted);
        // Under the lock, so that two updates cannot publish their states in the wrong order.
        self.state.send_if_modified(|current| std::mem::replace(current, state) != state);
    }
}

impl Facts {
    fn state(&self, workers_wanted: usize) -> State {
        if self.draining {
            State::Draining
        } else if self.workers_up >= workers_wanted && !self.listeners.is_empty() {
            State::Ready
        } else {
            State::Starting
        }
    }
}

impl ReloadFailure {
    /// For a failure that is not in the configuration.
    pub fn new(reason: impl Into<String>) -> Self {
        ReloadFailure { first: reason.into(), others: 0 }
    }
}

impl From<&Problems> for ReloadFailure {
    fn from(problems: &Problems) -> Self {
        let first = problems.0.first().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        ReloadFailure { first, others: problems.0.len().saturating_sub(1) }
    }
}

impl std::fmt::Display for ReloadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.first)?;
        match self.others {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more problem)"),
            others => write!(f, " (and {others} more problems)"),
        }
    }
}

impl From<&Snapshot> for Serving {
    fn from(snapshot: &Snapshot) -> Self {
        let now = Moment::now();
        let endpoints: Vec<_> = snapshot.pools.values().flat_map(|pool| pool.endpoints()).collect();
        Serving {
            generation: snapshot.generation,
            upstreams: snapshot.pools.len(),
            endpoints: endpoints.len(),
            available: endpoints.iter().filter(|endpoint| endpoint.state.available(now)).count(),
            certificates: snapshot.certificates.certificates().len(),
            overdue: snapshot.certificates.overdue().into_iter().map(|overdue| overdue.what).collect(),
        }
    }
}

fn configuration_check(generation: u64, facts: &Facts) -> Check {
    let mut check = last_reload_check(generation, facts.last_reload.as_ref());
    let running = facts.reloading.map(|began| began.elapsed()).filter(|running| *running >= LONG_RELOAD);
    if let Some(running) = running {
        check.detail.push_str(&format!("; a reload has been running for {} s", running.as_secs()));
    }
    check
}

fn last_reload_check(generation: u64, last_reload: Option<&ReloadOutcome>) -> Check {
    match last_reload.map(|outcome| &outcome.result) {
        Some(Err(failure)) => Check {
            ok: false,
            detail: format!("the last reload failed, generation {generation} serves on: {failure}"),
        },
        _ => Check { ok: true, detail: format!("generation {generation} serves") },
    }
}

fn certificates_check(serving: &Serving) -> Check {
    let detail = match &serving.overdue[..] {
        [] => format!("certificates: {}, all of them good", serving.certificates),
        overdue => overdue.join("; "),
    };
    Check { ok: serving.overdue.is_empty(), detail }
}

fn listeners_check(listeners: &[BoundListener]) -> Check {
    let bound: Vec<String> =
        listeners.iter().map(|listener| format!("{} on {}", listener.name, listener.address)).collect();
    let detail = if bound.is_empty() { "none is bound yet".to_owned() } else { bound.join(", ") };
    Check { ok: !bound.is_empty(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Problem;
    use std::path::PathBuf;

    const SERVING: Serving = Serving {
        generation: 3,
        upstreams: 2,
        endpoints: 5,
        available: 4,
        certificates: 1,
        overdue: Vec::new(),
    };

    fn up() -> Readiness {
        let readiness = Readiness::new(1);
        readiness.listeners_bound(vec![("edge".to_owned(), ([0, 0, 0, 0], 7999).into())]);
        readiness.worker_up();
        readiness
    }

    fn failed() -> ReloadOutcome {
        let problem = |line| Problem {
            file: PathBuf::from("a.yaml"),
            line: Some(line),
            path: "routes[0].upstream".to_owned(),
            reason: "no upstream of this name".to_owned(),
            hint: None,
        };
        let problems = Problems(vec![problem(7), problem(9), problem(11)]);
        ReloadOutcome { at: SystemTime::now(), generation: 3, result: Err((&problems).into()) }
    }

    #[test]
    fn starting_until_every_worker_and_listener_is_up() {
        let readiness = Readiness::new(2);
        assert_eq!(readiness.state(), State::Starting);
        readiness.listeners_bound(vec![("edge".to_owned(), ([0, 0, 0, 0], 7999).into())]);
        readiness.worker_up();
        let report = readiness.report(&SERVING, None);
        assert!(!report.ready && report.checks.listeners.ok && !report.checks.workers.ok);
        assert_eq!(report.checks.workers.detail, "1 of 2 workers up");
        readiness.worker_up();
        let report = readiness.report(&SERVING, None);
        assert!(report.ready && report.checks.workers.ok);
        assert_eq!(report.generation, 3);
        assert_eq!(report.checks.listeners.detail, "edge on 0.0.0.0:7999");
        assert_eq!(report.checks.upstreams.detail, "upstreams: 2, endpoints: 5, available: 4");
    }

    #[test]
    fn a_lost_worker_turns_readiness_off() {
        let readiness = up();
        readiness.worker_down();
        assert!(!readiness.report(&SERVING, None).ready);
    }

    #[test]
    fn a_worker_that_is_stuck_turns_readiness_off_and_is_named() {
        let report = up().report(&SERVING, Some("worker 0 has not turned for 12 s".to_owned()));
        assert!(!report.ready && !report.checks.workers.ok);
        assert_eq!(report.state, State::Ready);
        assert_eq!(report.checks.workers.detail, "1 of 1 workers up, worker 0 has not turned for 12 s");
    }

    #[test]
    fn draining_is_not_ready_and_final() {
        let readiness = up();
        readiness.set_draining();
        readiness.worker_up();
        let report = readiness.report(&SERVING, None);
        assert!(!report.ready);
        assert_eq!(report.state, State::Draining);
    }

    #[test]
    fn a_reload_that_takes_long_is_named() {
        let readiness = Readiness::new(0);
        let detail = || readiness.report(&SERVING, None).checks.configuration.detail;
        readiness.reload_begins();
        assert_eq!(detail(), "generation 3 serves");
        readiness.facts.lock().reloading = Instant::now().checked_sub(LONG_RELOAD * 2);
        assert_eq!(detail(), "generation 3 serves; a reload has been running for 4 s");
        readiness.reload_finished(ReloadOutcome { at: SystemTime::now(), generation: 4, result: Ok(()) });
        assert_eq!(detail(), "generation 3 serves");
    }

    #[test]
    fn a_failed_reload_stays_ready_and_is_named() {
        let readiness = up();
        readiness.reload_finished(failed());
        let report = readiness.report(&SERVING, None);
        assert!(report.ready && !report.checks.configuration.ok);
        assert_eq!(
            report.checks.configuration.detail,
            "the last reload failed, generation 3 serves on: \
             a.yaml:7: routes[0].upstream: no upstream of this name (and 2 more problems)"
        );
        readiness.reload_finished(ReloadOutcome { at: SystemTime::now(), generation: 4, result: Ok(()) });
        assert!(readiness.report(&SERVING, None).checks.configuration.ok);
    }

    #[test]
    fn a_certificate_out_of_its_time_stays_ready_and_is_named() {
        let certificates = up().report(&SERVING, None).checks.certificates;
        assert_eq!((certificates.ok, &*certificates.detail), (true, "certificates: 1, all of them good"));
        let overdue = vec!["a: expired".to_owned(), "b: expired".to_owned()];
        let report = up().report(&Serving { overdue, ..SERVING }, None);
        assert!(report.ready && !report.checks.certificates.ok);
        assert_eq!(report.checks.certificates.detail, "a: expired; b: expired");
    }

    #[tokio::test]
    async fn waiting_ends_when_it_is_ready() {
        let readiness = std::sync::Arc::new(Readiness::new(1));
        let waiter = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.until_ready().await }
        });
        readiness.listeners_bound(vec![("edge".to_owned(), ([0, 0, 0, 0], 7999).into())]);
        readiness.worker_up();
        waiter.await.expect("no panic");
        assert_eq!(readiness.state(), State::Ready);
    }
}
