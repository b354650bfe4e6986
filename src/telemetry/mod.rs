//! What we tell the operator: the process log, metrics and the access log.
//!
//! This room knows what was written in `log:` and `access_log:` and nothing of requests: the rooms
//! above hand it finished facts. None of it blocks traffic: metrics are atomic additions, lines of both
//! logs go through bounded buffers of a thread of their own, and what is dropped is counted.

pub mod access_log;
mod escape;
mod log_writer;
pub mod logging;
mod memory;
pub mod metrics;
mod sink;
mod timestamp;
