//! Steady load: clients that send one request after the other, in step, and remember what failed.

use super::client::Connection;
use super::eventually;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests that run until it is stopped.
pub struct Load {
    stop: Vec<Sender<()>>,
    clients: Vec<JoinHandle<Tally>>,
    answered: Arc<AtomicUsize>,
}

/// What became of the requests.
#[derive(Debug, Default)]
pub struct Tally {
    /// Answered with 200.
    pub good: usize,
    /// Anything else, in words.
    pub failures: Vec<String>,
    /// The slowest of all.
    pub slowest: Duration,
}

impl Load {
    /// `clients` connections to `address` that each ask for `path`, wait for the answer, and pause. How many
    /// requests that are in a time is the machine's affair: see [`Load::wait_more`].
    pub fn start(address: SocketAddr, path: &str, clients: usize, pause: Duration) -> Load {
        let (mut stop, mut running, answered) = (Vec::new(), Vec::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..clients {
            let (sender, stopped) = channel();
            let (path, answered) = (path.to_owned(), Arc::clone(&answered));
            stop.push(sender);
            running.push(std::thread::spawn(move || client(address, &path, &stopped, pause, &answered)));
        }
        Load { stop, clients: running, answered }
    }

    /// Waits until so many more requests were answered, however fast the machine is.
    pub fn wait_more(&self, requests: usize) {
        let answered = || self.answered.load(Ordering::Relaxed);
        let wanted = answered() + requests;
        eventually::until("more requests", || answered() >= wanted);
    }

    /// Ends it; gives what became of all requests.
    pub fn stop(self) -> Tally {
        drop(self.stop);
        let mut all = Tally::default();
        for client in self.clients {
            let tally = client.join().expect("a client");
            all.good += tally.good;
            all.failures.extend(tally.failures);
            all.slowest = all.slowest.max(tally.slowest);
        }
        all
    }
}

fn client(
    address: SocketAddr,
    path: &str,
    stopped: &Receiver<()>,
    pause: Duration,
    answered: &AtomicUsize,
) -> Tally {
    let mut tally = Tally::default();
    let mut connection = Connection::open(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n\r\n");
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let begun = std::time::Instant::now();
        match connection.try_request(&request) {
            Ok(answer) if answer.status == 200 => {
                tally.good += 1;
                answered.fetch_add(1, Ordering::Relaxed);
                if answer.header("connection").is_some_and(|value| value == "close") {
                    connection = Connection::open(address);
                }
            }
            Ok(answer) => tally.failures.push(format!("status {}", answer.status)),
            Err(error) => {
                tally.failures.push(error.to_string());
                connection = Connection::open(address);
            }
        }
        tally.slowest = tally.slowest.max(begun.elapsed());
    }
    tally
}
