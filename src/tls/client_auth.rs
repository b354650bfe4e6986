//! Which clients do the names of a certificate let in?
//!
//! Compiles `client_auth:` into a policy that a context enforces during the handshake. Sessions are
//! resumed within one policy only: what a policy says is part of the session context, so a ticket of
//! one is worth nothing under another, nor after its authorities changed. Knows nothing of requests.

use super::certificate::validity;
use super::grace::Grace;
use super::pem;
use crate::config::{ClientAuthConfig, ClientAuthMode, Problem, Problems, Source};
use boring::error::ErrorStack;
use boring::ex_data::Index;
use boring::sha::Sha256;
use boring::ssl::{SslContext, SslContextBuilder, SslRef, SslVerifyMode};
use boring::x509::X509;
use boring::x509::store::{X509Store, X509StoreBuilder};
use boring::x509::verify::X509VerifyFlags;
use std::sync::LazyLock;

/// Most certificates between a client's and one of the file.
const MAX_DEPTH: u32 = 8;

/// Tells policies apart: equal for the same mode and the same authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyId([u8; 32]);

/// A compiled `client_auth:`.
#[derive(Clone)]
pub struct ClientAuth {
    id: PolicyId,
    mode: ClientAuthMode,
    authorities: Vec<X509>,
    trusted: X509Store,
    valid_until: i64,
}

/// Where a context keeps which policy it enforces.
static POLICY: LazyLock<Result<Index<SslContext, PolicyId>, ErrorStack>> =
    LazyLock::new(SslContext::new_ex_index);

impl ClientAuth {
    /// Reads the authorities of a `client_auth:` at key path `path`; by `grace` all may have expired.
    /// `None` when a problem was reported.
    pub fn compile(
        config: &ClientAuthConfig,
        source: &Source,
        path: &str,
        grace: &Grace,
        problems: &mut Problems,
    ) -> Option<ClientAuth> {
        let fault = |reason: String, hint: Option<&str>| {
            let hint = hint.map(str::to_owned);
            Problem { hint, ..source.problem(format!("{path}.ca"), reason) }
        };
        let file = source.resolve(&config.ca);
        let built = read_authorities(&file).and_then(|authorities| {
            let trusted = trust(&authorities).map_err(|error| (error.to_string(), None))?;
            let id = PolicyId::of(config.mode, &authorities).map_err(|error| (error.to_string(), None))?;
            let until = authorities.iter().filter_map(|authority| Some(validity(authority)?.1));
            let valid_until = until.max().unwrap_or(i64::MIN);
            if valid_until <= grace.now && !grace.policy(&id) {
                let reason = format!("every certificate in {} has expired", file.display());
                return Err((reason, Some("no client could come in")));
            }
            Ok(ClientAuth { id, mode: config.mode, authorities, trusted, valid_until })
        });
        built.map_err(|(reason, hint)| problems.push(fault(reason, hint))).ok()
    }

    /// The policy's identity.
    pub fn id(&self) -> PolicyId {
        self.id
    }

    /// When the last of its authorities expires, in seconds since 1970.
    pub fn valid_until(&self) -> i64 {
        self.valid_until
    }

    /// Whether clients without a certificate are kept out.
    pub fn is_required(&self) -> bool {
        self.mode == ClientAuthMode::Require
    }

    /// How a session must verify; a session keeps its own mode when its context is switched.
    pub fn verify_mode(&self) -> SslVerifyMode {
        match self.mode {
            ClientAuthMode::Require => SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT,
            ClientAuthMode::Request => SslVerifyMode::PEER,
        }
    }

    /// Makes a context enforce it.
    ///
    /// # Errors
    /// For want of memory.
    pub fn install(&self, context: &mut SslContextBuilder) -> Result<(), ErrorStack> {
        context.set_verify(self.verify_mode());
        context.set_verify_depth(MAX_DEPTH);
        context.set_verify_cert_store(self.trusted.clone())?;
        for authority in &self.authorities {
            context.add_client_ca(authority)?;
        }
        context.set_session_id_context(&self.id.0)?;
        let index = POLICY.as_ref().map_err(Clone::clone)?;
        context.set_ex_data(*index, self.id);
        Ok(())
    }
}

impl PolicyId {
    /// The policy a session was made under.
    pub fn enforced_on(ssl: &SslRef) -> Option<PolicyId> {
        let index = POLICY.as_ref().ok()?;
        ssl.ssl_context().ex_data(*index).copied()
    }

    fn of(mode: ClientAuthMode, authorities: &[X509]) -> Result<PolicyId, ErrorStack> {
        let mut hash = Sha256::new();
        hash.update(match mode {
            ClientAuthMode::Require => b"require",
            ClientAuthMode::Request => b"request",
        });
        for authority in authorities {
            hash.update(&authority.to_der()?);
        }
        Ok(PolicyId(hash.finish()))
    }
}

type Faulty = (String, Option<&'static str>);

fn read_authorities(file: &std::path::Path) -> Result<Vec<X509>, Faulty> {
    let pem = pem::read(file).map_err(|reason| (reason, None))?;
    let shown = file.display();
    let authorities = X509::stack_from_pem(&pem)
        .map_err(|_| (format!("{shown} holds a certificate that cannot be read"), None))?;
    if authorities.is_empty() {
        return Err((format!("{shown} holds no certificate"), Some("it must be PEM")));
    }
    Ok(authorities)
}

/// Every certificate of the file is trusted by itself, so that naming an intermediate authority lets
/// in its clients and not those of its siblings.
fn trust(authorities: &[X509]) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    store.try_set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    for authority in authorities {
        store.add_cert(authority)?;
    }
    Ok(store.build())
}
