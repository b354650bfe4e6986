//! What the system knows of names: `/etc/resolv.conf` and `/etc/hosts`, as far as addresses go.
//!
//! What cannot be read or understood is left out, as the system's own resolver does.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Servers that are asked (resolv.conf(5), MAXNS).
const MAX_SERVERS: usize = 3;
/// Suffixes that are tried.
const MAX_SEARCH: usize = 8;
/// Largest file read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Whom to ask, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvConf {
    pub(super) servers: Vec<SocketAddr>,
    /// Suffixes for names that are not complete.
    pub(super) search: Vec<String>,
    /// A name with as many dots is tried as it is first.
    pub(super) ndots: usize,
}

impl ResolvConf {
    /// The system's.
    pub(super) fn read() -> ResolvConf {
        ResolvConf::parse(&read(Path::new("/etc/resolv.conf")))
    }

    fn parse(text: &str) -> ResolvConf {
        let mut conf = ResolvConf { servers: Vec::new(), search: Vec::new(), ndots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    conf.servers.extend(address.map(|address| SocketAddr::new(address, 53)));
                }
                // The last of them holds.
                Some("search" | "domain") => {
                    conf.search =
                        words.take(MAX_SEARCH).map(|word| word.trim_matches('.').to_owned()).collect();
                    conf.search.retain(|suffix| !suffix.is_empty());
                }
                Some("options") => {
                    let ndots = words.find_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    conf.ndots = ndots.unwrap_or(conf.ndots).min(15);
                }
                _ => {}
            }
        }
        conf.servers.truncate(MAX_SERVERS);
        if conf.servers.is_empty() {
            conf.servers.push(([127, 0, 0, 1], 53).into());
        }
        conf
    }

    /// The names to ask for, in order, when `name` was written.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let suffixed = self.search.iter().map(|suffix| format!("{name}.{suffix}"));
        let own = [name.to_owned()].into_iter();
        match name.matches('.').count() >= self.ndots {
            true => own.chain(suffixed).collect(),
            false => suffixed.chain(own).collect(),
        }
    }
}

/// The addresses that `/etc/hosts` has for `name`.
pub(super) fn hosts(name: &str) -> Vec<IpAddr> {
    find(&read(Path::new("/etc/hosts")), name)
}

fn find(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn read(file: &Path) -> String {
    let small = std::fs::metadata(file).is_ok_and(|metadata| metadata.len() <= MAX_FILE);
    small
        .then(|| std::fs::read(file).ok())
        .flatten()
        .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_suffixes_and_dots_are_read() {
        let text = "# a comment\nnameserver 10.0.0.53\nnameserver fd00::53\nnameserver nonsense\n\
                    search default.svc.cluster.local cluster.local.\noptions timeout:1 ndots:5 edns0\n";
        let conf = ResolvConf::parse(text);
        assert_eq!(conf.servers, ["10.0.0.53:53".parse().unwrap(), "[fd00::53]:53".parse().unwrap()]);
        assert_eq!(
            conf.candidates("app.test"),
            ["app.test.default.svc.cluster.local", "app.test.cluster.local", "app.test"]
        );
        assert_eq!(conf.candidates("app.test."), ["app.test."]);
        let bare = ResolvConf::parse("");
        assert_eq!(bare.servers, ["127.0.0.1:53".parse().unwrap()]);
        assert_eq!(ResolvConf::parse("domain a.test").candidates("b.c"), ["b.c", "b.c.a.test"]);
    }

    #[test]
    fn hosts_are_found_by_each_of_their_names() {
        let text = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.0.0.7\tapp app.test # old.test\n";
        assert_eq!(find(text, "localhost"), [IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap()]);
        assert_eq!(find(text, "APP.test."), [IpAddr::from([10, 0, 0, 7])]);
        assert!(find(text, "old.test").is_empty() && find(text, "10.0.0.7").is_empty());
    }
}
