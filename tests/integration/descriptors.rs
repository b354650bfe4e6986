//! Descriptors that run out, and connections that say nothing: the admin port answers all the same.

use crate::support::Gateway;
use crate::support::eventually::{eventually, holds, until};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const HELLO: &str = "routes: [{ respond: { body: hello } }]\nlog: { level: warn }\n";
/// More than the one below may have open.
const FILES: u64 = 300;

#[test]
fn the_admin_port_answers_when_traffic_has_used_up_all_descriptors() {
    let gateway = Gateway::builder(HELLO).open_files(FILES).start();
    let limit = gateway.metrics().get("process_max_fds", &[]).expect("a limit");
    assert!(limit < FILES as f64 && limit > FILES as f64 / 2.0, "{limit}");
    gateway.wait_log("max_connections of the listeners is 100000, but this process may have");
    let clients: Vec<TcpStream> =
        (0..FILES).map(|_| TcpStream::connect(gateway.address()).expect("the system accepts")).collect();
    gateway.wait_log("cannot accept");
    for path in ["/livez", "/readyz", "/metrics", "/v1/status"] {
        assert_eq!(gateway.admin(path).status, 200, "{path}");
    }
    let said = gateway.log().matches("cannot accept").count();
    assert!(said <= 2, "each worker says so once, not {said} times");
    drop(clients);
    until("an answer", || gateway.get("a", "/").text() == "hello");
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let gateway = Gateway::start(HELLO);
    let limit = gateway.set_open_files(libc::rlimit { rlim_cur: 0, rlim_max: 0 });
    assert!(limit.rlim_cur < limit.rlim_max && limit.rlim_cur >= limit.rlim_max - 64, "{}", limit.rlim_cur);
}

/// Opens connections that say nothing, a new one for each that was closed.
struct Silent {
    address: SocketAddr,
    open: Vec<TcpStream>,
}

impl Silent {
    fn fill(&mut self, wanted: usize) {
        self.open.retain(|stream| !is_closed(stream));
        while self.open.len() < wanted {
            let stream = TcpStream::connect(self.address).expect("it listens");
            stream.set_nonblocking(true).expect("a socket");
            self.open.push(stream);
        }
    }
}

fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn connections_that_say_nothing_do_not_silence_the_admin_port() {
    let gateway = Gateway::start(HELLO);
    let mut silent = Silent { address: gateway.admin_address(), open: Vec::new() };
    holds("life", Duration::from_secs(3), || {
        silent.fill(600);
        gateway.admin("/livez").status == 200
    });
}

#[test]
fn a_connection_to_the_admin_port_that_says_nothing_is_closed_soon() {
    let gateway = Gateway::start(HELLO);
    let stream = TcpStream::connect(gateway.admin_address()).expect("it listens");
    stream.set_nonblocking(true).expect("a socket");
    // Long before a whole connection has had its time, a minute.
    eventually("its end", || is_closed(&stream).then_some(()));
}
