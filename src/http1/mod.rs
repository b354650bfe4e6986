//! What does HTTP/1 look like on the wire?
//!
//! Grammar alone (RFC 9112): where a head and where a body ends. Whoever uses it decides what that means.
//! Knows neither connections nor exchanges.

pub mod chunks;
pub mod response_body;
pub mod response_head;
