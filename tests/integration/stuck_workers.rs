//! A worker that stands still: it is seen and named, and the process can leave without it.

use crate::support::Gateway;
use crate::support::eventually::{DEADLINE, holds, until};
use crate::support::threads::HeldThread;
use std::time::Duration;

const HELLO: &str = "routes: [{ respond: { body: hello } }]\n";
/// As the gateway counts it.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// How it leaves behind what does not end.
const STUCK: i32 = 4;

fn silent(gateway: &Gateway, worker: &str) -> f64 {
    gateway.metrics().get("portcullis_worker_silent_seconds", &[("worker", worker)]).expect("a series")
}

#[test]
fn a_worker_that_does_not_turn_is_named_until_it_does() {
    let gateway = Gateway::start(HELLO);
    assert_eq!(gateway.admin("/livez").status, 200);
    let held = HeldThread::of(gateway.pid(), "worker 1");
    until("a sign that it is missed", || gateway.admin("/livez").status == 503);
    let (said, ready) = (gateway.admin("/livez"), gateway.admin("/readyz"));
    assert!(said.text().starts_with("worker 1 has not turned for 1"), "{}", said.text());
    assert!(!said.text().contains("worker 0"), "{}", said.text());
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("2 of 2 workers up, worker 1 has not turned for"), "{}", ready.text());
    assert!(silent(&gateway, "1") >= STUCK_AFTER.as_secs_f64());
    assert!(silent(&gateway, "0") < silent(&gateway, "1"));
    gateway.wait_log("worker 1 has not turned for 10 s: its connections stand still");
    drop(held);
    until("a worker that turns", || gateway.admin("/livez").status == 200);
    gateway.wait_log("worker 1 turns again");
    assert_eq!(gateway.admin("/readyz").status, 200);
}

#[test]
fn a_process_that_stood_still_as_a_whole_has_nobody_who_is_stuck() {
    let gateway = Gateway::start(HELLO);
    until("workers that turn", || silent(&gateway, "0") + silent(&gateway, "1") == 0.0);
    gateway.signal(libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", gateway.pid());
    let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
    until("a process that stands still", is_stopped);
    holds("its standing still", STUCK_AFTER + Duration::from_secs(2), is_stopped);
    gateway.signal(libc::SIGCONT);
    holds("life", Duration::from_secs(2), || gateway.admin("/livez").status == 200);
    assert!(!gateway.log().contains("has not turned"));
}

#[test]
fn a_process_leaves_without_a_worker_that_is_stuck() {
    let mut gateway = Gateway::start(&format!("{HELLO}shutdown: {{ drain: 1s }}\n"));
    assert_eq!(gateway.get("a", "/").text(), "hello");
    let held = HeldThread::of(gateway.pid(), "worker 0");
    gateway.term();
    held.wait_end();
    assert_eq!(gateway.wait_exit(DEADLINE), STUCK);
    assert!(gateway.log().contains("leaving without it"), "{}", gateway.log());
    // The other one's record is not lost with it.
    assert_eq!(gateway.access_records().len(), 1);
}
