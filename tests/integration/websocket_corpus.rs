//! The gateway is a tunnel for websockets: both ends see, byte for byte, what they would see without it.
//!
//! The cases follow the Autobahn suite's list ([`cases`]), the forbidden ones included: what is done about
//! those is between client and origin. Each is sent through in pieces of several sizes.

mod cases;
mod ends;

use self::cases::Case;
use self::ends::{Client, Tunnel};
use crate::support::Gateway;

const ROUTES: &str = "routes: [{ name: chat, upstream: [\"{ORIGIN}\"] }]\naccess_log: { output: off }\n";

/// Pieces that a case of so many bytes is sent in.
fn pieces(length: usize) -> &'static [usize] {
    match length {
        0..=1_500 => &[1, 2, 7, 125, usize::MAX],
        1_501..=200_000 => &[997, 16_384, usize::MAX],
        _ => &[65_536],
    }
}

/// Runs the cases of a group, each in pieces of every size, through a gateway and without one.
fn passes_unchanged(group: u8, at_least: usize) {
    let cases: Vec<Case> = cases::group(group);
    assert!(cases.len() >= at_least, "group {group} has {} cases", cases.len());
    let tunnel = Tunnel::start(cases.clone());
    let mut gateway = Gateway::builder(ROUTES).set("ORIGIN", tunnel.address()).start();
    for (number, case) in cases.iter().enumerate() {
        for piece in pieces(case.up().len()) {
            for address in [tunnel.address(), gateway.address()] {
                let mut client = Client::open(address, number, *piece);
                client.send(case.up(), *piece);
                let seen = client.read_to_end();
                let what = format!("{} in pieces of {piece} at {address}", case.name);
                assert_eq!(tunnel.fault(), None, "{what}");
                assert!(seen == case.down(), "{what}: {} of {} bytes", seen.len(), case.down().len());
            }
        }
    }
    assert!(gateway.is_running());
    gateway.wait_metric("portcullis_http_requests_total", &[("route", "chat")], cases.len() as f64);
}

#[test]
fn framing_and_sizes() {
    passes_unchanged(1, 16);
}

#[test]
fn pings_and_pongs() {
    passes_unchanged(2, 11);
}

#[test]
fn reserved_bits() {
    passes_unchanged(3, 7);
}

#[test]
fn opcodes() {
    passes_unchanged(4, 10);
}

#[test]
fn fragmentation() {
    passes_unchanged(5, 20);
}

#[test]
fn text_that_is_utf8_and_text_that_is_not() {
    passes_unchanged(6, 40);
}

#[test]
fn closing() {
    passes_unchanged(7, 30);
}

#[test]
fn large_messages() {
    passes_unchanged(9, 12);
}

#[test]
fn many_small_fragments() {
    passes_unchanged(10, 1);
}

#[test]
fn compressed_messages() {
    passes_unchanged(12, 6);
}

#[test]
fn a_client_that_vanishes_ends_the_tunnel_at_the_origin() {
    let tunnel = Tunnel::start(cases::group(1));
    let gateway = Gateway::builder(ROUTES).set("ORIGIN", tunnel.address()).start();
    for cut in [0, 1, 2, 6] {
        let before = tunnel.ended();
        let mut client = Client::open(gateway.address(), 1, usize::MAX);
        client.send(&[0x81, 0xfe, 0, 200, 1, 2, 3, 4][..cut], usize::MAX);
        drop(client);
        crate::support::eventually::until("an end at the origin", || tunnel.ended() > before);
    }
}

#[test]
fn negotiation_of_extensions_passes_both_ways() {
    let tunnel = Tunnel::start(cases::group(1));
    let gateway = Gateway::builder(ROUTES).set("ORIGIN", tunnel.address()).start();
    let client = Client::open(gateway.address(), 0, usize::MAX);
    assert_eq!(tunnel.last_head("sec-websocket-extensions"), ends::OFFER);
    assert_eq!(tunnel.last_head("sec-websocket-protocol"), "chat, superchat");
    assert_eq!(tunnel.last_head("sec-websocket-version"), "13");
    assert!(
        client.head().contains(&format!("sec-websocket-extensions: {}", ends::AGREED)),
        "{}",
        client.head()
    );
    assert!(client.head().contains("sec-websocket-protocol: superchat"), "{}", client.head());
}
