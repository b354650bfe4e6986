//! How many files and connections the process may have open, and a few more that are kept for operators.
//!
//! Traffic can use up all there are. So the limit that holds for everybody stays a little below the one that
//! the system allows, and the admin port goes beyond it for the moment of an accept. Linux looks at the limit
//! when a descriptor is made, not later.

use crate::config::Config;
use log::warn;
use parking_lot::Mutex;
use std::io;

/// Descriptors beyond the limit, where the system allows so many more.
const RESERVE: libc::rlim_t = 64;

/// Held while the limit is another one: two who raise it must not undo each other's.
static RAISING: Mutex<()> = Mutex::new(());

/// Makes the limit the highest the system allows, less the reserve. To be called once, at the start.
pub fn raise_limit() {
    let raised = limit().and_then(|limit| {
        let reserve = RESERVE.min(limit.rlim_max / 8);
        set(libc::rlimit { rlim_cur: limit.rlim_max - reserve, ..limit })
    });
    if let Err(error) = raised {
        warn!("the limit of open files stays as it is: {error}");
    }
}

/// Says so where the listeners may have more connections than the process can have files open.
pub fn warn_if_short(config: &Config) {
    let wanted: u64 = config.listeners.iter().map(|listener| u64::from(listener.max_connections)).sum();
    match limit() {
        Ok(limit) if wanted > limit.rlim_cur => warn!(
            "max_connections of the listeners is {wanted}, but this process may have {} files open: raise \
             LimitNOFILE (systemd) or `ulimit -n`, or lower max_connections",
            limit.rlim_cur
        ),
        _ => {}
    }
}

/// Whether this says that the limit is reached.
pub fn is_want_of_them(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Carries `open` out with the reserve at hand. It must not wait.
pub fn beyond_the_limit<T>(open: impl FnOnce() -> T) -> T {
    let _raising = RAISING.lock();
    let Ok(before) = limit() else { return open() };
    let raised = set(libc::rlimit { rlim_cur: before.rlim_max, ..before });
    let opened = open();
    if raised.is_ok()
        && let Err(error) = set(before)
    {
        warn!("the limit of open files stays raised: {error}");
    }
    opened
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes one struct that is there for the time of the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(limit: libc::rlimit) -> io::Result<()> {
    // SAFETY: it reads one struct that is there for the time of the call.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
