//! One upstream, compiled: its settings, and the endpoints it has now.
//!
//! A pool outlives the snapshot that made it as long as its configuration and the files it names stay
//! the same. When they change, another pool takes its place, and the states of endpoints that stay go
//! over to it. Endpoints may also change between reloads, when a name resolves to others: that is one
//! atomic swap of [`Members`]. Knows nothing of routes.

use super::endpoint::Endpoint;
use super::health::HealthCheck;
use super::members::{Members, Serving};
use super::moment::Moment;
use super::names::{self, Name};
use super::pool_name::PoolName;
use super::retry::RetryPolicy;
use super::state::{EndpointStates, Health, Mode, Slot};
use super::sticky::Sticky;
use super::tier::Wish;
use super::transport::Transport;
use crate::config::{EndpointConfig, Problems, Source, UpstreamConfig};
use crate::telemetry::metrics::UpstreamMetrics;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One upstream.
pub struct Pool {
    name: PoolName,
    config: UpstreamConfig,
    transport: Transport,
    sticky: Option<Sticky>,
    health_check: Option<Arc<HealthCheck>>,
    /// Names among its endpoints.
    names: Vec<Arc<Name>>,
    retry: RetryPolicy,
    members: ArcSwap<Members>,
    /// One for all pools that follow each other under this name.
    states: Arc<EndpointStates>,
    /// Whether its endpoints are those it has served with: what names bring from then on is new.
    begun: AtomicBool,
    metrics: Arc<UpstreamMetrics>,
}

impl Pool {
    /// Compiles one upstream; `path` is its key path (`upstreams.app`, `routes[0].upstream`). When
    /// nothing changed since `previous`, `previous` is given back. `None` when a problem was reported.
    pub fn compile(
        name: &PoolName,
        config: &UpstreamConfig,
        source: &Source,
        path: &str,
        metrics: &Arc<UpstreamMetrics>,
        previous: Option<&Arc<Pool>>,
        problems: &mut Problems,
    ) -> Option<Arc<Pool>> {
        let transport = Transport::compile(
            config.tls.as_ref(),
            config.protocol,
            &config.endpoints,
            source,
            path,
            problems,
        );
        if !config.endpoints.iter().any(|endpoint| endpoint.weight > 0) {
            problems.push(source.problem(path, without_weight(config)));
            return None;
        }
        let sticky = match &config.sticky {
            Some(sticky) => Some(Sticky::compile(sticky, source, path, problems)?),
            None => None,
        };
        let transport = transport?;
        let previous =
            previous.filter(|previous| previous.name == *name && Arc::ptr_eq(&previous.metrics, metrics));
        if let Some(previous) = previous
            && previous.config == *config
            // Covers the contents of the files the configuration names.
            && previous.transport.group_key == transport.group_key
            && previous.sticky == sticky
        {
            return Some(Arc::clone(previous));
        }
        let states = previous.map(|previous| Arc::clone(&previous.states)).unwrap_or_default();
        // What is there from the start has nobody to leave the work to meanwhile.
        let since = previous.map_or(Moment::ZERO, |_| Moment::now());
        let names = names::names(&config.endpoints, previous.map_or(&[], |previous| &previous.names));
        let endpoints = names::endpoints(&config.endpoints, &names);
        let pool = Pool {
            name: name.clone(),
            members: ArcSwap::from_pointee(Members::new(config, Vec::new(), Arc::clone(states.changes()))),
            config: config.clone(),
            health_check: config
                .health_check
                .as_ref()
                .map(|check| Arc::new(HealthCheck::new(check, &transport, config.proxy_protocol))),
            retry: RetryPolicy::compile(&config.retry),
            transport,
            sticky,
            names,
            states,
            begun: AtomicBool::new(previous.is_some()),
            metrics: Arc::clone(metrics),
        };
        pool.set_endpoints(&endpoints, since);
        Some(Arc::new(pool))
    }

    /// Its name: metric label and log field.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// What is measured of it.
    pub fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.metrics
    }

    /// The endpoints it has now, in file order.
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.members.load().endpoints().to_vec()
    }

    /// When its requests are sent once more.
    pub fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// What the operator wrote.
    pub fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    /// How its endpoints are checked; `None` = they are not.
    pub fn health_check(&self) -> Option<&Arc<HealthCheck>> {
        self.health_check.as_ref()
    }

    /// Names among its endpoints.
    pub fn names(&self) -> &[Arc<Name>] {
        &self.names
    }

    /// Takes in what its names stand for now. Until each has been looked up once nobody is a newcomer: names
    /// take their time where addresses are there at once.
    pub fn take_names(&self) {
        if self.names.is_empty() {
            // Addresses that are not here were taken out of the file.
            let members = self.members.load();
            let is_here = |label: &str| members.endpoints().iter().any(|endpoint| &*endpoint.label == label);
            self.states.forget_drained(is_here);
            return;
        }
        let all_asked = self.names.iter().all(|name| name.facts().asked);
        let begun = self.begun.fetch_or(all_asked, Ordering::Relaxed);
        let endpoints = names::endpoints(&self.config.endpoints, &self.names);
        let is_as_it_was = {
            let members = self.members.load();
            let now = members.endpoints().iter().map(|it| (&it.address, it.weight, it.backup));
            now.eq(endpoints.iter().map(|it| (&it.address, it.weight, it.backup)))
        };
        if is_as_it_was {
            return;
        }
        if begun {
            self.replace(&endpoints);
        } else {
            self.set_endpoints(&endpoints, Moment::ZERO);
        }
    }

    /// Sets what the operator says of one of its endpoints, for as long as the upstream may have it. Gives
    /// back what was said before.
    pub fn set_mode(&self, endpoint: &Endpoint, mode: Mode) -> Mode {
        self.states.set_mode(&endpoint.label, &endpoint.state, mode)
    }

    /// Makes these its endpoints from now on; those it has already keep their states. Requests that have
    /// picked another one stay with it.
    pub fn replace(&self, endpoints: &[EndpointConfig]) {
        let since = match self.members.load().endpoints() {
            [] => Moment::ZERO,
            _ => Moment::now(),
        };
        self.set_endpoints(endpoints, since);
    }

    fn set_endpoints(&self, endpoints: &[EndpointConfig], since: Moment) {
        // One that serves unchecked so far goes on: new checks must not cause an outage.
        let health = if self.config.health_check.is_some() { Health::Pending } else { Health::Unchecked };
        let keep = self.config.keepalive > 0;
        let endpoint = |config: &EndpointConfig| {
            let address = config.address.is_fixed().then(|| config.address.clone())?;
            let endpoint = Endpoint::new(config, address, &self.transport, keep, &self.states, health, since);
            let tie = self.sticky.as_ref().and_then(|sticky| sticky.tie(self.name(), &endpoint.label));
            Some(Arc::new(endpoint.tied_by(tie)))
        };
        let endpoints = endpoints.iter().filter_map(endpoint).collect();
        let members = Members::new(&self.config, endpoints, Arc::clone(self.states.changes()));
        self.members.store(Arc::new(members));
    }

    /// The cookie that ties clients to its endpoints.
    pub fn sticky_cookie(&self) -> Option<&str> {
        self.sticky.as_ref().map(Sticky::cookie)
    }

    /// Whether a client with this token is tied to one of its endpoints.
    pub fn ties(&self, token: u128) -> bool {
        let members = self.members.load();
        members.endpoints().iter().any(|endpoint| endpoint.tie.as_ref().is_some_and(|tie| tie.token == token))
    }

    /// Which of its endpoints get the requests now.
    pub fn serving(&self) -> Serving {
        self.members.load().serving()
    }

    /// Lets the next pick know all that is known of its endpoints now, whoever picks at the same time. To be called
    /// when traffic is about to come.
    pub fn bring_up_to_date(&self) {
        self.members.load().bring_up_to_date();
    }

    /// Chooses an endpoint for an attempt; `avoid` holds those the request tried already. `None` when
    /// none is left. Neither locks nor allocates.
    pub fn pick(&self, wish: Wish, avoid: &[Arc<Endpoint>]) -> Option<Arc<Endpoint>> {
        self.members.load().pick(wish, avoid).cloned()
    }

    /// Counts a request as in flight for as long as the slot lives; `None` when the upstream has
    /// `max_requests` already.
    pub fn enter(&self) -> Option<Slot> {
        self.states.enter(self.config.max_requests)
    }

    /// Requests it is working on.
    pub fn in_flight(&self) -> u32 {
        self.states.in_flight()
    }

    /// Whether it works on `max_requests`, so that more are refused.
    pub fn is_full(&self) -> bool {
        self.config.max_requests > 0 && self.in_flight() >= self.config.max_requests
    }

    /// An endpoint has failed: with the last of too many failures it is out for a while, unless too many
    /// are out already.
    pub fn failed(&self, endpoint: &Endpoint) {
        let Some(config) = &self.config.ejection else { return };
        let (now, state) = (Moment::now(), &endpoint.state);
        // What was on its way when it was taken out tells nothing new.
        if !state.available(now) {
            return;
        }
        let failures = state.failures().add(now, config.window.0);
        let Some(_alone) = self.states.ejecting().filter(|_| failures >= config.failures) else { return };
        let members = self.members.load();
        let enabled = members.endpoints().iter().filter(|member| member.state.mode() == Mode::Enabled);
        let (mut count, mut out) = (0, 0);
        for member in enabled {
            count += 1;
            // Whoever checks have found bad is missing as well.
            out += u32::from(!member.state.available(now));
        }
        if (out + 1) * 100 > count * u32::from(config.max_percent) || state.ejected(now) {
            return;
        }
        let span = state.failures().eject(now, config.eject_for.0, state.ejected_until());
        state.eject_until(now.plus(span));
        self.metrics.ejection();
        log::warn!(
            "upstream {}: {} is out for {span:?} after {failures} failures within {:?}",
            self.name,
            endpoint.label,
            config.window.0
        );
    }

    /// Whether [`Pool::pick`] would find one. Uses up nobody's turn.
    pub fn has_endpoint(&self, avoid: &[Arc<Endpoint>]) -> bool {
        self.members.load().has(avoid)
    }
}

/// What an upstream lacks that nothing can be sent to.
fn without_weight(config: &UpstreamConfig) -> &'static str {
    match config.endpoints.is_empty() {
        true => "at least one endpoint is needed",
        false => "at least one endpoint needs a weight above 0",
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EjectionConfig, EndpointConfig, UpstreamTlsConfig};
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::fixtures::{Authority, Folder, tls};
    use crate::upstream::state::Mode;

    struct Room {
        folder: Folder,
        metrics: Arc<UpstreamMetrics>,
    }

    impl Room {
        fn new() -> Room {
            Room { folder: Folder::new(), metrics: Metrics::new().upstream("app") }
        }

        fn compile(
            &self,
            config: &UpstreamConfig,
            previous: Option<&Arc<Pool>>,
        ) -> Result<Arc<Pool>, String> {
            let mut problems = Problems::default();
            let (source, path) = (self.folder.source(), "upstreams.app");
            let name = PoolName::upstream("app");
            Pool::compile(&name, config, &source, path, &self.metrics, previous, &mut problems)
                .ok_or_else(|| problems.to_string())
        }
    }

    fn config(weights: &[u32]) -> UpstreamConfig {
        let endpoint = |(port, weight): (u16, &u32)| EndpointConfig {
            weight: *weight,
            ..EndpointConfig::at(([127, 0, 0, 1], port).into())
        };
        UpstreamConfig {
            keepalive: 8,
            ..UpstreamConfig::inline((9000..).zip(weights).map(endpoint).collect())
        }
    }

    fn pick(pool: &Pool, avoid: &[Arc<Endpoint>]) -> Option<Arc<Endpoint>> {
        pool.pick(Wish::default(), avoid)
    }

    #[test]
    fn an_unchanged_upstream_is_kept_with_its_state() {
        let room = Room::new();
        let first = room.compile(&config(&[1, 2]), None).unwrap();
        assert!(Arc::ptr_eq(&first, &room.compile(&config(&[1, 2]), Some(&first)).unwrap()));
        assert!(!Arc::ptr_eq(&first, &room.compile(&config(&[1, 3]), Some(&first)).unwrap()));
        assert_eq!(&*first.endpoints()[1].label, "127.0.0.1:9001");
    }

    #[test]
    fn states_go_over_to_the_next_pool_by_address() {
        let room = Room::new();
        let first = room.compile(&config(&[1, 1]), None).unwrap();
        let kept = first.endpoints().remove(0);
        first.set_mode(&kept, Mode::Drained);
        let second = room.compile(&config(&[5, 1, 1]), Some(&first)).unwrap();
        let endpoints = second.endpoints();
        assert!(endpoints[0].is(&kept) && endpoints[0].weight == 5);
        assert_eq!(endpoints[1].state.up_since(), Moment::ZERO);
        assert!(endpoints[2].state.up_since() > Moment::ZERO, "the new one starts slowly");
        assert!((0..10).all(|_| !pick(&second, &[]).unwrap().is(&kept)), "it is drained still");
    }

    #[test]
    fn endpoints_are_replaced_while_those_picked_stay_usable() {
        let room = Room::new();
        let pool = room.compile(&config(&[1, 1]), None).unwrap();
        let (old, replacement) = (pool.endpoints(), config(&[1, 1, 1]).endpoints);
        pool.replace(&replacement[1..]);
        let new = pool.endpoints();
        assert!(new[0].is(&old[1]) && !new.iter().any(|endpoint| endpoint.is(&old[0])));
        assert!(pick(&pool, &[Arc::clone(&old[0]), Arc::clone(&old[1])]).unwrap().is(&new[1]));
        assert_eq!(&*old[0].label, "127.0.0.1:9000");
        pool.replace(&[]);
        assert!(pick(&pool, &[]).is_none());
    }

    fn ejecting(weights: &[u32], max_percent: u8) -> UpstreamConfig {
        let ejection = EjectionConfig { failures: 3, max_percent, ..EjectionConfig::default() };
        UpstreamConfig { ejection: Some(ejection), ..config(weights) }
    }

    #[test]
    fn an_endpoint_that_keeps_failing_is_out_but_never_more_than_the_share_allowed() {
        let room = Room::new();
        let pool = room.compile(&ejecting(&[1, 1, 1, 1], 50), None).unwrap();
        let out = || {
            let ejected = |endpoint: &&Arc<Endpoint>| endpoint.state.ejected(Moment::now());
            pool.endpoints().iter().filter(ejected).count()
        };
        let endpoints = pool.endpoints();
        pool.failed(&endpoints[0]);
        pool.failed(&endpoints[0]);
        assert_eq!(out(), 0);
        pool.failed(&endpoints[0]);
        assert_eq!(out(), 1);
        assert!(!pick(&pool, &[]).unwrap().is(&endpoints[0]));
        for endpoint in endpoints.iter().cycle().take(100) {
            pool.failed(endpoint);
        }
        assert_eq!(out(), 2, "half of four");
        // One of three is less than half of them; of one or two with 40 %, none.
        for (weights, max_percent, most) in [(&[1, 1, 1][..], 50, 1), (&[1, 1], 40, 0), (&[1], 50, 0)] {
            let pool = room.compile(&ejecting(weights, max_percent), None).unwrap();
            for endpoint in pool.endpoints().iter().cycle().take(30) {
                pool.failed(endpoint);
            }
            let now = Moment::now();
            assert_eq!(pool.endpoints().iter().filter(|it| it.state.ejected(now)).count(), most);
        }
    }

    #[test]
    fn those_that_checks_have_found_bad_count_as_out() {
        let room = Room::new();
        for (max_percent, stays) in [(50, true), (99, true), (100, false)] {
            let pool = room.compile(&ejecting(&[1, 1, 1], max_percent), None).unwrap();
            let endpoints = pool.endpoints();
            for endpoint in &endpoints[1..] {
                endpoint.state.set_health(Health::Down);
            }
            (0..30).for_each(|_| pool.failed(&endpoints[0]));
            assert_eq!(endpoints[0].state.available(Moment::now()), stays, "{max_percent}");
        }
    }

    #[test]
    fn without_ejection_failures_take_nobody_out() {
        let room = Room::new();
        let pool = room.compile(&config(&[1, 1]), None).unwrap();
        let first = pool.endpoints().remove(0);
        (0..100).for_each(|_| pool.failed(&first));
        assert!(first.state.available(Moment::now()));
    }

    #[test]
    fn a_limit_counts_the_requests_of_pools_before() {
        let room = Room::new();
        let first = room.compile(&config(&[1]), None).unwrap();
        let held = [first.enter(), first.enter()];
        let limited = UpstreamConfig { max_requests: 2, ..config(&[1]) };
        let second = room.compile(&limited, Some(&first)).unwrap();
        assert!(second.is_full() && second.enter().is_none());
        drop(held);
        assert!(!second.is_full() && second.enter().is_some());
    }

    #[test]
    fn a_changed_file_makes_another_pool_though_the_configuration_is_the_same() {
        let room = Room::new();
        let ca = Some(room.folder.write("ca.pem", &Authority::new().cert_pem()));
        let config =
            UpstreamConfig { tls: Some(UpstreamTlsConfig { ca, ..tls("app.test") }), ..config(&[1]) };
        let first = room.compile(&config, None).unwrap();
        assert!(Arc::ptr_eq(&first, &room.compile(&config, Some(&first)).unwrap()));
        room.folder.write("ca.pem", &Authority::new().cert_pem());
        assert!(!Arc::ptr_eq(&first, &room.compile(&config, Some(&first)).unwrap()));
    }

    #[test]
    fn attempts_of_one_request_go_to_different_endpoints() {
        let room = Room::new();
        let pool = room.compile(&config(&[1, 1, 1]), None).unwrap();
        let mut tried = Vec::new();
        while let Some(next) = pick(&pool, &tried) {
            assert!(!tried.iter().any(|tried| tried.is(&next)));
            tried.push(next);
        }
        assert_eq!(tried.len(), 3);
    }

    #[test]
    fn an_upstream_nothing_can_be_sent_to_is_refused() {
        let room = Room::new();
        let error = room.compile(&config(&[]), None).unwrap_err();
        assert!(error.contains("upstreams.app: at least one endpoint is needed"), "{error}");
        let error = room.compile(&config(&[0, 0]), None).unwrap_err();
        assert!(error.contains("needs a weight above 0"), "{error}");
    }

    #[test]
    fn a_split_shares_requests_exactly() {
        let room = Room::new();
        let pools = [room.compile(&config(&[1]), None).unwrap(), room.compile(&config(&[1]), None).unwrap()];
        let parts = vec![(Arc::clone(&pools[0]), 90), (Arc::clone(&pools[1]), 10)];
        let split = crate::upstream::split::Split::new(parts).unwrap();
        let canary = (0..1_000).filter(|_| Arc::ptr_eq(split.pick(), &pools[1])).count();
        assert_eq!(canary, 100);
        assert!(crate::upstream::split::Split::new(vec![(Arc::clone(&pools[0]), 0)]).is_none());
    }
}
