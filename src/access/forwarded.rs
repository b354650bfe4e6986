//! Hops in X-Forwarded-For and Forwarded header lines, right to left, without allocating.
//!
//! Right to left because only the right end is written by proxies we know: whatever a client put on the
//! left (unbalanced quotes, say) cannot change how the hops behind it are read. `None` is a hop whose
//! address cannot be known: `unknown`, an obfuscated identifier, or garbage.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The hops of one X-Forwarded-For line, right-most first. Empty list elements are skipped (RFC 9110
/// §5.6.1).
pub(super) fn x_forwarded_for(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    line.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|hop| !hop.is_empty()).map(node)
}

/// The hops of one Forwarded line (RFC 7239 §4), right-most first.
pub(super) fn forwarded(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    RightToLeft { rest: Some(line), separator: b',' }
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
        .map(forwarded_for)
}

/// The `for` parameter of one element; there must be exactly one.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in (RightToLeft { rest: Some(element), separator: b';' }) {
        let pair = pair.trim_ascii();
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
        let (name, value) = pair.split_at(equals);
        if name.eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(node(unquote(value.get(1..)?)?));
        }
    }
    found.flatten()
}

/// A token as it stands, a quoted string without its quotes; an address needs no escapes, so a value
/// with one is garbage.
fn unquote(value: &[u8]) -> Option<&[u8]> {
    match value.strip_prefix(b"\"") {
        None => Some(value),
        Some(quoted) => {
            let inner = quoted.strip_suffix(b"\"")?;
            (!inner.contains(&b'\\') && !inner.contains(&b'"')).then_some(inner)
        }
    }
}

/// An address with or without a port (RFC 7239 §6): `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]`, `[2001:db8::1]:80`. IPv4-mapped addresses come out as IPv4.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        let known = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return known.then_some(IpAddr::V6(address).to_canonical());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = text.split_once(':')?;
    let address: Ipv4Addr = address.parse().ok()?;
    is_port(port).then_some(IpAddr::V4(address))
}

/// A port number or an obfuscated port (`_x`).
fn is_port(port: &str) -> bool {
    match port.strip_prefix('_') {
        Some(name) => {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        }
        None => (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// Splits at a separator outside of quoted strings, from the right.
struct RightToLeft<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for RightToLeft<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let mut quoted = false;
        for (index, byte) in rest.iter().enumerate().rev() {
            if *byte == b'"' && !is_escaped(rest, index) {
                quoted = !quoted;
            } else if *byte == self.separator && !quoted {
                self.rest = rest.get(..index);
                return rest.get(index + 1..);
            }
        }
        Some(rest)
    }
}

/// Whether an odd number of backslashes stands before the byte at `index`.
fn is_escaped(text: &[u8], index: usize) -> bool {
    let before = text.get(..index).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hops: impl Iterator<Item = Option<IpAddr>>) -> Vec<String> {
        hops.map(|hop| hop.map_or("?".to_owned(), |address| address.to_string())).collect()
    }

    #[test]
    fn x_forwarded_for_hops_come_right_to_left_in_every_spelling() {
        let line = b"6.6.6.6,, 203.0.113.7:4711 ,[2001:db8::1]:80,\t2001:db8::2 ,::ffff:10.0.0.1,";
        let expected = ["10.0.0.1", "2001:db8::2", "2001:db8::1", "203.0.113.7", "6.6.6.6"];
        assert_eq!(shown(x_forwarded_for(line)), expected);
    }

    #[test]
    fn unreadable_hops_are_unknown() {
        for hop in [
            "unknown",
            "_hidden",
            "1.2.3",
            "010.0.0.1",
            "1.2.3.4:",
            "1.2.3.4:x",
            "[::1",
            "[::1]x",
            "::1%eth0",
            "\"1.2.3.4\"",
            "1.2.3.4 5.6.7.8",
            "[1.2.3.4]",
            "\u{feff}1.2.3.4",
            "1.2.3.4:123456",
        ] {
            assert_eq!(shown(x_forwarded_for(hop.as_bytes())), ["?"], "{hop}");
        }
        assert_eq!(shown(x_forwarded_for(b"\xFF\x00")), ["?"]);
    }

    #[test]
    fn forwarded_elements_are_read_with_quotes_and_any_case() {
        let line =
            br#"for=192.0.2.60;proto=http;by=203.0.113.43, FOR="[2001:db8::1]:4711"; host="a,b;c", for=_x"#;
        assert_eq!(shown(forwarded(line)), ["?", "2001:db8::1", "192.0.2.60"]);
        assert_eq!(shown(forwarded(br#"proto=https;For="192.0.2.1:_p""#)), ["192.0.2.1"]);
    }

    #[test]
    fn elements_without_one_clear_for_are_unknown() {
        for line in ["proto=https", "for=1.1.1.1;for=2.2.2.2", "for=", r#"for="1.1.1.1"#, r#"for="1\.1.1.1""#]
        {
            assert_eq!(shown(forwarded(line.as_bytes())), ["?"], "{line}");
        }
    }

    #[test]
    fn open_quote_from_a_client_cannot_swallow_what_a_proxy_appended() {
        let line = br#"for="6.6.6.6, for="[2001:db8::1]", for=203.0.113.7"#;
        assert_eq!(shown(forwarded(line))[..2], ["203.0.113.7", "2001:db8::1"]);
    }
}
