//! The process's own log: what the gateway does, on stderr, by a thread of its own (`log_writer`).
//!
//! Text lines read `2026-01-31T12:00:00.000Z INFO background::reload: …`, JSON lines carry `time`,
//! `level`, `target` and `message`. Control and bidirectional characters are escaped, so give every
//! line of a longer text a call of its own. What a request did is not here but in the access log.
//!
//! Lines of other crates rank one level lower than their authors meant below `warn`: their `info` is our
//! `debug`. What Pingora says about single connections and requests (failed handshakes, resets, broken
//! requests, upstream errors) ranks `debug` whatever its level: a client can cause it at will and must not
//! be able to fill a disk. Metrics and the access log count all of it.

use super::escape::{self, Escaped, Style};
pub use super::log_writer::Counts;
use super::log_writer::LogWriter;
use super::{memory, timestamp};
use crate::config::telemetry::{LogConfig, LogFormat, LogLevel};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Modules of other crates that speak about one connection or one request.
const CAUSED_BY_CLIENTS: [&str; 8] = [
    "pingora_proxy",
    "pingora_pool",
    "pingora_core::apps",
    "pingora_core::connectors",
    "pingora_core::listeners",
    "pingora_core::protocols",
    "pingora_core::upstreams",
    "h2",
];

/// Longest time the last lines get at the end of the process, if nobody takes them.
const LAST: Duration = Duration::from_secs(2);
/// Longest time a thread that panics waits until that can be read: it may be one that serves.
const PANIC: Duration = Duration::from_millis(100);

static LOGGER: StderrLog = StderrLog { json: AtomicBool::new(false), writer: LogWriter::new() };

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct StderrLog {
    json: AtomicBool,
    writer: LogWriter,
}

/// Installs the log, and makes it where panics are told. Without a thread of its own every line is written by
/// who has something to say.
pub fn init(config: &LogConfig) {
    reconfigure(config);
    // Fails only when a log is installed already, which is ours or a test's.
    let _ = log::set_logger(&LOGGER);
    if let Err(error) = LOGGER.writer.start(lost) {
        log::warn!("who reads this log slowly holds up who writes it: {error}");
    }
    panic::set_hook(Box::new(tell_panic));
}

/// Waits, not for long, until everything said so far was written: for the end of the process.
pub fn flush() {
    LOGGER.writer.flush(LAST);
}

/// What became of the lines so far.
pub fn counts() -> Counts {
    LOGGER.writer.counts()
}

/// Changes level, format and memory at once, for every thread.
pub fn reconfigure(config: &LogConfig) {
    LOGGER.writer.set_bound(memory::of_process_log(config.memory));
    LOGGER.json.store(config.format == LogFormat::Json, Ordering::Relaxed);
    log::set_max_level(match config.level {
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Trace => LevelFilter::Trace,
    });
}

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        rank(metadata) <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let json = self.json.load(Ordering::Relaxed);
        // A message that logs while it is being formatted, or while its thread ends, gets a line of its own.
        let reused = LINE.try_with(|line| {
            line.try_borrow_mut().map(|mut line| write_line(&mut line, record, json)).is_ok()
        });
        if !reused.unwrap_or(false) {
            write_line(&mut Vec::new(), record, json);
        }
    }

    fn flush(&self) {
        flush();
    }
}

/// In place of the standard library's hook, which waits for who reads standard error.
fn tell_panic(info: &PanicHookInfo<'_>) {
    let thread = thread::current();
    log::error!("thread `{}`: {info}", thread.name().unwrap_or("without a name"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        trace.to_string().lines().for_each(|line| log::error!("{line}"));
    }
    LOGGER.writer.flush(PANIC);
}

/// The line that says how many were lost.
fn lost(lines: u64) -> Vec<u8> {
    let mut line = Vec::new();
    let message = format_args!("{lines} lines of this log are lost: standard error did not take them");
    let record = Record::builder().level(Level::Warn).target(module_path!()).args(message).build();
    compose(&mut line, &record, LOGGER.json.load(Ordering::Relaxed), SystemTime::now());
    line
}

/// How severe a line is for the reader of this log.
fn rank(metadata: &Metadata<'_>) -> Level {
    let target = metadata.target();
    if is_inside(target, "portcullis") {
        return metadata.level();
    }
    match metadata.level() {
        Level::Error | Level::Warn if is_caused_by_clients(metadata) => Level::Debug,
        Level::Error => Level::Error,
        Level::Warn => Level::Warn,
        Level::Info => Level::Debug,
        Level::Debug | Level::Trace => Level::Trace,
    }
}

fn is_caused_by_clients(metadata: &Metadata<'_>) -> bool {
    CAUSED_BY_CLIENTS.iter().any(|module| is_inside(metadata.target(), module))
}

fn is_inside(target: &str, module: &str) -> bool {
    target.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn write_line(line: &mut Vec<u8>, record: &Record<'_>, json: bool) {
    line.clear();
    compose(line, record, json, SystemTime::now());
    LOGGER.writer.append(line);
    line.shrink_to(4096);
}

fn compose(line: &mut Vec<u8>, record: &Record<'_>, json: bool, now: SystemTime) {
    let target = record.target().strip_prefix("portcullis::").unwrap_or(record.target()).as_bytes();
    let level = rank(record.metadata()).as_str();
    if json {
        line.extend_from_slice(b"{\"time\":\"");
        timestamp::append_rfc3339(line, now);
        line.extend_from_slice(b"\",\"level\":\"");
        line.extend(level.bytes().map(|letter| letter.to_ascii_lowercase()));
        line.extend_from_slice(b"\",\"target\":\"");
        escape::append(line, target, Style::Json);
        line.extend_from_slice(b"\",\"message\":\"");
        let _ = write!(Escaped(line, Style::Json), "{}", record.args());
        line.extend_from_slice(b"\"}\n");
    } else {
        timestamp::append_rfc3339(line, now);
        line.push(b' ');
        line.extend_from_slice(level.as_bytes());
        line.push(b' ');
        escape::append(line, target, Style::Plain);
        line.extend_from_slice(b": ");
        let _ = write!(Escaped(line, Style::Plain), "{}", record.args());
        line.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn line(target: &str, level: Level, message: &str, json: bool) -> String {
        let mut line = Vec::new();
        let args = format_args!("{message}");
        let record = Record::builder().target(target).level(level).args(args).build();
        compose(&mut line, &record, json, UNIX_EPOCH);
        String::from_utf8(line).unwrap()
    }

    fn ranked(target: &str, level: Level) -> Level {
        rank(&Metadata::builder().target(target).level(level).build())
    }

    #[test]
    fn a_line_names_the_room_and_stays_one_line() {
        let text = line("portcullis::background::reload", Level::Info, "a\nb \u{202e}\"c\"", false);
        assert_eq!(text, "1970-01-01T00:00:00.000Z INFO background::reload: a\\nb \\u202e\"c\"\n");
    }

    #[test]
    fn json_lines_parse() {
        let text = line("portcullis", Level::Warn, "\"x\"\r\n\\", true);
        assert_eq!(text.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["message"], "\"x\"\r\n\\");
        assert_eq!((&value["level"], &value["target"]), (&"warn".into(), &"portcullis".into()));
    }

    #[test]
    fn a_panic_is_a_line_of_the_log() {
        let usual = panic::take_hook();
        init(&LogConfig::default());
        let before = counts();
        thread::spawn(|| panic!("as this test wants")).join().expect_err("a panic");
        flush();
        panic::set_hook(usual);
        assert!(counts().written > before.written);
    }

    #[test]
    fn what_clients_cause_at_will_is_no_error() {
        for target in ["pingora_proxy", "pingora_proxy::proxy_h1", "pingora_core::protocols::http::v2", "h2"]
        {
            assert_eq!(ranked(target, Level::Error), Level::Debug, "{target}");
        }
        assert_eq!(ranked("pingora_core::server", Level::Error), Level::Error);
        assert_eq!(ranked("pingora_core::server", Level::Info), Level::Debug);
        assert_eq!(ranked("h2x", Level::Warn), Level::Warn);
        assert_eq!(ranked("portcullis::edge", Level::Info), Level::Info);
        assert_eq!(ranked("portcullisx", Level::Info), Level::Debug);
    }
}
