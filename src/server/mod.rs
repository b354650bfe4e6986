//! The composition root: the only file that knows every room.
//!
//! Reads as a story: compile the configuration, bind, put the services together, run, drain.

mod handover;
mod leaving;
mod listeners;

use self::handover::{Handover, HandoverService, Inheritance, Predecessor, TakeError};
use self::leaving::Leaving;
use self::listeners::ProcessListeners;
use crate::admin::{AdminService, AdminState};
use crate::background::expiry::{self, Expiry};
use crate::background::heartbeat::Heartbeats;
use crate::background::readiness::Readiness;
use crate::background::reload::Reloader;
use crate::background::signals::Signals;
use crate::background::ticket_rotation::TicketRotation;
use crate::background::upstreams::Upstreams;
use crate::background::{descriptors, gauges};
use crate::config::Problems;
use crate::edge::accept::Door;
use crate::edge::drain::{Drain, Patience};
use crate::edge::listener_set::{BindError, ListenerSet};
use crate::edge::refusal::Refusals;
use crate::edge::share::Share;
use crate::edge::worker::{Worker, WorkerEvents};
use crate::proxy::{engine::Engine, forward::Forwarder, gateway::Gateway, record::Records};
use crate::snapshot::{self, Shared, Snapshot, SnapshotStore};
use crate::telemetry::access_log::writer::AccessLogWriter;
use crate::telemetry::logging;
use crate::telemetry::metrics::Metrics;
use crate::tls::tickets::TicketKeys;
use crate::upstream::sticky;
use parking_lot::Mutex;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::ServiceHandle;
use pingora_core::services::background::{BackgroundService, background_service};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration was refused; exit code 1.
    #[error("{0}")]
    Refused(Problems),
    /// Traffic addresses could not be listened on; exit code 3.
    #[error("{}", lines(.0))]
    Bind(Vec<BindError>),
    /// The admin address could not be listened on; exit code 3.
    #[error("cannot listen on {address} (admin): {error}")]
    Admin {
        /// `admin.address`.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// There is nothing to take over; exit code 3.
    #[error("cannot take over: {0}")]
    Upgrade(#[from] TakeError),
    /// The system refused something else; exit code 3.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

/// Serves until the process is asked to leave and has drained. With `upgrade` it takes the listening
/// sockets over from the gateway that runs with the same admin address.
///
/// # Errors
/// Before any traffic is accepted: a refused configuration, or something the system refused.
pub fn run(path: Option<PathBuf>, signals: Signals, upgrade: bool) -> Result<(), StartError> {
    let (process, taking) = Process::prepare(path, signals, upgrade)?;
    let mut server = Server::new_with_opt_and_conf(None, process.engine_conf());
    server.bootstrap();
    let (upstreams, settled) = process.add_upstreams(&mut server);
    process.add_workers(&mut server, &settled);
    // From here on the process drains instead of leaving at once.
    let _termination = process.signals.claim();
    process.add_operators(&mut server, taking, upstreams);
    process.announce();
    server.run(RunArgs { shutdown_signal: Box::new(process.leaving()) });
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
    heartbeats: Arc<Heartbeats>,
    drain: Arc<Drain>,
    patience: Arc<Patience>,
    listeners: Arc<ListenerSet>,
    handover: Arc<Handover>,
}

/// What is used up by the start.
struct Taking {
    admin: TcpListener,
    predecessor: Option<Predecessor>,
    asked: Option<UnixListener>,
}

impl Process {
    /// Says what is about to serve, for whoever reads the log first.
    fn announce(&self) {
        let snapshot = self.store.pin();
        let listeners: Vec<String> = self
            .readiness
            .listeners()
            .iter()
            .map(|listener| format!("{} ({})", listener.address, listener.name))
            .collect();
        log::info!(
            "portcullis {} listens on {}; admin on {}; {} workers, {} routes, {} upstreams",
            env!("CARGO_PKG_VERSION"),
            listeners.join(", "),
            snapshot.config.admin.address,
            snapshot.config.workers.resolve(),
            snapshot.routes.len(),
            snapshot.pools.len(),
        );
        descriptors::warn_if_short(&snapshot.config);
    }

    /// Everything that can fail, before anything is served; every port is bound.
    fn prepare(path: Option<PathBuf>, signals: Signals, upgrade: bool) -> Result<(Self, Taking), StartError> {
        let metrics = Metrics::new();
        let tickets = TicketKeys::generate()
            .map_err(|error| system("make session ticket keys", io::Error::other(error)))?;
        let shared = Shared { metrics: Arc::clone(&metrics), tickets };
        let (first, predecessor, mut inherited) = first_configuration(path.as_deref(), &shared, upgrade)?;
        if first.certificates.is_self_signed() {
            log::warn!("no certificate is configured: TLS clients get a self-signed one made just now");
        }
        expiry::tell(&first);
        let (workers, address) = (first.config.workers.resolve(), first.config.admin.address);
        let admin = bind_admin(address, &mut inherited.sockets)?;
        let listeners = Arc::new(ListenerSet::new(workers, Arc::clone(&metrics)));
        listeners.commit(listeners.plan(first.listeners(), inherited.sockets).map_err(StartError::Bind)?);
        let own = admin.try_clone().map_err(|error| system("share the admin socket", error))?;
        let tickets = shared.tickets.clone();
        let handover = Arc::new(Handover::new(address, own, Arc::clone(&listeners), tickets, upgrade));
        let asked = if upgrade { None } else { handover.claim() };
        let (output, memory) = (first.access_log.output(), first.config.log.memory);
        let access_log = AccessLogWriter::start(output, Arc::clone(&metrics), workers, memory)
            .map_err(|error| system("open the access log", error))?;
        let readiness = Arc::new(Readiness::new(workers));
        readiness.listeners_bound(listeners.addresses());
        gauges::publish(&metrics, &first);
        let heartbeats = Heartbeats::new(workers);
        heartbeats.watch().map_err(|error| system("watch the workers", error))?;
        let patience = Arc::new(Patience::new(first.config.shutdown.drain.0));
        let process = Process {
            path,
            signals,
            shared,
            store: Arc::new(SnapshotStore::new(first)),
            readiness,
            access_log,
            heartbeats,
            drain: Arc::default(),
            patience,
            listeners,
            handover,
        };
        Ok((process, Taking { admin, predecessor, asked }))
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

    /// What is found out about upstreams; the handle is ready once it is known what the first requests need.
    fn add_upstreams(&self, server: &mut Server) -> (Upstreams, ServiceHandle) {
        let (upstreams, service) = Upstreams::new(Arc::clone(&self.store));
        (upstreams, beside(server, "upstreams", service))
    }

    /// One service per worker. None accepts before upstreams are `settled`: until then connections wait in
    /// the socket's queue, or go to the process that is being replaced.
    fn add_workers(&self, server: &mut Server, settled: &ServiceHandle) {
        let conf = Arc::new(self.engine_conf());
        let snapshot = self.store.pin();
        let workers = snapshot.config.workers.resolve();
        for number in 0..workers {
            let door = self.door(self.gateway(&conf), workers);
            let (readiness, heartbeats) = (Arc::clone(&self.readiness), Arc::clone(&self.heartbeats));
            let events = Arc::new(WorkerLife { number, readiness, heartbeats });
            let name = format!("worker {number}");
            let worker = server.add_service(Worker::new(name, door, self.listeners.follow(), events));
            worker.add_dependency(settled);
        }
    }

    fn gateway(&self, conf: &Arc<ServerConf>) -> Gateway {
        let records = self.records();
        Gateway { forwarder: Forwarder::new(conf), engine: Engine::new(conf, records.clone()), records }
    }

    fn records(&self) -> Records {
        Records {
            snapshots: Arc::clone(&self.store),
            metrics: Arc::clone(&self.shared.metrics),
            access_log: Arc::clone(&self.access_log),
        }
    }

    fn refusals(&self) -> Refusals {
        Refusals { snapshots: Arc::clone(&self.store), recorder: Arc::new(self.records()) }
    }

    fn door<A>(&self, app: A, workers: usize) -> Door<A> {
        Door {
            app: Arc::new(app),
            snapshots: Arc::clone(&self.store),
            metrics: Arc::clone(&self.shared.metrics),
            refusals: self.refusals(),
            drain: Arc::clone(&self.drain),
            patience: Arc::clone(&self.patience),
            share: Share::new(workers),
        }
    }

    /// Port 7998, the reload loop, the rotation of ticket keys, the watch over certificates, and who comes before and after this
    /// process.
    fn add_operators(&self, server: &mut Server, taking: Taking, upstreams: Upstreams) {
        let state = AdminState::new(
            self.path.clone(),
            Arc::clone(&self.store),
            Arc::clone(&self.readiness),
            Arc::clone(&self.heartbeats),
            Arc::clone(&self.shared.metrics),
        );
        let reloader = Reloader {
            path: self.path.clone(),
            shared: self.shared.clone(),
            store: Arc::clone(&self.store),
            readiness: Arc::clone(&self.readiness),
            log_writer: Arc::clone(&self.access_log),
            listeners: Arc::new(ProcessListeners::new(&self.listeners, &self.patience, &self.readiness)),
            upstreams,
            signals: self.signals.clone(),
        };
        let rotation = TicketRotation { shared: self.shared.clone(), store: Arc::clone(&self.store) };
        let handover = HandoverService {
            handover: Arc::clone(&self.handover),
            predecessor: Mutex::new(taking.predecessor),
            asked: Mutex::new(taking.asked),
            readiness: Arc::clone(&self.readiness),
        };
        beside(server, "admin", AdminService::new(taking.admin, state, self.handover.turn()));
        beside(server, "reload", reloader);
        beside(server, "tickets", rotation);
        beside(server, "expiry", Expiry { store: Arc::clone(&self.store) });
        beside(server, "handover", handover);
    }

    fn leaving(self) -> Leaving {
        Leaving {
            signals: self.signals,
            store: self.store,
            readiness: self.readiness,
            listeners: self.listeners,
            handover: self.handover,
            drain: self.drain,
            patience: self.patience,
            access_log: self.access_log,
            heartbeats: self.heartbeats,
        }
    }
}

/// The configuration to begin with and, for an upgrade, what the process before this one hands over.
fn first_configuration(
    path: Option<&Path>,
    shared: &Shared,
    upgrade: bool,
) -> Result<(Snapshot, Option<Predecessor>, Inheritance), StartError> {
    let compile = || snapshot::prepare(path, shared, None).map_err(StartError::Refused);
    let mut first = compile()?;
    logging::init(&first.config.log);
    descriptors::raise_limit();
    if !upgrade {
        return Ok((first, None, Inheritance::default()));
    }
    let (predecessor, inherited) = Predecessor::ask(first.config.admin.address)?;
    if !shared.tickets.adopt(&inherited.ticket_keys) {
        log::warn!("no ticket keys came with the sockets: TLS sessions begin anew");
    }
    if let Some(secret) = inherited.sticky_secret {
        sticky::adopt_process_secret(secret);
        // It was compiled before, because who is refused must not disturb the one that serves by asking.
        if first.pools.values().any(|pool| pool.sticky_cookie().is_some()) {
            first = compile()?;
        }
    }
    Ok((first, Some(predecessor), inherited))
}

/// Runs `task` on a thread of its own.
fn beside<T: BackgroundService + Send + Sync + 'static>(
    server: &mut Server,
    name: &str,
    task: T,
) -> ServiceHandle {
    let mut service = background_service(name, task);
    service.threads = Some(1);
    server.add_service(service)
}

/// Upper bound on attempts of one request, above what may be configured; what is tried again is decided
/// in `proxy::retry`.
const MAX_ATTEMPTS: usize = 12;

fn system(what: &'static str, error: io::Error) -> StartError {
    StartError::System { what, error }
}

fn bind_admin(address: SocketAddr, inherited: &mut Vec<TcpListener>) -> Result<TcpListener, StartError> {
    let ours = inherited.iter().position(|socket| socket.local_addr().is_ok_and(|bound| bound == address));
    match ours {
        Some(place) => Ok(inherited.swap_remove(place)),
        None => TcpListener::bind(address).map_err(|error| StartError::Admin { address, error }),
    }
}

fn lines(errors: &[BindError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Who is told of one worker.
struct WorkerLife {
    number: usize,
    readiness: Arc<Readiness>,
    heartbeats: Arc<Heartbeats>,
}

impl WorkerEvents for WorkerLife {
    fn up(&self) {
        self.readiness.worker_up();
    }

    fn down(&self) {
        self.readiness.worker_down();
    }

    fn turned(&self) {
        self.heartbeats.turned(self.number);
    }

    fn ended(&self) {
        self.heartbeats.ended(self.number);
    }
}
