//! Gets access lines out of the process without a request ever waiting for a disk.
//!
//! Each serving thread appends to a buffer of its own; one writer thread takes the buffers every 100 ms,
//! or as soon as one holds 64 KiB, and writes them whole. Lines of one serving thread keep their order. A
//! full buffer (its part of `log.memory`, when the output stalls) drops further lines, which are counted. An output that
//! fails loses the lines at hand, is reported at most once a minute, and is tried again with the next
//! lines. Lives as long as the process; does not know what a line says.

use super::super::memory;
use super::super::sink::Sink;
use crate::config::{AccessLogOutput, ByteSize};
use crate::telemetry::metrics::Metrics;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(100);
/// Small enough to stay in a CPU's cache, big enough that waking the writer costs nothing per line.
const WAKE_AT: usize = 64 * 1024;
/// Memory a buffer keeps after a stall is over.
const KEEP: usize = 256 * 1024;
/// Keeps an absurd deadline from overflowing the clock.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The access log's output and its thread.
pub struct AccessLogWriter {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    buffers: Box<[Buffer]>,
    on: AtomicBool,
    /// A buffer that holds this much takes no further line.
    bound: AtomicUsize,
    orders: Mutex<Orders>,
    wake: Condvar,
    done: Condvar,
    metrics: Arc<Metrics>,
}

/// On cache lines of its own: serving threads must not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Buffer(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    asked: bool,
    closed: bool,
}

/// What the writer thread is asked to do. `done` follows `asked`: everything appended before a request
/// was made is written once `done` has reached its number.
struct Orders {
    output: AccessLogOutput,
    sink: Option<Sink>,
    reopen: bool,
    stop: bool,
    hurry: bool,
    asked: u64,
    done: u64,
    finished: bool,
}

struct Writer {
    shared: Arc<Shared>,
    sink: Sink,
    spare: Vec<u8>,
    mid_line: bool,
    error: Option<io::Error>,
    reported: Option<Instant>,
    dropped_reported: u64,
}

static NEXT_BUFFER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static BUFFER: usize = NEXT_BUFFER.fetch_add(1, Ordering::Relaxed);
}

impl AccessLogWriter {
    /// Opens the output (path resolved) and starts the thread. Fails when either cannot be had. `threads` is
    /// how many append lines, `memory` what both logs may hold.
    pub fn start(
        output: &AccessLogOutput,
        metrics: Arc<Metrics>,
        threads: usize,
        memory: ByteSize,
    ) -> io::Result<Arc<AccessLogWriter>> {
        let sink = Sink::open(output)?;
        let shared = Arc::new(Shared::new(output, metrics, threads, memory));
        let writer = Writer::new(Arc::clone(&shared), sink);
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || writer.run())?;
        Ok(Arc::new(AccessLogWriter { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Lets `write` append one line to the buffer of the calling thread. Does nothing while the log is
    /// off. Takes a lock that nobody else wants but for a moment every 100 ms; makes a system call only
    /// when 64 KiB have come together.
    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.shared.append(write);
    }

    /// Changes the output, at reload. Lines appended before go to the old one. When the new one cannot be
    /// opened nothing changes.
    pub fn set_output(&self, output: &AccessLogOutput) -> io::Result<()> {
        if self.shared.orders.lock().output == *output {
            return Ok(());
        }
        let sink = Sink::open(output)?;
        self.shared.order(|orders| {
            orders.sink = Some(sink);
            orders.output = output.clone();
            self.shared.on.store(*output != AccessLogOutput::Off, Ordering::Relaxed);
        });
        Ok(())
    }

    /// Changes what both logs may hold.
    pub fn set_memory(&self, memory: ByteSize) {
        self.shared.set_memory(memory);
    }

    /// Writes what is buffered, then opens the file anew under its name: for log rotation. A file that
    /// cannot be opened is reported, and the old one is written on.
    pub fn reopen(&self) {
        self.shared.order(|orders| orders.reopen = true);
    }

    /// Waits until everything appended so far was written or dropped; `false` when `deadline` passed.
    pub fn flush(&self, deadline: Duration) -> bool {
        let number = self.shared.order(|_| {});
        self.shared.wait_until(deadline, |orders| orders.finished || orders.done >= number)
    }

    /// Writes what is buffered and ends the thread; `false` when `deadline` passed before. Lines appended
    /// later are dropped and counted.
    pub fn shutdown(&self, deadline: Duration) -> bool {
        self.shared.order(|orders| orders.stop = true);
        let finished = self.shared.wait_until(deadline, |orders| orders.finished);
        if let Some(thread) = self.thread.lock().take_if(|_| finished) {
            let _ = thread.join();
        }
        finished
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.shared.order(|orders| orders.stop = true);
    }
}

impl Shared {
    fn new(output: &AccessLogOutput, metrics: Arc<Metrics>, buffers: usize, memory: ByteSize) -> Shared {
        let orders = Orders {
            output: output.clone(),
            sink: None,
            reopen: false,
            stop: false,
            hurry: false,
            asked: 0,
            done: 0,
            finished: false,
        };
        Shared {
            buffers: (0..buffers).map(|_| Buffer::default()).collect(),
            on: AtomicBool::new(*output != AccessLogOutput::Off),
            bound: AtomicUsize::new(memory::of_access_log(memory, buffers)),
            orders: Mutex::new(orders),
            wake: Condvar::new(),
            done: Condvar::new(),
            metrics,
        }
    }

    fn set_memory(&self, memory: ByteSize) {
        self.bound.store(memory::of_access_log(memory, self.buffers.len()), Ordering::Relaxed);
    }

    fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let index = BUFFER.with(|index| index % self.buffers.len().max(1));
        let Some(buffer) = self.buffers.get(index) else { return };
        let bound = self.bound.load(Ordering::Relaxed);
        let mut lines = buffer.0.lock();
        if lines.closed || lines.text.len() >= bound {
            self.metrics.access_log_dropped().inc();
            return;
        }
        write(&mut lines.text);
        if lines.text.last().is_some_and(|last| *last != b'\n') {
            lines.text.push(b'\n');
        }
        if lines.text.len() >= WAKE_AT.min(bound / 2) && !lines.asked {
            lines.asked = true;
            drop(lines);
            self.orders.lock().hurry = true;
            self.wake.notify_one();
        }
    }

    /// Leaves an order and wakes the writer; the number of the order.
    fn order(&self, change: impl FnOnce(&mut Orders)) -> u64 {
        let mut orders = self.orders.lock();
        change(&mut orders);
        orders.asked += 1;
        orders.hurry = true;
        self.wake.notify_one();
        orders.asked
    }

    fn wait_until(&self, deadline: Duration, reached: impl Fn(&Orders) -> bool) -> bool {
        let end = Instant::now() + deadline.min(LONGEST_WAIT);
        let mut orders = self.orders.lock();
        while !reached(&orders) && !orders.finished {
            if self.done.wait_until(&mut orders, end).timed_out() {
                break;
            }
        }
        reached(&orders)
    }
}

impl Writer {
    fn new(shared: Arc<Shared>, sink: Sink) -> Writer {
        Writer {
            shared,
            sink,
            spare: Vec::new(),
            mid_line: false,
            error: None,
            reported: None,
            dropped_reported: 0,
        }
    }

    fn run(mut self) {
        loop {
            let (number, sink, reopen, stop) = self.next_orders();
            // Nothing can be written while the log is off, so the new output must be there first.
            let early = matches!(self.sink, Sink::Off);
            let (before, after) = if early { (sink, None) } else { (None, sink) };
            self.switch_to(before);
            self.drain(stop);
            self.switch_to(after);
            if reopen {
                self.reopen();
            }
            self.report();
            let mut orders = self.shared.orders.lock();
            orders.done = number;
            orders.finished = stop;
            self.shared.done.notify_all();
            if stop {
                return;
            }
        }
    }

    /// Waits until it is time or somebody asks, and takes what was asked.
    fn next_orders(&self) -> (u64, Option<Sink>, bool, bool) {
        let mut orders = self.shared.orders.lock();
        if !orders.hurry {
            self.shared.wake.wait_for(&mut orders, INTERVAL);
        }
        orders.hurry = false;
        (orders.asked, orders.sink.take(), std::mem::take(&mut orders.reopen), orders.stop)
    }

    fn switch_to(&mut self, sink: Option<Sink>) {
        if let Some(sink) = sink {
            self.sink = sink;
            self.mid_line = false;
        }
    }

    fn reopen(&mut self) {
        match self.sink.reopen() {
            Ok(()) => self.mid_line = false,
            Err(error) => {
                log::error!("the access log cannot be reopened, writing on in the old file: {error}")
            }
        }
    }

    /// Takes every buffer in turn, leaving an empty one behind, and writes it.
    fn drain(&mut self, close: bool) {
        let shared = Arc::clone(&self.shared);
        for buffer in &shared.buffers {
            let mut taken = std::mem::take(&mut self.spare);
            {
                let mut lines = buffer.0.lock();
                lines.closed |= close;
                lines.asked = false;
                if !lines.text.is_empty() {
                    std::mem::swap(&mut lines.text, &mut taken);
                }
            }
            self.write_out(&taken);
            taken.clear();
            taken.shrink_to(KEEP);
            self.spare = taken;
        }
    }

    fn write_out(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if self.mid_line {
            // A line was cut by an error: it must not swallow the next one.
            let (ended, error) = self.sink.write(b"\n");
            self.mid_line = ended == 0;
            self.error = error.or(self.error.take());
        }
        let (written, error) = if self.mid_line { (0, None) } else { self.sink.write(text) };
        let (out, lost) = text.split_at(written.min(text.len()));
        self.mid_line |= out.last().is_some_and(|last| *last != b'\n');
        self.error = error.or(self.error.take());
        self.shared.metrics.access_log_written().inc_by(count_lines(out));
        self.shared.metrics.access_log_dropped().inc_by(count_lines(lost));
    }

    fn report(&mut self) {
        let dropped = self.shared.metrics.access_log_dropped().get();
        if dropped == self.dropped_reported || self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        let lost = dropped - self.dropped_reported;
        match self.error.take() {
            Some(error) => log::error!("{lost} access log lines lost: {error}"),
            None => log::warn!("{lost} access log lines lost: the output is too slow"),
        }
        self.dropped_reported = dropped;
        self.reported = Some(Instant::now());
    }
}

fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
