//! The rooms of the gateway that parse what strangers send, without the engine they usually run in.
//!
//! The same files as in the gateway, under the same paths. It knows nothing of fuzzing.

#![allow(dead_code, reason = "what the left-out rooms use")]

#[path = "../../src/access/mod.rs"]
pub mod access;
#[path = "../../src/config/mod.rs"]
pub mod config;

/// The door, as far as it parses.
#[path = "../../src/edge"]
pub mod edge {
    pub mod proxy_header;
}

/// The request path, as far as it parses.
#[path = "../../src/proxy"]
pub mod proxy {
    pub mod request_target;
}

/// Routing, as far as it parses.
#[path = "../../src/routing"]
pub mod routing {
    pub mod host;
}
