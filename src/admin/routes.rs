//! `/v1/routes`: the routes that serve, in file order.

use super::AdminState;
use crate::config::{EndpointConfig, PathConfig, RouteConfig, UpstreamTargetConfig};
use crate::snapshot::Route;
use axum::Json;
use axum::extract::State;
use serde::Serialize;

/// The body of `/v1/routes`.
#[derive(Debug, Serialize)]
pub struct Routes {
    generation: u64,
    routes: Vec<RouteView>,
}

#[derive(Debug, Serialize)]
struct RouteView {
    name: String,
    /// Empty = any.
    hosts: Vec<String>,
    /// As in the configuration; null = any.
    path: Option<PathConfig>,
    /// Empty = any.
    methods: Vec<String>,
    target: TargetView,
    /// Whether it has a CIDR policy of its own.
    access: bool,
}

#[derive(Debug, Serialize)]
struct TargetView {
    /// upstream, redirect or respond.
    kind: &'static str,
    detail: String,
}

/// `GET /v1/routes`.
pub async fn routes(State(state): State<AdminState>) -> Json<Routes> {
    let snapshot = state.store.pin();
    // A snapshot has every route of its file, so the two lists pair up.
    let pairs = snapshot.routes.iter().zip(&snapshot.config.routes);
    let routes = pairs.map(|(route, config)| RouteView::new(route, config)).collect();
    Json(Routes { generation: snapshot.generation, routes })
}

impl RouteView {
    fn new(route: &Route, config: &RouteConfig) -> Self {
        RouteView {
            name: route.name.clone(),
            hosts: config.hosts.clone(),
            path: config.path.clone(),
            methods: config.methods.clone(),
            target: TargetView { kind: route.target.kind(), detail: target_detail(config) },
            access: route.access.is_some(),
        }
    }
}

fn target_detail(config: &RouteConfig) -> String {
    if let Some(upstream) = &config.upstream {
        return upstream_detail(upstream);
    }
    if let Some(redirect) = &config.redirect {
        return format!("{} {}", redirect.status, redirect.to);
    }
    config.respond.as_ref().map_or_else(String::new, |respond| respond.status.to_string())
}

fn upstream_detail(upstream: &UpstreamTargetConfig) -> String {
    let weighted = |name: &dyn std::fmt::Display, weight: u32| format!("{name} ({weight})");
    match upstream {
        UpstreamTargetConfig::Named(name) => name.clone(),
        UpstreamTargetConfig::Inline(endpoints) => {
            let one = |endpoint: &EndpointConfig| match endpoint.weight {
                1 => endpoint.address.to_string(),
                weight => weighted(&endpoint.address, weight),
            };
            endpoints.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        UpstreamTargetConfig::Split(shares) => {
            shares.iter().map(|(name, weight)| weighted(name, *weight)).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_upstream_is_told_in_one_line() {
        let endpoint =
            |port, weight| EndpointConfig { weight, ..EndpointConfig::at(([10, 0, 0, 1], port).into()) };
        let inline = UpstreamTargetConfig::Inline(vec![endpoint(1, 1), endpoint(2, 3)]);
        assert_eq!(upstream_detail(&inline), "10.0.0.1:1, 10.0.0.1:2 (3)");
        let split = UpstreamTargetConfig::Split(vec![("app".to_owned(), 90), ("next".to_owned(), 10)]);
        assert_eq!(upstream_detail(&split), "app (90), next (10)");
        assert_eq!(upstream_detail(&UpstreamTargetConfig::Named("app".to_owned())), "app");
    }
}
