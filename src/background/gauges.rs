//! The series that describe the serving configuration: generation, certificates, endpoints.
//!
//! Called once at start and after each publish; knows nothing of requests.

use crate::snapshot::Snapshot;
use crate::telemetry::metrics::Metrics;
use crate::upstream::moment::Moment;

/// Makes the metrics say what `serving` is. Series of routes, upstreams, endpoints and listeners
/// that only `previous` had disappear; counters of kept ones go on.
pub fn publish(metrics: &Metrics, serving: &Snapshot, previous: Option<&Snapshot>) {
    metrics.config_generation(serving.generation);
    let certificates: Vec<(String, i64)> = serving
        .certificates
        .certificates()
        .iter()
        .map(|certificate| (certificate.name.clone(), certificate.not_after))
        .collect();
    metrics.certificate_not_after(&certificates);
    publish_endpoints(serving, previous);
    // The two names of requests that no route took are series of the process, not of a file.
    let routes = serving.routes.iter().map(|route| route.name.as_str());
    let routes: Vec<&str> = routes.chain(["none", "rejected"]).collect();
    metrics.retain_routes(&routes);
    let upstreams: Vec<&str> = serving.pools.keys().map(String::as_str).collect();
    metrics.retain_upstreams(&upstreams);
    let listeners = serving.listeners().iter().enumerate();
    let listeners: Vec<_> = listeners.map(|(index, listener)| listener.name(index)).collect();
    metrics.retain_listeners(&listeners.iter().map(AsRef::as_ref).collect::<Vec<_>>());
}

fn publish_endpoints(serving: &Snapshot, previous: Option<&Snapshot>) {
    for (name, pool) in &serving.pools {
        let gone = previous.and_then(|previous| previous.pools.get(name)).into_iter();
        for endpoint in gone.flat_map(|pool| pool.endpoints()) {
            if !pool.endpoints().iter().any(|kept| kept.label == endpoint.label) {
                pool.metrics().remove_endpoint(&endpoint.label);
            }
        }
        for endpoint in pool.endpoints() {
            pool.metrics().endpoint_up(&endpoint.label, endpoint.state.available(Moment::now()));
        }
    }
}
