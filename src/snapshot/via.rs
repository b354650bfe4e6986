//! How the gateway stands in `Via` (RFC 9110 section 7.6.3), and whether it stands there too often.

use crate::config::ViaConfig;
use http::{HeaderMap, HeaderValue, Version, header};

/// How often a request may have passed this gateway, or others of its name, before.
const PASSES: usize = 4;

/// The gateway's own entry.
#[derive(Debug)]
pub struct Via {
    pseudonym: String,
    /// For requests that came over HTTP/1.0, 1.1 and 2.
    entries: [HeaderValue; 3],
}

impl Via {
    /// `None` when it does not say; the pseudonym is a token.
    pub fn compile(config: &ViaConfig) -> Option<Via> {
        let ViaConfig::Pseudonym(pseudonym) = config else { return None };
        let entry = |version| HeaderValue::try_from(format!("{version} {pseudonym}")).ok();
        Some(Via { pseudonym: pseudonym.clone(), entries: [entry("1.0")?, entry("1.1")?, entry("2.0")?] })
    }

    /// The entry for a request that came in this version.
    pub fn entry(&self, version: Version) -> &HeaderValue {
        let [old, usual, new] = &self.entries;
        match version {
            Version::HTTP_2 => new,
            Version::HTTP_10 => old,
            _ => usual,
        }
    }

    /// Whether a request goes round in circles.
    pub fn is_loop(&self, headers: &HeaderMap) -> bool {
        let entries = headers.get_all(header::VIA).iter();
        let entries = entries.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        let own = |entry: &&[u8]| {
            // received-protocol RWS received-by [ RWS comment ]
            let mut words = entry.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
            let by = words.nth(1).unwrap_or_default();
            by.eq_ignore_ascii_case(self.pseudonym.as_bytes())
        };
        entries.filter(own).count() > PASSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_more_than_a_few_passes_of_its_own() {
        let via = Via::compile(&ViaConfig::Pseudonym("edge-1".to_owned())).expect("an entry");
        let is_loop = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::VIA, line.parse().expect("a value"));
            }
            via.is_loop(&headers)
        };
        assert!(!is_loop(&[]));
        assert!(!is_loop(&["1.1 edge-1, 2.0 edge-1 (x), 1.1 edge-1", "1.1 edge-1, 1.1 edge-12"]));
        assert!(is_loop(&[
            "1.1 edge-1, 2.0 Edge-1 (x),1.1  edge-1",
            "1.1 other, 1.1 edge-1, HTTP/1.0 edge-1"
        ]));
        assert_eq!(via.entry(Version::HTTP_2), "2.0 edge-1");
        assert!(Via::compile(&ViaConfig::Off).is_none());
    }
}
