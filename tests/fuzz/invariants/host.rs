//! Host: one name for every spelling of it.

use portcullis::routing::host::canonical_host;
use std::net::Ipv6Addr;

/// Panics when an invariant does not hold for these bytes as a Host or an authority.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(host) = canonical_host(text) else { return };
    assert_eq!(canonical_host(&host).as_ref(), Ok(&host), "not idempotent");
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(literal) => {
            let address: Ipv6Addr = literal.parse().expect("an address in brackets");
            assert_eq!(address.to_string(), literal, "not the one spelling");
        }
        None => {
            let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
            assert!(host.bytes().all(is_plain), "{host:?}");
            assert!(host.len() <= 253 && host.split('.').all(|label| !label.is_empty()), "{host:?}");
            assert_eq!(canonical_host(&format!("{host}.")).as_ref(), Ok(&host), "a trailing dot");
        }
    }
    assert_eq!(canonical_host(&format!("{host}:443")).as_ref(), Ok(&host), "a port");
    assert_eq!(canonical_host(&text.to_ascii_uppercase()).as_ref(), Ok(&host), "upper case");
    assert!(canonical_host(&format!("user@{text}")).is_err(), "user information");
}
