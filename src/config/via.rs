//! `proxy.via`, the name under which the gateway stands in `Via`.

use serde::{Deserialize, Serialize};

/// Who the gateway says it is in the field `Via` of the requests it passes on (RFC 9110 section 7.6.3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum ViaConfig {
    /// It does not say.
    Off,
    /// Under this pseudonym, a token.
    Pseudonym(String),
}

impl Default for ViaConfig {
    fn default() -> Self {
        ViaConfig::Pseudonym("portcullis".to_owned())
    }
}

impl From<String> for ViaConfig {
    fn from(text: String) -> Self {
        if text == "off" { ViaConfig::Off } else { ViaConfig::Pseudonym(text) }
    }
}

impl From<ViaConfig> for String {
    fn from(via: ViaConfig) -> Self {
        match via {
            ViaConfig::Off => "off".to_owned(),
            ViaConfig::Pseudonym(pseudonym) => pseudonym,
        }
    }
}
