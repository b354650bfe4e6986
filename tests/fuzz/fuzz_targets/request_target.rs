//! Feeds `invariants/request_target.rs`.

#![no_main]

#[path = "../invariants/request_target.rs"]
mod request_target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request_target::check(data));
