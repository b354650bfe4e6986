//! A service in a process of its own, that can be killed, paused and started again at its address.
//!
//! Answers `/healthz` with 200 while it is well, else 503; everything else with its name.

use super::eventually;
use super::ports::Port;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const SCRIPT: &str = r#"
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        sick = self.path == "/healthz" and os.path.exists(sys.argv[2])
        body = sys.argv[3].encode()
        self.send_response(503 if sick else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// The service. Its process ends when this is dropped.
pub struct Service {
    name: String,
    port: Port,
    folder: TempDir,
    child: Child,
}

impl Service {
    /// Starts one and waits until it can be connected to.
    pub fn start(name: &str) -> Service {
        let (port, folder) = (Port::free(), tempfile::tempdir().expect("a folder"));
        let child = launch(port.number(), &folder.path().join("sick"), name);
        Service { name: name.to_owned(), port, folder, child }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// Whether it says that it is well.
    pub fn set_well(&self, well: bool) {
        let sick: PathBuf = self.folder.path().join("sick");
        match well {
            true => drop(std::fs::remove_file(sick)),
            false => std::fs::write(sick, "").expect("a file"),
        }
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is our child and not yet waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().expect("a process");
        self.child.wait().expect("an end");
    }

    /// Starts it again at its address, and waits until it can be connected to.
    pub fn restart(&mut self) {
        self.child = launch(self.port.number(), &self.folder.path().join("sick"), &self.name);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(port: u16, sick: &std::path::Path, name: &str) -> Child {
    let mut child = Command::new("python3")
        .args(["-c", SCRIPT, &port.to_string()])
        .arg(sick)
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("python3 is needed for this test");
    eventually::until("a service that listens", || {
        assert!(child.try_wait().expect("a child").is_none(), "the service at port {port} left");
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    child
}
