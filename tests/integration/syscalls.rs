//! What a request costs in system calls, counted by strace.

use crate::support::certificates::Authority;
use crate::support::eventually::until;
use crate::support::{Gateway, Origin, Reply};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Attaches strace to all threads and waits until it holds them.
fn attach(gateway: &Gateway, trace: &Path) -> Child {
    let child = Command::new("strace")
        .args([
            "-f",
            "-e",
            "trace=recvfrom,sendto,read,write,readv,writev,recvmsg,sendmsg,getpeername,setsockopt",
        ])
        .arg("-o")
        .arg(trace)
        .arg("-p")
        .arg(gateway.pid().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace is needed for this test");
    let traced = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).expect("threads");
        tasks
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default())
            .all(|status| {
                let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
                tracer.is_some_and(|pid| pid.trim() != "0")
            })
    };
    until("strace to hold every thread", traced);
    child
}

/// Ends strace (the gateway goes on) and gives the calls it saw.
fn detach(mut strace: Child, trace: &Path) -> Vec<String> {
    // SAFETY: a plain system call; the process is our child and not yet waited for.
    unsafe { libc::kill(strace.id() as i32, libc::SIGINT) };
    strace.wait().expect("an end");
    std::fs::read_to_string(trace).expect("a trace").lines().map(str::to_owned).collect()
}

fn count(calls: &[String], name: &str) -> usize {
    // `PID name(…) = n`; a resumed call is the second half of one that was counted.
    let call = format!(" {name}(");
    calls.iter().filter(|line| line.contains(&call) && !line.contains("EAGAIN")).count()
}

#[test]
fn a_proxied_request_costs_two_reads_and_two_writes() {
    let origin = Origin::fixed("hello");
    let yaml = "workers: 2\nroutes: [{ upstream: [\"{ORIGIN}\"] }]\naccess_log: { output: off }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    let mut connection = gateway.connect();
    // A small body goes up with its head.
    let body = "x".repeat(1024);
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", &post] {
        for _ in 0..5 {
            connection.request(request);
        }
        let trace = gateway.dir().join("trace");
        let strace = attach(&gateway, &trace);
        const REQUESTS: usize = 50;
        for _ in 0..REQUESTS {
            assert_eq!(connection.request(request).text(), "hello");
        }
        let calls = detach(strace, &trace);
        let (reads, writes) = (count(&calls, "recvfrom"), count(&calls, "sendto"));
        assert!(reads.abs_diff(2 * REQUESTS) <= 2, "{reads} recvfrom for {REQUESTS} of {request:.4}");
        assert!(writes.abs_diff(2 * REQUESTS) <= 2, "{writes} sendto for {REQUESTS} of {request:.4}");
        let wakes = count(&calls, "write") + count(&calls, "writev") + count(&calls, "sendmsg");
        // A wake-up of another thread for each request would be as many as there are requests.
        assert!(wakes < REQUESTS / 4, "{wakes} other writes for {REQUESTS} of {request:.4}");
    }
}

#[test]
fn a_direct_answer_over_tls_costs_one_write() {
    let builder = Gateway::builder(
        "routes: [{ hosts: [app.test], upstream: [\"{ORIGIN}\"] }]\nnot_found: { body_file: 404.html }\n\
         certificates: [{ cert: app.pem, key: app.key }]\naccess_log: { output: off }\n",
    );
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let origin = Origin::script(|_| Reply::ok("hello"));
    let gateway = builder.origin(&origin).file("404.html", "x".repeat(11_776)).start();
    let mut connection = gateway.connect_tls("app.test");
    connection.get("unknown.test", "/", "");
    let trace = gateway.dir().join("trace");
    let strace = attach(&gateway, &trace);
    const REQUESTS: usize = 50;
    for _ in 0..REQUESTS {
        assert_eq!(connection.get("unknown.test", "/", "").body.len(), 11_776);
    }
    let calls = detach(strace, &trace);
    let writes =
        count(&calls, "sendto") + count(&calls, "write") + count(&calls, "writev") + count(&calls, "sendmsg");
    assert!(writes.abs_diff(REQUESTS) <= 3, "{writes} writes for {REQUESTS} answers");
}

/// A client without TCP_NODELAY holds its first request back until the last message of its handshake is
/// acknowledged, which the kernel would put off by 40 ms.
#[test]
fn the_end_of_a_handshake_is_acknowledged_at_once() {
    let gateway = Gateway::start("routes: [{ respond: { body: hello } }]\naccess_log: { output: off }\n");
    let trace = gateway.dir().join("trace");
    let strace = attach(&gateway, &trace);
    const HANDSHAKES: usize = 10;
    // Nothing is sent along with the last message.
    let idle: Vec<_> = (0..HANDSHAKES).map(|_| gateway.connect_tls("a")).collect();
    gateway.wait_metric("portcullis_connections_total", &[], HANDSHAKES as f64);
    drop(idle);
    let calls = detach(strace, &trace);
    let acknowledged = calls.iter().filter(|call| call.contains("TCP_QUICKACK, [1]")).count();
    assert_eq!(acknowledged, HANDSHAKES);
}
