//! The engine's HTTP server around the gateway, with the bounds it does not have by itself.

use super::gateway::Gateway;
use crate::snapshot::Limits;
use pingora_core::apps::HttpServerOptions;
use pingora_core::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use std::sync::Arc;

/// Streams one HTTP/2 connection may have open (RFC 9113 section 5.1.2 advises at least 100).
const STREAMS: u32 = 128;

/// The application one worker runs. The limits of HTTP/2 connections are those of the start:
/// the engine asks for them only once.
pub fn new(conf: &Arc<ServerConf>, gateway: Gateway, limits: &Limits) -> HttpProxy<Gateway> {
    let mut proxy = pingora_proxy::http_proxy(conf, gateway);
    let mut options = HttpServerOptions::default();
    options.h2_idle_timeout = Some(limits.idle_timeout);
    // Intake refuses CONNECT. The engine would do so before any hook: in its own name, and without a
    // record or a count.
    options.allow_connect_method_proxying = true;
    proxy.server_options = Some(options);
    proxy.h2_options = Some(h2_options(limits));
    proxy
}

/// The engine's safe defaults with our own header bound.
fn h2_options(limits: &Limits) -> H2Options {
    let mut options = default_h2_options();
    options.max_header_list_size(u32::try_from(limits.headers).unwrap_or(u32::MAX));
    options.max_concurrent_streams(STREAMS);
    options
}
