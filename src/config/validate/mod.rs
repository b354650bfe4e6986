//! Rules that concern more than one key, or that serde types cannot say. Every problem is reported.
//!
//! Does not know what is in the files a configuration names (certificates, lists, bodies): those are
//! read when it is compiled. Nor which routes hide one another: routing finds that out.

mod attempts;
mod health_check;
mod loops;
mod resolver;
mod routes;
mod syntax;
mod upstreams;

use super::access::{AccessConfig, CidrEntry};
use super::error::{MAX_PROBLEMS, ValueError, quoted};
use super::listener::{ListenerTls, ProxyProtocol};
use super::upstream::INLINE_PREFIX;
use super::{
    ByteSize, Config, EndpointAddress, EndpointConfig, HumanDuration, Problems, Source, UpstreamConfig,
    UpstreamTlsConfig, route,
};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// The engine refuses more header fields than this before we see them.
pub const MAX_HEADER_COUNT: u32 = 250;
/// The engine refuses larger header blocks before we see them.
pub const MAX_HEADER_BYTES: u64 = (1 << 20) - 1;
/// Longest request line that may be allowed.
const MAX_REQUEST_LINE: u64 = 64 << 10;
/// Most idle connections an upstream may keep per worker.
const MAX_KEEPALIVE: u32 = 1_000_000;
/// Largest weight of an endpoint or of a part of a split.
const MAX_WEIGHT: u32 = 1000;
/// Longest name that becomes a metric label.
const MAX_NAME: usize = 128;
/// Tickets live in whole seconds.
const MIN_TICKET_LIFETIME: HumanDuration = HumanDuration::secs(1);
/// Longest life of a ticket (RFC 8446 section 4.6.1).
const MAX_TICKET_LIFETIME: HumanDuration = HumanDuration::secs(7 * 24 * 3600);
/// Least and most memory for lines that wait to be written.
const LOG_MEMORY: RangeInclusive<ByteSize> = ByteSize::mib(1)..=ByteSize::mib(16 * 1024);
/// Longest time the process may take to leave.
const MAX_SHUTDOWN: HumanDuration = HumanDuration::secs(24 * 3600);

/// Checks a configuration whose defaults are filled in.
pub(super) fn validate(config: &Config, source: &Source, problems: &mut Problems) {
    let mut check = Check { source, problems };
    check.listeners(config);
    check.certificates(config);
    check.tls(config);
    check.access(&config.access, "access");
    check.trusted_proxies(&config.access);
    check.upstreams(config);
    check.routes(config);
    check.resolver(&config.resolver);
    check.limits(config);
    check.via(config);
    check.own_listeners(config);
    check.access_log(config);
    check.log(config);
    check.shutdown(config);
}

/// What the checks need at hand.
struct Check<'a> {
    source: &'a Source,
    problems: &'a mut Problems,
}

impl Check<'_> {
    fn refuse(&mut self, path: impl Into<String>, error: ValueError) {
        if self.is_full() {
            return;
        }
        let mut problem = self.source.problem(path, error.reason);
        problem.hint = error.hint;
        self.problems.push(problem);
    }

    /// Whether enough problems are listed: more would bury the first, and cost time without bound.
    fn is_full(&self) -> bool {
        self.problems.0.len() > MAX_PROBLEMS
    }

    fn require(&mut self, path: impl Into<String>, result: Result<(), ValueError>) {
        if let Err(error) = result {
            self.refuse(path, error);
        }
    }

    fn listeners(&mut self, config: &Config) {
        if config.listeners.is_empty() && !self.source.is_refused("listeners") {
            let error = ValueError::new("at least one listener is needed");
            self.refuse("listeners", error.with_hint("leave the key out for 0.0.0.0:7999"));
        }
        let mut names: HashMap<&str, usize> = HashMap::new();
        for (index, listener) in config.listeners.iter().enumerate() {
            let path = format!("listeners[{index}]");
            if let Some(name) = listener.name.as_deref() {
                self.require(format!("{path}.name"), label(name));
                if let Some(first) = names.insert(name, index) {
                    let error = ValueError::new(format!("listener {} exists already", quoted(name)));
                    self.refuse(format!("{path}.name"), self.see(error, &format!("listeners[{first}]")));
                }
            }
            let earlier =
                config.listeners.iter().take(index).position(|l| clash(l.address, listener.address));
            if let Some(first) = earlier {
                let error = ValueError::new(format!("{} is taken by another listener", listener.address));
                self.refuse(
                    format!("{path}.address"),
                    self.see(error, &format!("listeners[{first}].address")),
                );
            }
            if clash(listener.address, config.admin.address) {
                let admin = config.admin.address;
                let error = ValueError::new(format!("{} is taken by `admin`, {admin}", listener.address));
                self.refuse(format!("{path}.address"), error.with_hint("use another port"));
            }
            if listener.redirect_http && listener.tls != ListenerTls::Auto {
                let error = ValueError::new("needs `tls: auto`, HTTP and HTTPS on one port");
                self.refuse(format!("{path}.redirect_http"), error);
            }
            if listener.max_connections == 0 {
                let error = ValueError::new("must be at least 1");
                self.refuse(format!("{path}.max_connections"), error.with_hint("leave it out for 100000"));
            }
            self.proxy_protocol(listener.proxy_protocol, &config.access, &path);
        }
    }

    fn proxy_protocol(&mut self, wanted: ProxyProtocol, access: &AccessConfig, path: &str) {
        let nobody = access.trusted_proxies.is_empty() && !self.source.lost_parts("access");
        if wanted != ProxyProtocol::Off && nobody {
            let error = ValueError::new("needs `access.trusted_proxies`: nobody else is believed");
            let error = error.with_hint("name the prefixes of your load balancers there");
            self.refuse(format!("{path}.proxy_protocol"), error);
        }
    }

    /// Adds where the other one stands.
    fn see(&self, error: ValueError, path: &str) -> ValueError {
        match self.source.line(path) {
            Some(line) => error.with_hint(format!("see line {line}")),
            None => error,
        }
    }

    fn certificates(&mut self, config: &Config) {
        let mut first = None;
        for (index, certificate) in config.certificates.iter().enumerate() {
            let path = format!("certificates[{index}]");
            for (key, file) in [("cert", &certificate.cert), ("key", &certificate.key)] {
                if file.as_os_str().is_empty() {
                    self.refuse(format!("{path}.{key}"), ValueError::new("must name a file"));
                }
            }
            let client_auth = certificate.client_auth.as_ref().map(|client_auth| &client_auth.ca);
            for (key, file) in [("ocsp", certificate.ocsp.as_ref()), ("client_auth.ca", client_auth)] {
                if file.is_some_and(|file| file.as_os_str().is_empty()) {
                    self.refuse(format!("{path}.{key}"), ValueError::new("must name a file"));
                }
            }
            if !certificate.default {
                continue;
            }
            match first {
                None => first = Some(index),
                Some(first) => {
                    let error = ValueError::new("another certificate is the default already");
                    let error = self.see(error, &format!("certificates[{first}].default"));
                    self.refuse(format!("{path}.default"), error);
                }
            }
        }
    }

    fn tls(&mut self, config: &Config) {
        let lifetime = config.tls.ticket_lifetime;
        if lifetime < MIN_TICKET_LIFETIME || lifetime > MAX_TICKET_LIFETIME {
            let reason = format!("{lifetime} is not between {MIN_TICKET_LIFETIME} and {MAX_TICKET_LIFETIME}");
            let error = ValueError::new(reason).with_hint("`tickets: false` switches resumption off");
            self.refuse("tls.ticket_lifetime", error);
        }
    }

    fn access(&mut self, access: &AccessConfig, path: &str) {
        self.entries(access.allow.as_deref().unwrap_or_default(), &format!("{path}.allow"));
        self.entries(&access.deny, &format!("{path}.deny"));
    }

    fn entries(&mut self, entries: &[CidrEntry], path: &str) {
        for (index, entry) in entries.iter().enumerate() {
            if matches!(entry, CidrEntry::File { file, .. } if file.as_os_str().is_empty()) {
                self.refuse(format!("{path}[{index}].file"), ValueError::new("must name a file"));
            }
        }
    }

    fn trusted_proxies(&mut self, access: &AccessConfig) {
        self.entries(&access.trusted_proxies, "access.trusted_proxies");
        for (index, entry) in access.trusted_proxies.iter().enumerate() {
            if matches!(entry, CidrEntry::Inline(cidr) if cidr.0.prefix_len() == 0) {
                let error = ValueError::new("trusts everybody: any client could name any address as its own");
                let error = error.with_hint("name the prefixes of your load balancers");
                self.refuse(format!("access.trusted_proxies[{index}]"), error);
            }
        }
    }

    fn upstreams(&mut self, config: &Config) {
        for (name, upstream) in &config.upstreams {
            let path = format!("upstreams.{name}");
            self.require(&path, label(name));
            // `{ address: … }` in a route's list is an endpoint.
            if matches!(name.as_str(), "address" | "weight") {
                self.refuse(
                    &path,
                    ValueError::new("an upstream cannot have this name").with_hint("rename it"),
                );
            }
            if name.starts_with(INLINE_PREFIX) {
                let error = ValueError::new(format!("`{INLINE_PREFIX}` is how inline lists are named"));
                self.refuse(&path, error.with_hint("rename it"));
            }
            self.upstream(upstream, &path);
        }
    }

    fn upstream(&mut self, upstream: &UpstreamConfig, path: &str) {
        self.endpoints(&upstream.endpoints, &format!("{path}.endpoints"));
        if !(1..=MAX_KEEPALIVE).contains(&upstream.keepalive) {
            let error = ValueError::new(format!("{} is not from 1 to {MAX_KEEPALIVE}", upstream.keepalive));
            self.refuse(format!("{path}.keepalive"), error);
        }
        self.balancing(upstream, path);
        self.protocol(upstream, path);
        self.retry(&upstream.retry, &format!("{path}.retry"));
        if let Some(tls) = &upstream.tls {
            self.upstream_tls(tls, &format!("{path}.tls"));
        }
        if let Some(check) = &upstream.health_check {
            self.health_check(check, &format!("{path}.health_check"));
            let unix = |endpoint: &EndpointConfig| matches!(endpoint.address, EndpointAddress::Unix(_));
            let known = !upstream.endpoints.is_empty() && !self.source.lost_parts(path);
            if check.port.is_some() && known && upstream.endpoints.iter().all(unix) {
                let error = ValueError::new("has no effect: every endpoint is a Unix socket, without ports");
                self.refuse(format!("{path}.health_check.port"), error.with_hint("remove it"));
            }
        }
    }

    fn upstream_tls(&mut self, tls: &UpstreamTlsConfig, path: &str) {
        if let Some(name) = &tls.server_name {
            let is_ip = name.parse::<IpAddr>().is_ok();
            if !is_ip && (name.contains('*') || syntax::host(name).is_err()) {
                let error = ValueError::new(format!("{} is not a host name", quoted(name)));
                let error = error.with_hint("the name in the endpoints' certificate, such as app.internal");
                self.refuse(format!("{path}.server_name"), error);
            }
        }
        for (one, one_set, other, other_set) in [
            ("cert", tls.cert.is_some(), "key", tls.key.is_some()),
            ("key", tls.key.is_some(), "cert", tls.cert.is_some()),
        ] {
            if one_set && !other_set && !self.source.is_written(&format!("{path}.{other}")) {
                self.refuse(format!("{path}.{one}"), ValueError::new(format!("needs `{other}` beside it")));
            }
        }
    }

    fn limits(&mut self, config: &Config) {
        let limits = &config.limits;
        self.size("limits.request_line", limits.request_line, MAX_REQUEST_LINE);
        self.size("limits.headers", limits.headers, MAX_HEADER_BYTES);
        if !(1..=MAX_HEADER_COUNT).contains(&limits.header_count) {
            let error =
                ValueError::new(format!("{} is not from 1 to {MAX_HEADER_COUNT}", limits.header_count));
            self.refuse("limits.header_count", error);
        }
        self.positive("limits.header_timeout", limits.header_timeout);
        self.positive("limits.idle_timeout", limits.idle_timeout);
        self.positive("limits.body_idle_timeout", limits.body_idle_timeout);
        if limits.requests_per_connection == 0 {
            self.refuse("limits.requests_per_connection", ValueError::new("must be at least 1"));
        }
    }

    fn size(&mut self, path: &str, size: ByteSize, max: u64) {
        if !(1..=max).contains(&size.0) {
            let error = ValueError::new(format!("{size} is not from 1B to {}", ByteSize(max)));
            self.refuse(path, error);
        }
    }

    fn positive(&mut self, path: &str, duration: HumanDuration) {
        if duration.0.is_zero() {
            let error = ValueError::new("must be longer than 0");
            self.refuse(path, error.with_hint("there is no way to wait for ever; 24h is long"));
        }
    }

    fn access_log(&mut self, config: &Config) {
        for (index, path) in config.access_log.exclude.paths.iter().enumerate() {
            let possible = syntax::path(path).and_then(|()| {
                syntax::reachable(path, config.paths.merge_slashes, config.paths.encoded_slash)
            });
            self.require(format!("access_log.exclude.paths[{index}]"), possible);
        }
        for (index, status) in config.access_log.exclude.status.iter().enumerate() {
            if !(100..=599).contains(status) {
                let error = ValueError::new(format!("{status} is not from 100 to 599"));
                self.refuse(format!("access_log.exclude.status[{index}]"), error);
            }
        }
        for (index, name) in config.access_log.redact.headers.iter().enumerate() {
            self.require(format!("access_log.redact.headers[{index}]"), syntax::header_name(name));
        }
    }

    fn log(&mut self, config: &Config) {
        let (memory, least, most) = (config.log.memory, LOG_MEMORY.start(), LOG_MEMORY.end());
        if !LOG_MEMORY.contains(&memory) {
            let error = ValueError::new(format!("{memory} is not from {least} to {most}"));
            self.refuse("log.memory", error.with_hint("leave it out for 64MiB"));
        }
    }

    fn shutdown(&mut self, config: &Config) {
        for (key, duration) in [("delay", config.shutdown.delay), ("drain", config.shutdown.drain)] {
            if duration > MAX_SHUTDOWN {
                let error = ValueError::new(format!("{duration} is longer than {MAX_SHUTDOWN}"));
                self.refuse(format!("shutdown.{key}"), error);
            }
        }
    }
}

/// Whether both cannot be bound at once: `[::]` takes IPv4 too, an unspecified address takes all.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let canonical = |address: SocketAddr| address.ip().to_canonical();
    let takes = |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    let (left, right) = (canonical(a), canonical(b));
    a.port() == b.port() && (left == right || takes(left, right) || takes(right, left))
}

/// Whether a name may become a metric label.
fn label(name: &str) -> Result<(), ValueError> {
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(route::is_label_char) {
        let error = ValueError::new(format!("{} cannot be a name", quoted(name)));
        return Err(error.with_hint(format!("1 to {MAX_NAME} printable ASCII characters")));
    }
    Ok(())
}
