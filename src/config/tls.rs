//! `certificates:` and `tls:`.

use super::units::HumanDuration;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One certificate chain and its key, both PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The leaf's private key.
    pub key: PathBuf,
    /// Names it serves, of those it covers; left out: all that no other entry gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Used for clients without SNI or with an unknown name; if none is marked, the first one is.
    #[serde(default)]
    pub default: bool,
    /// Lowest version accepted for its names; left out: that of `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_version: Option<TlsVersion>,
    /// OCSP response about it, DER, stapled for clients that ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocsp: Option<PathBuf>,
    /// Clients of its names are asked for a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_auth: Option<ClientAuthConfig>,
}

/// `client_auth:` of a certificate: which clients its names let in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClientAuthConfig {
    /// PEM file with the authorities whose certificates are accepted.
    pub ca: PathBuf,
    /// What happens to clients without one.
    #[serde(default)]
    pub mode: ClientAuthMode,
}

/// What happens to clients that show no certificate. One that is shown and does not hold always ends
/// the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthMode {
    /// Their handshake fails.
    #[default]
    Require,
    /// They are let in; routes can tell.
    Request,
}

/// TLS policy of every listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// Lowest version accepted.
    pub min_version: TlsVersion,
    /// What a handshake for a name no certificate covers gets.
    pub unknown_names: UnknownNames,
    /// Whether clients get tickets with which they resume sessions.
    pub tickets: bool,
    /// How long a session can be resumed, and how long one key seals tickets.
    pub ticket_lifetime: HumanDuration,
}

impl Default for TlsConfig {
    fn default() -> Self {
        TlsConfig {
            min_version: TlsVersion::default(),
            unknown_names: UnknownNames::default(),
            tickets: true,
            ticket_lifetime: HumanDuration::secs(12 * 3600),
        }
    }
}

/// A TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize, Serialize)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    V1_3,
}

/// What a handshake for a name no certificate covers gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownNames {
    /// The default certificate.
    #[default]
    Default,
    /// A fatal `unrecognized_name` alert (RFC 6066 section 3).
    Refuse,
}
