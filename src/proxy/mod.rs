//! What happens to a request: the phases of one proxied exchange.

pub mod request_target;
