//! The header of the PROXY protocol, versions 1 and 2: which client does a load balancer speak for?
//!
//! Pure: bytes in, a verdict out, so that it can be fed anything. It knows neither sockets nor whom to
//! believe. Written after the protocol's own text (haproxy.org, "The PROXY protocol", sections 2.1 and
//! 2.2). Extensions (TLVs) are skipped unread, checksums included.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How a text header begins. No HTTP method in use is spelt so.
const V1: &[u8] = b"PROXY ";
/// Longest text header, line break included (section 2.1).
const V1_MAX: usize = 107;
/// How a binary header begins (section 2.2). No HTTP request and no TLS record does.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The fixed part of a binary header: signature, command, family, length.
const V2_FIXED: usize = 16;
/// Longest variable part accepted; addresses take 216 bytes at most, the rest are extensions.
const V2_MAX: usize = 4096;

/// Longest header of either version: more never needs to be looked at.
pub const MAX: usize = V2_FIXED + V2_MAX;

/// What the bytes of a connection begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// No header, whatever follows.
    Absent,
    /// Perhaps a header; more bytes decide.
    Incomplete,
    /// A whole header.
    Header(Header),
}

/// A whole header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The client; `None` when the sender speaks for itself or does not know (LOCAL, UNKNOWN, UNIX).
    pub source: Option<SocketAddr>,
    /// Bytes it takes.
    pub length: usize,
}

/// Why a header is not acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Not what the protocol says.
    Malformed,
    /// Longer than the protocol, or the bound of 4 KiB, allows.
    Oversized,
}

/// Looks for a header at the start of `bytes`.
///
/// # Errors
/// When there is one that is not acceptable, which may show before it is complete.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Fault> {
    match (begins(bytes, V1), begins(bytes, V2)) {
        (Some(true), _) => text(bytes),
        (_, Some(true)) => binary(bytes),
        (None, None) => Ok(Parsed::Absent),
        _ => Ok(Parsed::Incomplete),
    }
}

/// Whether a header begins, acceptable or not; `None` when more bytes decide.
pub fn is_header(bytes: &[u8]) -> Option<bool> {
    match (begins(bytes, V1), begins(bytes, V2)) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (None, None) => Some(false),
        _ => None,
    }
}

/// `Some(true)`: begins with the signature; `Some(false)`: with a part of it; `None`: cannot any more.
fn begins(bytes: &[u8], signature: &[u8]) -> Option<bool> {
    let common = bytes.len().min(signature.len());
    (bytes.get(..common) == signature.get(..common)).then_some(common == signature.len())
}

fn text(bytes: &[u8]) -> Result<Parsed, Fault> {
    let window = bytes.get(..V1_MAX).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if bytes.len() < V1_MAX { Ok(Parsed::Incomplete) } else { Err(Fault::Oversized) };
    };
    let line = window.get(V1.len()..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.ok_or(Fault::Malformed)?;
    let length = end + 1;
    // Whatever else is said of an unknown protocol is to be ignored.
    if line.strip_prefix(b"UNKNOWN").is_some_and(|rest| rest.is_empty() || rest.starts_with(b" ")) {
        return Ok(Parsed::Header(Header { source: None, length }));
    }
    let line = std::str::from_utf8(line).map_err(|_| Fault::Malformed)?;
    let source = text_source(line).ok_or(Fault::Malformed)?;
    Ok(Parsed::Header(Header { source: Some(source), length }))
}

/// `TCP4 SOURCE DESTINATION PORT PORT`, with one space between two.
fn text_source(line: &str) -> Option<SocketAddr> {
    let mut words = line.split(' ');
    let address: fn(&str) -> Option<IpAddr> = match words.next()? {
        "TCP4" => |word| word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => |word| word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return None,
    };
    let source = address(words.next()?)?;
    address(words.next()?)?;
    let source_port = port(words.next()?)?;
    port(words.next()?)?;
    words.next().is_none().then(|| SocketAddr::new(source.to_canonical(), source_port))
}

/// Decimal, without sign and leading zeros.
fn port(word: &str) -> Option<u16> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

fn binary(bytes: &[u8]) -> Result<Parsed, Fault> {
    let Some([command, family, high, low]) = bytes.get(V2.len()..V2_FIXED) else {
        return Ok(Parsed::Incomplete);
    };
    let size = usize::from(u16::from_be_bytes([*high, *low]));
    let address = match command {
        // The sender speaks for itself: what it says of addresses is to be ignored.
        0x20 => Address::None,
        0x21 => Address::of(*family).ok_or(Fault::Malformed)?,
        _ => return Err(Fault::Malformed),
    };
    if size > V2_MAX {
        return Err(Fault::Oversized);
    }
    if size < address.size() {
        return Err(Fault::Malformed);
    }
    let length = V2_FIXED + size;
    match bytes.get(V2_FIXED..length) {
        None => Ok(Parsed::Incomplete),
        Some(block) => Ok(Parsed::Header(Header { source: address.source(block), length })),
    }
}

/// What the variable part of a binary header begins with.
enum Address {
    None,
    V4,
    V6,
    Unix,
}

impl Address {
    /// Families over a stream; datagrams cannot have come in here.
    fn of(family: u8) -> Option<Address> {
        match family {
            0x00 => Some(Address::None),
            0x11 => Some(Address::V4),
            0x21 => Some(Address::V6),
            0x31 => Some(Address::Unix),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Address::None => 0,
            Address::V4 => 2 * (4 + 2),
            Address::V6 => 2 * (16 + 2),
            Address::Unix => 2 * 108,
        }
    }

    /// Source address, destination address, source port, destination port.
    fn source(&self, block: &[u8]) -> Option<SocketAddr> {
        match self {
            Address::V4 => {
                let (address, rest) = block.split_first_chunk::<4>()?;
                let port = rest.get(4..)?.first_chunk::<2>()?;
                Some(SocketAddr::from((*address, u16::from_be_bytes(*port))))
            }
            Address::V6 => {
                let (address, rest) = block.split_first_chunk::<16>()?;
                let port = rest.get(16..)?.first_chunk::<2>()?;
                let address = IpAddr::from(*address).to_canonical();
                Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
            }
            Address::None | Address::Unix => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    fn source(bytes: &[u8]) -> Option<SocketAddr> {
        match parse(bytes) {
            Ok(Parsed::Header(header)) => header.source,
            other => panic!("{other:?} for {bytes:?}"),
        }
    }

    fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let length = u16::try_from(block.len()).expect("a block").to_be_bytes();
        [V2, &[command, family], &length, block].concat()
    }

    const V4_BLOCK: [u8; 12] = [203, 0, 113, 7, 127, 0, 0, 1, 0x12, 0x67, 0, 80];

    #[test]
    fn text_headers_name_their_source() {
        let rows = [
            ("PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n", "203.0.113.7:4711"),
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
            ("PROXY TCP6 2001:db8::7 ::1 4711 0\r\n", "[2001:db8::7]:4711"),
            ("PROXY TCP6 ::ffff:203.0.113.7 ::1 4711 80\r\n", "203.0.113.7:4711"),
        ];
        for (line, expected) in rows {
            assert_eq!(source(line.as_bytes()), Some(expected.parse().unwrap()), "{line}");
        }
        for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 \u{1}\u{fe} 3\r\n"] {
            assert_eq!(source(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn text_headers_that_lie_are_malformed() {
        for line in [
            "PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
            "PROXY TCP6 203.0.113.7 127.0.0.1 1 2\r\n",
            "PROXY TCP5 203.0.113.7 127.0.0.1 1 2\r\n",
            "PROXY tcp4 203.0.113.7 127.0.0.1 1 2\r\n",
            "PROXY UDP4 203.0.113.7 127.0.0.1 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 1\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 1 2 3\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 1 2 \r\n",
            "PROXY TCP4  203.0.113.7 127.0.0.1 1 2\r\n",
            "PROXY  TCP4 203.0.113.7 127.0.0.1 1 2\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 65536 2\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 01 2\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 +1 2\r\n",
            "PROXY TCP4 203.0.113.007 127.0.0.1 1 2\r\n",
            "PROXY TCP4 203.0.113 127.0.0.1 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY TCP4 203.0.113.7 127.0.0.1 1 2\n",
            "PROXY \r\n",
            "PROXY \n",
            "PROXY / HTTP/1.1\r\n",
            "PROXY UNKNOWN\n\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Fault::Malformed), "{line:?}");
        }
    }

    #[test]
    fn text_headers_end_within_107_bytes() {
        let fits = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_MAX - 16));
        assert_eq!(fits.len(), V1_MAX);
        assert_eq!(parse(fits.as_bytes()), Ok(Parsed::Header(Header { source: None, length: V1_MAX })));
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_MAX - 15));
        assert_eq!(parse(long.as_bytes()), Err(Fault::Oversized));
        assert_eq!(parse(&long.as_bytes()[..V1_MAX - 1]), Ok(Parsed::Incomplete));
    }

    #[test]
    fn binary_headers_name_their_source() {
        assert_eq!(source(&v2(0x21, 0x11, &V4_BLOCK)), Some("203.0.113.7:4711".parse().unwrap()));
        let with_tlvs = [&V4_BLOCK[..], &[4, 0, 2, 0, 0], &[0xee; 3000]].concat();
        assert_eq!(source(&v2(0x21, 0x11, &with_tlvs)), Some("203.0.113.7:4711".parse().unwrap()));
        let mut block = [0; 36];
        block[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        block[32..34].copy_from_slice(&4711u16.to_be_bytes());
        assert_eq!(source(&v2(0x21, 0x21, &block)), Some("[2001:db8::7]:4711".parse().unwrap()));
    }

    #[test]
    fn binary_headers_without_an_address_have_no_source() {
        for (command, family, block) in [
            (0x20, 0x00, &[][..]),
            (0x20, 0x11, &V4_BLOCK[..]),
            (0x20, 0x11, &[][..]),
            (0x20, 0xff, &[1, 2, 3][..]),
            (0x21, 0x00, &[][..]),
            (0x21, 0x00, &[9; 40][..]),
            (0x21, 0x31, &[0; 216][..]),
        ] {
            assert_eq!(source(&v2(command, family, block)), None, "{command:x} {family:x}");
        }
    }

    #[test]
    fn binary_headers_that_lie_are_refused() {
        for (command, family, block) in [
            (0x11, 0x11, &V4_BLOCK[..]),
            (0x31, 0x11, &V4_BLOCK[..]),
            (0x22, 0x11, &V4_BLOCK[..]),
            (0x21, 0x12, &V4_BLOCK[..]),
            (0x21, 0x41, &V4_BLOCK[..]),
            (0x21, 0x13, &V4_BLOCK[..]),
            (0x21, 0x11, &V4_BLOCK[..11]),
            (0x21, 0x21, &V4_BLOCK[..]),
            (0x21, 0x31, &[0; 215][..]),
        ] {
            assert_eq!(parse(&v2(command, family, block)), Err(Fault::Malformed), "{command:x} {family:x}");
        }
        let oversized = [V2, &[0x21, 0x11, 0x10, 0x01]].concat();
        assert_eq!(parse(&oversized), Err(Fault::Oversized));
        assert_eq!(parse(&[V2, &[0x20, 0x00, 0xff, 0xff]].concat()), Err(Fault::Oversized));
        assert_eq!(parse(&[V2, &[0x21, 0x11, 0x10, 0x00]].concat()), Ok(Parsed::Incomplete));
    }

    #[test]
    fn what_begins_otherwise_is_no_header() {
        for bytes in
            [&b"GET / HTTP/1.1"[..], b"POST /", b"\x16\x03\x01", b"\r\n\r\nGET", b"PROXYS", b"proxy "]
        {
            assert_eq!((parse(bytes), is_header(bytes)), (Ok(Parsed::Absent), Some(false)), "{bytes:?}");
        }
        for bytes in [&b""[..], b"P", b"PROXY", b"\r", b"\r\n\r\n\0\r\nQUIT"] {
            assert_eq!((parse(bytes), is_header(bytes)), (Ok(Parsed::Incomplete), None), "{bytes:?}");
        }
    }

    #[test]
    fn every_part_of_a_header_is_incomplete() {
        let text = b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 80\r\n".to_vec();
        for header in [text, v2(0x21, 0x11, &V4_BLOCK), v2(0x20, 0, &[1; 50])] {
            for cut in 0..header.len() {
                assert_eq!(parse(&header[..cut]), Ok(Parsed::Incomplete), "{cut} of {header:?}");
            }
            let length = header.len();
            let followed = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            assert!(matches!(parse(&followed), Ok(Parsed::Header(header)) if header.length == length));
        }
    }

    /// Beginnings of connections; the end of a file's name says what they are taken for.
    fn seeds() -> Vec<(String, Vec<u8>)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/proxy_protocol");
        let files = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path());
        files.map(|path| (path.display().to_string(), std::fs::read(&path).expect("a file"))).collect()
    }

    #[test]
    fn every_seed_is_taken_for_what_its_name_says() {
        for (name, bytes) in seeds() {
            let outcome = match parse(&bytes) {
                Ok(Parsed::Absent) => "absent",
                Ok(Parsed::Incomplete) => "incomplete",
                Ok(Parsed::Header(_)) => "header",
                Err(Fault::Malformed) => "malformed",
                Err(Fault::Oversized) => "oversized",
            };
            assert_eq!(name.rsplit('.').next(), Some(outcome), "{name}");
        }
    }

    fn mutilated() -> impl Strategy<Value = Vec<u8>> {
        let seeds: Vec<Vec<u8>> = seeds().into_iter().map(|(_, bytes)| bytes).collect();
        let edit = (any::<Index>(), 0usize..4, vec(any::<u8>(), 0..4));
        (select(seeds), vec(edit, 0..4), vec(any::<u8>(), 0..40)).prop_map(|(mut bytes, edits, tail)| {
            for (place, cut, insert) in edits {
                let start = place.index(bytes.len() + 1);
                let end = (start + cut).min(bytes.len());
                bytes.splice(start..end, insert);
            }
            bytes.extend(tail);
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// However the bytes are cut on their way, the verdict is the same, and what follows a header
        /// never changes it.
        #[test]
        fn a_verdict_stands_whatever_comes_after_it(bytes in mutilated()) {
            let mut verdict = Ok(Parsed::Incomplete);
            for end in 0..=bytes.len() {
                let next = parse(&bytes[..end]);
                if verdict != Ok(Parsed::Incomplete) {
                    prop_assert_eq!(next, verdict);
                }
                verdict = next;
                let begins = is_header(&bytes[..end]);
                prop_assert_eq!(verdict == Ok(Parsed::Absent), begins == Some(false));
                if let Ok(Parsed::Header(header)) = verdict {
                    prop_assert!(begins == Some(true) && header.length <= end.min(MAX));
                }
            }
            prop_assert!(bytes.len() < MAX || verdict != Ok(Parsed::Incomplete));
        }

        #[test]
        fn what_was_written_is_read(source: SocketAddr, destination: SocketAddr, tlvs in vec(any::<u8>(), 0..100)) {
            let pair = (source.ip(), destination.ip());
            let (family, word) = match pair {
                (IpAddr::V4(_), IpAddr::V4(_)) => (0x11, "TCP4"),
                (IpAddr::V6(_), IpAddr::V6(_)) => (0x21, "TCP6"),
                _ => return Ok(()),
            };
            let octets = |ip| match ip {
                IpAddr::V4(ip) => Ipv4Addr::octets(&ip).to_vec(),
                IpAddr::V6(ip) => Ipv6Addr::octets(&ip).to_vec(),
            };
            let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
            let block = [octets(pair.0), octets(pair.1), ports, tlvs].concat();
            let line = format!("PROXY {word} {} {} {} {}\r\n", pair.0, pair.1, source.port(), destination.port());
            let expected = SocketAddr::new(source.ip().to_canonical(), source.port());
            for header in [v2(0x21, family, &block), line.into_bytes()] {
                let length = header.len();
                prop_assert_eq!(parse(&header), Ok(Parsed::Header(Header { source: Some(expected), length })));
            }
        }
    }
}
