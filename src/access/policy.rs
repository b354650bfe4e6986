//! Access policies: may a client address come in?
//!
//! The most specific prefix that holds the address decides; at equal length deny wins; when none does,
//! the default decides (left out: deny when `allow` is present, even empty, else allow). A policy knows
//! neither where the address comes from nor what a refused request gets beyond [`OnDeny`].

use super::cidr_list;
use super::cidr_set::CidrMap;
use crate::config::{AccessConfig, DefaultAction, OnDeny, Problems, Source};
use std::net::IpAddr;

/// What a policy says about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may come in.
    Allow,
    /// It may not.
    Deny(DenyReason),
}

/// Why an address may not come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyReason {
    /// A `deny` prefix holds it.
    Listed,
    /// No prefix holds it and the default is deny.
    Default,
}

impl DenyReason {
    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            DenyReason::Listed => "listed",
            DenyReason::Default => "default",
        }
    }
}

/// A compiled `access:`, global or of one route.
#[derive(Debug, Clone)]
pub struct AccessPolicy {
    decisions: CidrMap<Decision>,
    default: Decision,
    on_deny: OnDeny,
}

impl AccessPolicy {
    /// Compiles what the operator wrote at key path `path`; list files are read here.
    pub fn compile(
        config: &AccessConfig,
        source: &Source,
        path: &str,
        problems: &mut Problems,
    ) -> AccessPolicy {
        let allow = config.allow.as_deref().unwrap_or_default();
        let allow = cidr_list::load(allow, source, &format!("{path}.allow"), problems);
        let deny = cidr_list::load(&config.deny, source, &format!("{path}.deny"), problems);
        let default = match (config.default, &config.allow) {
            (Some(DefaultAction::Allow), _) | (None, None) => Decision::Allow,
            (Some(DefaultAction::Deny), _) | (None, Some(_)) => Decision::Deny(DenyReason::Default),
        };
        let allow = allow.into_iter().map(|prefix| (prefix, Decision::Allow));
        let deny = deny.into_iter().map(|prefix| (prefix, Decision::Deny(DenyReason::Listed)));
        // Of equal prefixes the map keeps the last: deny goes last because it wins ties.
        AccessPolicy { decisions: CidrMap::build(allow.chain(deny)), default, on_deny: config.on_deny }
    }

    /// Decides about a client address. Takes no lock and does not allocate.
    #[inline]
    pub fn decide(&self, client: IpAddr) -> Decision {
        self.decisions.get(client).unwrap_or(self.default)
    }

    /// What a denied request gets.
    pub fn on_deny(&self) -> OnDeny {
        self.on_deny
    }

    /// Whether there is nothing to decide: every address may come in.
    pub fn is_open(&self) -> bool {
        self.decisions.is_empty() && self.default == Decision::Allow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CidrEntry;

    fn entries(prefixes: &[&str]) -> Vec<CidrEntry> {
        prefixes.iter().map(|text| CidrEntry::Inline(text.parse().unwrap())).collect()
    }

    fn policy(allow: Option<&[&str]>, deny: &[&str], default: Option<DefaultAction>) -> AccessPolicy {
        let config = AccessConfig {
            allow: allow.map(entries),
            deny: entries(deny),
            default,
            ..AccessConfig::default()
        };
        let mut problems = Problems::default();
        let policy = AccessPolicy::compile(&config, &Source::default(), "access", &mut problems);
        assert!(problems.is_empty(), "{problems}");
        policy
    }

    fn decide(policy: &AccessPolicy, client: &str) -> Decision {
        policy.decide(client.parse().unwrap())
    }

    const LISTED: Decision = Decision::Deny(DenyReason::Listed);
    const BY_DEFAULT: Decision = Decision::Deny(DenyReason::Default);

    #[test]
    fn most_specific_prefix_decides_whichever_list_it_is_in() {
        let policy = policy(Some(&["10.0.0.0/8", "10.6.6.6/32"]), &["10.6.6.0/24"], None);
        assert_eq!(decide(&policy, "10.1.1.1"), Decision::Allow);
        assert_eq!(decide(&policy, "10.6.6.1"), LISTED);
        assert_eq!(decide(&policy, "10.6.6.6"), Decision::Allow);
        assert_eq!(decide(&policy, "::ffff:10.6.6.1"), LISTED);
        assert_eq!(decide(&policy, "11.0.0.1"), BY_DEFAULT);
    }

    #[test]
    fn deny_wins_between_equal_prefixes() {
        assert_eq!(decide(&policy(Some(&["10.0.0.0/8"]), &["10.0.0.0/8"], None), "10.0.0.1"), LISTED);
    }

    #[test]
    fn default_left_out_depends_on_whether_allow_is_written() {
        assert_eq!(decide(&policy(None, &["10.0.0.0/8"], None), "1.1.1.1"), Decision::Allow);
        assert_eq!(decide(&policy(Some(&[]), &[], None), "1.1.1.1"), BY_DEFAULT);
        let written = policy(Some(&[]), &[], Some(DefaultAction::Allow));
        assert_eq!(decide(&written, "1.1.1.1"), Decision::Allow);
        assert_eq!(decide(&policy(None, &[], Some(DefaultAction::Deny)), "::1"), BY_DEFAULT);
    }

    #[test]
    fn only_a_policy_without_any_rule_is_open() {
        assert!(policy(None, &[], None).is_open());
        assert!(!policy(Some(&[]), &[], None).is_open());
        assert!(!policy(None, &["10.0.0.0/8"], None).is_open());
        assert!(!policy(None, &[], Some(DefaultAction::Deny)).is_open());
    }
}
