//! Origins nobody here wrote: nginx that closes idle connections after a second, a gRPC service of Google's
//! stack, a websocket server of Python's.
//!
//! The last two come with the gate's tools (`independent_tools` says how). Their clients are programs of the
//! same stack, which are run against the origin and through the gateway: nothing may differ.

use crate::independent_tools::{Running, echo_server, serving, tool};
use crate::support::commands::run;
use crate::support::eventually::{until, within};
use crate::support::ports::Port;
use crate::support::{Connection, Gateway};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Clients, each with an address of the origin, and so with connections, of its own: shared ones would never
/// be idle for a second.
const CLIENTS: u64 = 12;
const ROUNDS: usize = 5;

/// nginx that keeps idle connections for a second and does not say so.
fn nginx(dir: &Path) -> (Running, Port) {
    let port = Port::free();
    let folder = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let listens: String = (1..=CLIENTS).map(|host| format!("listen 127.0.0.{host}:{port};\n")).collect();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}keepalive_timeout 1s;\nserver {{\n{listens}\
         location / {{ return 200 \"from nginx\"; }}\n}}\n}}\n"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, configuration).expect("a configuration");
    let mut command = Command::new("nginx");
    // Where Debian puts daemons, which is not in everybody's PATH.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    command.env("PATH", path).args(["-e", "stderr", "-c"]).arg(&file).stderr(Stdio::null());
    let server = Running(command.spawn().expect("nginx is needed for this test"));
    until("nginx", || std::net::TcpStream::connect(("127.0.0.1", port.number())).is_ok());
    (server, port)
}

/// Asks again and again, each time a moment before or after the second in which nginx closes; what was
/// not answered with 200.
fn about_when_it_closes(gateway: &Gateway, client: u64) -> Vec<String> {
    let mut connection = Connection::open(gateway.address());
    let pause = Duration::from_millis(980 + 4 * client);
    let mut failures = Vec::new();
    for round in 0..ROUNDS {
        // Without a body, and with one, which takes another way to the same connection.
        let request = match round % 2 {
            0 => format!("GET /{client} HTTP/1.1\r\nHost: a\r\n\r\n"),
            _ => format!("POST /{client} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"),
        };
        for again in 0..2 {
            match connection.try_request(&request) {
                Ok(answer) if answer.text() == "from nginx" => {}
                other => failures.push(format!("{client} {round}: {other:?}")),
            }
            if again == 0 {
                within(pause, || None::<()>);
            }
        }
    }
    failures
}

#[test]
fn an_nginx_that_closes_idle_connections_costs_no_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_nginx, port) = nginx(folder.path());
    let (mut routes, mut upstreams) = ("routes:\n".to_owned(), "upstreams:\n".to_owned());
    for client in 0..CLIENTS {
        writeln!(routes, "  - {{ path: /{client}, upstream: u{client} }}").expect("text");
        writeln!(upstreams, "  u{client}: {{ endpoints: [\"127.0.0.{}:{port}\"] }}", client + 1)
            .expect("text");
    }
    let gateway = Gateway::start(&format!("workers: 1\n{routes}{upstreams}"));
    let failures: Vec<_> = std::thread::scope(|scope| {
        let client = |number| {
            let gateway = &gateway;
            scope.spawn(move || about_when_it_closes(gateway, number))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    assert!(failures.is_empty(), "{failures:?}");
    // Some found their connection open and some closed: it was the right moment. Without that, each would
    // have opened one.
    let taken =
        |reused| gateway.metrics().sum("portcullis_upstream_connections_total", &[("reused", reused)]);
    let (fresh, reused) = (taken("false"), taken("true"));
    assert!(fresh > 2.0 * CLIENTS as f64 && reused > 0.0, "{fresh} fresh, {reused} reused");
}

/// What a client of the gate's tools prints.
fn told(python: &Path, client: &str, origin: &str) -> serde_json::Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gate").join(client);
    let output = run(python.to_str().expect("a path"), &[script.to_str().expect("a path"), origin], b"");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client} at {origin}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_grpc_client_cannot_tell_the_gateway_from_the_service() {
    let Some(python) = tool("python") else { return };
    let (_service, origin) = serving(&python, "grpc_service.py");
    let yaml = "routes: [{ path: /test.Bytes, upstream: app }]\n\
                upstreams: { app: { endpoints: [\"{ORIGIN}\"], protocol: h2c } }\n";
    let gateway = Gateway::builder(yaml).set("ORIGIN", &origin).start();
    let through = told(&python, "grpc_calls.py", &gateway.address().to_string());
    assert_eq!(through, told(&python, "grpc_calls.py", &origin));
    // The clients compared were not both mute.
    assert_eq!(through["unary"][3], "OK");
    assert_eq!(through["deadline"], "DEADLINE_EXCEEDED");
    assert_eq!(through["fail"][1], "not now: 100 % ä");
    until("nothing in flight", || {
        gateway.metrics().sum("portcullis_upstream_requests_in_flight", &[]) == 0.0
    });
}

#[test]
fn a_websocket_client_cannot_tell_the_gateway_from_the_server() {
    let Some(python) = tool("python") else { return };
    let (_server, origin) = echo_server(&python);
    let gateway = Gateway::builder("routes: [{ upstream: [\"{ORIGIN}\"] }]\n").set("ORIGIN", &origin).start();
    let through = told(&python, "websocket_calls.py", &format!("ws://{}/", gateway.address()));
    assert_eq!(through, told(&python, "websocket_calls.py", &format!("ws://{origin}/")));
    assert_eq!(through[1][1], 4001);
}
