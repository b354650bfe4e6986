//! Loops that run beside the traffic.
