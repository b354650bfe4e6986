//! `access:`, who may talk to us.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A CIDR policy, global or of one route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Who may name the client in X-Forwarded-For or Forwarded. Only in the global policy.
    pub trusted_proxies: Vec<CidrEntry>,
    /// Prefixes let in; `None` when the key is left out.
    pub allow: Option<Vec<CidrEntry>>,
    /// Prefixes kept out.
    pub deny: Vec<CidrEntry>,
    /// When nothing matches; if left out: deny when `allow` is present (even empty), else allow.
    pub default: Option<DefaultAction>,
    /// What a denied request gets.
    pub on_deny: OnDeny,
}

/// One element of a CIDR list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum CidrEntry {
    /// Written inline.
    Inline(Cidr),
    /// `{ file: … }`: one CIDR a line, `#` starts a comment.
    File {
        /// Relative to the file that names it.
        file: PathBuf,
    },
}

/// An address prefix, checked strictly: no host bits, no leading zeros, IPv4-mapped IPv6 (of at
/// least 96 bits) held as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr(pub ipnet::IpNet);

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Cidr).map_err(|error: ipnet::AddrParseError| error.to_string())
    }
}

/// What happens to a client no prefix holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultAction {
    /// It may come in.
    Allow,
    /// It may not.
    Deny,
}

/// What a denied request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeny {
    /// 403 with a page.
    #[default]
    Respond,
    /// The connection is closed without an answer.
    Close,
}

impl Serialize for Cidr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
