//! A worker: one engine service with a runtime of one thread, its own sockets and its own
//! upstream connections.

use super::accept::Door;
use super::listener::BoundListener;
use async_trait::async_trait;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use std::sync::Arc;

/// Told when a worker's accept loops run, and when they have ended.
pub trait WorkerEvents: Send + Sync {
    /// All listeners of the worker accept.
    fn up(&self);
    /// None does any more.
    fn down(&self);
}

/// One worker. Its listeners are duplicates that nobody else closes.
pub struct Worker<A> {
    name: String,
    door: Arc<Door<A>>,
    listeners: Vec<BoundListener>,
    leaving: ShutdownWatch,
    events: Arc<dyn WorkerEvents>,
}

impl<A> Worker<A> {
    /// A worker that accepts until `leaving` turns true.
    pub fn new(
        name: String,
        door: Door<A>,
        listeners: Vec<BoundListener>,
        leaving: ShutdownWatch,
        events: Arc<dyn WorkerEvents>,
    ) -> Self {
        Worker { name, door: Arc::new(door), listeners, leaving, events }
    }
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> Service for Worker<A> {
    /// The engine's own shutdown watch is not used: it turns only after the drain has ended.
    async fn start_service(&mut self, _fds: Option<ListenFds>, _shutdown: ShutdownWatch, _per_fd: usize) {
        let mut loops = tokio::task::JoinSet::new();
        for bound in self.listeners.drain(..) {
            match bound.into_tokio() {
                Ok((listener, socket)) => {
                    let door = Arc::clone(&self.door);
                    loops.spawn(door.accept_loop(listener, socket, self.leaving.clone()));
                }
                Err(error) => {
                    // Readiness stays off: a worker that does not accept must not count as up.
                    log::error!("worker `{}` cannot watch its socket: {error}", self.name);
                    return;
                }
            }
        }
        self.events.up();
        while loops.join_next().await.is_some() {}
        self.events.down();
        // Connections without a request go now, those in the middle of a head included.
        self.door.waiting.leave();
        ServerApp::cleanup(&*self.door.app).await;
        self.door.drain.idle().await;
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}
