//! What runs beside the traffic: signals, reloads, and what the process knows of its own state.
//!
//! Nothing here is called by a request, and nothing here takes a lock that a request takes.

pub mod descriptors;
pub mod expiry;
pub mod fixed;
pub mod gauges;
pub mod health;
pub mod heartbeat;
pub mod names;
pub mod readiness;
pub mod reload;
pub mod signals;
pub mod systemd;
pub mod ticket_rotation;
pub mod upstreams;

pub use expiry::Expiry;
pub use readiness::Readiness;
pub use reload::Reloader;
pub use signals::Signals;
pub use ticket_rotation::TicketRotation;
pub use upstreams::Upstreams;
