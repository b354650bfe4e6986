//! One upstream, compiled: its endpoints and whose turn it is.
//!
//! A pool outlives the snapshot that made it as long as its configuration and the files it names stay
//! the same, so that a reload keeps its state. Knows nothing of routes.

use super::balance::Balancer;
use super::endpoint::Endpoint;
use super::transport::Transport;
use crate::config::{Problems, Source, UpstreamConfig};
use crate::telemetry::metrics::UpstreamMetrics;
use std::sync::Arc;

/// One upstream.
pub struct Pool {
    name: String,
    config: UpstreamConfig,
    /// Covers the contents of the files the configuration names.
    group_key: u64,
    endpoints: Box<[Endpoint]>,
    balancer: Balancer,
    metrics: Arc<UpstreamMetrics>,
}

impl Pool {
    /// Compiles one upstream; `path` is its key path (`upstreams.app`, `routes[0].upstream`). When
    /// nothing changed since `previous`, `previous` is given back. `None` when a problem was reported.
    pub fn compile(
        name: &str,
        config: &UpstreamConfig,
        source: &Source,
        path: &str,
        metrics: &Arc<UpstreamMetrics>,
        previous: Option<&Arc<Pool>>,
        problems: &mut Problems,
    ) -> Option<Arc<Pool>> {
        let transport = Transport::compile(config.tls.as_ref(), source, path, problems);
        let weights: Vec<u32> = config.endpoints.iter().map(|endpoint| endpoint.weight).collect();
        let balancer = Balancer::new(config.balance, &weights);
        if balancer.is_none() {
            let reason = match weights.is_empty() {
                true => "at least one endpoint is needed",
                false => "at least one endpoint needs a weight above 0",
            };
            problems.push(source.problem(path, reason));
        }
        let (transport, balancer) = (transport?, balancer?);
        let group_key = transport.group_key;
        if let Some(previous) = previous
            && previous.name == name
            && previous.config == *config
            && previous.group_key == group_key
            && Arc::ptr_eq(&previous.metrics, metrics)
        {
            return Some(Arc::clone(previous));
        }
        let endpoint = |endpoint| Endpoint::new(endpoint, &transport, config.keepalive > 0);
        Some(Arc::new(Pool {
            name: name.to_owned(),
            config: config.clone(),
            group_key,
            endpoints: config.endpoints.iter().map(endpoint).collect(),
            balancer,
            metrics: Arc::clone(metrics),
        }))
    }

    /// Its name: metric label and log field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is measured of it.
    pub fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.metrics
    }

    /// Its endpoints, in file order.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What the operator wrote.
    pub fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    /// Chooses an endpoint for an attempt, by index; `avoid` holds those the request tried already.
    /// `None` when none is left. Neither locks nor allocates.
    pub fn pick(&self, avoid: &[usize]) -> Option<usize> {
        self.balancer.pick(avoid)
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
    use crate::config::{BalanceConfig, EndpointConfig, UpstreamProxyProtocol, UpstreamTlsConfig};
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::fixtures::{Authority, Folder, tls};

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
            Pool::compile("app", config, &source, path, &self.metrics, previous, &mut problems)
                .ok_or_else(|| problems.to_string())
        }
    }

    fn config(weights: &[u32]) -> UpstreamConfig {
        let endpoint = |(port, weight): (u16, &u32)| EndpointConfig {
            address: ([127, 0, 0, 1], port).into(),
            weight: *weight,
        };
        UpstreamConfig {
            endpoints: (9000..).zip(weights).map(endpoint).collect(),
            balance: BalanceConfig::RoundRobin,
            keepalive: 8,
            tls: None,
            proxy_protocol: UpstreamProxyProtocol::Off,
        }
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
        while let Some(next) = pool.pick(&tried) {
            assert!(!tried.contains(&next));
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
