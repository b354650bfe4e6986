//! Tests of `writer`: order, rotation, change of output, full and failing outputs.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SOON: Duration = Duration::from_secs(20);
const MEMORY: ByteSize = ByteSize::mib(64);

struct Fixture {
    folder: tempfile::TempDir,
    metrics: Arc<Metrics>,
    writer: Arc<AccessLogWriter>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Metrics::new();
        let output = AccessLogOutput::File(folder.path().join("access.log"));
        let writer = AccessLogWriter::start(&output, Arc::clone(&metrics), 4, MEMORY).unwrap();
        Fixture { folder, metrics, writer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn say(&self, line: &str) {
        self.writer.append(|out| out.extend_from_slice(line.as_bytes()));
    }

    fn counts(&self) -> (u64, u64) {
        (self.metrics.access_log_written().get(), self.metrics.access_log_dropped().get())
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn lines_of_a_thread_keep_their_order_and_none_is_lost() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || (0..20_000).for_each(|line| fixture.say(&format!("{thread} {line}\n"))));
        }
    });
    assert!(fixture.writer.shutdown(SOON));
    let mut next = [0; 4];
    for line in text(&fixture.path("access.log")).lines() {
        let (thread, number) = line.split_once(' ').unwrap();
        let next = &mut next[thread.parse::<usize>().unwrap()];
        assert_eq!(number.parse(), Ok(*next));
        *next += 1;
    }
    assert_eq!((next, fixture.counts()), ([20_000; 4], (80_000, 0)));
}

#[test]
fn the_file_is_not_for_everybody() {
    let fixture = Fixture::new();
    let mode = std::fs::metadata(fixture.path("access.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

#[test]
fn lines_arrive_without_being_asked_for() {
    let fixture = Fixture::new();
    fixture.say("a");
    let end = Instant::now() + SOON;
    while text(&fixture.path("access.log")) != "a\n" {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

#[test]
fn rotation_splits_the_log_between_two_lines() {
    let fixture = Fixture::new();
    fixture.say("before\n");
    std::fs::rename(fixture.path("access.log"), fixture.path("access.log.1")).unwrap();
    fixture.writer.reopen();
    assert!(fixture.writer.flush(SOON));
    fixture.say("after\n");
    assert!(fixture.writer.shutdown(SOON));
    assert_eq!(text(&fixture.path("access.log.1")), "before\n");
    assert_eq!(text(&fixture.path("access.log")), "after\n");
}

#[test]
fn rotation_that_fails_goes_on_in_the_old_file() {
    let fixture = Fixture::new();
    std::fs::rename(fixture.path("access.log"), fixture.path("old")).unwrap();
    std::fs::create_dir(fixture.path("access.log")).unwrap();
    fixture.writer.reopen();
    assert!(fixture.writer.flush(SOON));
    fixture.say("after\n");
    assert!(fixture.writer.shutdown(SOON));
    assert_eq!(text(&fixture.path("old")), "after\n");
}

#[test]
fn a_change_of_output_loses_nothing_and_off_writes_nothing() {
    let fixture = Fixture::new();
    let other = AccessLogOutput::File(fixture.path("other.log"));
    fixture.say("1\n");
    fixture.writer.set_output(&other).unwrap();
    assert!(fixture.writer.flush(SOON));
    fixture.say("2\n");
    fixture.writer.set_output(&AccessLogOutput::Off).unwrap();
    assert!(fixture.writer.flush(SOON));
    fixture.say("3\n");
    fixture.writer.set_output(&other).unwrap();
    fixture.say("4\n");
    assert!(fixture.writer.shutdown(SOON));
    assert_eq!(text(&fixture.path("access.log")), "1\n");
    assert_eq!(text(&fixture.path("other.log")), "2\n4\n");
    assert_eq!(fixture.counts(), (3, 0));
}

#[test]
fn an_output_that_cannot_be_opened_changes_nothing() {
    let fixture = Fixture::new();
    let missing = AccessLogOutput::File(fixture.path("no/such/folder"));
    assert!(fixture.writer.set_output(&missing).is_err());
    fixture.say("1\n");
    assert!(fixture.writer.shutdown(SOON));
    assert_eq!(text(&fixture.path("access.log")), "1\n");
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.writer.set_output(&AccessLogOutput::File("/dev/full".into())).unwrap();
    assert!(fixture.writer.flush(SOON));
    fixture.say("1\n");
    fixture.say("2\n");
    assert!(fixture.writer.flush(SOON));
    assert_eq!(fixture.counts(), (0, 2));
    fixture.writer.set_output(&AccessLogOutput::File(fixture.path("access.log"))).unwrap();
    assert!(fixture.writer.flush(SOON));
    fixture.say("3\n");
    assert!(fixture.writer.shutdown(SOON));
    assert_eq!((text(&fixture.path("access.log")).as_str(), fixture.counts()), ("3\n", (1, 2)));
}

#[test]
fn a_full_buffer_drops_and_counts() {
    let metrics = Metrics::new();
    let shared = Shared::new(&AccessLogOutput::Stdout, Arc::clone(&metrics), 4, MEMORY);
    let line = vec![b'x'; 1024 * 1024];
    let append = |times| (0..times).for_each(|_| shared.append(|out| out.extend_from_slice(&line)));
    append(10);
    // 56 MiB for four buffers and one that is written, each of which may hold twice its bytes.
    assert_eq!(metrics.access_log_dropped().get(), 10 - 6);
    let held = || shared.buffers.iter().map(|buffer| buffer.0.lock().text.len()).sum::<usize>();
    assert!(held() < MEMORY.0 as usize / 4, "{}", held());
    shared.set_memory(ByteSize::mib(128));
    append(10);
    assert_eq!(metrics.access_log_dropped().get(), 4 + 10 - 6);
}

#[test]
fn a_reader_that_went_away_costs_its_lines_only() {
    let metrics = Metrics::new();
    let (reader, pipe) = std::io::pipe().unwrap();
    let sink = Sink::Standard(std::os::fd::OwnedFd::from(pipe).into());
    let shared = Arc::new(Shared::new(&AccessLogOutput::Stdout, Arc::clone(&metrics), 1, MEMORY));
    let mut writer = Writer::new(Arc::clone(&shared), sink);
    shared.append(|out| out.extend_from_slice(b"1\n"));
    writer.drain(false);
    drop(reader);
    shared.append(|out| out.extend_from_slice(b"2\n"));
    writer.drain(false);
    assert_eq!((metrics.access_log_written().get(), metrics.access_log_dropped().get()), (1, 1));
}

#[test]
fn lines_after_the_end_are_counted() {
    let fixture = Fixture::new();
    assert!(fixture.writer.shutdown(SOON));
    fixture.say("late\n");
    assert!(fixture.writer.shutdown(SOON) && fixture.writer.flush(SOON));
    assert_eq!(fixture.counts(), (0, 1));
}

#[test]
fn a_line_cut_by_an_error_does_not_swallow_the_next_one() {
    let metrics = Metrics::new();
    let (mut reader, pipe) = std::io::pipe().unwrap();
    let sink = Sink::Standard(std::os::fd::OwnedFd::from(pipe).into());
    let shared = Arc::new(Shared::new(&AccessLogOutput::Stdout, metrics, 1, MEMORY));
    let mut writer = Writer::new(Arc::clone(&shared), sink);
    writer.mid_line = true;
    shared.append(|out| out.extend_from_slice(b"2\n"));
    writer.drain(false);
    drop(writer);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "\n2\n");
}
