//! X-Forwarded-For and Forwarded: whatever a client writes, what proxies append behind it counts.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use portcullis::access::client_addr::TrustedProxies;
use portcullis::config::{CidrEntry, Problems, Source};
use std::net::{IpAddr, Ipv4Addr};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Of a proxy too.
const HOP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 1, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Panics when an invariant does not hold for these bytes as the lines of either header.
pub fn check(data: &[u8]) {
    let trusted = trusted();
    for (name, appended) in [
        (X_FORWARDED_FOR, [", 203.0.113.7", ",203.0.113.7:4711, 10.0.0.9", ",10.1.1.1 "]),
        (
            header::FORWARDED,
            [", for=203.0.113.7", ";a=b,for=\"203.0.113.7:4711\", For=10.0.0.9", ",for=10.1.1.1"],
        ),
    ] {
        let Some(lines) = lines(data) else { return };
        let headers = map(&name, &lines);
        assert_eq!(trusted.client_addr(STRANGER, &headers), STRANGER, "a stranger was believed");
        let found = trusted.client_addr(PROXY, &headers);
        assert_eq!(found, found.to_canonical(), "an IPv4-mapped client");
        for text in &appended[..2] {
            let headers = map(&name, &append(&lines, text));
            assert_eq!(trusted.client_addr(PROXY, &headers), CLIENT, "{name}: behind {data:?} stands {text}");
        }
        // One more trusted hop says nothing new, unless no hop could be read before.
        let further = trusted.client_addr(PROXY, &map(&name, &append(&lines, appended[2])));
        let expected = if found == PROXY { [PROXY, HOP] } else { [found, found] };
        assert!(expected.contains(&further), "{name}: {found} became {further}");
        if !data.contains(&b'"') {
            let single = lines.join(&b","[..]);
            assert_eq!(trusted.client_addr(PROXY, &map(&name, &[single])), found, "{name}: lines are a list");
        }
    }
}

/// As a proxy appends: to the last line.
fn append(lines: &[Vec<u8>], text: &str) -> Vec<Vec<u8>> {
    let mut lines = lines.to_vec();
    if let Some(last) = lines.last_mut() {
        last.extend_from_slice(text.as_bytes());
    }
    lines
}

fn lines(data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let lines: Vec<Vec<u8>> = data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    // Longer chains end at a bound, which has a test of its own.
    let hops = data.iter().filter(|byte| b",\n".contains(byte)).count();
    (hops < 40 && lines.iter().all(|line| HeaderValue::from_bytes(line).is_ok())).then_some(lines)
}

fn map(name: &HeaderName, lines: &[Vec<u8>]) -> HeaderMap {
    let value = |line: &Vec<u8>| HeaderValue::from_bytes(line).expect("checked");
    lines.iter().map(|line| (name.clone(), value(line))).collect()
}

fn trusted() -> TrustedProxies {
    let entries = [CidrEntry::Inline("10.0.0.0/8".parse().expect("a prefix"))];
    let mut problems = Problems::default();
    TrustedProxies::compile(&entries, &Source::default(), "access.trusted_proxies", &mut problems)
}
