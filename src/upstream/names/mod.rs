//! What does a name stand for? Names of endpoints, resolved while running.
//!
//! [`resolver`] asks; a [`Name`] remembers, for one upstream, the last good answer: an error is never a
//! reason to forget addresses that work. [`endpoints`] puts the addresses in the place of the name. Who
//! asks, and when, is not known here.

mod kept;
mod reach;
pub mod resolver;
mod servers;

use self::resolver::{Answer, Trouble};
use super::balance::gcd;
use crate::config::{EndpointAddress, EndpointConfig};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

pub use reach::within_reach;

/// Most addresses of one name that are used.
const MAX_ADDRESSES: usize = 64;

/// One name of one upstream, for as long as the upstream has it.
#[derive(Debug)]
pub struct Name {
    host: String,
    /// The port of the first endpoint of this name.
    port: u16,
    facts: Mutex<Facts>,
}

/// What is known of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The last good answer, in order; empty when there never was one.
    pub addresses: Vec<IpAddr>,
    /// When it was given.
    pub resolved_at: Option<SystemTime>,
    /// Why the last lookup failed; `None` when it did not.
    pub trouble: Option<String>,
    /// Whether it has been looked up at all.
    pub asked: bool,
}

impl Name {
    /// The name, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port to try addresses at.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What is known of it.
    pub fn facts(&self) -> Facts {
        self.facts.lock().clone()
    }

    /// Takes an answer in. A family that could not be asked keeps its addresses. True when they changed.
    pub fn answered(&self, answer: Answer) -> bool {
        let mut facts = self.facts.lock();
        let trouble = answer.v4.as_ref().err().or(answer.v6.as_ref().err()).map(ToString::to_string);
        let (old_v4, old_v6): (Vec<_>, Vec<_>) = facts.addresses.iter().partition(|ip| ip.is_ipv4());
        let mut addresses = answer.v4.unwrap_or(old_v4);
        addresses.extend(answer.v6.unwrap_or(old_v6));
        // Servers rotate them.
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MAX_ADDRESSES);
        let changed = facts.addresses != addresses;
        *facts = Facts { addresses, resolved_at: Some(SystemTime::now()), trouble, asked: true };
        changed
    }

    /// Takes in that it could not be resolved. True when that is news.
    pub fn failed(&self, trouble: &Trouble) -> bool {
        let mut facts = self.facts.lock();
        let said = Some(trouble.to_string());
        let news = facts.trouble != said;
        facts.trouble = said;
        facts.asked = true;
        news
    }
}

/// The names among these endpoints, those that `known` has taken from there.
pub fn names(endpoints: &[EndpointConfig], known: &[Arc<Name>]) -> Vec<Arc<Name>> {
    let mut names: Vec<Arc<Name>> = Vec::new();
    for endpoint in endpoints {
        let EndpointAddress::Name { host, port } = &endpoint.address else { continue };
        if names.iter().any(|name| name.host == *host) {
            continue;
        }
        let kept = known.iter().find(|name| name.host == *host && name.port == *port);
        names.push(kept.cloned().unwrap_or_else(|| {
            // Another port makes another name, with the same addresses for a start.
            let facts = known.iter().find(|name| name.host == *host).map(|name| name.facts());
            Arc::new(Name { host: host.clone(), port: *port, facts: Mutex::new(facts.unwrap_or_default()) })
        }));
    }
    names
}

/// The endpoints with the addresses of `names` in the place of those. The addresses of a name share its
/// weight. An address that comes twice is one endpoint with the weights of both.
pub fn endpoints(configured: &[EndpointConfig], names: &[Arc<Name>]) -> Vec<EndpointConfig> {
    let addresses: Vec<Vec<EndpointAddress>> =
        configured.iter().map(|endpoint| resolved(&endpoint.address, names)).collect();
    // Weights are whole numbers: all are multiplied so that each share is one.
    let counts = addresses.iter().map(|addresses| addresses.len() as u64).filter(|count| *count > 0);
    let factor = counts.fold(1, |factor: u64, count| match lcm(factor, count) {
        exact if exact <= MAX_FACTOR => exact,
        _ => MAX_FACTOR,
    });
    let mut endpoints: Vec<EndpointConfig> = Vec::new();
    let mut places: HashMap<EndpointAddress, usize> = HashMap::new();
    for (endpoint, addresses) in configured.iter().zip(addresses) {
        let share = u64::from(endpoint.weight) * factor / addresses.len().max(1) as u64;
        let share = u32::try_from(share).unwrap_or(u32::MAX).max(endpoint.weight.min(1));
        for address in addresses {
            let place = *places.entry(address.clone()).or_insert(endpoints.len());
            match endpoints.get_mut(place) {
                Some(twin) => {
                    twin.weight = twin.weight.saturating_add(share);
                    twin.backup &= endpoint.backup;
                }
                None => endpoints.push(EndpointConfig { address, weight: share, ..endpoint.clone() }),
            }
        }
    }
    endpoints
}

/// Shares of names with very different numbers of addresses are rounded to a part in a million.
const MAX_FACTOR: u64 = 1_000_000;

fn resolved(address: &EndpointAddress, names: &[Arc<Name>]) -> Vec<EndpointAddress> {
    match address {
        EndpointAddress::Socket(_) | EndpointAddress::Unix(_) => vec![address.clone()],
        EndpointAddress::Name { host, port } => {
            let name = names.iter().find(|name| name.host == *host);
            let addresses = name.map(|name| name.facts.lock().addresses.clone()).unwrap_or_default();
            addresses.into_iter().map(|address| SocketAddr::new(address, *port).into()).collect()
        }
    }
}

fn lcm(a: u64, b: u64) -> u64 {
    a / gcd(a, b) * b
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn named(host: &str, weight: u32) -> EndpointConfig {
        let address = EndpointAddress::Name { host: host.to_owned(), port: 80 };
        EndpointConfig { address, weight, ..EndpointConfig::at(([127, 0, 0, 1], 1).into()) }
    }

    fn answer(v4: Result<&[u8], Trouble>, v6: Result<&[u8], Trouble>) -> Answer {
        let v4 = v4.map(|last| last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect());
        let v6 = v6.map(|last| {
            last.iter().map(|last| IpAddr::from([0, 0, 0, 0, 0, 0, 0, u16::from(*last)])).collect()
        });
        Answer { v4, v6, ttl: Duration::ZERO }
    }

    fn shown(configured: &[EndpointConfig], names: &[Arc<Name>]) -> Vec<String> {
        let endpoints = endpoints(configured, names);
        endpoints.iter().map(|endpoint| format!("{}={}", endpoint.address, endpoint.weight)).collect()
    }

    #[test]
    fn the_addresses_of_a_name_share_its_weight() {
        let configured = [
            named("a.test", 2),
            named("b.test", 1),
            EndpointConfig::at(([10, 0, 0, 9], 80).into()),
            named("never.test", 7),
        ];
        let names = names(&configured, &[]);
        assert!(names[0].answered(answer(Ok(&[2, 1]), Ok(&[1]))));
        assert!(names[1].answered(answer(Ok(&[4, 5]), Ok(&[]))));
        assert_eq!(
            shown(&configured, &names),
            [
                "10.0.0.1:80=4",
                "10.0.0.2:80=4",
                "[::1]:80=4",
                "10.0.0.4:80=3",
                "10.0.0.5:80=3",
                "10.0.0.9:80=6"
            ]
        );
    }

    #[test]
    fn an_address_with_two_names_is_one_endpoint() {
        let configured = [named("a.test", 1), named("b.test", 1)];
        let names = names(&configured, &[]);
        names[0].answered(answer(Ok(&[1]), Ok(&[])));
        names[1].answered(answer(Ok(&[1, 2]), Ok(&[])));
        assert_eq!(shown(&configured, &names), ["10.0.0.1:80=3", "10.0.0.2:80=1"]);
    }

    #[test]
    fn a_backup_whose_address_is_a_primarys_too_is_a_primary() {
        let backup = EndpointConfig { backup: true, ..named("a.test", 1) };
        for configured in [[backup.clone(), named("b.test", 1)], [named("b.test", 1), backup]] {
            let names = names(&configured, &[]);
            assert!(names.iter().all(|name| name.answered(answer(Ok(&[1]), Ok(&[])))));
            let endpoints = endpoints(&configured, &names);
            assert!(endpoints.len() == 1 && !endpoints[0].backup, "{endpoints:?}");
        }
    }

    #[test]
    fn trouble_is_no_reason_to_forget_what_works() {
        let names = names(&[named("a.test", 1)], &[]);
        let name = &names[0];
        assert!(name.failed(&Trouble::Timeout) && !name.failed(&Trouble::Timeout));
        assert!(name.facts().asked && name.facts().resolved_at.is_none());
        assert!(name.answered(answer(Ok(&[1]), Ok(&[6]))));
        assert!(!name.answered(answer(Ok(&[1]), Err(Trouble::Timeout))), "its IPv6 address stays");
        assert_eq!(name.facts().trouble.as_deref(), Some("no server answered in time"));
        assert!(name.failed(&Trouble::NoSuchName));
        assert_eq!(name.facts().addresses.len(), 2);
        assert!(name.answered(answer(Ok(&[]), Ok(&[6]))), "the answer was that there are none");
        assert_eq!((name.facts().addresses.len(), name.facts().trouble), (1, None));
    }

    #[test]
    fn a_name_that_stays_is_kept_with_what_is_known() {
        let before = names(&[named("a.test", 1), named("a.test", 2)], &[]);
        assert_eq!(before.len(), 1);
        before[0].answered(answer(Ok(&[1]), Ok(&[])));
        let after = names(&[named("b.test", 1), named("a.test", 1)], &before);
        assert!(Arc::ptr_eq(&before[0], &after[1]) && !after[0].facts().asked);
    }

    #[test]
    fn odd_counts_share_to_a_part_in_a_million() {
        let configured: Vec<_> = (0..12).map(|host| named(&format!("{host}.test"), 1)).collect();
        let names = names(&configured, &[]);
        for (name, count) in names.iter().zip(53..) {
            name.answered(answer(Ok(&(1..=count).collect::<Vec<u8>>()), Ok(&[])));
        }
        let weights: u64 = endpoints(&configured, &names).iter().map(|e| u64::from(e.weight)).sum();
        assert!((11_999_000..=12_000_000).contains(&weights), "{weights}");
    }
}
