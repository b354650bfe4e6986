//! The series that describe the serving configuration: generation, certificates, endpoints.
//!
//! Called at the start and after each publish, that of the endpoints before each scrape; knows nothing of
//! requests.

use crate::snapshot::{CertificateInfo, Snapshot};
use crate::telemetry::metrics::{Metrics, UpstreamNow};
use crate::upstream::members::Serving;
use crate::upstream::moment::Moment;
use crate::upstream::names::Name;
use crate::upstream::pool_name::PoolName;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Makes the metrics say what `serving` is. Series of routes, upstreams, endpoints and listeners that it
/// does not have disappear; counters of kept ones go on.
pub fn publish(metrics: &Metrics, serving: &Snapshot) {
    metrics.config_generation(serving.generation);
    show_certificates(metrics, serving.certificates.certificates());
    show_upstreams(serving);
    retain(metrics, serving);
}

/// Drops every series of what `serving` does not have: what it has left behind, and what a file that was
/// refused would have had.
pub fn retain(metrics: &Metrics, serving: &Snapshot) {
    // The two names of requests that no route took are series of the process, not of a file.
    let routes = serving.routes.iter().map(|route| route.name.as_str());
    let routes: Vec<&str> = routes.chain(["none", "rejected"]).collect();
    metrics.retain_routes(&routes);
    let upstreams: Vec<&str> = serving.pools.keys().map(PoolName::as_str).collect();
    metrics.retain_upstreams(&upstreams);
    let listeners = serving.listeners().iter().enumerate();
    let listeners: Vec<_> = listeners.map(|(index, listener)| listener.name(index)).collect();
    metrics.retain_listeners(&listeners.iter().map(AsRef::as_ref).collect::<Vec<_>>());
}

fn show_certificates(metrics: &Metrics, certificates: &[CertificateInfo]) {
    let expiry = |it: &CertificateInfo| (it.name.clone(), it.not_after);
    metrics.certificate_not_after(&certificates.iter().map(expiry).collect::<Vec<_>>());
    let response = |it: &CertificateInfo| {
        let until = it.ocsp.as_ref()?.holds_until()?;
        Some((it.name.clone(), until))
    };
    metrics.ocsp_next_update(&certificates.iter().filter_map(response).collect::<Vec<_>>());
}

/// Makes the metrics say what the upstreams of `serving` are like now; called before each scrape.
pub fn show_upstreams(serving: &Snapshot) {
    let now = Moment::now();
    for pool in serving.pools.values() {
        let endpoints = pool.endpoints().into_iter();
        pool.metrics().show(UpstreamNow {
            in_flight: pool.in_flight(),
            circuit_open: pool.is_full(),
            panicking: pool.serving() == Serving::Panic,
            endpoints: endpoints
                .map(|endpoint| (Arc::clone(&endpoint.label), endpoint.state.available(now)))
                .collect(),
            names: pool.names().iter().map(|name| (name.host().to_owned(), last_resolved(name))).collect(),
        });
    }
}

/// In seconds since the epoch; 0 = never.
fn last_resolved(name: &Name) -> i64 {
    let since_epoch = name.facts().resolved_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since_epoch.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
