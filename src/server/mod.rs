//! The composition root: the only file that knows every room.
//!
//! Reads as a story: compile the configuration, bind, put the services together, run, drain.

mod leaving;

use self::leaving::Leaving;
use crate::admin::{AdminService, AdminState};
use crate::background::gauges;
use crate::background::readiness::Readiness;
use crate::background::reload::Reloader;
use crate::background::signals::Signals;
use crate::config::Problems;
use crate::edge::accept::Door;
use crate::edge::drain::Drain;
use crate::edge::listener::{BindError, BoundListener};
use crate::edge::share::Share;
use crate::edge::worker::{Worker, WorkerEvents};
use crate::proxy::{application, gateway::Gateway};
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
    let (process, ports) = Process::prepare(path, signals)?;
    let mut server = Server::new_with_opt_and_conf(None, process.engine_conf());
    server.bootstrap();
    let leave = process.add_workers(&mut server, ports.listeners)?;
    // From here on the process drains instead of leaving at once.
    let _termination = process.signals.claim();
    process.add_operators(&mut server, ports.admin);
    server.run(RunArgs { shutdown_signal: Box::new(process.leaving(leave)) });
    Ok(())
}

/// What lives as long as the process.
struct Process {
    path: Option<PathBuf>,
    signals: Signals,
    shared: Shared,
    store: Arc<SnapshotStore>,
    readiness: Arc<Readiness>,
    access_log: Arc<AccessLogWriter>,
    drain: Arc<Drain>,
}

/// Every port of the process, bound before anything runs.
struct Ports {
    listeners: Vec<BoundListener>,
    admin: TcpListener,
}

impl Process {
    /// Everything that can fail, before anything is served.
    fn prepare(path: Option<PathBuf>, signals: Signals) -> Result<(Self, Ports), StartError> {
        let metrics = Metrics::new();
        let tickets = TicketKeys::generate()
            .map_err(|error| system("make session ticket keys", io::Error::other(error)))?;
        let shared = Shared { metrics: Arc::clone(&metrics), tickets };
        let first = snapshot::prepare(path.as_deref(), &shared, None).map_err(StartError::Refused)?;
        logging::init(&first.config.log);
        if first.certificates.is_self_signed() {
            log::warn!("no certificate is configured: TLS clients get a self-signed one made just now");
        }
        let ports = Ports { listeners: bind_all(&first, &metrics)?, admin: bind_admin(&first)? };
        let access_log = AccessLogWriter::start(first.access_log.output(), Arc::clone(&metrics))
            .map_err(|error| system("open the access log", error))?;
        let readiness = Arc::new(Readiness::new(first.config.workers.resolve()));
        readiness.listeners_bound(bound_addresses(&ports.listeners));
        gauges::publish(&metrics, &first, None);
        let store = Arc::new(SnapshotStore::new(first));
        let drain = Arc::new(Drain::default());
        Ok((Process { path, signals, shared, store, readiness, access_log, drain }, ports))
    }

    /// Each service gets one thread of its own. Shutdown is ours (`leaving`), so the engine has
    /// nothing to wait for when it gets its turn.
    fn engine_conf(&self) -> ServerConf {
        ServerConf {
            threads: 1,
            work_stealing: false,
            listener_tasks_per_fd: 1,
            upstream_keepalive_pool_size: self.store.load().upstream_keepalive(),
            max_retries: MAX_ATTEMPTS,
            grace_period_seconds: Some(0),
            graceful_shutdown_timeout_seconds: Some(0),
            ..ServerConf::default()
        }
    }

    /// One service per worker; sending `true` makes them stop accepting.
    fn add_workers(
        &self,
        server: &mut Server,
        listeners: Vec<BoundListener>,
    ) -> Result<watch::Sender<bool>, StartError> {
        let (leave, leaving) = watch::channel(false);
        let conf = Arc::new(self.engine_conf());
        let snapshot = self.store.pin();
        // Only the workers' duplicates outlive this, so that a port closes with the last of them.
        let workers = snapshot.config.workers.resolve();
        for number in 0..workers {
            let sockets = listeners.iter().map(BoundListener::duplicate).collect::<io::Result<Vec<_>>>();
            let sockets = sockets.map_err(|error| system("share a listening socket", error))?;
            let door = self.door(application::new(&conf, self.gateway(), &snapshot.limits), workers);
            let events = Arc::new(Ready(Arc::clone(&self.readiness)));
            let name = format!("worker {number}");
            server.add_service(Worker::new(name, door, sockets, leaving.clone(), events));
        }
        Ok(leave)
    }

    fn gateway(&self) -> Gateway {
        Gateway {
            snapshots: Arc::clone(&self.store),
            metrics: Arc::clone(&self.shared.metrics),
            access_log: Arc::clone(&self.access_log),
        }
    }

    fn door<A>(&self, app: A, workers: usize) -> Door<A> {
        Door {
            app: Arc::new(app),
            snapshots: Arc::clone(&self.store),
            metrics: Arc::clone(&self.shared.metrics),
            drain: Arc::clone(&self.drain),
            share: Share::new(workers),
            waiting: Arc::default(),
        }
    }

    /// Port 7998 and the reload loop.
    fn add_operators(&self, server: &mut Server, admin: TcpListener) {
        let metrics = Arc::clone(&self.shared.metrics);
        let state =
            AdminState::new(self.path.clone(), Arc::clone(&self.store), Arc::clone(&self.readiness), metrics);
        let reloader = Reloader {
            path: self.path.clone(),
            shared: self.shared.clone(),
            store: Arc::clone(&self.store),
            readiness: Arc::clone(&self.readiness),
            log_writer: Arc::clone(&self.access_log),
            signals: self.signals.clone(),
        };
        let mut admin = background_service("admin", AdminService::new(admin, state));
        let mut reload = background_service("reload", reloader);
        (admin.threads, reload.threads) = (Some(1), Some(1));
        server.add_service(admin);
        server.add_service(reload);
    }

    fn leaving(self, leave: watch::Sender<bool>) -> Leaving {
        Leaving {
            signals: self.signals,
            store: self.store,
            readiness: self.readiness,
            leave,
            drain: self.drain,
            access_log: self.access_log,
        }
    }
}

/// Upper bound on attempts of one request; what is tried again is decided in `proxy::upstream`.
const MAX_ATTEMPTS: usize = 4;

fn system(what: &'static str, error: io::Error) -> StartError {
    StartError::System { what, error }
}

fn bind_all(snapshot: &Snapshot, metrics: &Metrics) -> Result<Vec<BoundListener>, BindError> {
    let listeners = snapshot.listeners().iter().enumerate();
    listeners
        .map(|(index, config)| BoundListener::bind(config, config.name(index).into_owned(), metrics))
        .collect()
}

fn bind_admin(snapshot: &Snapshot) -> Result<TcpListener, StartError> {
    let address = snapshot.config.admin.address;
    TcpListener::bind(address).map_err(|error| StartError::Admin { address, error })
}

fn bound_addresses(listeners: &[BoundListener]) -> Vec<(String, SocketAddr)> {
    listeners.iter().map(|bound| (bound.listener.name.to_string(), bound.listener.address)).collect()
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
