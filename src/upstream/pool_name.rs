//! The name of a pool: metric label, log field and name in the admin API. Does not know what else a pool is.

use crate::config::upstream::INLINE_PREFIX;
use std::borrow::Borrow;
use std::fmt;

/// A named upstream and the inline list of a route never have the same one, whatever both are called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolName(String);

impl PoolName {
    /// The key of an upstream in `upstreams`.
    pub fn upstream(key: &str) -> Self {
        PoolName(key.to_owned())
    }

    /// The inline list of a route.
    pub fn inline(route: &str) -> Self {
        PoolName(format!("{INLINE_PREFIX}{route}"))
    }

    /// As it is shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// For looking up what an operator typed; text and name compare alike.
impl Borrow<str> for PoolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
