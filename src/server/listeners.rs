//! Listeners that change at a reload, and how long those that go may drain: what the reload loop asks for, done
//! with the listener set.

use crate::background::Readiness;
use crate::background::reload::Listeners;
use crate::config::Problems;
use crate::edge::drain::Patience;
use crate::edge::listener_set::{BindError, ListenerSet};
use crate::snapshot::Snapshot;
use std::sync::Arc;

/// The sockets of the process, and who is told where they are.
pub struct ProcessListeners {
    set: Arc<ListenerSet>,
    patience: Arc<Patience>,
    readiness: Arc<Readiness>,
}

impl ProcessListeners {
    /// Changes `set` and `patience`, and tells `readiness`.
    pub fn new(set: &Arc<ListenerSet>, patience: &Arc<Patience>, readiness: &Arc<Readiness>) -> Self {
        let (set, patience, readiness) = (Arc::clone(set), Arc::clone(patience), Arc::clone(readiness));
        ProcessListeners { set, patience, readiness }
    }
}

impl Listeners for ProcessListeners {
    fn prepare(&self, next: &Snapshot, problems: &mut Problems) -> Option<Box<dyn FnOnce()>> {
        match self.set.plan(next.listeners(), Vec::new()) {
            Ok(plan) => {
                let (set, readiness) = (Arc::clone(&self.set), Arc::clone(&self.readiness));
                let (patience, drain) = (Arc::clone(&self.patience), next.config.shutdown.drain.0);
                Some(Box::new(move || {
                    patience.change(drain);
                    set.commit(plan);
                    readiness.listeners_bound(set.addresses());
                }))
            }
            Err(errors) => {
                for error in errors {
                    report(&error, next, problems);
                }
                None
            }
        }
    }
}

fn report(error: &BindError, next: &Snapshot, problems: &mut Problems) {
    let path = format!("listeners[{}].address", error.index);
    let mut problem = next.source.problem(path, format!("cannot be listened on: {}", error.error));
    if error.until_removed {
        let hint = "a listener that this file removes has the port: remove it in a reload of its own first";
        problem = problem.with_hint(hint);
    }
    problems.push(problem);
}
