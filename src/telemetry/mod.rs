//! What we tell the operator: the process log, metrics and the access log.
//!
//! This room knows what was written in `log:` and `access_log:` and nothing of requests: the rooms
//! above hand it finished facts. None of it blocks traffic: metrics are atomic additions, access
//! records go through a bounded buffer of their own thread, and what is dropped is counted.

pub mod access_log;
mod escape;
pub mod logging;
pub mod metrics;
mod timestamp;
