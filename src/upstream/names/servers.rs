//! Whom to ask for a name, and for which names: the servers of the configuration, or those of
//! `/etc/resolv.conf` with its search list.
//!
//! The questions and the answers are hickory-resolver's: EDNS, TCP for what does not fit, aliases, forged
//! datagrams. One of its resolvers for each server: a pool of several asks two at once and takes an error of
//! the first for the answer of all. Its cache is off: how long an answer holds, others decide.

use super::resolver::Trouble;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// Times each server is asked before it is given up.
const ROUNDS: usize = 2;
/// Servers of `/etc/resolv.conf` that are asked (resolv.conf(5), MAXNS).
const MAX_SYSTEM_SERVERS: usize = 3;
/// Questions under way at a time on one connection: more than there are lookups at a time.
const MAX_QUESTIONS: usize = 256;

/// What one family has, and for how long.
pub(super) type Found = Result<(Vec<IpAddr>, Duration), Trouble>;

/// Whom to ask.
#[derive(Debug)]
pub(super) struct Servers {
    servers: Vec<Server>,
    /// Suffixes for names that are not complete.
    search: Vec<Name>,
    /// A name with as many dots is tried as it is first.
    ndots: usize,
    patience: Duration,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    resolver: TokioResolver,
}

impl Servers {
    /// These, for names as they are written; `patience` is for one answer.
    ///
    /// # Errors
    /// What hickory-resolver finds wrong.
    pub(super) fn configured(addresses: &[SocketAddr], patience: Duration) -> Result<Servers, NetError> {
        let servers = addresses.iter().map(|address| Server::new(*address, patience));
        Ok(Servers { servers: servers.collect::<Result<_, _>>()?, search: Vec::new(), ndots: 1, patience })
    }

    /// Those that `text`, a resolv.conf(5), names; the machine's own when it names none.
    ///
    /// # Errors
    /// What hickory-resolver finds wrong.
    pub(super) fn of_system(text: &str, patience: Duration) -> Result<Servers, NetError> {
        let named = text.lines().any(|line| line.starts_with("nameserver"));
        let own = if named { "" } else { "\nnameserver 127.0.0.1\n" };
        let (config, options) = parse_resolv_conf(format!("{text}{own}"))?;
        let servers = config.name_servers().iter().take(MAX_SYSTEM_SERVERS);
        let servers = servers.map(|server| Server::new(SocketAddr::new(server.ip, 53), patience));
        let search = config.search().iter().filter(|suffix| !suffix.is_root());
        Ok(Servers {
            servers: servers.collect::<Result<_, _>>()?,
            search: search.cloned().collect(),
            ndots: options.ndots,
            patience,
        })
    }

    /// The complete names to ask for, in order, when `name` was written. Not left to hickory-resolver,
    /// which goes through them for each family alone: IPv6 addresses would come from another name than
    /// IPv4 addresses.
    pub(super) fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut complete = name.clone();
        complete.set_fqdn(true);
        if name.is_fqdn() {
            return vec![complete];
        }
        let suffixed = self.search.iter().filter_map(|suffix| name.clone().append_domain(suffix).ok());
        match usize::from(name.num_labels()) > self.ndots {
            true => std::iter::once(complete).chain(suffixed).collect(),
            false => suffixed.chain(std::iter::once(complete)).collect(),
        }
    }

    /// Asks them in turn for the addresses of a complete name, A or AAAA records. No addresses: it has none
    /// of this kind.
    ///
    /// # Errors
    /// No such name; or no server knew, and why.
    pub(super) async fn ask(&self, name: &Name, kind: RecordType) -> Found {
        let mut trouble = Trouble::Timeout;
        for server in std::iter::repeat_n(&self.servers, ROUNDS).flatten() {
            match timeout(self.patience, server.resolver.lookup(name.clone(), kind)).await {
                Ok(Ok(lookup)) => return Ok((addresses(&lookup), lifetime(&lookup))),
                Ok(Err(error)) if error.is_nx_domain() => return Err(Trouble::NoSuchName),
                Ok(Err(error)) if error.is_no_records_found() => return Ok((Vec::new(), Duration::ZERO)),
                Ok(Err(NetError::Timeout)) | Err(_) => {}
                Ok(Err(NetError::Dns(DnsError::ResponseCode(code)))) => {
                    trouble = Trouble::Server(format!("{} answers: {code}", server.address));
                }
                Ok(Err(error)) => trouble = Trouble::Server(format!("{}: {error}", server.address)),
            }
        }
        Err(trouble)
    }
}

impl Server {
    fn new(address: SocketAddr, patience: Duration) -> Result<Server, NetError> {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = address.port();
            connection
        });
        let server = NameServerConfig::new(address.ip(), true, connections.into());
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.timeout = patience;
        options.attempts = 0;
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.max_active_requests = MAX_QUESTIONS;
        Ok(Server { address, resolver: builder.build()? })
    }
}

/// The addresses among the records.
pub(super) fn addresses(lookup: &Lookup) -> Vec<IpAddr> {
    lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect()
}

/// How long all of it holds, the aliases included.
fn lifetime(lookup: &Lookup) -> Duration {
    let seconds = lookup.answers().iter().map(|record| record.ttl).min();
    Duration::from_secs(seconds.unwrap_or(0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_system(text: &str) -> Servers {
        Servers::of_system(text, Duration::from_secs(1)).unwrap()
    }

    fn addresses(servers: &Servers) -> Vec<String> {
        servers.servers.iter().map(|server| server.address.to_string()).collect()
    }

    fn candidates(servers: &Servers, name: &str) -> Vec<String> {
        let name = Name::from_str_relaxed(name).unwrap();
        servers.candidates(&name).iter().map(Name::to_ascii).collect()
    }

    #[test]
    fn servers_suffixes_and_dots_are_read() {
        let text = "# a comment\nnameserver 10.0.0.53\nnameserver fd00::53\nnameserver nonsense\n\
                    search default.svc.cluster.local cluster.local. .\noptions timeout:1 ndots:5 edns0\n";
        let servers = of_system(text);
        assert_eq!(addresses(&servers), ["10.0.0.53:53", "[fd00::53]:53"]);
        assert_eq!(
            candidates(&servers, "app.test"),
            ["app.test.default.svc.cluster.local.", "app.test.cluster.local.", "app.test."]
        );
        assert_eq!(candidates(&servers, "app.test."), ["app.test."]);
        assert_eq!(candidates(&servers, "my_app")[1], "my_app.cluster.local.");
        assert_eq!(candidates(&of_system("domain a.test"), "b.c"), ["b.c.", "b.c.a.test."]);
    }

    #[test]
    fn a_file_without_servers_means_the_machine_itself() {
        assert_eq!(addresses(&of_system("")), ["127.0.0.1:53"]);
        assert_eq!(addresses(&of_system("search a.test\n")), ["127.0.0.1:53"]);
        let four = of_system(&"nameserver 10.0.0.53\n".repeat(4));
        assert_eq!(addresses(&four).len(), MAX_SYSTEM_SERVERS);
    }

    #[test]
    fn configured_servers_know_no_suffixes() {
        let servers = Servers::configured(&[([127, 0, 0, 1], 5353).into()], Duration::from_secs(1)).unwrap();
        assert_eq!(addresses(&servers), ["127.0.0.1:5353"]);
        assert_eq!(candidates(&servers, "app"), ["app."]);
    }
}
