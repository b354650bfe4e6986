//! Which names does a certificate cover, and which certificate covers a name?
//!
//! Names come from the certificate's own subject alternative names; the common name is ignored
//! (RFC 9525 section 2). A wildcard stands for exactly one label (RFC 9525 section 6.3), unlike the
//! wildcards of `routes[].hosts`. Knows nothing of certificates' contents beyond their names.

use ahash::AHashMap;
use boring::x509::X509Ref;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest DNS name in text form, without the root dot (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;

/// What the subject alternative names of one certificate say.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CoveredNames {
    /// Exact names and `*.` names, lower-case, without trailing dot, in file order, without repeats.
    pub dns: Vec<String>,
    /// Addresses. A client that connects to an address sends no server name, so these never choose a
    /// certificate; they are only shown.
    pub addresses: Vec<IpAddr>,
}

impl CoveredNames {
    /// Reads them from a certificate. Names a client would never match are left out: partial
    /// wildcards (`w*.example.com`), a wildcard that is not the first label, text that is not ASCII.
    pub fn of(certificate: &X509Ref) -> CoveredNames {
        let mut covered = CoveredNames::default();
        for name in certificate.subject_alt_names().iter().flatten() {
            if let Some(name) = name.dnsname().and_then(canonical) {
                if !covered.dns.contains(&name) {
                    covered.dns.push(name);
                }
            } else if let Some(address) = name.ipaddress().and_then(address) {
                covered.addresses.push(address);
            }
        }
        covered
    }

    /// Whether it covers a name, itself or by a wildcard; `name` as [`CoveredNames::dns`] has it.
    pub fn covers(&self, name: &str) -> bool {
        let itself = |covered: &String| covered == name;
        let by_wildcard = |covered: &String| {
            let suffix = covered.strip_prefix("*.");
            suffix.is_some_and(|suffix| name.split_once('.').is_some_and(|(_, rest)| rest == suffix))
        };
        self.dns.iter().any(|covered| itself(covered) || by_wildcard(covered))
    }

    /// Whether nothing is covered.
    pub fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.addresses.is_empty()
    }

    /// All of them as text, DNS names first.
    pub fn to_strings(&self) -> Vec<String> {
        self.dns.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string)).collect()
    }
}

/// Server name → value: exact names beat wildcards.
#[derive(Debug, Clone)]
pub struct NameMap<V> {
    exact: AHashMap<Box<str>, V>,
    /// Keyed by what follows `*.`.
    wildcard: AHashMap<Box<str>, V>,
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        NameMap { exact: AHashMap::new(), wildcard: AHashMap::new() }
    }
}

impl<V> NameMap<V> {
    /// Adds a name as [`CoveredNames::dns`] has it; an earlier value of the same name stays and is
    /// given back.
    pub fn insert(&mut self, name: &str, value: V) -> Result<(), &V> {
        let (map, key) = self.place(name);
        match map.entry(key.into()) {
            std::collections::hash_map::Entry::Occupied(entry) => Err(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(value);
                Ok(())
            }
        }
    }

    /// The value of a name as [`CoveredNames::dns`] has it; a new one when there is none.
    pub fn entry(&mut self, name: &str) -> &mut V
    where
        V: Default,
    {
        let (map, key) = self.place(name);
        map.entry(key.into()).or_default()
    }

    fn place<'n>(&mut self, name: &'n str) -> (&mut AHashMap<Box<str>, V>, &'n str) {
        match name.strip_prefix("*.") {
            Some(suffix) => (&mut self.wildcard, suffix),
            None => (&mut self.exact, name),
        }
    }

    /// The value for a server name as a client sent it: any case, one trailing dot allowed. Does not
    /// allocate.
    pub fn get(&self, name: &[u8]) -> Option<&V> {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut buffer = [0; MAX_NAME];
        let lower = buffer.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let name = std::str::from_utf8(lower).ok()?;
        self.exact.get(name).or_else(|| {
            let (label, suffix) = name.split_once('.')?;
            if label.is_empty() { None } else { self.wildcard.get(suffix) }
        })
    }
}

/// A name as clients compare it, or `None` when no client ever would.
pub(super) fn canonical(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let usable = name.len() <= MAX_NAME
        && labels.bytes().all(plain)
        && labels.split('.').all(|label| !label.is_empty());
    usable.then(|| name.to_ascii_lowercase())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(names: &[&str]) -> NameMap<usize> {
        let mut map = NameMap::default();
        for (index, name) in names.iter().enumerate() {
            map.insert(&canonical(name).unwrap(), index).unwrap();
        }
        map
    }

    #[test]
    fn exact_beats_wildcard_whatever_the_order() {
        let map = map(&["*.example.com", "www.example.com"]);
        assert_eq!(map.get(b"www.example.com"), Some(&1));
        assert_eq!(map.get(b"api.example.com"), Some(&0));
    }

    #[test]
    fn a_wildcard_stands_for_exactly_one_label() {
        let map = map(&["*.example.com"]);
        assert_eq!(map.get(b"example.com"), None);
        assert_eq!(map.get(b"a.b.example.com"), None);
        assert_eq!(map.get(b".example.com"), None);
        assert_eq!(map.get(b"aexample.com"), None);
    }

    #[test]
    fn case_and_one_trailing_dot_do_not_matter() {
        let map = map(&["App.Example.COM.", "*.Wild.test"]);
        for name in ["app.example.com", "APP.EXAMPLE.COM", "app.example.com.", "aPP.example.com."] {
            assert_eq!(map.get(name.as_bytes()), Some(&0), "{name}");
        }
        assert_eq!(map.get(b"A.WILD.TEST"), Some(&1));
        assert_eq!(map.get(b"app.example.com.."), None);
    }

    #[test]
    fn hostile_names_find_nothing() {
        let map = map(&["example.com", "*.example.com"]);
        for name in [&b""[..], b".", b"\xff\xfe.example.org", &[b'a'; 300], b"example.com\0"] {
            assert_eq!(map.get(name), None);
        }
    }

    #[test]
    fn a_repeated_name_gives_the_earlier_value_back() {
        let mut map = map(&["example.com"]);
        assert_eq!(map.insert("example.com", 7), Err(&0));
        assert_eq!(map.insert("*.example.com", 7), Ok(()));
    }

    #[test]
    fn names_no_client_matches_are_left_out() {
        for name in ["", ".", "*", "w*.example.com", "a.*.example.com", "*.", "é.example.com", "a b.test"] {
            assert_eq!(canonical(name), None, "{name:?}");
        }
    }
}
