//! The composition root: the only file that knows every room.
//!
//! Reads as a story: compile the configuration, bind, put the services together, run, drain.

mod leaving;

use self::leaving::Leaving;
use crate::admin::{AdminService, AdminState};
use crate::background::gauges;
use crate::background::readiness::Readiness;
use crate::background::reload::{Reloader, access_log_output};
use crate::background::signals::Signals;
use crate::config::Problems;
use crate::edge::accept::Door;
use crate::edge::drain::Drain;
use crate::edge::listener::{BindError, BoundListener};
use crate::edge::worker::{Worker, WorkerEvents};
use crate::proxy::gateway::Gateway;
use crate::snapshot::{self, Shared, Snapshot, SnapshotStore};
use crate::telemetry::access_log::writer::AccessLogWriter;
use crate::telemetry::logging;
use crate::telemetry::metrics::Metrics;
use crate::tls::tickets::TicketKeys;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::background_service;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration was refused; exit code 1.
    #[error("{0}")]
    Refused(Problems),
    /// A traffic address could not be listened on; exit code 3.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The admin address could not be listened on; exit code 3.
    #[error("cannot listen on {address} (admin): {error}")]
    Admin {
        /// `admin.address`.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The system refused something else; exit code 3.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

/// Serves until the process is asked to leave and has drained.
///
/// # Errors
/// Before any traffic is accepted: a refused configuration, or something the system refused.
pub fn run(path: Option<PathBuf>, signals: Signals) -> Result<(), StartError> {
    let metrics = Metrics::new();
    let tickets = TicketKeys::generate()
        .map_err(|error| system("make session ticket keys", io::Error::other(error)))?;
    let shared = Shared { metrics: Arc::clone(&metrics), tickets };
    let first = snapshot::prepare(path.as_deref(), &shared, None).map_err(StartError::Refused)?;
    logging::init(&first.config.log);
    if first.certificates.is_self_signed() {
        log::warn!("no certificate is configured: TLS clients get a self-signed one made just now");
    }

    let listeners = bind_all(&first, &metrics)?;
    let admin_address = first.config.admin.address;
    let admin = TcpListener::bind(admin_address)
        .map_err(|error| StartError::Admin { address: admin_address, error })?;
    let access_log = AccessLogWriter::start(&access_log_output(&first), Arc::clone(&metrics))
        .map_err(|error| system("open the access log", error))?;

    let workers = first.config.workers.resolve();
    let readiness = Arc::new(Readiness::new(workers));
    readiness.listeners_bound(bound_addresses(&listeners));
    gauges::publish(&metrics, &first, None);
    let keepalive = first.upstream_keepalive();
    let conf = Arc::new(engine_conf(keepalive));
    let store = Arc::new(SnapshotStore::new(first));

    let mut server = Server::new_with_opt_and_conf(None, engine_conf(keepalive));
    server.bootstrap();
    let (leave, leaving) = watch::channel(false);
    let drain = Arc::new(Drain::default());
    for number in 0..workers {
        let gateway = Gateway {
            snapshots: Arc::clone(&store),
            metrics: Arc::clone(&metrics),
            access_log: Arc::clone(&access_log),
        };
        let door = Door {
            app: Arc::new(pingora_proxy::http_proxy(&conf, gateway)),
            snapshots: Arc::clone(&store),
            metrics: Arc::clone(&metrics),
            drain: Arc::clone(&drain),
        };
        let sockets = listeners
            .iter()
            .map(BoundListener::duplicate)
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| system("share a listening socket", error))?;
        let events = Arc::new(Ready(Arc::clone(&readiness)));
        server.add_service(Worker::new(format!("worker {number}"), door, sockets, leaving.clone(), events));
    }
    // Only the workers' duplicates keep the ports open, so that they close with the last worker.
    drop(listeners);

    let state = AdminState::new(path.clone(), Arc::clone(&store), Arc::clone(&readiness), metrics);
    server.add_service(single_threaded(background_service("admin", AdminService::new(admin, state))));
    let reloader = Reloader {
        path,
        shared,
        store: Arc::clone(&store),
        readiness: Arc::clone(&readiness),
        log_writer: Arc::clone(&access_log),
        signals: signals.clone(),
    };
    server.add_service(single_threaded(background_service("reload", reloader)));

    let shutdown = Leaving { signals, store, readiness, leave, drain, access_log };
    server.run(RunArgs { shutdown_signal: Box::new(shutdown) });
    Ok(())
}

fn system(what: &'static str, error: io::Error) -> StartError {
    StartError::System { what, error }
}

fn bind_all(snapshot: &Snapshot, metrics: &Metrics) -> Result<Vec<BoundListener>, BindError> {
    let listeners = snapshot.listeners().iter().enumerate();
    listeners
        .map(|(index, config)| BoundListener::bind(config, config.name(index).into_owned(), metrics))
        .collect()
}

fn bound_addresses(listeners: &[BoundListener]) -> Vec<(String, SocketAddr)> {
    listeners.iter().map(|bound| (bound.listener.name.to_string(), bound.listener.address)).collect()
}

/// Each service gets one thread of its own. Shutdown is ours (`background::drain`), so the engine
/// has nothing to wait for when it gets its turn.
fn engine_conf(upstream_keepalive: usize) -> ServerConf {
    ServerConf {
        threads: 1,
        work_stealing: false,
        listener_tasks_per_fd: 1,
        upstream_keepalive_pool_size: upstream_keepalive,
        max_retries: MAX_ATTEMPTS,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    }
}

/// Upper bound on attempts of one request; what is tried again is decided in `proxy::upstream`.
const MAX_ATTEMPTS: usize = 4;

fn single_threaded<A>(
    mut service: pingora_core::services::background::GenBackgroundService<A>,
) -> pingora_core::services::background::GenBackgroundService<A> {
    service.threads = Some(1);
    service
}

struct Ready(Arc<Readiness>);

impl WorkerEvents for Ready {
    fn up(&self) {
        self.0.worker_up();
    }

    fn down(&self) {
        self.0.worker_down();
    }
}
