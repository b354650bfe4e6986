//! Feeds `invariants/proxy_header.rs`.

#![no_main]

#[path = "../invariants/proxy_header.rs"]
mod proxy_header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_header::check(data));
