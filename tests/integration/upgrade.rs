//! Upgrades: a new process gets the sockets of the old one, and no client notices.

use crate::support::certificates::Authority;
use crate::support::client::{Connection, get};
use crate::support::eventually::{DEADLINE, until, within};
use crate::support::gateway::COULD_NOT_START;
use crate::support::http2::Http2;
use crate::support::tls::{TlsClient, TlsOptions};
use crate::support::{Gate, Gateway, Origin, Reply};
use boring::ssl::SslVersion;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

const SERVES: &str = "serves as well";

fn body(text: &str) -> String {
    format!("routes: [{{ name: app, respond: {{ body: {text} }} }}]\n")
}

fn quit(gateway: &mut Gateway) {
    gateway.signal(libc::SIGQUIT);
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
}

#[test]
fn a_new_process_takes_over_and_the_old_one_leaves() {
    let mut old = Gateway::start(&body("old"));
    let new = old.upgrade(&body("new"));
    old.wait_log(SERVES);
    // From here on the admin port is the new one's.
    assert!(old.metrics().get("portcullis_config_generation", &[]) == Some(1.0));
    quit(&mut old);
    assert_eq!(new.get("a", "/").text(), "new");
    assert_eq!(new.admin("/readyz").status, 200);
    new.wait_log("has handed over");
    new.reload(&body("newer"));
    assert_eq!(new.get("a", "/").text(), "newer");
}

#[test]
fn upgrades_follow_one_another() {
    // The first one's folder holds the socket that all of them are asked at.
    let mut processes = vec![Gateway::start(&body("v0"))];
    for round in 1..=3 {
        let old = processes.last_mut().expect("a process");
        let new = old.upgrade(&body(&format!("v{round}")));
        old.wait_log(SERVES);
        quit(old);
        new.wait_log("has handed over");
        assert_eq!(new.get("a", "/").text(), format!("v{round}"));
        processes.push(new);
    }
}

#[test]
fn quit_without_a_successor_changes_nothing() {
    let mut gateway = Gateway::start(&body("old"));
    gateway.signal(libc::SIGQUIT);
    gateway.wait_log("no new process has taken over");
    assert_eq!(gateway.get("a", "/").text(), "old");
    assert_eq!(gateway.admin("/readyz").status, 200);
    gateway.term();
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
}

#[test]
fn a_new_process_that_fails_leaves_everything_to_the_old_one() {
    let mut old = Gateway::start(&body("old"));
    for (yaml, code) in [
        ("routes: [{ upstrem: x }]\n".to_owned(), 1),
        (body("new") + "listeners: [{ address: \"192.0.2.1:1\" }]\n", COULD_NOT_START),
        (body("new") + "access_log: { output: missing/folder/access.log }\n", 1),
        (body("new") + "access_log: { output: ./ }\n", COULD_NOT_START),
    ] {
        let mut new = old.upgrade(&yaml);
        assert_eq!(new.wait_exit(DEADLINE), code, "{}", new.log());
        old.signal(libc::SIGQUIT);
        old.wait_log("no new process has taken over");
        assert_eq!(old.get("a", "/").text(), "old");
        assert_eq!(old.admin("/readyz").status, 200);
    }
    // One that served and died before the old one was told to leave.
    let mut new = old.upgrade(&body("new"));
    old.wait_log(SERVES);
    new.signal(libc::SIGKILL);
    new.wait_exit(DEADLINE);
    old.wait_log("the new process has gone");
    old.signal(libc::SIGQUIT);
    until("an answer of the old one", || old.admin("/readyz").status == 200);
    assert!(old.is_running());
    assert_eq!(old.get("a", "/").text(), "old");
}

#[test]
fn there_must_be_somebody_to_take_over_from() {
    let mut gateway = Gateway::start(&body("old"));
    gateway.term();
    gateway.wait_exit(DEADLINE);
    let mut new = gateway.upgrade(&body("new"));
    assert_eq!(new.wait_exit(DEADLINE), COULD_NOT_START);
    assert!(new.log().contains("no gateway with this admin address answers"), "{}", new.log());
}

#[test]
fn the_old_process_finishes_what_runs() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |request| match request.target() {
        "/held" => Reply::ok("late").after(&held),
        _ => Reply::ok("old"),
    });
    let mut old = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]\n", &origin);
    let mut connection = old.connect();
    connection.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    let new = old.upgrade(&body("new"));
    old.wait_log(SERVES);
    old.signal(libc::SIGQUIT);
    new.wait_log("has handed over");
    // What is in the queue at that moment may still be the old one's.
    let is_new = || (new.get("a", "/").text() == "new").then_some(());
    within(DEADLINE, is_new).expect("the new process serves alone");
    assert!(old.is_running());
    gate.open();
    let answer = connection.response();
    assert_eq!((answer.text(), answer.header("connection")), ("late", Some("close")));
    assert_eq!(old.wait_exit(DEADLINE), 0);
}

#[test]
fn listeners_may_differ_between_the_two() {
    let two = "listeners:\n  - { address: \"127.0.0.1:{PORT}\" }\n  - { address: \"127.0.0.1:{PORT2}\" }\n";
    let other = "listeners:\n  - { address: \"127.0.0.1:{PORT3}\" }\n  - { address: \"127.0.0.1:{PORT}\", tls: off }\n";
    let mut old = Gateway::start(&(body("old") + two));
    let port = |name: &str| SocketAddr::from(([127, 0, 0, 1], old.value(name).parse::<u16>().unwrap()));
    let (second, third) = (port("PORT2"), port("PORT3"));
    let new = old.upgrade(&(body("new") + other));
    old.wait_log(SERVES);
    assert_eq!(get(second, "a", "/").text(), "old");
    assert_eq!(get(third, "a", "/").text(), "new");
    quit(&mut old);
    assert!(TcpStream::connect(second).is_err());
    assert_eq!((get(third, "a", "/").text(), new.get("a", "/").text()), ("new", "new"));
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    done: AtomicUsize,
}

fn client(load: &Arc<Load>, mut request: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let load = Arc::clone(load);
    std::thread::spawn(move || {
        while !load.stop.load(Ordering::Relaxed) {
            request();
            load.done.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Goes on with a connection until it is told that it closes.
fn keep_alive(address: SocketAddr) -> impl FnMut() {
    let mut connection = None;
    move || {
        let open = connection.get_or_insert_with(|| Connection::open(address));
        let answer = open.get("app.test", "/app", "");
        assert_eq!(answer.text(), "hello");
        if answer.header("connection") == Some("close") {
            connection = None;
        }
    }
}

/// Goes on with an HTTP/2 connection until it is told that it ends. What the old process says it has not
/// begun (RFC 9113 section 6.8) is asked again on a new one; nothing else may go wrong.
fn multiplexed(address: SocketAddr, told: &Arc<AtomicUsize>) -> impl FnMut() + use<> {
    let (mut connection, told) = (None, Arc::clone(told));
    move || {
        loop {
            let open = connection.get_or_insert_with(|| Http2::open(address, "app.test"));
            let request = http::Request::get("https://app.test/app").body(()).expect("a request");
            match open.request(request, b"") {
                Ok(answer) => return assert_eq!((answer.status, answer.text()), (200, "hello")),
                Err(error) if error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR) => {
                    told.fetch_add(1, Ordering::Relaxed);
                    connection = None;
                }
                Err(error) => panic!("a request failed: {error:?}"),
            }
        }
    }
}

#[test]
fn upgrades_under_load_refuse_and_reset_nothing() {
    let origin = Origin::fixed("hello");
    let yaml = "routes: [{ upstream: [\"{ORIGIN}\"] }]\ncertificates: [{ cert: \"{DIR}/app.pem\", key: \"{DIR}/app.key\" }]\n\
                access_log: { output: off }\n";
    let builder = Gateway::builder(yaml);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let first = builder.origin(&origin).start();
    let address = first.address();
    let (load, told) = (Arc::new(Load::default()), Arc::default());
    let clients = [
        client(&load, move || assert_eq!(get(address, "app.test", "/app").text(), "hello")),
        client(&load, move || {
            let mut connection =
                Connection::open_tls(address, &TlsClient::named("app.test")).expect("a handshake");
            assert_eq!(connection.get("app.test", "/app", "").text(), "hello");
        }),
        client(&load, keep_alive(address)),
        client(&load, keep_alive(address)),
        client(&load, multiplexed(address, &told)),
        client(&load, multiplexed(address, &told)),
    ];
    // The first one's folder holds the certificate and the socket for all of them.
    let mut processes = vec![first];
    for _ in 0..4 {
        let old = processes.last_mut().expect("a process");
        let done = load.done.load(Ordering::Relaxed);
        until("some load", || load.done.load(Ordering::Relaxed) > done + 50);
        let new = old.upgrade(yaml);
        old.wait_log(SERVES);
        quit(old);
        new.wait_log("has handed over");
        processes.push(new);
    }
    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client saw no failure");
    }
    // Two clients, each told by every process that left; one that came back while the old process still
    // took what was in its queue is told again.
    let told = told.load(Ordering::Relaxed);
    assert!((8..=40).contains(&told), "told {told} times");
}

fn sessions_resume_across_an_upgrade(version: SslVersion) {
    let yaml = body("hello") + "certificates: [{ cert: \"{DIR}/app.pem\", key: \"{DIR}/app.key\" }]\n";
    let builder = Gateway::builder(&yaml);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let mut old = builder.start();
    let address = old.address();
    let client = TlsClient::new(TlsOptions {
        name: Some("app.test"),
        versions: Some((version, version)),
        resume: true,
        ..TlsOptions::default()
    });
    let visit = || {
        let mut connection = Connection::open_tls(address, &client).expect("a handshake");
        assert_eq!(connection.get("app.test", "/", "").text(), "hello");
        connection.tls().resumed
    };
    assert!(!visit(), "the first handshake is a full one");
    let key = client.ticket_key().expect("a ticket");
    let new = old.upgrade(&yaml);
    old.wait_log(SERVES);
    // Whichever of the two it meets.
    assert!((0..8).all(|_| visit()), "a ticket was not accepted while both serve");
    quit(&mut old);
    assert!((0..8).all(|_| visit()), "a ticket was not accepted by the new process");
    assert_eq!(client.ticket_key(), Some(key), "the new process seals with another key");
    assert!(!new.log().contains("TLS sessions begin anew"));
}

#[test]
fn tls12_sessions_resume_across_an_upgrade() {
    sessions_resume_across_an_upgrade(SslVersion::TLS1_2);
}

#[test]
fn tls13_sessions_resume_across_an_upgrade() {
    sessions_resume_across_an_upgrade(SslVersion::TLS1_3);
}

#[test]
fn a_want_of_descriptors_passes_and_upgrades_go_on() {
    let mut old = Gateway::start(&body("old"));
    let limit = old.forbid_open_files();
    let mut files = std::fs::read_dir(old.dir()).unwrap().map(|file| file.unwrap().path());
    let place = files.find(|path| path.extension().is_some_and(|it| it == "sock")).expect("a socket");
    let asking = std::os::unix::net::UnixStream::connect(place).expect("somebody listens");
    // The first who asks may have a descriptor all the same, if it was made when the wait for it began.
    old.wait_log("a new process cannot be heard for the time being");
    drop(asking);
    old.set_open_files(limit);
    let new = old.upgrade(&body("new"));
    old.wait_log(SERVES);
    quit(&mut old);
    assert_eq!(new.get("a", "/").text(), "new");
}

#[test]
fn clients_stay_with_their_endpoints_across_an_upgrade() {
    let origins = ["a", "b", "c"].map(Origin::fixed);
    let addresses = origins.each_ref().map(|origin| format!("\"{}\"", origin.address())).join(", ");
    let yaml = format!(
        "routes: [{{ upstream: app }}]\n\
         upstreams: {{ app: {{ endpoints: [{addresses}], sticky: {{ cookie: sid }} }} }}\n"
    );
    let mut old = Gateway::start(&yaml);
    let first = old.get("a", "/");
    let cookie = first.header("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
    let mut processes = Vec::new();
    // The second takes the secret over from one that has it from the first.
    for _ in 0..2 {
        let new = old.upgrade(&yaml);
        old.wait_log(SERVES);
        let visit = || {
            let answer = old.connect().get("a", "/", &format!("Cookie: {cookie}\r\n"));
            (answer.text().to_owned(), answer.header("set-cookie").map(str::to_owned))
        };
        // Whichever of the two it meets, and then the new one.
        (0..8).for_each(|_| assert_eq!(visit(), (first.text().to_owned(), None)));
        old.signal(libc::SIGQUIT);
        new.wait_log("has handed over");
        (0..8).for_each(|_| assert_eq!(visit(), (first.text().to_owned(), None)));
        processes.push(std::mem::replace(&mut old, new));
    }
}
