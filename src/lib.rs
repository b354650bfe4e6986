//! Portcullis, a programmable edge gateway on Pingora.
//!
//! The modules, in reading order; a room uses only rooms below it (`tests/tidy.rs` checks):
//!
//! | room | answers |
//! |---|---|
//! | [`cli`] | what did the operator type? |
//! | [`server`] | how is the process put together? |
//! | [`admin`] | what does port 7998 say? |
//! | [`background`] | what runs beside the traffic? |
//! | [`edge`] | how does a connection come in? |
//! | [`proxy`] | what happens to a request? |
//! | [`snapshot`] | what is one configuration, compiled? |
//! | [`routing`] | which route takes a request? |
//! | [`upstream`] | where is it sent? |
//! | [`access`] | who may talk to us? |
//! | [`tls`] | who are we? |
//! | [`telemetry`] | what do we tell the operator? |
//! | [`http1`] | what does HTTP/1 look like on the wire? |
//! | [`config`] | what did the operator write? |

pub mod access;
pub mod admin;
pub mod background;
pub mod cli;
pub mod config;
pub mod edge;
pub mod http1;
pub mod proxy;
pub mod routing;
pub mod server;
pub mod snapshot;
pub mod telemetry;
pub mod tls;
pub mod upstream;
