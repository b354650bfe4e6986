//! From a name to addresses: `/etc/hosts` first, then the servers in turn, IPv4 and IPv6 at once.
//!
//! Keeps no answer: what one is worth, and for how long, others decide.

use super::kept::{Kept, Stamp};
use super::servers::{Found, Servers, addresses};
use crate::config::ResolverConfig;
use hickory_resolver::Hosts;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// How long what `/etc/hosts` says holds.
const HOSTS_TTL: Duration = Duration::from_secs(10);

/// Whom to ask. The system's own settings are looked at anew for each lookup.
#[derive(Debug)]
pub struct Resolver {
    config: ResolverConfig,
    hosts: Kept<Hosts>,
    servers: Kept<Servers>,
}

/// What is known of one name, by family; `Err` = not known now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// IPv4 addresses.
    pub v4: Result<Vec<IpAddr>, Trouble>,
    /// IPv6 addresses.
    pub v6: Result<Vec<IpAddr>, Trouble>,
    /// How long it holds, between the floor and the ceiling.
    pub ttl: Duration,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// There is no such name.
    NoSuchName,
    /// There is, and it has no addresses.
    NoAddress,
    /// No server answered in time.
    Timeout,
    /// The servers do not know now; what the last one said.
    Server(String),
}

impl Trouble {
    /// As metric label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Trouble::NoSuchName => "no_such_name",
            Trouble::NoAddress => "no_address",
            Trouble::Timeout => "timeout",
            Trouble::Server(_) => "server",
        }
    }

    /// Whether it is about the name, and not about the way there.
    fn is_final(&self) -> bool {
        matches!(self, Trouble::NoSuchName | Trouble::NoAddress)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoSuchName => f.write_str("there is no such name"),
            Trouble::NoAddress => f.write_str("the name has no addresses"),
            Trouble::Timeout => f.write_str("no server answered in time"),
            Trouble::Server(said) => f.write_str(said),
        }
    }
}

impl Resolver {
    /// A resolver with these settings.
    pub fn new(config: ResolverConfig) -> Resolver {
        Resolver { config, hosts: Kept::new(), servers: Kept::new() }
    }

    /// What it was made with.
    pub fn config(&self) -> &ResolverConfig {
        &self.config
    }

    /// Looks `name` up. Must be called in the runtime that is to drive its sockets.
    ///
    /// # Errors
    /// When no family has an address.
    pub async fn look_up(&self, name: &str) -> Result<Answer, Trouble> {
        // Relaxed: names of containers and services have underscores.
        let name = Name::from_str_relaxed(name).map_err(|error| Trouble::Server(error.to_string()))?;
        if let Some(answer) = self.listed(&name) {
            return Ok(answer);
        }
        let servers = self.servers().map_err(|error| Trouble::Server(error.to_string()))?;
        let mut nothing = Trouble::NoSuchName;
        for candidate in servers.candidates(&name) {
            let v4 = servers.ask(&candidate, RecordType::A);
            let v6 = servers.ask(&candidate, RecordType::AAAA);
            if let Some(end) = end_of_search(self.answer(tokio::join!(v4, v6)), &mut nothing) {
                return end;
            }
        }
        Err(nothing)
    }

    /// What `/etc/hosts` says. A name with one family there has no other: it is not asked for elsewhere.
    fn listed(&self, name: &Name) -> Option<Answer> {
        let hosts = self.hosts.get(Stamp::of(Path::new(HOSTS)), Hosts::from_system).ok()?;
        let find = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let [v4, v6] = [RecordType::A, RecordType::AAAA]
            .map(|kind| find(kind).map(|lookup| addresses(&lookup)).unwrap_or_default());
        let known = !v4.is_empty() || !v6.is_empty();
        known.then(|| Answer { v4: Ok(v4), v6: Ok(v6), ttl: self.bounded(HOSTS_TTL) })
    }

    fn servers(&self) -> Result<Arc<Servers>, NetError> {
        let patience = self.config.timeout.0;
        match &self.config.servers {
            Some(servers) => self.servers.get(Stamp::default(), || Servers::configured(servers, patience)),
            None => self.servers.get(Stamp::of(Path::new(RESOLV_CONF)), || {
                // One that cannot be read is as good as none.
                let text = std::fs::read(RESOLV_CONF).unwrap_or_default();
                Servers::of_system(&String::from_utf8_lossy(&text), patience)
            }),
        }
    }

    fn answer(&self, (v4, v6): (Found, Found)) -> Result<Answer, Trouble> {
        let found = [&v4, &v6].into_iter().flatten().filter(|(addresses, _)| !addresses.is_empty());
        let Some(ttl) = found.map(|(_, ttl)| *ttl).min() else {
            return Err(match (v4.err(), v6.err()) {
                (Some(trouble), other) | (other, Some(trouble)) if trouble.is_final() => {
                    other.unwrap_or(trouble)
                }
                (Some(trouble), _) | (None, Some(trouble)) => trouble,
                (None, None) => Trouble::NoAddress,
            });
        };
        let addresses = |found: Found| match found {
            Ok((addresses, _)) => Ok(addresses),
            // Some servers say so of a name that has addresses of the other family.
            Err(trouble) if trouble.is_final() => Ok(Vec::new()),
            Err(trouble) => Err(trouble),
        };
        Ok(Answer { v4: addresses(v4), v6: addresses(v6), ttl: self.bounded(ttl) })
    }

    fn bounded(&self, ttl: Duration) -> Duration {
        ttl.clamp(self.config.min_ttl.0, self.config.max_ttl.0.max(self.config.min_ttl.0))
    }
}

/// Whether the search for a name ends with what is known of one of the candidates; if not, `nothing` is what
/// all of them have said so far. Another name must not stand in for one that could not be asked for.
fn end_of_search(known: Result<Answer, Trouble>, nothing: &mut Trouble) -> Option<Result<Answer, Trouble>> {
    match known {
        Err(Trouble::NoSuchName) => None,
        Err(Trouble::NoAddress) => {
            *nothing = Trouble::NoAddress;
            None
        }
        answer_or_trouble => Some(answer_or_trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_goes_on_past_names_without_addresses_and_ends_at_trouble() {
        use Trouble::{NoAddress, NoSuchName, Timeout};
        let server = || Trouble::Server("SERVFAIL".to_owned());
        let found = || Answer { v4: Ok(Vec::new()), v6: Ok(Vec::new()), ttl: HOSTS_TTL };
        let search = |known: [Result<Answer, Trouble>; 3]| {
            let mut nothing = NoSuchName;
            let end = known.into_iter().find_map(|known| end_of_search(known, &mut nothing));
            end.unwrap_or(Err(nothing))
        };
        assert_eq!(search([Err(NoSuchName), Err(NoAddress), Ok(found())]), Ok(found()));
        assert_eq!(search([Err(server()), Ok(found()), Ok(found())]), Err(server()));
        assert_eq!(search([Err(NoSuchName), Err(Timeout), Ok(found())]), Err(Timeout));
        assert_eq!(search([Err(NoSuchName), Err(NoAddress), Err(NoSuchName)]), Err(NoAddress));
        assert_eq!(search([Err(NoSuchName), Err(NoSuchName), Err(NoSuchName)]), Err(NoSuchName));
    }
}
