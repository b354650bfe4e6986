//! Feeds `invariants/host.rs`.

#![no_main]

#[path = "../invariants/host.rs"]
mod host;

libfuzzer_sys::fuzz_target!(|data: &[u8]| host::check(data));
