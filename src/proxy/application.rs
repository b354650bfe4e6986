//! The engine's HTTP server around the gateway. What bounds its connections is the door's work.

use super::gateway::Gateway;
use pingora_core::apps::HttpServerOptions;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use std::sync::Arc;

/// The application one worker runs.
pub fn new(conf: &Arc<ServerConf>, gateway: Gateway) -> HttpProxy<Gateway> {
    let mut proxy = pingora_proxy::http_proxy(conf, gateway);
    let mut options = HttpServerOptions::default();
    // Intake refuses CONNECT. The engine would do so before any hook: in its own name, and without a
    // record or a count.
    options.allow_connect_method_proxying = true;
    proxy.server_options = Some(options);
    proxy
}
