//! Which certificates were given, and may they serve side by side?
//!
//! Reads every entry of `certificates:` and judges them together: each must serve some name, no two with the
//! same kind of key the same one, and at most one may be the default. What is wrong with a single pair of
//! files is [`super::pem`]'s business.

use super::client_auth::ClientAuth;
use super::demands::Demand;
use super::grace::Grace;
use super::names::{CoveredNames, NameMap, canonical};
use super::ocsp::{self, Response};
use super::pem::{self, KeyPair};
use super::self_signed;
use crate::config::{CertificateConfig, Problem, Problems, Source, TlsConfig, TlsVersion};
use boring::pkey::Id;
use std::collections::HashSet;
use std::net::IpAddr;

/// A pair that was read, the place of its entry in the file, and what it serves.
pub struct Candidate {
    /// Its entry is `certificates[place]`.
    pub place: usize,
    /// Sound by itself.
    pub pair: KeyPair,
    /// By what names clients may ask for it: those its entry gives, or those its certificate covers and no
    /// other entry gives.
    pub names: Vec<String>,
    /// Addresses the certificate covers.
    pub addresses: Vec<IpAddr>,
    /// Lowest version for these names.
    pub min_version: TlsVersion,
    /// For clients that ask.
    pub ocsp: Option<Response>,
    /// Which clients these names let in.
    pub client_auth: Option<ClientAuth>,
}

impl Candidate {
    /// What its names demand of a connection.
    pub fn demand(&self) -> Demand {
        Demand {
            min_version: self.min_version,
            client_auth: self.client_auth.as_ref().map(ClientAuth::id),
            certificate_required: self.client_auth.as_ref().is_some_and(ClientAuth::is_required),
        }
    }

    /// Whether both may serve one name: clients that cannot verify one kind of key get the other, under the
    /// same demands.
    pub fn complements(&self, other: &Candidate) -> bool {
        self.pair.key.id() != other.pair.key.id() && self.demand() == other.demand()
    }

    /// Which of those that complement each other is presented to a client that takes any: the cheapest.
    pub fn cost(&self) -> u8 {
        match self.pair.key.id() {
            Id::EC => 0,
            Id::ED25519 => 1,
            _ => 2,
        }
    }

    /// All it serves as text, DNS names first.
    pub fn shown_names(&self) -> Vec<String> {
        self.names.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string)).collect()
    }
}

/// Reads all of them, or the self-signed one when there are none; what is wrong is in `problems`, and
/// then the rest is of no use.
pub fn read(
    certificates: &[CertificateConfig],
    tls: &TlsConfig,
    source: &Source,
    grace: &Grace,
    problems: &mut Problems,
) -> Vec<Candidate> {
    if certificates.is_empty() {
        return self_signed_candidate(tls, grace.now, source, problems);
    }
    let mut candidates = read_all(certificates, tls, source, grace, problems);
    give_way(&mut candidates, certificates);
    check_defaults(certificates, source, problems);
    check_overlaps(&candidates, source, problems);
    candidates
}

fn self_signed_candidate(
    tls: &TlsConfig,
    now: i64,
    source: &Source,
    problems: &mut Problems,
) -> Vec<Candidate> {
    match self_signed::current(now) {
        Ok(pair) => candidate(0, pair, tls).map(|(candidate, _)| candidate).into_iter().collect(),
        Err(error) => {
            let reason = format!("no self-signed certificate can be made: {error}");
            problems.push(source.problem("certificates", reason));
            Vec::new()
        }
    }
}

fn read_all(
    certificates: &[CertificateConfig],
    tls: &TlsConfig,
    source: &Source,
    grace: &Grace,
    problems: &mut Problems,
) -> Vec<Candidate> {
    let entries = certificates.iter().enumerate();
    entries.filter_map(|(place, entry)| read_one(place, entry, tls, source, grace, problems)).collect()
}

fn read_one(
    place: usize,
    entry: &CertificateConfig,
    tls: &TlsConfig,
    source: &Source,
    grace: &Grace,
    problems: &mut Problems,
) -> Option<Candidate> {
    let path = format!("certificates[{place}]");
    let pair = pem::load(entry, source, &path, grace, problems);
    let client_auth = entry.client_auth.as_ref().map(|client_auth| {
        ClientAuth::compile(client_auth, source, &format!("{path}.client_auth"), grace, problems)
    });
    let (mut candidate, covered) = candidate(place, pair?, tls)?;
    candidate.min_version = entry.min_version.unwrap_or(tls.min_version);
    candidate.ocsp = entry.ocsp.as_ref().and_then(|file| {
        let leaf = candidate.pair.chain.first()?;
        let loaded = ocsp::load(&source.resolve(file), leaf, grace);
        let refused = |(reason, hint): ocsp::Refusal| {
            let hint = hint.map(str::to_owned);
            problems.push(Problem { hint, ..source.problem(format!("{path}.ocsp"), reason) });
        };
        loaded.map_err(refused).ok()
    });
    // One that could not be compiled is a problem, and a store with problems never serves.
    candidate.client_auth = client_auth.flatten();
    if covered.is_empty() {
        let mut problem = source
            .problem(format!("{path}.cert"), "the certificate covers no name that a client would look for");
        let hint = "server names come from its subject alternative names; the common name is not used";
        problem.hint = Some(hint.to_owned());
        problems.push(problem);
    } else if let Some(names) = &entry.names {
        candidate.names = given_names(names, &covered, source, &path, problems);
        candidate.addresses.clear();
    }
    Some(candidate)
}

/// A candidate for all that its certificate covers, and what that is.
fn candidate(place: usize, pair: KeyPair, tls: &TlsConfig) -> Option<(Candidate, CoveredNames)> {
    let covered = CoveredNames::of(pair.chain.first()?);
    let CoveredNames { dns: names, addresses } = covered.clone();
    let min_version = tls.min_version;
    Some((Candidate { place, pair, names, addresses, min_version, ocsp: None, client_auth: None }, covered))
}

/// `names:` of an entry, as clients compare them; the certificate must cover each.
fn given_names(
    given: &[String],
    covered: &CoveredNames,
    source: &Source,
    path: &str,
    problems: &mut Problems,
) -> Vec<String> {
    if given.is_empty() {
        let mut problem = source.problem(format!("{path}.names"), "the list is empty");
        problem.hint = Some("leave it out to serve all names of the certificate".to_owned());
        problems.push(problem);
    }
    let mut names: Vec<String> = Vec::with_capacity(given.len());
    for (index, name) in given.iter().enumerate() {
        let reason = match canonical(name) {
            Some(name) if names.contains(&name) => format!("{name} is in the list already"),
            Some(name) if covered.covers(&name) => {
                names.push(name);
                continue;
            }
            Some(name) => format!("the certificate does not cover {name}"),
            None => format!("{name} is no name that a client would ask for"),
        };
        let mut problem = source.problem(format!("{path}.names[{index}]"), reason);
        problem.hint = Some(format!("it covers {}", covered.to_strings().join(", ")));
        problems.push(problem);
    }
    names
}

/// A name that an entry gives is not served by one that only covers it.
fn give_way(candidates: &mut [Candidate], entries: &[CertificateConfig]) {
    let gives =
        |candidate: &Candidate| entries.get(candidate.place).is_some_and(|entry| entry.names.is_some());
    let given = candidates.iter().filter(|candidate| gives(candidate));
    let given: HashSet<String> = given.flat_map(|candidate| candidate.names.iter().cloned()).collect();
    for candidate in candidates.iter_mut().filter(|candidate| !gives(candidate)) {
        candidate.names.retain(|name| !given.contains(name));
    }
}

fn check_defaults(certificates: &[CertificateConfig], source: &Source, problems: &mut Problems) {
    let mut marked = certificates.iter().enumerate().filter(|(_, certificate)| certificate.default);
    let Some((first, _)) = marked.next() else { return };
    for (place, _) in marked {
        let path = format!("certificates[{place}].default");
        problems.push(source.problem(path, format!("certificates[{first}] is the default already")));
    }
}

/// Two certificates for one name would leave the choice to chance, but for those among which the client
/// chooses.
fn check_overlaps(candidates: &[Candidate], source: &Source, problems: &mut Problems) {
    let mut owners: NameMap<Vec<&Candidate>> = NameMap::default();
    for candidate in candidates {
        let mut shared: Vec<(&str, usize)> = Vec::new();
        for name in &candidate.names {
            let others = owners.entry(name);
            if let Some(other) = others.iter().find(|other| !other.complements(candidate)) {
                shared.push((name, other.place));
            }
            others.push(candidate);
        }
        let Some(&(name, owner)) = shared.first() else { continue };
        let more = match shared.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let reason = format!("{name}{more} is covered by certificates[{owner}] too");
        let mut problem = source.problem(format!("certificates[{}].cert", candidate.place), reason);
        let hint = "remove one of them, or say by `names` who serves which; a name has one certificate for \
                    each kind of key (RSA, ECDSA), with the same `client_auth` and `min_version`";
        problem.hint = Some(hint.to_owned());
        problems.push(problem);
    }
}
