//! Everything over the wire: the real binary, one file a subject.

mod support;

mod access;
mod access_log;
mod admin;
mod certificates;
mod cli;
mod client_address;
mod client_certificates;
mod connection_limits;
mod curl;
mod exchange;
mod forwarding;
mod framing;
mod hostile;
mod http2;
mod limits;
mod listener_changes;
mod listeners;
mod ocsp;
mod prometheus;
mod proxy_protocol;
mod rejections;
mod reload;
mod reload_under_load;
mod routing;
mod shutdown;
mod slow_clients;
mod syscalls;
mod systemd;
mod targets;
mod tls;
mod upgrade;
mod upstream_proxy_protocol;
mod upstream_tls;
mod websocket;
