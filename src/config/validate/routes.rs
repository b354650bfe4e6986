//! Rules for routes: predicates, names, and where requests are sent.

use super::super::error::{ValueError, quoted};
use super::super::telemetry::placeholders;
use super::super::{
    Config, EncodedSlash, EndpointAddress, EndpointConfig, PathConfig, RedirectConfig, RespondConfig,
    RouteConfig, TimeoutsConfig, UpstreamTargetConfig, ValueMatchConfig, suggest,
};
use super::{Check, MAX_WEIGHT, label, syntax};
use std::collections::{BTreeMap, HashMap};

/// Names of routes that metrics use for requests without one.
const RESERVED_NAMES: [&str; 2] = ["none", "rejected"];
/// Fields that only answers have: no request can be told by them.
const OF_ANSWERS: [&str; 14] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-expose-headers",
    "access-control-max-age",
    "content-security-policy",
    "location",
    "permissions-policy",
    "server",
    "set-cookie",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
];
/// What a redirect's template may name.
const REDIRECT_PLACEHOLDERS: [&str; 5] = ["scheme", "host", "path", "query", "path_and_query"];
/// Response headers that are ours.
const OWN_HEADERS: [&str; 1] = ["content-length"];
/// Response headers that speak of one connection (RFC 9110 section 7.6.1), or to a proxy of the client's own.
/// Over HTTP/2 an answer with some of them is never sent (RFC 9113 section 8.2.2).
const CONNECTION_HEADERS: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const TARGETS: [&str; 3] = ["upstream", "redirect", "respond"];

impl Check<'_> {
    pub(super) fn routes(&mut self, config: &Config) {
        if config.routes.is_empty() && !self.source.is_refused("routes") && !self.misspelt("routes") {
            let error = ValueError::new("at least one route is needed");
            self.refuse("routes", error.with_hint("a route has `upstream`, `redirect` or `respond`"));
        }
        let mut names: HashMap<&str, usize> = HashMap::new();
        for (index, route) in config.routes.iter().enumerate() {
            let path = format!("routes[{index}]");
            if let Some(name) = route.name.as_deref() {
                self.require(format!("{path}.name"), label(name));
                if RESERVED_NAMES.contains(&name) {
                    let error =
                        ValueError::new(format!("{} is reserved for requests without a route", quoted(name)));
                    self.refuse(format!("{path}.name"), error);
                }
                if let Some(first) = names.insert(name, index) {
                    let error = ValueError::new(format!("route {} exists already", quoted(name)));
                    self.refuse(format!("{path}.name"), self.see(error, &format!("routes[{first}].name")));
                }
            }
            self.predicates(config, route, &path);
            self.encoded_slash(config, route, &path);
            self.route_access(route, &path);
            self.timeouts(route, &path);
            self.target(config, route, &path);
        }
    }

    /// Whether a key was refused at the top whose name is close to `key`.
    fn misspelt(&self, key: &str) -> bool {
        self.problems.0.iter().any(|p| suggest::nearest(&p.path, [key]).is_some())
    }

    fn predicates(&mut self, config: &Config, route: &RouteConfig, path: &str) {
        for (index, host) in route.hosts.iter().enumerate() {
            self.require(format!("{path}.hosts[{index}]"), syntax::host(host));
        }
        let result = match &route.path {
            None => Ok(()),
            Some(PathConfig::Regex(regex)) => syntax::regex(regex),
            Some(PathConfig::Prefix(written) | PathConfig::Exact(written)) => {
                let slash = route.encoded_slash.unwrap_or(config.paths.encoded_slash);
                match &route.path {
                    Some(PathConfig::Prefix(_)) => syntax::prefix(written),
                    _ => syntax::path(written),
                }
                .and_then(|()| syntax::reachable(written, config.paths.merge_slashes, slash))
            }
        };
        self.require(format!("{path}.path"), result);
        for (index, method) in route.methods.iter().enumerate() {
            self.require(format!("{path}.methods[{index}]"), syntax::method(method));
        }
        for name in route.headers.keys() {
            self.require(format!("{path}.headers.{name}"), syntax::header_name(name));
            if OF_ANSWERS.iter().any(|field| field.eq_ignore_ascii_case(name)) {
                let error = ValueError::new(format!("requests do not have {}, answers do", quoted(name)));
                let hint = "`headers` here says which requests the route takes; `respond.headers` are sent";
                self.refuse(format!("{path}.headers.{name}"), error.with_hint(hint));
            }
        }
        self.header_twice(&route.headers, &format!("{path}.headers"));
        for name in route.query.keys().filter(|name| name.is_empty()) {
            self.refuse(format!("{path}.query.{name}"), ValueError::new("a parameter needs a name"));
        }
        for (map, key) in [(&route.headers, "headers"), (&route.query, "query")] {
            for (name, value) in map {
                let result = match value {
                    ValueMatchConfig::Regex(regex) => syntax::regex(regex),
                    ValueMatchConfig::Exact(value) if key == "headers" => syntax::header_value(value),
                    _ => Ok(()),
                };
                self.require(format!("{path}.{key}.{name}"), result);
            }
        }
        self.entries(&route.client, &format!("{path}.client"));
        self.client_certificate(config, route, path);
    }

    /// What is decoded before routing cannot be kept after it.
    fn encoded_slash(&mut self, config: &Config, route: &RouteConfig, path: &str) {
        let global = config.paths.encoded_slash;
        if (global, route.encoded_slash) == (EncodedSlash::Decode, Some(EncodedSlash::Keep)) {
            let error =
                ValueError::new("`paths.encoded_slash: decode` has made %2F a / before a route is chosen");
            let hint = "set `paths.encoded_slash` to keep or reject, and decode in the routes that need it";
            self.refuse(format!("{path}.encoded_slash"), error.with_hint(hint));
        }
    }

    fn client_certificate(&mut self, config: &Config, route: &RouteConfig, path: &str) {
        let asked = config.certificates.iter().any(|certificate| certificate.client_auth.is_some())
            || self.source.lost_parts("certificates");
        for (key, wanted) in route.client_certificate.written() {
            let path = format!("{path}.client_certificate.{key}");
            if let ValueMatchConfig::Regex(regex) = wanted {
                self.require(path.as_str(), syntax::regex(regex));
            }
            if !asked && *wanted != ValueMatchConfig::Present(false) {
                let error = ValueError::new("no certificate here asks clients for theirs");
                self.refuse(path, error.with_hint("add `client_auth` to one in `certificates`"));
            }
        }
    }

    /// Header names that differ only in case are one header.
    fn header_twice<V>(&mut self, headers: &BTreeMap<String, V>, path: &str) {
        let mut seen = HashMap::new();
        for name in headers.keys() {
            if let Some(first) = seen.insert(name.to_ascii_lowercase(), name) {
                let error =
                    ValueError::new(format!("{} is the same header as {}", quoted(name), quoted(first)));
                self.refuse(format!("{path}.{name}"), error.with_hint("remove one of them"));
            }
        }
    }

    fn route_access(&mut self, route: &RouteConfig, path: &str) {
        let Some(access) = &route.access else { return };
        self.access(access, &format!("{path}.access"));
        if !access.trusted_proxies.is_empty() {
            let error = ValueError::new("proxies are trusted for the whole gateway, not for one route");
            let error = error.with_hint("move it to `access` at the top");
            self.refuse(format!("{path}.access.trusted_proxies"), error);
        }
    }

    fn timeouts(&mut self, route: &RouteConfig, path: &str) {
        let timeouts = &route.timeouts;
        let answers = route.redirect.is_some() || route.respond.is_some();
        let elsewhere = self.source.is_written(&format!("{path}.upstream"));
        // `check --effective` writes the defaults of every route.
        if answers && !elsewhere && *timeouts != TimeoutsConfig::default() {
            let error =
                ValueError::new("has no effect: timeouts are those of an upstream, and there is none");
            self.refuse(format!("{path}.timeouts"), error.with_hint("remove it"));
        }
        for (key, duration) in [
            ("connect", timeouts.connect),
            ("response", timeouts.response),
            ("idle", timeouts.idle),
            ("websocket_idle", timeouts.websocket_idle),
        ] {
            self.positive(&format!("{path}.timeouts.{key}"), duration);
        }
    }

    fn target(&mut self, config: &Config, route: &RouteConfig, path: &str) {
        let written = TARGETS.map(|key| self.source.is_written(&format!("{path}.{key}")));
        let set = [route.upstream.is_some(), route.redirect.is_some(), route.respond.is_some()];
        let count = written.iter().zip(set).filter(|(written, set)| **written || *set).count();
        if count > 1 {
            let named = TARGETS.iter().zip(written).filter(|(_, written)| *written).map(|(key, _)| *key);
            let reason = format!("has more than one target: {}", named.collect::<Vec<_>>().join(", "));
            self.refuse(path, ValueError::new(reason).with_hint("keep one of them"));
        } else if count == 0 && !self.source.is_refused(path) {
            let error = ValueError::new("has no target");
            self.refuse(path, error.with_hint("add one of upstream, redirect, respond"));
        }
        match &route.upstream {
            Some(UpstreamTargetConfig::Named(name)) => {
                self.upstream_name(config, name, &format!("{path}.upstream"));
            }
            Some(UpstreamTargetConfig::Inline(endpoints)) => {
                self.endpoints(endpoints, &format!("{path}.upstream"));
            }
            Some(UpstreamTargetConfig::Split(shares)) => {
                self.split(config, shares, &format!("{path}.upstream"));
            }
            None => {}
        }
        if let Some(mirror) = &route.mirror {
            self.mirror(config, mirror, route.upstream.is_some(), &format!("{path}.mirror"));
        }
        if let Some(redirect) = &route.redirect {
            self.redirect(redirect, &format!("{path}.redirect"));
        }
        if let Some(respond) = &route.respond {
            self.respond(respond, &format!("{path}.respond"));
        }
    }

    pub(super) fn upstream_name(&mut self, config: &Config, name: &str, path: &str) {
        // One that was written but refused has its own problem.
        if self.is_full()
            || config.upstreams.contains_key(name)
            || self.source.is_written(&format!("upstreams.{name}"))
        {
            return;
        }
        let error = ValueError::new(format!("no upstream is named {}", quoted(name)));
        let known: Vec<&str> = config.upstreams.keys().map(String::as_str).take(10).collect();
        let nearest = suggest::nearest(name, config.upstreams.keys().map(String::as_str));
        let hint = match nearest {
            Some(known) => format!("did you mean `{known}`?"),
            None if known.is_empty() => "add it under `upstreams`, or write a list of addresses".to_owned(),
            None => format!("known are {}", known.join(", ")),
        };
        self.refuse(path, error.with_hint(hint));
    }

    pub(super) fn endpoints(&mut self, endpoints: &[EndpointConfig], path: &str) {
        if endpoints.is_empty() && !self.source.is_refused(path) {
            self.refuse(path, ValueError::new("at least one endpoint is needed"));
        }
        if !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.backup) {
            let error = ValueError::new("all endpoints are backups").with_hint("of what? leave `backup` out");
            self.refuse(path, error);
        }
        let mut addresses: HashMap<&EndpointAddress, usize> = HashMap::new();
        for (index, endpoint) in endpoints.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if !(1..=MAX_WEIGHT).contains(&endpoint.weight) {
                let error =
                    ValueError::new(format!("weight {} is not from 1 to {MAX_WEIGHT}", endpoint.weight));
                self.refuse(format!("{path}.weight"), error);
            }
            if addresses.insert(&endpoint.address, index).is_some() {
                let error = ValueError::new(format!("{} is listed twice", endpoint.address));
                self.refuse(path, error.with_hint("give it a weight instead: { address: …, weight: 2 }"));
            }
        }
    }

    fn split(&mut self, config: &Config, shares: &[(String, u32)], path: &str) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, (name, weight)) in shares.iter().enumerate() {
            let part = format!("{path}[{index}].{name}");
            self.upstream_name(config, name, &part);
            if *weight > MAX_WEIGHT {
                let error = ValueError::new(format!("weight {weight} is not from 0 to {MAX_WEIGHT}"));
                self.refuse(&part, error);
            }
            if seen.insert(name, index).is_some() {
                self.refuse(part, ValueError::new(format!("{} is in this split twice", quoted(name))));
            }
        }
        let sticky = |(name, _): &&(String, u32)| {
            config.upstreams.get(name).is_some_and(|upstream| upstream.sticky.is_some())
        };
        let (tied, free) = (shares.iter().find(sticky), shares.iter().find(|share| !sticky(share)));
        if let (Some((tied, _)), Some((free, _))) = (tied, free)
            && config.upstreams.contains_key(free)
        {
            let reason =
                format!("{} is sticky and {} is not: all clients end there", quoted(tied), quoted(free));
            self.refuse(path, ValueError::new(reason).with_hint("make all of its upstreams sticky, or none"));
        }
        if shares.iter().all(|(_, weight)| *weight == 0) && !self.source.is_refused(path) {
            self.refuse(path, ValueError::new("a split needs a weight above 0"));
        }
    }

    fn redirect(&mut self, redirect: &RedirectConfig, path: &str) {
        if !matches!(redirect.status, 301 | 302 | 303 | 307 | 308) {
            let error = ValueError::new(format!("{} is not a redirect status", redirect.status));
            self.refuse(format!("{path}.status"), error.with_hint("one of 301, 302, 303, 307, 308"));
        }
        let path = format!("{path}.to");
        match placeholders(&redirect.to) {
            Err(error) => self.refuse(path, error),
            Ok(names) => {
                if let Some(name) = names.iter().find(|name| !REDIRECT_PLACEHOLDERS.contains(name)) {
                    let mut error = ValueError::new(format!("unknown placeholder {{{name}}}"));
                    error.hint = suggest::hint(name, &REDIRECT_PLACEHOLDERS);
                    self.refuse(path, error);
                } else if !redirect.to.starts_with('/') && !redirect.to.contains("://") {
                    let error =
                        ValueError::new(format!("{} is neither a URL nor a path", quoted(&redirect.to)));
                    let hint = "such as \"https://{host}{path_and_query}\" or /elsewhere";
                    self.refuse(path, error.with_hint(hint));
                } else {
                    self.require(path, syntax::header_value(&redirect.to));
                }
            }
        }
    }

    fn respond(&mut self, respond: &RespondConfig, path: &str) {
        if !(200..=599).contains(&respond.status) {
            let error = ValueError::new(format!("{} is not from 200 to 599", respond.status));
            self.refuse(format!("{path}.status"), error);
        }
        let has_body =
            respond.body.as_ref().is_some_and(|body| !body.is_empty()) || respond.body_file.is_some();
        if respond.body.is_some() && respond.body_file.is_some() {
            let error = ValueError::new("`body` and `body_file` exclude each other");
            self.refuse(format!("{path}.body_file"), error.with_hint("keep one of them"));
        } else if matches!(respond.status, 204 | 205 | 304) && has_body {
            let error = ValueError::new(format!("an answer with status {} has no body", respond.status));
            self.refuse(path, error.with_hint("remove the body or change the status"));
        }
        for (name, value) in &respond.headers {
            let path = format!("{path}.headers.{name}");
            self.require(&path, syntax::header_name(name));
            self.require(&path, syntax::header_value(value));
            let name = name.to_ascii_lowercase();
            let reason = match () {
                () if OWN_HEADERS.contains(&&*name) => "this header is set by the gateway itself",
                () if CONNECTION_HEADERS.contains(&&*name) => {
                    "this header speaks of one connection, which is the gateway's to do"
                }
                () => continue,
            };
            self.refuse(&path, ValueError::new(reason).with_hint("remove it"));
        }
        self.header_twice(&respond.headers, &format!("{path}.headers"));
    }
}
