//! One route as the router sees it: which requests it takes, and the value they get.

use super::RequestView;
use super::host::HostPattern;
use super::path::PathPattern;
use super::predicate::{Predicates, Written};
use crate::config::{Problems, RouteConfig, Source};

pub use super::predicate::ClientPredicate;

/// A compiled route with the value of its requests.
#[derive(Debug)]
pub struct Rule<T> {
    /// Without duplicates, never empty.
    pub(super) hosts: Vec<HostPattern>,
    pub(super) path: PathPattern,
    /// `None` when there is nothing beside host and path.
    pub(super) predicates: Option<Box<Predicates>>,
    pub(super) written: Written,
    pub(super) value: T,
}

impl<T> Rule<T> {
    /// Compiles hosts, path and predicates of the route at key path `path`. `client` stands for the
    /// route's `client` prefixes, which another room compiles; it is `None` when there are none. When
    /// something is pushed to `problems` the rule must not be used.
    pub fn compile(
        config: &RouteConfig,
        client: Option<ClientPredicate>,
        value: T,
        source: &Source,
        path: &str,
        problems: &mut Problems,
    ) -> Rule<T> {
        let mut report = |path: String, (reason, hint): (String, Option<&'static str>)| {
            let mut problem = source.problem(path, reason);
            problem.hint = hint.map(str::to_owned);
            problems.push(problem);
        };
        let mut hosts = Vec::with_capacity(config.hosts.len().max(1));
        for (index, written) in config.hosts.iter().enumerate() {
            match HostPattern::compile(written) {
                Ok(host) if hosts.contains(&host) => {}
                Ok(host) => hosts.push(host),
                Err(why) => report(format!("{path}.hosts[{index}]"), why),
            }
        }
        if hosts.is_empty() {
            hosts.push(HostPattern::Any);
        }
        let pattern = PathPattern::compile(config.path.as_ref()).unwrap_or_else(|why| {
            report(format!("{path}.path"), why);
            // Begins with no slash and is no other route's: it takes nothing and shadows nothing.
            PathPattern::Exact(path.into())
        });
        let predicates = Predicates::compile(config, client, source, path, problems);
        Rule {
            hosts,
            path: pattern,
            predicates: (predicates.count() > 0).then(|| Box::new(predicates)),
            written: Written::of(config),
            value,
        }
    }

    pub(super) fn predicate_count(&self) -> usize {
        self.predicates.as_ref().map_or(0, |predicates| predicates.count())
    }
}

/// Whether the predicates of a rule hold.
#[inline]
pub(super) fn hold(predicates: &Option<Box<Predicates>>, request: &RequestView<'_>) -> bool {
    predicates.as_ref().is_none_or(|predicates| predicates.hold(request))
}
