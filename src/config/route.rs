//! `routes:`, which requests go where.

use super::access::{AccessConfig, CidrEntry};
use super::units::{ByteSize, HumanDuration};
use super::upstream::UpstreamTargetConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One route: predicates, and exactly one target (`upstream`, `redirect` or `respond`).
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Metric label and log field; default: first host + path.
    #[serde(default)]
    pub name: Option<String>,
    /// Exact host names or one leading wildcard label (`*.example.com`, any depth); empty = any host.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Path predicate; `None` = any path.
    #[serde(default)]
    pub path: Option<PathConfig>,
    /// Methods; empty = any.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Header predicates, all must hold. Names are case-insensitive.
    #[serde(default)]
    pub headers: BTreeMap<String, ValueMatchConfig>,
    /// Query parameter predicates, all must hold.
    #[serde(default)]
    pub query: BTreeMap<String, ValueMatchConfig>,
    /// Client address prefixes; empty = any client.
    #[serde(default)]
    pub client: Vec<CidrEntry>,
    /// CIDR policy that applies after the global one.
    #[serde(default)]
    pub access: Option<AccessConfig>,
    /// Timeouts of this route.
    #[serde(default)]
    pub timeouts: TimeoutsConfig,
    /// Limits of this route.
    #[serde(default)]
    pub limits: RouteLimitsConfig,
    /// Send to an upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamTargetConfig>,
    /// Answer with a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<RedirectConfig>,
    /// Answer with a fixed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respond: Option<RespondConfig>,
}

/// `path:` of a route.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathConfig {
    /// `/v1`: the path itself and everything below it, cut at segment boundaries.
    Prefix(String),
    /// `{ exact: /v1 }`.
    Exact(String),
    /// `{ regex: "^/v[0-9]+/" }`; unanchored unless it says so.
    Regex(String),
}

/// A predicate on one header or query value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueMatchConfig {
    /// `name: value`: equal to it.
    Exact(String),
    /// `{ regex: … }`; unanchored unless it says so.
    Regex(String),
    /// `{ present: true }` (or `false`: absent).
    Present(bool),
}

/// `timeouts:` of a route, all about its upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// TCP and TLS connect.
    pub connect: HumanDuration,
    /// From the request sent to the response head.
    pub response: HumanDuration,
    /// Between two reads of a response body.
    pub idle: HumanDuration,
    /// How long an upgraded connection may be silent both ways.
    pub websocket_idle: HumanDuration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        TimeoutsConfig {
            connect: HumanDuration::secs(2),
            response: HumanDuration::secs(30),
            idle: HumanDuration::secs(60),
            websocket_idle: HumanDuration::secs(3600),
        }
    }
}

/// `limits:` of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteLimitsConfig {
    /// Largest request body, in place of the global one; 0 = no limit.
    pub body: Option<ByteSize>,
}

/// `redirect:`, an answer with a Location.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedirectConfig {
    /// Template with `{scheme}`, `{host}`, `{path}`, `{query}` and `{path_and_query}`.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    #[serde(default = "permanent")]
    pub status: u16,
}

fn permanent() -> u16 {
    308
}

/// `respond:`, a fixed answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RespondConfig {
    /// 200 to 599.
    #[serde(default = "ok")]
    pub status: u16,
    /// The body as written.
    #[serde(default)]
    pub body: Option<String>,
    /// Or a file, read when the configuration is compiled.
    #[serde(default)]
    pub body_file: Option<PathBuf>,
    /// Response headers; content-length and connection are ours.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

fn ok() -> u16 {
    200
}
