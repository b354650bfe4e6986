//! Which route takes a request.
