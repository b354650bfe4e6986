//! Gets the lines of the process's own log out without anybody waiting for who reads standard error.
//!
//! Whoever logs appends to one buffer, so that lines keep their order; a thread of its own writes what has
//! come together. A full buffer drops further lines: they are counted, and the log says so once it gets on.
//! Lives as long as the process; does not know what a line says, but for the one that tells of the lost.

use super::sink::Sink;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// Memory a buffer keeps after a stall is over.
const KEEP: usize = 64 * 1024;

/// The buffer, and who waits for it.
pub(super) struct LogWriter {
    queue: Mutex<Queue>,
    wake: Condvar,
    idle: Condvar,
}

struct Queue {
    text: Vec<u8>,
    /// A buffer that holds this much takes no further line.
    bound: usize,
    /// Lines lost since the log last said so.
    lost: u64,
    counts: Counts,
    state: State,
}

/// What became of lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// They were written.
    pub written: u64,
    /// Nobody took them.
    pub dropped: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No thread writes (yet): who logs writes.
    Alone,
    /// The thread waits for lines.
    Waiting,
    /// The thread writes.
    Writing,
}

impl LogWriter {
    /// Lines are written by who logs until [`LogWriter::start`].
    pub(super) const fn new() -> Self {
        let counts = Counts { written: 0, dropped: 0 };
        let queue = Queue { text: Vec::new(), bound: 0, lost: 0, counts, state: State::Alone };
        LogWriter { queue: Mutex::new(queue), wake: Condvar::new(), idle: Condvar::new() }
    }

    /// From here on nobody who logs waits. `told` composes the line that says how many are lost.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor; then nothing has changed.
    pub(super) fn start(&'static self, told: fn(u64) -> Vec<u8>) -> io::Result<()> {
        let mut queue = self.queue.lock();
        if queue.state != State::Alone {
            return Ok(());
        }
        let sink = Sink::stderr()?;
        thread::Builder::new().name("log".to_owned()).spawn(move || self.run(sink, told))?;
        queue.state = State::Waiting;
        Ok(())
    }

    /// Changes how much may wait.
    pub(super) fn set_bound(&self, bound: usize) {
        self.queue.lock().bound = bound;
    }

    /// Appends one line. Never waits for an output once the thread runs.
    pub(super) fn append(&self, line: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.state == State::Alone {
            // Nobody is left to tell when stderr is gone.
            let _ = io::stderr().lock().write_all(line);
            queue.counts.written += 1;
        } else if queue.text.len() + line.len() > queue.bound {
            queue.lost += 1;
            queue.counts.dropped += 1;
        } else {
            queue.text.extend_from_slice(line);
            if queue.state == State::Waiting {
                self.wake.notify_one();
            }
        }
    }

    /// Waits until everything appended so far was written or lost; `false` when `limit` passed before.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut queue = self.queue.lock();
        while queue.is_busy() {
            if self.idle.wait_until(&mut queue, deadline).timed_out() {
                return !queue.is_busy();
            }
        }
        true
    }

    /// What became of the lines so far.
    pub(super) fn counts(&self) -> Counts {
        self.queue.lock().counts
    }

    fn run(&self, mut sink: Sink, told: fn(u64) -> Vec<u8>) {
        let mut taken = Vec::new();
        loop {
            let lost = self.take(&mut taken);
            if lost > 0 {
                taken.extend_from_slice(&told(lost));
            }
            let (written, _) = sink.write(&taken);
            let (out, rest) = taken.split_at(written.min(taken.len()));
            self.note(out, rest);
            taken.clear();
            taken.shrink_to(KEEP);
        }
    }

    /// Waits for lines and takes them, leaving an empty buffer; how many were lost before.
    fn take(&self, taken: &mut Vec<u8>) -> u64 {
        let mut queue = self.queue.lock();
        queue.state = State::Waiting;
        while !queue.has_news() {
            self.idle.notify_all();
            self.wake.wait(&mut queue);
        }
        queue.state = State::Writing;
        std::mem::swap(&mut queue.text, taken);
        std::mem::take(&mut queue.lost)
    }

    fn note(&self, out: &[u8], rest: &[u8]) {
        let (written, dropped) = (count_lines(out), count_lines(rest));
        let mut queue = self.queue.lock();
        queue.counts.written += written;
        queue.counts.dropped += dropped;
        // An output that fails is told of what it lost with the next line it takes, not in a circle.
        if written > 0 {
            queue.lost += dropped;
        }
    }
}

impl Queue {
    fn has_news(&self) -> bool {
        !self.text.is_empty() || self.lost > 0
    }

    fn is_busy(&self) -> bool {
        self.state == State::Writing || (self.state == State::Waiting && self.has_news())
    }
}

fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const SOON: Duration = Duration::from_secs(20);

    fn told(lost: u64) -> Vec<u8> {
        format!("lost {lost}\n").into_bytes()
    }

    /// A writer whose thread writes into a pipe.
    fn started(bound: usize) -> (&'static LogWriter, io::PipeReader) {
        let writer: &'static LogWriter = Box::leak(Box::new(LogWriter::new()));
        let (reader, pipe) = io::pipe().unwrap();
        let sink = Sink::Standard(std::os::fd::OwnedFd::from(pipe).into());
        writer.set_bound(bound);
        writer.queue.lock().state = State::Waiting;
        thread::spawn(move || writer.run(sink, told));
        (writer, reader)
    }

    fn read_until(reader: &mut io::PipeReader, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut some = [0; 4096];
            let count = reader.read(&mut some).unwrap();
            text.push_str(std::str::from_utf8(&some[..count]).unwrap());
        }
        text
    }

    #[test]
    fn lines_keep_their_order_and_a_flush_waits_for_them() {
        let (writer, mut reader) = started(1 << 20);
        (0..100).for_each(|number| writer.append(format!("{number}\n").as_bytes()));
        assert!(writer.flush(SOON));
        assert_eq!(writer.counts(), Counts { written: 100, dropped: 0 });
        let text = read_until(&mut reader, "\n99\n");
        assert_eq!(text.lines().collect::<Vec<_>>(), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_that_stopped_holds_nobody_up_and_is_told_what_was_lost() {
        let (writer, mut reader) = started(256 * 1024);
        let line = [vec![b'x'; 999], vec![b'\n']].concat();
        // More than the pipe and both buffers hold.
        (0..2000).for_each(|_| writer.append(&line));
        assert!(!writer.flush(Duration::from_millis(10)), "nobody reads");
        let before = writer.counts().dropped;
        assert!(before > 0);
        let mut text = String::new();
        while !text.contains("lost ") {
            text.push_str(&read_until(&mut reader, "\n"));
        }
        let lost = text.lines().find_map(|line| line.strip_prefix("lost ")).unwrap();
        assert_eq!(lost.parse(), Ok(before));
        assert!(writer.flush(SOON));
        // The line that tells of them is one more.
        assert_eq!(writer.counts(), Counts { written: 2001 - before, dropped: before });
    }
}
