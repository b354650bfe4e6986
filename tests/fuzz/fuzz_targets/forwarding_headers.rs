//! Feeds `invariants/forwarding_headers.rs`.

#![no_main]

#[path = "../invariants/forwarding_headers.rs"]
mod forwarding_headers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| forwarding_headers::check(data));
