//! Which certificate does a handshake get?
//!
//! Holds one context per certificate behind one entry context. The entry context presents the default
//! certificate; when the client names a server, a synchronous callback switches the session to the
//! context of the certificate that covers the name, before the version is settled. Knows nothing of
//! sockets: it hands out sessions.
//!
//! A connection keeps the contexts it started with alive, so a store may be replaced at any time.

pub use super::certificate::CertificateInfo;

use super::candidates::{self, Candidate};
use super::client_auth::{ClientAuth, PolicyId};
use super::context;
use super::demands::Demands;
use super::grace::{Grace, Known};
use super::names::NameMap;
use super::ocsp::ResponseId;
use super::overdue::{self, Overdue};
use super::tickets::TicketKeys;
use crate::config::{CertificateConfig, Problems, Source, TlsConfig, UnknownNames};
use boring::error::ErrorStack;
use boring::ssl::{NameType, SelectCertError, SniError, Ssl, SslAlert, SslContext, SslRef};
use boring::ssl::{SslVerifyMode, SslVersion};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The certificates of one snapshot, ready for handshakes.
pub struct CertificateStore {
    entry: SslContext,
    demands: Demands,
    certificates: Vec<CertificateInfo>,
    /// For the next reload, beside the certificates.
    responses: Vec<ResponseId>,
    policies: Vec<PolicyId>,
    self_signed: bool,
}

/// Server name → what to switch to; `None` = the entry context already is the right one.
type Contexts = NameMap<Option<Arc<Presented>>>;

/// A certificate's context, and what does not follow when a session is switched to it.
struct Presented {
    context: SslContext,
    min_version: SslVersion,
    verify: SslVerifyMode,
}

impl CertificateStore {
    /// Reads, checks and compiles `certificates:`. Without any, a self-signed certificate made in
    /// memory is presented ([`Self::is_self_signed`]). What `previous`, the store that serves, has already
    /// may be out of its time ([`super::grace`]). `None` when a problem was reported.
    pub fn compile(
        certificates: &[CertificateConfig],
        tls: &TlsConfig,
        source: &Source,
        tickets: &TicketKeys,
        previous: Option<&CertificateStore>,
        problems: &mut Problems,
    ) -> Option<CertificateStore> {
        let grace = match previous {
            Some(previous) => Grace::for_known(now(), previous.known()),
            None => Grace::at_start(now()),
        };
        Self::compile_by(certificates, tls, source, tickets, &grace, problems)
    }

    fn compile_by(
        certificates: &[CertificateConfig],
        tls: &TlsConfig,
        source: &Source,
        tickets: &TicketKeys,
        grace: &Grace,
        problems: &mut Problems,
    ) -> Option<CertificateStore> {
        let before = problems.0.len();
        let candidates = candidates::read(certificates, tls, source, grace, problems);
        if problems.0.len() > before {
            return None;
        }
        let place = certificates.iter().position(|certificate| certificate.default).unwrap_or(0);
        let default = candidates.iter().find(|candidate| candidate.place == place)?;
        let infos = candidates
            .iter()
            .filter_map(|candidate| CertificateInfo::of(candidate, candidate.place == place));
        let responses = candidates.iter().filter_map(|candidate| Some(candidate.ocsp.as_ref()?.id));
        let policies = candidates.iter().filter_map(|candidate| Some(candidate.client_auth.as_ref()?.id()));
        match build(&candidates, default, tls, tickets) {
            Ok(entry) => Some(CertificateStore {
                entry,
                demands: demands(&candidates, default),
                certificates: infos.collect(),
                responses: responses.collect(),
                policies: policies.collect(),
                self_signed: certificates.is_empty(),
            }),
            Err(error) => {
                let reason = format!("no TLS context can be made of these certificates: {error}");
                problems.push(source.problem("certificates", reason));
                None
            }
        }
    }

    /// A fresh server session, ready for accept: it chooses its certificate by server name, and offers
    /// HTTP/2 in ALPN when `http2` is set. Fails only for want of memory.
    pub fn session(&self, http2: bool) -> Result<Ssl, ErrorStack> {
        context::session(&self.entry, http2)
    }

    /// What each name demands of a connection that is to serve it.
    pub fn demands(&self) -> &Demands {
        &self.demands
    }

    /// What is presented, in file order.
    pub fn certificates(&self) -> &[CertificateInfo] {
        &self.certificates
    }

    /// What of it has had its time, or is not good from the start.
    pub fn overdue(&self) -> Vec<Overdue> {
        let now = now();
        self.certificates.iter().flat_map(|certificate| overdue::of(certificate, now)).collect()
    }

    fn known(&self) -> Known {
        Known {
            certificates: self.certificates.iter().map(|it| it.fingerprint_sha256.clone()).collect(),
            responses: self.responses.clone(),
            policies: self.policies.clone(),
        }
    }

    /// Whether the only certificate is one made in memory, which no client trusts.
    pub fn is_self_signed(&self) -> bool {
        self.self_signed
    }
}

impl std::fmt::Debug for CertificateStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateStore").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

/// The entry context, which holds all others.
fn build(
    candidates: &[Candidate],
    default: &Candidate,
    tls: &TlsConfig,
    tickets: &TicketKeys,
) -> Result<SslContext, ErrorStack> {
    let (owners, entry_owners) = owners(candidates, default);
    let mut built: BTreeMap<Vec<usize>, Option<Arc<Presented>>> = BTreeMap::new();
    built.insert(places(&entry_owners), None);
    let mut contexts = Contexts::default();
    for (name, owners) in &owners {
        let target = match built.get(&places(owners)) {
            Some(target) => target.clone(),
            None => {
                let presented = Some(Arc::new(Presented::build(owners, tls, tickets)?));
                built.insert(places(owners), presented.clone());
                presented
            }
        };
        // Every name comes once.
        let _ = contexts.insert(name, target);
    }
    let contexts = Arc::new(contexts);
    let refuse = tls.unknown_names == UnknownNames::Refuse;
    let mut entry = context::builder(&entry_owners, tls, tickets)?;
    let known = Arc::clone(&contexts);
    entry.set_select_certificate_callback(move |mut hello| select(hello.ssl_mut(), &contexts));
    entry.set_servername_callback(move |ssl, alert| acknowledge(ssl, alert, &known, refuse));
    Ok(entry.build())
}

/// Candidates among which the client chooses, the cheapest first.
type Owners<'c> = Vec<&'c Candidate>;

/// Who serves each name, and who serves clients that name nobody: the default, and those that complement it
/// for all of its names.
fn owners<'c>(
    candidates: &'c [Candidate],
    default: &'c Candidate,
) -> (BTreeMap<&'c str, Owners<'c>>, Owners<'c>) {
    let mut names: BTreeMap<&str, Owners> = BTreeMap::new();
    for candidate in candidates {
        for name in &candidate.names {
            names.entry(name).or_default().push(candidate);
        }
    }
    for owners in names.values_mut() {
        owners.sort_by_key(|owner| owner.cost());
    }
    let mut lists = default.names.iter().filter_map(|name| names.get(name.as_str()));
    let mut entry = lists.next().cloned().unwrap_or_else(|| vec![default]);
    for list in lists {
        entry.retain(|owner| list.iter().any(|other| other.place == owner.place));
    }
    (names, entry)
}

fn places(owners: &[&Candidate]) -> Vec<usize> {
    owners.iter().map(|owner| owner.place).collect()
}

fn demands(candidates: &[Candidate], default: &Candidate) -> Demands {
    let mut demands = Demands::new(default.demand());
    for candidate in candidates {
        for name in &candidate.names {
            demands.insert(name, candidate.demand());
        }
    }
    demands
}

impl Presented {
    fn build(owners: &[&Candidate], tls: &TlsConfig, tickets: &TicketKeys) -> Result<Presented, ErrorStack> {
        // They make the same demands; a name without an owner is no name.
        let first = owners.first();
        let client_auth = first.and_then(|owner| owner.client_auth.as_ref());
        Ok(Presented {
            context: context::builder(owners, tls, tickets)?.build(),
            min_version: context::version(first.map_or(tls.min_version, |owner| owner.min_version)),
            verify: client_auth.map_or(SslVerifyMode::NONE, ClientAuth::verify_mode),
        })
    }

    /// The library takes over certificate, authorities and session context, but neither version nor mode.
    fn present(&self, ssl: &mut SslRef) -> Result<(), ErrorStack> {
        ssl.set_ssl_context(&self.context)?;
        ssl.set_min_proto_version(Some(self.min_version))?;
        ssl.set_verify(self.verify);
        Ok(())
    }
}

/// Switches a session to the certificate its server name asks for. Runs on every handshake, before
/// versions are compared and before a session is resumed.
fn select(ssl: &mut SslRef, contexts: &Contexts) -> Result<(), SelectCertError> {
    let target = ssl.servername_raw(NameType::HOST_NAME).and_then(|name| contexts.get(name));
    match target {
        Some(Some(presented)) => presented.present(ssl).map_err(|_| SelectCertError::ERROR),
        Some(None) | None => Ok(()),
    }
}

/// Tells the client whether its server name was of use, or that it is not known here.
fn acknowledge(
    ssl: &SslRef,
    alert: &mut SslAlert,
    contexts: &Contexts,
    refuse: bool,
) -> Result<(), SniError> {
    let Some(name) = ssl.servername_raw(NameType::HOST_NAME) else { return Err(SniError::NOACK) };
    match contexts.get(name) {
        Some(_) => Ok(()),
        None if refuse && !is_address(name) => {
            *alert = SslAlert::UNRECOGNIZED_NAME;
            Err(SniError::ALERT_FATAL)
        }
        None => Err(SniError::NOACK),
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Addresses are no server names (RFC 6066 section 3); a client that sends one has named nobody.
fn is_address(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| name.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
