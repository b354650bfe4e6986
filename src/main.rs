//! The `portcullis` binary: catches signals, parses arguments, dispatches, exits.
//!
//! It also chooses the allocator of the process: jemalloc, told to give memory back soon after a
//! peak and to do so on a thread of its own, not on one that serves.

use portcullis::background::signals::CaughtSignals;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Read by jemalloc before `main`, as a C string under this very name; `MALLOC_CONF` in the
/// environment overrides it. Unused pages are kept for a second and then returned. A worker keeps a few
/// blocks of up to 64 KiB to itself: the engine reads every body into one of that size.
#[used]
#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: &[u8; 77] =
    b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,tcache_max:65536\0";

fn main() -> ExitCode {
    // Before anything else: a HUP would kill a process that has no handler for it yet.
    match CaughtSignals::install() {
        Ok(signals) => portcullis::cli::main(signals),
        Err(error) => {
            eprintln!("portcullis: cannot catch signals: {error}");
            ExitCode::from(3)
        }
    }
}
