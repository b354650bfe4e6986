//! May a connection made for one name serve another?
//!
//! A client may send requests for any host on the connection it has (RFC 9113 section 9.1.1), so what
//! the names of a certificate demand is asked again for the host of each request. Knows nothing of
//! requests beyond their host.

use super::client_auth::PolicyId;
use super::names::NameMap;
use crate::config::TlsVersion;

/// What the names of a certificate demand of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Lowest TLS version.
    pub min_version: TlsVersion,
    /// The policy the handshake must have enforced.
    pub client_auth: Option<PolicyId>,
    /// Whether that policy keeps clients without a certificate out.
    pub certificate_required: bool,
}

/// What a handshake settled, as far as names care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The version.
    pub version: TlsVersion,
    /// The policy that was enforced.
    pub client_auth: Option<PolicyId>,
}

/// The demands of all names.
#[derive(Debug)]
pub struct Demands {
    names: NameMap<Demand>,
    /// For hosts no certificate covers: a handshake for them would have got the default certificate.
    default: Demand,
    /// Whether names differ, or one of them asks for client certificates. Elsewhere every connection
    /// may serve every name.
    distinct: bool,
}

impl Demands {
    /// Demands that are `default` but for the names added later.
    pub fn new(default: Demand) -> Self {
        Demands { names: NameMap::default(), default, distinct: default.client_auth.is_some() }
    }

    /// Adds a name as [`super::names::CoveredNames::dns`] has it.
    pub fn insert(&mut self, name: &str, demand: Demand) {
        self.distinct |= demand != self.default;
        // Overlaps were refused, so every insertion is the first of its name.
        let _ = self.names.insert(name, demand);
    }

    /// Whether a connection may serve a host (canonical, empty for none); `settled` is `None` for plain
    /// HTTP. The policies must be the same, or a client could use the certificate it showed for one
    /// name, or showed to nobody, for another. Plain HTTP has shown none.
    pub fn allow(&self, host: &str, settled: Option<&Settled>) -> bool {
        if !self.distinct {
            return true;
        }
        let demand = self.names.get(host.as_bytes()).unwrap_or(&self.default);
        match settled {
            Some(settled) => {
                settled.client_auth == demand.client_auth && settled.version >= demand.min_version
            }
            None => !demand.certificate_required,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TlsVersion::{V1_2, V1_3};

    const OPEN: Demand = Demand { min_version: V1_2, client_auth: None, certificate_required: false };

    #[test]
    fn names_of_equal_demands_share_connections() {
        let mut demands = Demands::new(OPEN);
        demands.insert("a.test", OPEN);
        assert!(demands.allow("b.test", Some(&Settled { version: V1_2, client_auth: None })));
        assert!(demands.allow("", None));
    }

    #[test]
    fn an_older_connection_does_not_serve_a_stricter_name() {
        let mut demands = Demands::new(OPEN);
        demands.insert("strict.test", Demand { min_version: V1_3, ..OPEN });
        let old = Settled { version: V1_2, client_auth: None };
        assert!(!demands.allow("strict.test", Some(&old)));
        assert!(demands.allow("strict.test", Some(&Settled { version: V1_3, ..old })));
        assert!(demands.allow("other.test", Some(&old)));
        assert!(demands.allow("strict.test", None), "versions are no matter of plain HTTP");
    }
}
