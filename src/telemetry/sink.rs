//! Where lines of a log go: standard output or error, a file, or nowhere.
//!
//! A sink never gives up for good: what it could not write is the caller's to count, and the next write
//! tries again. Does not know what a line is.

use crate::config::AccessLogOutput;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an output that takes no more bytes, and says so, holds up the lines behind it.
const STALL: Duration = Duration::from_secs(5);

/// An open output.
pub(super) enum Sink {
    Off,
    /// Standard output or error.
    Standard(File),
    File {
        path: PathBuf,
        file: File,
    },
}

impl Sink {
    /// Opens an output whose path is resolved. A file is appended to, and created with mode 0640.
    pub(super) fn open(output: &AccessLogOutput) -> io::Result<Sink> {
        Ok(match output {
            AccessLogOutput::Off => Sink::Off,
            AccessLogOutput::Stdout => {
                // The standard library buffers its own by line.
                Sink::copy(io::stdout().as_fd())?
            }
            AccessLogOutput::File(path) => Sink::File { path: path.clone(), file: open(path)? },
        })
    }

    /// Standard error.
    pub(super) fn stderr() -> io::Result<Sink> {
        // Others who write to it must not wait for a lock of the standard library's.
        Sink::copy(io::stderr().as_fd())
    }

    /// A descriptor of our own of what is open already.
    fn copy(open: BorrowedFd<'_>) -> io::Result<Sink> {
        Ok(Sink::Standard(File::from(open.try_clone_to_owned()?)))
    }

    /// Opens a file anew under its name; the old one stays when that fails.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Sink::File { path, file } = self {
            *file = open(path)?;
        }
        Ok(())
    }

    /// Writes as much as it can: the bytes that went out, and the error that ended it early.
    pub(super) fn write(&mut self, bytes: &[u8]) -> (usize, Option<io::Error>) {
        let file = match self {
            Sink::Off => return (0, None),
            Sink::Standard(file) | Sink::File { file, .. } => file,
        };
        let mut written = 0;
        let mut stalled: Option<Instant> = None;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match file.write(rest) {
                Ok(0) => return (written, Some(ErrorKind::WriteZero.into())),
                Ok(count) => {
                    written += count;
                    stalled = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Standard output may be a pipe that somebody else made non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = STALL.saturating_sub(stalled.get_or_insert_with(Instant::now).elapsed());
                    if left.is_zero() || !writable_within(file, left) {
                        return (written, Some(error));
                    }
                }
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }
}

/// Waits until the file takes bytes again; `false` when it does not in time.
fn writable_within(file: &File, limit: Duration) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let milliseconds = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX).max(1);
    // SAFETY: one valid entry for the duration of the call.
    let ready = unsafe { libc::poll(&mut poll, 1, milliseconds) };
    // An interruption is looked at again by the caller, who knows how much time is left.
    ready != 0
}

/// Not blocking, so that a pipe nobody reads fails at once instead of holding up a reload. The error
/// names the file.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
