//! A worker: one engine service with a runtime of one thread, its own sockets and its own
//! upstream connections. It follows the set of listeners of the process.

use super::accept::Door;
use super::http::Application;
use super::listener::BoundListener;
use super::listener_set::Bound;
use super::post::Post;
use async_trait::async_trait;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Between two turns a worker tells of: often enough to be missed, seldom enough to cost nothing.
const TURN: Duration = Duration::from_secs(1);

/// Told of a worker's life.
pub trait WorkerEvents: Send + Sync {
    /// All listeners of the worker accept.
    fn up(&self);
    /// None does any more.
    fn down(&self);
    /// Its thread gets round to it: once a second, from the first moment on.
    fn turned(&self);
    /// Nothing runs on it any more.
    fn ended(&self);
}

/// One worker. Its descriptors of the listening sockets are its own: nobody else closes them.
pub struct Worker<A> {
    name: String,
    door: Arc<Door<A>>,
    bound: watch::Receiver<Bound>,
    events: Arc<dyn WorkerEvents>,
}

/// Where a worker accepts.
struct Open {
    bound: Arc<BoundListener>,
    post: Arc<Post>,
}

impl<A> Worker<A> {
    /// A worker that accepts on whatever is `bound`, until nothing is.
    pub fn new(
        name: String,
        door: Door<A>,
        bound: watch::Receiver<Bound>,
        events: Arc<dyn WorkerEvents>,
    ) -> Self {
        Worker { name, door: Arc::new(door), bound, events }
    }
}

#[async_trait]
impl<A: Application> Service for Worker<A> {
    /// The engine's own shutdown watch is not used: it turns only after the drain has ended.
    async fn start_service(&mut self, _fds: Option<ListenFds>, _shutdown: ShutdownWatch, _per_fd: usize) {
        let (mut open, mut loops) = (Vec::new(), JoinSet::new());
        let turning = tokio::spawn(turn(Arc::clone(&self.events)));
        let mut up = false;
        while self.follow(&mut open, &mut loops) {
            // Readiness stays off while a worker does not accept where it should.
            if !up && open.len() == self.bound.borrow().len() {
                self.events.up();
                up = true;
            }
            self.changed(&mut loops).await;
        }
        if up {
            self.events.down();
        }
        while loops.join_next().await.is_some() {}
        turning.abort();
        self.events.ended();
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}

impl<A: Application> Worker<A> {
    /// Leaves what is no longer bound, begins to accept on what is new. False: nothing is bound.
    fn follow(&mut self, open: &mut Vec<Open>, loops: &mut JoinSet<()>) -> bool {
        let bound = Arc::clone(&self.bound.borrow_and_update());
        open.retain(|open| {
            let stays = bound.iter().any(|bound| Arc::ptr_eq(bound, &open.bound));
            if !stays {
                open.post.leave();
            }
            stays
        });
        for bound in bound.iter() {
            if open.iter().any(|open| Arc::ptr_eq(bound, &open.bound)) {
                continue;
            }
            match bound.take_share() {
                Ok(listening) => {
                    let post = Arc::new(Post::new(bound.settings()));
                    loops.spawn(Arc::clone(&self.door).accept_loop(listening, Arc::clone(&post)));
                    open.push(Open { bound: Arc::clone(bound), post });
                }
                Err(error) => log::error!("{} cannot watch {}: {error}", self.name, bound.configured()),
            }
        }
        !bound.is_empty()
    }

    /// Waits for another set.
    async fn changed(&mut self, loops: &mut JoinSet<()>) {
        loop {
            tokio::select! {
                changed = self.bound.changed() => match changed {
                    Ok(()) => return,
                    // The set lives as long as the process.
                    Err(_) => std::future::pending().await,
                },
                Some(_) = loops.join_next(), if !loops.is_empty() => {}
            }
        }
    }
}

/// On the thread that serves, so that it stops when that stands still.
async fn turn(events: Arc<dyn WorkerEvents>) {
    let mut ticks = tokio::time::interval(TURN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        events.turned();
    }
}
