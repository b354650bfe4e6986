//! `mirror:` of a route: a second upstream that gets copies of requests.

use serde::{Deserialize, Serialize};

/// Copies of a route's requests, whose answers nobody gets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorConfig {
    /// The name of an entry of `upstreams:`.
    pub upstream: String,
    /// Share of the requests, 1 to 100.
    #[serde(default = "all")]
    pub percent: u32,
}

fn all() -> u32 {
    100
}
