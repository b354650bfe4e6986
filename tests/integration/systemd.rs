//! What the service manager is told (sd_notify), and the form of the process's own log.

use crate::support::Gateway;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const HELLO: &str = "routes: [{ respond: { body: hello } }]\n";

#[test]
fn the_service_manager_hears_ready_reloading_and_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut heard = String::new();
    let mut wait = |wanted: &str| {
        while !heard.contains(wanted) {
            let mut buffer = [0; 4096];
            let count =
                socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {wanted}: {error}; {heard}"));
            heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
            heard.push('\n');
        }
        heard.clear();
    };
    let mut gateway = Gateway::builder(HELLO).environment("NOTIFY_SOCKET", path.display()).start();
    wait("READY=1");
    gateway.sighup();
    wait("RELOADING=1");
    wait("READY=1");
    gateway.term();
    wait("STOPPING=1");
    assert_eq!(gateway.wait_exit(Duration::from_secs(10)), 0);
}

#[test]
fn the_service_manager_follows_an_upgrade_and_sees_nobody_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut heard = String::new();
    let mut wait = |wanted: &str| {
        while !heard.contains(wanted) {
            let mut buffer = [0; 4096];
            let count = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
            heard.push('\n');
        }
        heard.clear();
    };
    let mut old = Gateway::builder(HELLO).environment("NOTIFY_SOCKET", path.display()).start();
    wait("READY=1");
    let new = old.upgrade(HELLO);
    wait(&format!("MAINPID={}", new.pid()));
    old.wait_log("serves as well");
    old.signal(libc::SIGQUIT);
    assert_eq!(old.wait_exit(Duration::from_secs(10)), 0);
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    while let Ok(count) = socket.recv(&mut buffer) {
        assert!(!String::from_utf8_lossy(&buffer[..count]).contains("STOPPING"));
    }
}

#[test]
fn the_log_can_be_json_and_its_level_changes_at_a_reload() {
    let gateway = Gateway::start(&format!("{HELLO}log: {{ format: json, level: info }}"));
    gateway.reload(&format!("{HELLO}log: {{ format: json, level: error }}"));
    let before = gateway.log();
    assert!(!before.is_empty());
    for line in before.lines() {
        let record: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(record.is_object(), "{line}");
    }
    gateway.reload(&format!("{HELLO}log: {{ format: json, level: error }}"));
    let written = &gateway.log()[before.len()..];
    assert!(!written.contains("generation 3"), "an info line at level error: {written}");
}
