//! What the service manager is told (sd_notify), and the form of the process's own log.

use crate::support::Gateway;
use crate::support::eventually::DEADLINE;
use std::os::unix::net::UnixDatagram;

const HELLO: &str = "routes: [{ respond: { body: hello } }]\n";

/// The service manager's ear.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Manager { folder, socket }
    }

    fn start(&self) -> Gateway {
        let path = self.folder.path().join("notify");
        Gateway::builder(HELLO).environment("NOTIFY_SOCKET", path.display()).start()
    }

    /// Listens until this is said; what comes in one message with it is heard too.
    fn wait(&self, wanted: &str) {
        let mut heard = String::new();
        while !heard.contains(wanted) {
            let mut buffer = [0; 4096];
            let received = self.socket.recv(&mut buffer);
            let count = received.unwrap_or_else(|error| panic!("no {wanted}: {error}; {heard}"));
            heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
            heard.push('\n');
        }
    }
}

#[test]
fn the_service_manager_hears_ready_reloading_and_stopping() {
    let manager = Manager::new();
    let mut gateway = manager.start();
    manager.wait("READY=1");
    gateway.sighup();
    manager.wait("RELOADING=1");
    manager.wait("READY=1");
    gateway.term();
    manager.wait("STOPPING=1");
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
}

#[test]
fn the_service_manager_follows_an_upgrade_and_sees_nobody_stop() {
    for leave in [libc::SIGQUIT, libc::SIGTERM, libc::SIGINT] {
        let manager = Manager::new();
        let mut old = manager.start();
        manager.wait("READY=1");
        let new = old.upgrade(HELLO);
        manager.wait(&format!("MAINPID={}", new.pid()));
        old.wait_log("serves as well");
        // Nor does it hear of a reload of the one that is not the service any more.
        old.sighup();
        old.wait_log("generation 2 serves");
        old.signal(leave);
        assert_eq!(old.wait_exit(DEADLINE), 0);
        manager.socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(count) = manager.socket.recv(&mut buffer) {
            let heard = String::from_utf8_lossy(&buffer[..count]);
            assert!(!heard.contains("STOPPING") && !heard.contains("RELOADING"), "{heard}");
        }
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
