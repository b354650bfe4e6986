//! Clients that take their time: many of them, and what it costs the others.

use crate::support::{Connection, Gateway, eventually};

const HELLO: &str = "routes: [{ name: app, respond: { body: hello } }]\n";

/// How a slow client begins, and the byte it goes on with for ever.
const SLOW: [(&str, &str); 4] = [
    ("GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", "x"),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n", "x"),
    // A record of nearly 16 KiB is announced, which this pace does not fill in time.
    ("\x16\x03\x01\x3f\x00\x01\x00\x3e\x00\x03\x03", "x"),
    ("G", ""),
];

/// A thousand connections are as many as a process may have by default; it may ask for more.
fn make_room_for_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls; the one place they read and write outlives them.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(4_096));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

fn open_connections(gateway: &Gateway) -> f64 {
    gateway.metrics().sum("portcullis_connections_open", &[])
}

/// One byte more from each that goes on; some may have been cut already.
fn drip(slow: &mut [(Connection, &str)]) {
    for (connection, byte) in slow {
        let _ = connection.try_send(byte);
    }
}

#[test]
fn a_thousand_slow_clients_do_not_stop_the_others_and_are_cut() {
    make_room_for_descriptors();
    let gateway = Gateway::start(&format!("{HELLO}limits: {{ header_timeout: 20s }}"));
    let mut slow: Vec<(Connection, &str)> = (0..1000)
        .map(|n| {
            let (start, drip) = SLOW[n % SLOW.len()];
            let mut connection = gateway.connect();
            connection.send(start);
            (connection, drip)
        })
        .collect();
    gateway.wait_metric("portcullis_connections_open", &[], 1000.0);
    // Each fast client has one connection throughout: none is ever closed or left waiting.
    std::thread::scope(|scope| {
        let address = gateway.address();
        let fast: Vec<_> = (0..64)
            .map(|_| {
                scope.spawn(move || {
                    let mut connection = Connection::open(address);
                    (0..20).filter(|_| connection.get("a", "/", "").text() == "hello").count()
                })
            })
            .collect();
        eventually::until("the fast clients to be done", || {
            drip(&mut slow);
            fast.iter().all(|client| client.is_finished())
        });
        let answered: usize = fast.into_iter().map(|client| client.join().expect("no panic")).sum();
        assert_eq!(answered, 64 * 20);
    });
    eventually::until("every slow client to be cut", || {
        drip(&mut slow);
        open_connections(&gateway) == 0.0
    });
    gateway.wait_metric_is("portcullis_rejections_total", &[("reason", "header_timeout")], 750.0);
    let handshakes = [("listener", "edge"), ("reason", "handshake_timeout")];
    gateway.wait_metric_is("portcullis_connections_refused_total", &handshakes, 250.0);
    assert_eq!(gateway.get("a", "/").text(), "hello");
}

#[test]
fn silent_and_one_byte_clients_cost_a_descriptor_until_their_deadline() {
    let gateway = Gateway::start(&format!("{HELLO}limits: {{ header_timeout: 15s, idle_timeout: 16s }}"));
    gateway.get("a", "/");
    eventually::until("a quiet gateway", || open_connections(&gateway) == 0.0);
    let before = gateway.open_fds();
    let mut clients: Vec<_> = (0..300).map(|_| gateway.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        match n % 3 {
            0 => {}
            1 => client.send("G"),
            _ => client.send("\x16"),
        }
    }
    gateway.wait_metric("portcullis_connections_open", &[], 300.0);
    // One each; the scrapes have some of their own.
    let grown = gateway.open_fds() - before;
    assert!((295..=310).contains(&grown), "{grown} descriptors for 300 clients");
    for client in &mut clients {
        client.rest();
    }
    eventually::until("all to be gone", || open_connections(&gateway) == 0.0);
    for reason in ["silent", "handshake_timeout"] {
        gateway.wait_metric_is("portcullis_connections_refused_total", &[("reason", reason)], 100.0);
    }
    gateway.wait_metric_is("portcullis_rejections_total", &[("reason", "header_timeout")], 100.0);
    eventually::until("descriptors to be as before", || gateway.open_fds() <= before + 10);
}
