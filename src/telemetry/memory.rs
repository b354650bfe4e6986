//! How much may wait of both logs when nobody takes their lines: `log.memory`, divided.
//!
//! An eighth is for the process's own log, the rest for the access log. A buffer that grows may hold twice
//! what is in it, and one more is on its way out while it fills.

use crate::config::ByteSize;

/// Bytes that wait in one buffer of the process's own log.
pub(super) fn of_process_log(all: ByteSize) -> usize {
    each(all.0 / 8, 1)
}

/// Bytes that wait in each of this many buffers of the access log.
pub(super) fn of_access_log(all: ByteSize, buffers: usize) -> usize {
    each(all.0 - all.0 / 8, buffers)
}

fn each(share: u64, buffers: usize) -> usize {
    let buffers = u64::try_from(buffers).unwrap_or(u64::MAX);
    usize::try_from(share / buffers.saturating_add(1) / 2).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_is_no_more_than_what_is_configured() {
        for (megabytes, workers) in [(8_u64, 1_usize), (8, 256), (64, 2), (1024, 64)] {
            let all = ByteSize(megabytes << 20);
            let held = 2 * (of_access_log(all, workers) * (workers + 1) + of_process_log(all) * 2);
            assert!(held as u64 <= all.0, "{held} of {all:?} for {workers}");
            assert!(held as u64 > all.0 / 10 * 9, "{held} of {all:?} for {workers}");
        }
    }
}
