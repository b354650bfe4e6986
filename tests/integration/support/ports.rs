//! Ports nobody else uses: outside the range the kernel hands out for outgoing connections, and
//! never the same one twice in this process.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that was free a moment ago, on IPv4 and IPv6.
pub fn free_port() -> u16 {
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id() * 97);
        let port = (FIRST + offset % COUNT) as u16;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() && TcpListener::bind(("::1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

#[test]
fn two_ports_differ() {
    assert_ne!(free_port(), free_port());
}
