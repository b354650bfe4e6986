//! Which certificates were given, and may they serve side by side?
//!
//! Reads every entry of `certificates:` and judges them together: each must cover some name, no two the
//! same one, and at most one may be the default. What is wrong with a single pair of files is
//! [`super::pem`]'s business.

use super::client_auth::ClientAuth;
use super::demands::Demand;
use super::names::{CoveredNames, NameMap};
use super::ocsp;
use super::pem::{self, KeyPair};
use super::self_signed;
use crate::config::{CertificateConfig, Problem, Problems, Source, TlsConfig, TlsVersion};

/// A pair that was read, the place of its entry in the file, and what it covers.
pub struct Candidate {
    /// Its entry is `certificates[place]`.
    pub place: usize,
    /// Sound by itself.
    pub pair: KeyPair,
    /// By what names clients may ask for it.
    pub covered: CoveredNames,
    /// Lowest version for these names.
    pub min_version: TlsVersion,
    /// Stapled for clients that ask.
    pub ocsp: Option<Vec<u8>>,
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
}

/// Reads all of them, or the self-signed one when there are none; what is wrong is in `problems`, and
/// then the rest is of no use. `now` is in seconds since 1970.
pub fn read(
    certificates: &[CertificateConfig],
    tls: &TlsConfig,
    source: &Source,
    now: i64,
    problems: &mut Problems,
) -> Vec<Candidate> {
    if certificates.is_empty() {
        return self_signed_candidate(tls, now, source, problems);
    }
    let candidates = read_all(certificates, tls, source, now, problems);
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
        Ok(pair) => candidate(0, pair, tls).into_iter().collect(),
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
    now: i64,
    problems: &mut Problems,
) -> Vec<Candidate> {
    let mut candidates = Vec::with_capacity(certificates.len());
    for (place, certificate) in certificates.iter().enumerate() {
        let path = format!("certificates[{place}]");
        let pair = pem::load(certificate, source, &path, now, problems);
        let client_auth = certificate.client_auth.as_ref().map(|client_auth| {
            ClientAuth::compile(client_auth, source, &format!("{path}.client_auth"), now, problems)
        });
        let Some(mut candidate) = pair.and_then(|pair| candidate(place, pair, tls)) else { continue };
        candidate.min_version = certificate.min_version.unwrap_or(tls.min_version);
        candidate.ocsp = certificate.ocsp.as_ref().and_then(|file| {
            let leaf = candidate.pair.chain.first()?;
            let loaded = ocsp::load(&source.resolve(file), leaf, now);
            let refused = |(reason, hint): ocsp::Refusal| {
                let hint = hint.map(str::to_owned);
                problems.push(Problem { hint, ..source.problem(format!("{path}.ocsp"), reason) });
            };
            loaded.map_err(refused).ok()
        });
        // One that could not be compiled is a problem, and a store with problems never serves.
        candidate.client_auth = client_auth.flatten();
        if candidate.covered.is_empty() {
            let reason = "the certificate covers no name that a client would look for";
            let mut problem = source.problem(format!("{path}.cert"), reason);
            let hint = "server names come from its subject alternative names; the common name is not used";
            problem.hint = Some(hint.to_owned());
            problems.push(problem);
        }
        candidates.push(candidate);
    }
    candidates
}

fn candidate(place: usize, pair: KeyPair, tls: &TlsConfig) -> Option<Candidate> {
    let covered = CoveredNames::of(pair.chain.first()?);
    Some(Candidate { place, pair, covered, min_version: tls.min_version, ocsp: None, client_auth: None })
}

fn check_defaults(certificates: &[CertificateConfig], source: &Source, problems: &mut Problems) {
    let mut marked = certificates.iter().enumerate().filter(|(_, certificate)| certificate.default);
    let Some((first, _)) = marked.next() else { return };
    for (place, _) in marked {
        let path = format!("certificates[{place}].default");
        problems.push(source.problem(path, format!("certificates[{first}] is the default already")));
    }
}

/// Two certificates for one name would leave the choice to chance.
fn check_overlaps(candidates: &[Candidate], source: &Source, problems: &mut Problems) {
    let mut owners: NameMap<usize> = NameMap::default();
    for candidate in candidates {
        let mut shared: Vec<(&str, usize)> = Vec::new();
        for name in &candidate.covered.dns {
            if let Err(&owner) = owners.insert(name, candidate.place) {
                shared.push((name, owner));
            }
        }
        let Some(&(name, owner)) = shared.first() else { continue };
        let more = match shared.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let reason = format!("{name}{more} is covered by certificates[{owner}] too");
        let mut problem = source.problem(format!("certificates[{}].cert", candidate.place), reason);
        problem.hint = Some("remove one of them; a name has exactly one certificate".to_owned());
        problems.push(problem);
    }
}
