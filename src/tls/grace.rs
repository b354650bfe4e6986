//! May what has had its time serve on?
//!
//! Time runs out by itself, and for one name. Refused for it, a start or a reload would take all other names
//! along, and whatever else the file changes. So only what comes new with a reload must be good: what serves
//! already serves on, and a start takes what there is. Whoever is told of it is [`super::overdue`]'s business.

use super::client_auth::PolicyId;
use super::ocsp::ResponseId;

/// What a start or a reload goes by.
#[derive(Debug)]
pub struct Grace {
    /// Seconds since 1970.
    pub now: i64,
    /// `None` at a start: everything is known.
    known: Option<Known>,
}

/// What serves already.
#[derive(Debug, Default)]
pub struct Known {
    /// SHA-256 of each certificate, as [`super::certificate::fingerprint`] writes it.
    pub certificates: Vec<String>,
    /// Each OCSP response that was read, whether it is stapled or not.
    pub responses: Vec<ResponseId>,
    /// Each policy for client certificates.
    pub policies: Vec<PolicyId>,
}

impl Grace {
    /// For a start: everything is taken.
    pub fn at_start(now: i64) -> Grace {
        Grace { now, known: None }
    }

    /// For a reload: what is known is taken.
    pub fn for_known(now: i64, known: Known) -> Grace {
        Grace { now, known: Some(known) }
    }

    /// Whether this certificate is taken out of its time.
    pub fn certificate(&self, fingerprint: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.certificates.iter().any(|it| it == fingerprint))
    }

    /// Whether this response is taken though it cannot be stapled.
    pub fn response(&self, response: &ResponseId) -> bool {
        self.known.as_ref().is_none_or(|known| known.responses.contains(response))
    }

    /// Whether this policy is taken though all its authorities have expired.
    pub fn policy(&self, policy: &PolicyId) -> bool {
        self.known.as_ref().is_none_or(|known| known.policies.contains(policy))
    }
}
