//! From a name to addresses: `/etc/hosts` first, then the servers in turn, IPv4 and IPv6 at once.
//!
//! Keeps nothing: what an answer is worth, and for how long, others decide.

use super::exchange;
use super::message::Family;
use super::system::{self, ResolvConf};
use crate::config::ResolverConfig;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Times each server is asked before it is given up.
const ROUNDS: usize = 2;
/// How long what `/etc/hosts` says holds.
const HOSTS_TTL: Duration = Duration::from_secs(10);

/// Whom to ask. The system's own settings are read anew for each lookup.
#[derive(Debug)]
pub struct Resolver {
    config: ResolverConfig,
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

/// What one family has, and for how long.
type Found = Result<(Vec<IpAddr>, Duration), Trouble>;

impl Resolver {
    /// A resolver with these settings.
    pub fn new(config: ResolverConfig) -> Resolver {
        Resolver { config }
    }

    /// What it was made with.
    pub fn config(&self) -> &ResolverConfig {
        &self.config
    }

    /// Looks `name` up.
    ///
    /// # Errors
    /// When no family has an address.
    pub async fn look_up(&self, name: &str) -> Result<Answer, Trouble> {
        let hosts = system::hosts(name);
        if !hosts.is_empty() {
            let (v4, v6) = hosts.into_iter().partition(IpAddr::is_ipv4);
            return Ok(Answer { v4: Ok(v4), v6: Ok(v6), ttl: self.bounded(HOSTS_TTL) });
        }
        let (servers, candidates) = match &self.config.servers {
            Some(servers) => (servers.clone(), vec![name.to_owned()]),
            None => {
                let conf = ResolvConf::read();
                let candidates = conf.candidates(name);
                (conf.servers, candidates)
            }
        };
        let mut worst = Trouble::NoSuchName;
        for candidate in candidates {
            let v4 = self.family(&servers, &candidate, Family::V4);
            let v6 = self.family(&servers, &candidate, Family::V6);
            match self.answer(tokio::join!(v4, v6)) {
                Ok(answer) => return Ok(answer),
                Err(trouble) if worst.is_final() && trouble != Trouble::NoSuchName => worst = trouble,
                Err(_) => {}
            }
        }
        Err(worst)
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

    async fn family(&self, servers: &[SocketAddr], name: &str, family: Family) -> Found {
        let mut trouble = Trouble::Timeout;
        for server in std::iter::repeat_n(servers, ROUNDS).flatten() {
            match exchange::ask(*server, name, family, self.config.timeout.0).await {
                Ok(reply) => match reply.code {
                    0 => return Ok((reply.addresses, Duration::from_secs(reply.ttl.into()))),
                    3 => return Err(Trouble::NoSuchName),
                    code => trouble = Trouble::Server(format!("{server} answers with error {code}")),
                },
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => trouble = Trouble::Server(format!("{server}: {error}")),
            }
        }
        Err(trouble)
    }

    fn bounded(&self, ttl: Duration) -> Duration {
        ttl.clamp(self.config.min_ttl.0, self.config.max_ttl.0.max(self.config.min_ttl.0))
    }
}
