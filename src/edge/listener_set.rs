//! Which sockets the process listens on, and how that changes while it serves.
//!
//! A change is planned beside what serves (every new address is bound) and then committed, which
//! cannot fail. An address that stays keeps its socket, whatever else of its listener changes. The
//! workers follow the set by themselves ([`super::worker`]). It knows nothing of snapshots.

use super::closing::Closing;
use super::listener::{BoundListener, Listener, Sockets};
use crate::config::ListenerConfig;
use crate::telemetry::metrics::Metrics;
use parking_lot::Mutex;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The sockets of the process at one moment. Empty: the process leaves.
pub type Bound = Arc<[Arc<BoundListener>]>;

/// Lives as long as the process. One change at a time.
pub struct ListenerSet {
    workers: usize,
    metrics: Arc<Metrics>,
    bound: watch::Sender<Bound>,
    /// The process leaves: nothing is listened on any more.
    left: Mutex<bool>,
    /// Removed addresses whose sockets may not be closed yet.
    closing: Mutex<Vec<(SocketAddr, Arc<Closing>)>>,
}

/// Time the workers get to close a removed socket whose port is wanted again.
const CLOSE: Duration = Duration::from_secs(2);

/// A change that is ready to be made. Dropping it closes what was bound for it.
pub struct Plan(Vec<Planned>);

struct Planned {
    name: String,
    config: ListenerConfig,
    socket: Planning,
}

enum Planning {
    Kept(Arc<BoundListener>),
    New(Sockets),
}

/// An address that could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (listener `{name}`): {error}")]
pub struct BindError {
    /// Its place in the configuration.
    pub index: usize,
    /// The listener's name.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// What the system said.
    pub error: io::Error,
    /// A socket of this process has the port, and its listener is one that would go.
    pub until_removed: bool,
}

impl ListenerSet {
    /// Listens on nothing yet. Every socket gets a descriptor for each of `workers`.
    pub fn new(workers: usize, metrics: Arc<Metrics>) -> Self {
        ListenerSet {
            workers,
            metrics,
            bound: watch::Sender::new(Arc::new([])),
            left: Mutex::new(false),
            closing: Mutex::default(),
        }
    }

    /// Binds what `configs` names and the process does not listen on yet. `inherited` sockets are used
    /// before new ones are bound; those that nobody wants are closed. Nothing that serves changes. Of a process
    /// that leaves nothing is planned.
    ///
    /// # Errors
    /// Every address that cannot be listened on.
    pub fn plan(
        &self,
        configs: &[ListenerConfig],
        mut inherited: Vec<TcpListener>,
    ) -> Result<Plan, Vec<BindError>> {
        if *self.left.lock() {
            return Ok(Plan(Vec::new()));
        }
        let running = self.now();
        let (mut planned, mut errors) = (Vec::with_capacity(configs.len()), Vec::new());
        for (index, config) in configs.iter().enumerate() {
            let name = config.name(index).into_owned();
            let kept = running.iter().find(|bound| bound.configured() == config.address);
            let socket = match kept {
                Some(bound) => Ok(Planning::Kept(Arc::clone(bound))),
                None => self.open(config.address, &mut inherited).map(Planning::New),
            };
            match socket {
                Ok(socket) => planned.push(Planned { name, config: config.clone(), socket }),
                Err(error) => errors.push(BindError {
                    index,
                    name,
                    address: config.address,
                    until_removed: running.iter().any(|b| is_in_the_way(b, config.address)),
                    error,
                }),
            }
        }
        if errors.is_empty() { Ok(Plan(planned)) } else { Err(errors) }
    }

    /// Makes the planned set the one that serves: new addresses are accepted on, kept ones have their
    /// new settings for the next connection, removed ones close and their connections drain.
    pub fn commit(&self, plan: Plan) {
        let left = self.left.lock();
        if *left {
            return;
        }
        let bound = plan.0.into_iter().map(|planned| planned.commit(&self.metrics)).collect();
        self.note_removed(&bound);
        self.bound.send_replace(bound);
    }

    /// Stops listening for good; every connection drains.
    pub fn leave(&self) {
        *self.left.lock() = true;
        self.bound.send_replace(Arc::new([]));
    }

    /// For a worker: the set, and every change of it.
    pub fn follow(&self) -> watch::Receiver<Bound> {
        self.bound.subscribe()
    }

    /// Notes what `next` does not have any more, and forgets what is closed.
    fn note_removed(&self, next: &Bound) {
        let mut closing = self.closing.lock();
        closing.retain(|(_, closing)| !closing.wait(Duration::ZERO));
        let before = self.now();
        let removed = before.iter().filter(|bound| !next.iter().any(|next| Arc::ptr_eq(bound, next)));
        closing.extend(removed.map(|bound| (bound.configured(), bound.closing())));
    }

    /// Gives the workers time to close removed sockets on the port of `address`.
    fn wait_closed(&self, address: SocketAddr) {
        for (removed, closing) in self.closing.lock().iter() {
            if removed.port() == address.port() {
                closing.wait(CLOSE);
            }
        }
    }

    /// The sockets that serve now.
    pub fn now(&self) -> Bound {
        Arc::clone(&self.bound.borrow())
    }

    /// Name and address of each.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let listeners = self.now();
        let settings = listeners.iter().map(|bound| bound.settings().current());
        settings.map(|listener| (listener.name.to_string(), listener.address)).collect()
    }

    fn open(&self, address: SocketAddr, inherited: &mut Vec<TcpListener>) -> io::Result<Sockets> {
        let ours =
            inherited.iter().position(|socket| socket.local_addr().is_ok_and(|bound| bound == address));
        match ours {
            Some(place) => Sockets::share(inherited.swap_remove(place), self.workers),
            None => {
                self.wait_closed(address);
                Sockets::bind(address, self.workers)
            }
        }
    }
}

impl Planned {
    fn commit(self, metrics: &Metrics) -> Arc<BoundListener> {
        let listener = |bound, census| Listener::new(&self.config, &self.name, bound, census, metrics);
        match self.socket {
            Planning::Kept(bound) => {
                let before = bound.settings().current();
                bound.change(listener(before.address, Arc::clone(&before.census)));
                bound
            }
            Planning::New(sockets) => {
                let address = sockets.address().unwrap_or(self.config.address);
                Arc::new(BoundListener::new(self.config.address, sockets, listener(address, Arc::default())))
            }
        }
    }
}

/// Whether a running socket takes the port of an address it is not configured as: `0.0.0.0` and
/// `127.0.0.1` cannot both be listened on.
fn is_in_the_way(bound: &BoundListener, address: SocketAddr) -> bool {
    let (ours, theirs) = (bound.configured(), address);
    let whole = ours.ip().is_unspecified() || theirs.ip().is_unspecified();
    ours.port() == theirs.port() && whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ListenerTls, load};
    use std::path::Path;

    fn config(address: SocketAddr) -> ListenerConfig {
        let text =
            format!("listeners: [{{ address: \"{address}\" }}]\nroutes: [{{ respond: {{ body: a }} }}]\n");
        let config = load::load_text(Path::new("a.yaml"), &text).config.expect("a valid file");
        config.listeners.into_iter().next().expect("a listener")
    }

    fn free() -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").expect("any port");
        socket.local_addr().expect("bound")
    }

    fn set() -> ListenerSet {
        ListenerSet::new(1, Metrics::new())
    }

    fn change(set: &ListenerSet, configs: &[ListenerConfig]) {
        set.commit(set.plan(configs, Vec::new()).map_err(|errors| errors.len()).expect("bound"));
    }

    fn listens(address: SocketAddr) -> bool {
        std::net::TcpStream::connect(address).is_ok()
    }

    #[test]
    fn an_address_that_stays_keeps_its_socket_and_gets_its_settings() {
        let (set, address) = (set(), free());
        change(&set, &[config(address)]);
        let first = set.now();
        change(&set, &[ListenerConfig { tls: ListenerTls::Off, ..config(address) }]);
        assert!(Arc::ptr_eq(&first[0], &set.now()[0]));
        assert_eq!(first[0].settings().current().tls, ListenerTls::Off);
    }

    #[test]
    fn a_removed_address_closes_and_a_new_one_opens() {
        let (set, old, new) = (set(), free(), free());
        change(&set, &[config(old)]);
        assert!(listens(old));
        change(&set, &[config(new)]);
        assert!(!listens(old) && listens(new));
        assert_eq!(set.addresses(), [("edge".to_owned(), new)]);
        let late = set.plan(&[config(old)], Vec::new()).map_err(|errors| errors.len()).expect("bound");
        set.leave();
        set.commit(late);
        assert!(!listens(new) && !listens(old) && set.now().is_empty());
        change(&set, &[config(old)]);
        assert!(!listens(old), "a reload opened what the process has left");
    }

    #[test]
    fn one_address_that_is_taken_refuses_the_whole_plan() {
        let (set, first, new) = (set(), free(), free());
        change(&set, &[config(first)]);
        let holder = TcpListener::bind("127.0.0.1:0").expect("any port");
        let taken = holder.local_addr().expect("bound");
        let errors = set.plan(&[config(new), config(taken)], Vec::new()).err().expect("refused");
        assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
        assert!(!errors[0].until_removed);
        assert!(listens(first) && !listens(new), "half of it was applied");
    }

    #[test]
    fn a_port_of_a_listener_that_would_go_says_so() {
        let (set, address) = (set(), free());
        change(&set, &[config(address)]);
        let everywhere = SocketAddr::from(([0, 0, 0, 0], address.port()));
        let errors = set.plan(&[config(everywhere)], Vec::new()).err().expect("refused");
        assert!(errors[0].until_removed);
    }

    #[test]
    fn an_inherited_socket_is_used_and_one_nobody_wants_is_closed() {
        let sockets: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("any port")).collect();
        let addresses: Vec<_> = sockets.iter().map(|s| s.local_addr().expect("bound")).collect();
        let set = set();
        // It could not be bound a second time.
        set.commit(set.plan(&[config(addresses[1])], sockets).map_err(|e| e.len()).expect("bound"));
        assert!(listens(addresses[1]) && !listens(addresses[0]));
    }
}
