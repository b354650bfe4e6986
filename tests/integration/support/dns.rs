//! DNS servers of the tests' own: dnsmasq, whose records change while it runs, and one that answers as it
//! is told, over UDP and TCP.

use super::eventually;
use super::ports::Port;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A dnsmasq on loopback; it leaves when this is dropped.
pub struct Dnsmasq {
    port: Port,
    folder: TempDir,
    child: Child,
}

impl Dnsmasq {
    /// Starts one with these lines of a hosts file; other names do not exist. Answers hold this long.
    pub fn start(hosts: &str, ttl_seconds: u32) -> Dnsmasq {
        let (port, folder) = (Port::free(), tempfile::tempdir().expect("a folder"));
        let file = folder.path().join("hosts");
        std::fs::write(&file, hosts).expect("a file");
        let child = Command::new("dnsmasq")
            .args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--no-daemon", "--bind-interfaces"])
            .args(["--listen-address=127.0.0.1", "--conf-file=/dev/null", "--local=/test/", "--pid-file="])
            .arg(format!("--port={port}"))
            .arg(format!("--local-ttl={ttl_seconds}"))
            .arg(format!("--addn-hosts={}", file.display()))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dnsmasq is needed for this test");
        let dnsmasq = Dnsmasq { port, folder, child };
        eventually::until("a DNS server that answers", || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
            let _ = socket
                .send_to(b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01", dnsmasq.address());
            socket.recv(&mut [0; 512]).is_ok()
        });
        dnsmasq
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// Replaces its records.
    pub fn set(&self, hosts: &str) {
        std::fs::write(self.folder.path().join("hosts"), hosts).expect("a file");
        self.signal(libc::SIGHUP);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is our child and not yet waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a scripted server sends: messages, one after the other; none = it is silent.
pub type Answers = Vec<Vec<u8>>;

type Script = dyn Fn(&Query, bool) -> Answers + Send + Sync;

/// A server that answers as it is told.
pub struct ScriptedDns {
    address: SocketAddr,
    queries: Arc<Mutex<Vec<Query>>>,
    stop: Arc<AtomicBool>,
}

/// A question as it arrived.
#[derive(Debug, Clone)]
pub struct Query {
    /// All of it.
    pub message: Vec<u8>,
    /// The name, with dots.
    pub name: String,
    /// 1 = A, 28 = AAAA.
    pub kind: u16,
    /// Where the question ends.
    end: usize,
}

impl ScriptedDns {
    /// Answers as `script` says, which is told whether the question came over TCP.
    pub fn start(script: impl Fn(&Query, bool) -> Answers + Send + Sync + 'static) -> ScriptedDns {
        let script: Arc<Script> = Arc::new(script);
        let (udp, tcp) = eventually::eventually("a port for both", || {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            Some((UdpSocket::bind(tcp.local_addr().ok()?).ok()?, tcp))
        });
        let address = udp.local_addr().expect("an address");
        let (queries, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, stopped, over_udp) = (Arc::clone(&queries), Arc::clone(&stop), Arc::clone(&script));
        udp.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !stopped.load(Ordering::SeqCst) {
                let Ok((length, from)) = udp.recv_from(&mut buffer) else { continue };
                let query = Query::read(&buffer[..length]);
                kept.lock().unwrap().push(query.clone());
                for answer in over_udp(&query, false) {
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let mut length = [0; 2];
                let read = stream.read_exact(&mut length);
                let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                if read.and_then(|()| stream.read_exact(&mut message)).is_err() {
                    continue;
                }
                for answer in script(&Query::read(&message), true) {
                    let _ = stream.write_all(&(answer.len() as u16).to_be_bytes());
                    let _ = stream.write_all(&answer);
                }
            }
        });
        ScriptedDns { address, queries, stop }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked over UDP so far.
    pub fn queries(&self) -> Vec<Query> {
        self.queries.lock().unwrap().clone()
    }
}

impl Drop for ScriptedDns {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(self.address);
    }
}

impl Query {
    fn read(message: &[u8]) -> Query {
        let (mut labels, mut place) = (Vec::new(), 12);
        while message[place] > 0 {
            let end = place + 1 + usize::from(message[place]);
            labels.push(String::from_utf8_lossy(&message[place + 1..end]).into_owned());
            place = end;
        }
        let kind = u16::from_be_bytes([message[place + 1], message[place + 2]]);
        Query { message: message.to_vec(), name: labels.join("."), kind, end: place + 5 }
    }

    /// A reply with this code and, for an A question, these addresses.
    pub fn reply(&self, code: u8, addresses: &[Ipv4Addr], ttl: u32) -> Vec<u8> {
        let addresses = if self.kind == 1 { addresses } else { &[] };
        let records: Vec<_> = addresses.iter().map(|address| (1, address.octets().to_vec())).collect();
        self.records(code, &records, ttl)
    }

    /// A reply that the name is an alias of `target`, a name of labels with their lengths, and no more.
    pub fn alias(&self, target: &[u8], ttl: u32) -> Vec<u8> {
        self.records(0, &[(5, target.to_vec())], ttl)
    }

    /// A reply with records of the name asked for: type and data.
    fn records(&self, code: u8, records: &[(u16, Vec<u8>)], ttl: u32) -> Vec<u8> {
        // The question comes back, what was sent behind it does not.
        let mut message = self.message[..self.end].to_vec();
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        message[6..12].fill(0);
        message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (kind, data) in records {
            message.extend_from_slice(&[0xc0, 12]);
            message.extend_from_slice(&kind.to_be_bytes());
            message.extend_from_slice(&[0, 1]);
            message.extend_from_slice(&ttl.to_be_bytes());
            message.extend_from_slice(&(data.len() as u16).to_be_bytes());
            message.extend_from_slice(data);
        }
        message
    }

    /// A reply that says that it does not fit.
    pub fn truncated(&self) -> Vec<u8> {
        let mut message = self.reply(0, &[], 0);
        message[2] |= 0x02;
        message
    }
}
