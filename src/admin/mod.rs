//! Port 7998: liveness, readiness, metrics and the admin API.
