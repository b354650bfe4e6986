//! Does every worker turn? Each says so once a second; one that spins or waits in a call cannot.
//!
//! A thread that does nothing else looks once a second, and time is counted in its looks. A machine that
//! stood still, and a process that was stopped, held up the looks as well, so that nobody is late for it;
//! where processors are short, the one that looks is slowed down like the ones it looks at. What a look
//! finds is kept here: who asks reads memory only.

use log::{error, warn};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Between two looks, and between two turns that a worker tells of.
const LOOK: Duration = Duration::from_secs(1);
/// A worker that was found not to have turned in this many looks is stuck. Handshakes and large answers
/// take milliseconds: what takes so long does not end.
const LIMIT: u64 = 10;

/// The turns of every worker. Lives as long as the process.
pub struct Heartbeats {
    workers: Box<[Pulse]>,
    /// Says what was found last, for every worker.
    seen: Mutex<Vec<Seen>>,
}

/// What a worker tells of itself.
#[derive(Default)]
struct Pulse {
    /// How often it has turned; 0: it has not begun, or has ended.
    turns: AtomicU64,
}

/// What was found of a worker.
#[derive(Clone, Copy, Default)]
struct Seen {
    turns: u64,
    /// Looks since it last turned.
    silent: u64,
}

impl Heartbeats {
    /// For this many workers, none of which has begun.
    pub fn new(workers: usize) -> Arc<Self> {
        let pulses = (0..workers).map(|_| Pulse::default()).collect();
        Arc::new(Heartbeats { workers: pulses, seen: Mutex::new(vec![Seen::default(); workers]) })
    }

    /// Looks from now on, on a thread of its own, for as long as the process lives.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn watch(self: &Arc<Self>) -> io::Result<()> {
        let heartbeats = Arc::clone(self);
        thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || heartbeats.look_for_ever())
            .map(drop)
    }

    /// A worker turns. To be called by itself, once a second.
    pub fn turned(&self, worker: usize) {
        if let Some(pulse) = self.workers.get(worker) {
            pulse.turns.fetch_add(1, Relaxed);
        }
    }

    /// A worker has ended: nothing is expected of it any more.
    pub fn ended(&self, worker: usize) {
        if let Some(pulse) = self.workers.get(worker) {
            pulse.turns.store(0, Relaxed);
        }
    }

    /// Seconds since each worker was last seen to turn.
    pub fn silent(&self) -> Vec<u64> {
        self.seen.lock().iter().map(|seen| seen.silent).collect()
    }

    /// Which workers are stuck, in words; `None` when none is.
    pub fn stuck(&self) -> Option<String> {
        let silent = self.silent().into_iter().enumerate().filter(|(_, silent)| *silent >= LIMIT);
        let stuck: Vec<String> = silent.map(|(worker, silent)| is_silent(worker, silent)).collect();
        (!stuck.is_empty()).then(|| stuck.join("; "))
    }

    #[expect(clippy::disallowed_methods, reason = "the thread of its own that does nothing else")]
    fn look_for_ever(&self) {
        loop {
            thread::sleep(LOOK);
            self.look();
        }
    }

    fn look(&self) {
        let mut all = self.seen.lock();
        for (worker, (pulse, seen)) in self.workers.iter().zip(all.iter_mut()).enumerate() {
            let before = seen.silent;
            seen.look(pulse.turns.load(Relaxed));
            if seen.silent == LIMIT {
                error!("{}: its connections stand still", is_silent(worker, LIMIT));
            } else if before >= LIMIT && seen.silent == 0 {
                warn!("worker {worker} turns again, after {before} s");
            }
        }
    }
}

impl Seen {
    fn look(&mut self, turns: u64) {
        if turns == 0 || turns != self.turns {
            *self = Seen { turns, silent: 0 };
        } else {
            self.silent += 1;
        }
    }
}

fn is_silent(worker: usize, seconds: u64) -> String {
    format!("worker {worker} has not turned for {seconds} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(heartbeats: &Heartbeats, times: u64) {
        (0..times).for_each(|_| heartbeats.look());
    }

    #[test]
    fn a_worker_that_turns_is_not_stuck_and_one_that_does_not_is() {
        let heartbeats = Heartbeats::new(2);
        for _ in 0..3 * LIMIT {
            heartbeats.turned(0);
            heartbeats.look();
        }
        // The other one has not begun.
        assert_eq!((heartbeats.silent(), heartbeats.stuck()), (vec![0, 0], None));
        heartbeats.turned(1);
        look(&heartbeats, LIMIT);
        // Of the other one, the first look only found that it had begun.
        assert_eq!(heartbeats.stuck().as_deref(), Some("worker 0 has not turned for 10 s"));
        look(&heartbeats, 1);
        let stuck = heartbeats.stuck().expect("both have not turned");
        assert_eq!(stuck, "worker 0 has not turned for 11 s; worker 1 has not turned for 10 s");
        heartbeats.turned(0);
        heartbeats.look();
        assert_eq!(heartbeats.stuck().as_deref(), Some("worker 1 has not turned for 11 s"));
    }

    #[test]
    fn a_worker_that_has_ended_is_not_stuck() {
        let heartbeats = Heartbeats::new(1);
        heartbeats.turned(0);
        look(&heartbeats, 2 * LIMIT);
        assert!(heartbeats.stuck().is_some());
        heartbeats.ended(0);
        look(&heartbeats, 2 * LIMIT);
        assert_eq!(heartbeats.stuck(), None);
    }

    #[test]
    fn time_in_which_nobody_looks_does_not_count() {
        let heartbeats = Heartbeats::new(1);
        heartbeats.turned(0);
        look(&heartbeats, LIMIT);
        // However long the process stood still here, the next look is one look.
        look(&heartbeats, 1);
        heartbeats.turned(0);
        look(&heartbeats, 1);
        assert_eq!(heartbeats.silent(), [0]);
    }
}
