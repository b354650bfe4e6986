//! The real client's address: the peer, or whoever trusted proxies say it is.
//!
//! Only a trusted peer is believed. Then the hops of X-Forwarded-For are walked from the right, the last
//! header line first, and the first hop that is not itself a trusted proxy is the client; anything left
//! of it may be invented. Forwarded (RFC 7239) is used only when there is no X-Forwarded-For at all:
//! trusted proxies must remove whichever of the two they do not write. When every hop is trusted the
//! left-most one is the client. A hop that cannot be read ends the walk: the client is then the last hop
//! before it. At most 64 hops are looked at.

use super::cidr_list;
use super::cidr_set::CidrSet;
use super::forwarded::{forwarded, x_forwarded_for};
use crate::config::{CidrEntry, Problems, Source};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;
use std::net::IpAddr;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Hops looked at; longer chains end there.
const MAX_HOPS: usize = 64;

/// Compiled `trusted_proxies:`.
#[derive(Debug, Clone)]
pub struct TrustedProxies {
    prefixes: CidrSet,
}

impl TrustedProxies {
    /// Compiles what the operator wrote at key path `path`. A prefix of length 0 is a problem, inline or
    /// in a list file: it would let every client name its own address.
    pub fn compile(entries: &[CidrEntry], source: &Source, path: &str, problems: &mut Problems) -> Self {
        let prefixes = cidr_list::load_checked(entries, source, path, problems, refuse_everyone);
        TrustedProxies { prefixes: CidrSet::build(prefixes) }
    }

    /// Whether the address is a trusted proxy.
    #[inline]
    pub fn is_trusted(&self, address: IpAddr) -> bool {
        self.prefixes.contains(address)
    }

    /// The client behind `peer`; IPv4-mapped addresses come out as IPv4. Never fails, does not allocate.
    pub fn client_addr(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.is_trusted(peer) {
            return peer;
        }
        let bytes = HeaderValue::as_bytes;
        let mut lines = headers.get_all(X_FORWARDED_FOR).iter().rev().peekable();
        if lines.peek().is_some() {
            return self.walk(peer, lines.map(bytes).flat_map(x_forwarded_for));
        }
        let lines = headers.get_all(header::FORWARDED).iter().rev();
        self.walk(peer, lines.map(bytes).flat_map(forwarded))
    }

    fn walk(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut last_known = peer;
        for hop in hops.take(MAX_HOPS) {
            let Some(address) = hop else { return last_known };
            last_known = address;
            if !self.is_trusted(address) {
                return address;
            }
        }
        last_known
    }
}

fn refuse_everyone(prefix: IpNet) -> Result<(), String> {
    if prefix.prefix_len() == 0 {
        return Err(format!("{prefix} would trust everyone to name the client"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EmptyList;
    use std::io::Write;

    fn trusted(prefixes: &[&str]) -> TrustedProxies {
        let entries: Vec<_> = prefixes.iter().map(|text| CidrEntry::Inline(text.parse().unwrap())).collect();
        let mut problems = Problems::default();
        let trusted =
            TrustedProxies::compile(&entries, &Source::default(), "access.trusted_proxies", &mut problems);
        assert!(problems.is_empty(), "{problems}");
        trusted
    }

    fn client(prefixes: &[&str], peer: &str, lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        trusted(prefixes).client_addr(peer.parse().unwrap(), &headers).to_string()
    }

    const XFF: &str = "x-forwarded-for";
    const LOCAL: &[&str] = &["127.0.0.0/8", "10.0.0.0/8"];

    #[test]
    fn untrusted_peer_is_the_client_whatever_it_says() {
        assert_eq!(client(&[], "198.51.100.1", &[(XFF, "10.0.0.1")]), "198.51.100.1");
        assert_eq!(client(LOCAL, "198.51.100.1", &[("forwarded", "for=10.0.0.1")]), "198.51.100.1");
    }

    #[test]
    fn right_most_untrusted_hop_is_the_client() {
        assert_eq!(client(LOCAL, "127.0.0.1", &[(XFF, "6.6.6.6, 203.0.113.7")]), "203.0.113.7");
        assert_eq!(client(LOCAL, "127.0.0.1", &[(XFF, "6.6.6.6, 203.0.113.7, 10.0.0.2")]), "203.0.113.7");
        assert_eq!(client(LOCAL, "::ffff:127.0.0.1", &[(XFF, "::ffff:203.0.113.7")]), "203.0.113.7");
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [(XFF, "6.6.6.6"), (XFF, "203.0.113.7, 10.0.0.3"), (XFF, "10.0.0.2")];
        assert_eq!(client(LOCAL, "127.0.0.1", &lines), "203.0.113.7");
    }

    #[test]
    fn only_trusted_hops_give_the_left_most() {
        assert_eq!(client(LOCAL, "127.0.0.1", &[(XFF, "10.0.0.9, 10.0.0.2")]), "10.0.0.9");
        assert_eq!(client(LOCAL, "127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client(LOCAL, "127.0.0.1", &[(XFF, "")]), "127.0.0.1");
    }

    #[test]
    fn unreadable_hop_ends_the_walk() {
        assert_eq!(client(LOCAL, "127.0.0.1", &[(XFF, "6.6.6.6, unknown, 10.0.0.2")]), "10.0.0.2");
        assert_eq!(client(LOCAL, "127.0.0.1", &[("forwarded", "for=6.6.6.6, for=_hidden")]), "127.0.0.1");
    }

    #[test]
    fn forwarded_is_used_only_without_x_forwarded_for() {
        let forwarded = ("forwarded", "for=\"[2001:db8::1]:4711\";proto=https");
        assert_eq!(client(LOCAL, "127.0.0.1", &[forwarded]), "2001:db8::1");
        assert_eq!(client(LOCAL, "127.0.0.1", &[forwarded, (XFF, "203.0.113.7")]), "203.0.113.7");
    }

    #[test]
    fn chain_of_hops_is_bounded() {
        let chain = format!("203.0.113.7{}", ", 10.0.0.1".repeat(MAX_HOPS));
        assert_eq!(client(LOCAL, "127.0.0.1", &[(XFF, &chain)]), "10.0.0.1");
    }

    #[test]
    fn trusting_everyone_is_refused_inline_and_in_files() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"10.0.0.0/8\n::/0\n").unwrap();
        let entries = [
            CidrEntry::Inline("0.0.0.0/0".parse().unwrap()),
            CidrEntry::File { file: file.path().to_owned(), empty: EmptyList::Refuse },
        ];
        let mut problems = Problems::default();
        TrustedProxies::compile(&entries, &Source::default(), "access.trusted_proxies", &mut problems);
        let found: Vec<_> = problems.0.iter().map(|problem| (problem.path.as_str(), problem.line)).collect();
        assert_eq!(found, [("access.trusted_proxies[0]", None), ("access.trusted_proxies[1]", Some(2))]);
    }
}
