//! From a file to a [`Snapshot`]: load, validate, resolve every name, render every answer.
//!
//! All problems of all steps come out together; nothing that serves is touched.

use super::{
    EncodedSlash, FixedResponse, Limits, Pages, Paths, Redirect, Route, Shared, Snapshot, Target, Via,
};
use crate::access::cidr_list;
use crate::access::cidr_set::CidrSet;
use crate::access::client_addr::TrustedProxies;
use crate::access::policy::AccessPolicy;
use crate::config::{
    Config, HeaderAliases, Lane, LimitsConfig, Loaded, Problem, Problems, RouteConfig, Source,
    UpstreamConfig, UpstreamTargetConfig, load,
};
use crate::routing::Router;
use crate::routing::rule::{ClientPredicate, Rule};
use crate::telemetry::access_log::policy::AccessLogPolicy;
use crate::tls::store::CertificateStore;
use crate::upstream::mirror::Mirror;
use crate::upstream::peer::Timeouts;
use crate::upstream::pool::Pool;
use crate::upstream::pool_name::PoolName;
use crate::upstream::split::Split;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Loads, validates and compiles a file; `None` is the embedded quickstart configuration.
///
/// `previous` is the snapshot that serves now: pools whose configuration is unchanged are carried
/// over with their state, and the new generation is one more than its own.
///
/// # Errors
/// Everything that is wrong with the configuration, in one go.
pub fn prepare(
    path: Option<&Path>,
    shared: &Shared,
    previous: Option<&Snapshot>,
) -> Result<Snapshot, Problems> {
    let Loaded { config, source, mut problems } = match path {
        Some(path) => load::load(path),
        None => load::embedded(),
    };
    // Compiling what could be read finds the problems of files it names in the same run.
    let mut found = Problems::default();
    let snapshot = config.and_then(|config| compile(config, source, shared, previous, &mut found));
    problems.complete_with(found);
    match snapshot {
        Some(snapshot) if problems.is_empty() => Ok(snapshot),
        _ => Err(problems),
    }
}

fn compile(
    config: Config,
    source: Source,
    shared: &Shared,
    previous: Option<&Snapshot>,
    problems: &mut Problems,
) -> Option<Snapshot> {
    let compiler = Compiler { config: &config, source: &source, shared, previous };
    let trusted =
        TrustedProxies::compile(&config.access.trusted_proxies, &source, "access.trusted_proxies", problems);
    let access = AccessPolicy::compile(&config.access, &source, "access", problems);
    let serving = previous.map(|previous| &previous.certificates);
    let certificates = CertificateStore::compile(
        &config.certificates,
        &config.tls,
        &source,
        &shared.tickets,
        serving,
        problems,
    );
    let access_log = AccessLogPolicy::compile(&config.access_log, &source, "access_log", problems);
    let pages = Pages::compile(&config, &source, problems);
    let mut pools = compiler.named_pools(problems);
    let routes = compiler.routes(&mut pools, problems);
    let router = compiler.router(&routes, problems)?;
    let metrics = &shared.metrics;
    Some(Snapshot {
        generation: previous.map_or(1, |previous| previous.generation + 1),
        trusted,
        access,
        router,
        routes: routes.into_iter().flatten().collect(),
        pools,
        certificates: certificates?,
        access_log,
        pages,
        limits: Limits::from(&config.limits),
        paths: Paths {
            merge_slashes: config.paths.merge_slashes,
            decode_slashes: config.paths.encoded_slash == EncodedSlash::Decode,
        },
        lane: config.proxy.lane == Lane::On,
        via: Via::compile(&config.proxy.via),
        unrouted: metrics.route("none"),
        rejected: metrics.route("rejected"),
        config: Arc::new(config),
        source,
    })
}

struct Compiler<'a> {
    config: &'a Config,
    source: &'a Source,
    shared: &'a Shared,
    previous: Option<&'a Snapshot>,
}

impl Compiler<'_> {
    fn named_pools(&self, problems: &mut Problems) -> BTreeMap<PoolName, Arc<Pool>> {
        let mut pools = BTreeMap::new();
        for (key, config) in &self.config.upstreams {
            let name = PoolName::upstream(key);
            if let Some(pool) = self.pool(&name, config, &format!("upstreams.{key}"), problems) {
                pools.insert(name, pool);
            }
        }
        pools
    }

    fn pool(
        &self,
        name: &PoolName,
        config: &UpstreamConfig,
        path: &str,
        problems: &mut Problems,
    ) -> Option<Arc<Pool>> {
        let previous = self.previous.and_then(|previous| previous.pools.get(name));
        let metrics = self.shared.metrics.upstream(name.as_str());
        Pool::compile(name, config, self.source, path, &metrics, previous, problems)
    }

    /// One entry per configured route; `None` where it has a problem, so that indices stay true.
    fn routes(
        &self,
        pools: &mut BTreeMap<PoolName, Arc<Pool>>,
        problems: &mut Problems,
    ) -> Vec<Option<Arc<Route>>> {
        let routes = self.config.routes.iter().enumerate();
        routes.map(|(index, route)| self.route(index, route, pools, problems)).collect()
    }

    fn route(
        &self,
        index: usize,
        config: &RouteConfig,
        pools: &mut BTreeMap<PoolName, Arc<Pool>>,
        problems: &mut Problems,
    ) -> Option<Arc<Route>> {
        let path = format!("routes[{index}]");
        let name = config.name().into_owned();
        let access = config
            .access
            .as_ref()
            .map(|access| AccessPolicy::compile(access, self.source, &format!("{path}.access"), problems));
        let target = self.target(config, &name, &path, pools, problems)?;
        let mirror = config.mirror.as_ref().and_then(|mirror| {
            // One that is missing was reported by validation.
            Some(Mirror::new(pools.get(mirror.upstream.as_str())?.clone(), mirror.percent))
        });
        let body_limit = config.limits.body.unwrap_or(self.config.limits.body).0;
        Some(Arc::new(Route {
            target,
            encoded_slash: config.encoded_slash.unwrap_or(self.config.paths.encoded_slash),
            mirror,
            access,
            timeouts: Timeouts {
                connect: config.timeouts.connect.0,
                response: config.timeouts.response.0,
                idle: config.timeouts.idle.0,
            },
            websocket_idle: config.timeouts.websocket_idle.0,
            body_limit: if body_limit == 0 { u64::MAX } else { body_limit },
            metrics: self.shared.metrics.route(&name),
            name,
        }))
    }

    fn target(
        &self,
        config: &RouteConfig,
        name: &str,
        path: &str,
        pools: &mut BTreeMap<PoolName, Arc<Pool>>,
        problems: &mut Problems,
    ) -> Option<Target> {
        if let Some(upstream) = &config.upstream {
            return self.split(upstream, name, path, pools, problems).map(Target::Upstream);
        }
        if let Some(redirect) = &config.redirect {
            return Some(Target::Redirect(Redirect::compile(redirect)));
        }
        let respond = config.respond.as_ref()?;
        FixedResponse::compile(respond, self.source, &format!("{path}.respond"), problems)
            .map(Target::Respond)
    }

    /// Names were checked by validation; one that is missing here had a problem of its own.
    fn split(
        &self,
        target: &UpstreamTargetConfig,
        route: &str,
        path: &str,
        pools: &mut BTreeMap<PoolName, Arc<Pool>>,
        problems: &mut Problems,
    ) -> Option<Split> {
        match target {
            UpstreamTargetConfig::Named(name) => Split::new(vec![(pools.get(name.as_str())?.clone(), 1)]),
            UpstreamTargetConfig::Inline(endpoints) => {
                let config = UpstreamConfig::inline(endpoints.clone());
                let name = PoolName::inline(route);
                let pool = self.pool(&name, &config, &format!("{path}.upstream"), problems)?;
                pools.insert(name, pool.clone());
                Split::new(vec![(pool, 1)])
            }
            UpstreamTargetConfig::Split(shares) => {
                let shares = shares
                    .iter()
                    .map(|(name, weight)| Some((pools.get(name.as_str())?.clone(), *weight)))
                    .collect::<Option<Vec<_>>>()?;
                Split::new(shares)
            }
        }
    }

    fn router(&self, routes: &[Option<Arc<Route>>], problems: &mut Problems) -> Option<Router<Arc<Route>>> {
        let configs = self.config.routes.iter().enumerate();
        let clients: Vec<_> = configs
            .map(|(index, config)| self.client_predicate(config, &format!("routes[{index}]"), problems))
            .collect();
        match routes.iter().cloned().collect::<Option<Vec<_>>>() {
            Some(routes) => Some(self.order(clients, routes, problems)),
            None => {
                // It will not serve; what is wrong with the predicates is told all the same.
                self.order(clients, vec![(); routes.len()], problems);
                None
            }
        }
    }

    /// One rule for each route, with what it leads to; what can never be reached is a problem.
    fn order<T>(
        &self,
        clients: Vec<Option<ClientPredicate>>,
        targets: Vec<T>,
        problems: &mut Problems,
    ) -> Router<T> {
        let mut rules = Vec::with_capacity(targets.len());
        let parts = self.config.routes.iter().zip(clients).zip(targets);
        for (index, ((config, client), target)) in parts.enumerate() {
            let path = format!("routes[{index}]");
            rules.push(Rule::compile(config, client, target, self.source, &path, problems));
        }
        let (router, shadowed) = Router::build(rules);
        // A route that lost a predicate seems to take more than was written.
        let whole = |route: usize| !self.source.lost_parts(&format!("routes[{route}]"));
        for pair in shadowed.iter().filter(|pair| whole(pair.by) && whole(pair.route)) {
            problems.push(self.shadowed(pair.route, pair.by));
        }
        router
    }

    fn client_predicate(
        &self,
        config: &RouteConfig,
        path: &str,
        problems: &mut Problems,
    ) -> Option<ClientPredicate> {
        if config.client.is_empty() {
            return None;
        }
        let prefixes = cidr_list::load(&config.client, self.source, &format!("{path}.client"), problems);
        let clients = CidrSet::build(prefixes);
        Some(Box::new(move |client| clients.contains(client)))
    }

    fn shadowed(&self, route: usize, by: usize) -> Problem {
        let by = self.source.problem(format!("routes[{by}]"), "").path;
        let mut problem = self.source.problem(
            format!("routes[{route}]"),
            format!("can never be reached: {by} takes every request it would take"),
        );
        problem.hint = Some("remove one of them, or tell them apart by a predicate".to_owned());
        problem
    }
}

impl From<&LimitsConfig> for Limits {
    fn from(config: &LimitsConfig) -> Self {
        let bytes = |size: crate::config::ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        Limits {
            request_line: bytes(config.request_line),
            headers: bytes(config.headers),
            header_count: config.header_count as usize,
            header_aliases_pass: config.header_aliases == HeaderAliases::Pass,
            header_timeout: config.header_timeout.0,
            idle_timeout: config.idle_timeout.0,
            body_idle_timeout: config.body_idle_timeout.0,
            requests_per_connection: config.requests_per_connection,
        }
    }
}
