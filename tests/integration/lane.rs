//! The straight lane against the engine: whatever client and origin do, both see the same, the access
//! record says the same, and the metrics count the same.

mod bodies;
mod cases;
mod play;
mod reading;
mod texts;
mod uploads;

use self::cases::Case;
use self::play::{Origin, Seen, play};
use crate::support::eventually::{DEADLINE, within};
use crate::support::ports::ClosedPort;
use crate::support::{Connection, Gateway, Origin as SimpleOrigin};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cases of one pair of gateways; each has a listening socket for each of them.
const BATCH: usize = 60;

/// Cases played at a time.
const PLAYERS: usize = 6;

/// Everything there is to compare of one case.
#[derive(Debug, PartialEq)]
struct Notes {
    client: Vec<String>,
    origin: Vec<Seen>,
    records: Vec<String>,
}

/// A gateway and its origin for each case of a batch.
struct Side {
    gateway: Gateway,
    origins: Vec<Origin>,
    /// Ports of each case where nobody listens.
    dead: Vec<Vec<ClosedPort>>,
}

#[test]
fn responses_whole_and_in_pieces() {
    compare(&cases::responses());
}

#[test]
fn requests_of_every_kind() {
    compare(&cases::requests());
}

#[test]
fn responses_that_break_off() {
    compare(&cases::broken_off());
}

#[test]
fn clients_and_origins_with_their_own_pace() {
    compare(&cases::paces());
}

#[test]
fn bodies_of_every_kind() {
    compare(&bodies::framings());
}

#[test]
fn bodies_that_break_off() {
    compare(&bodies::broken_off());
}

#[test]
fn answers_before_the_end_of_a_body() {
    compare(&bodies::early_answers());
}

#[test]
fn clients_that_stop_in_the_middle_of_a_body() {
    compare_patient(&bodies::stalls(), "2s");
}

#[test]
fn there_are_enough_cases() {
    let tables = [cases::responses(), cases::requests(), cases::broken_off(), cases::paces()];
    let count: usize = tables.iter().map(Vec::len).sum();
    assert!(count >= 500, "{count} cases");
    let tables = [bodies::framings(), bodies::broken_off(), bodies::early_answers(), bodies::stalls()];
    let count: usize = tables.iter().map(Vec::len).sum();
    assert!(count >= 500, "{count} cases with bodies");
}

/// The one difference there is: lane and engine keep idle connections apart. It shows that the lane is taken
/// at all, with a body and without, and that it can be turned off.
#[test]
fn requests_of_every_kind_share_the_connections_of_the_lane() {
    for lane in ["on", "off"] {
        let origin = SimpleOrigin::fixed("hi");
        let yaml =
            format!("workers: 1\nproxy: {{ lane: {lane} }}\nroutes: [{{ upstream: [\"{{ORIGIN}}\"] }}]\n");
        let gateway = Gateway::with_origin(&yaml, &origin);
        let mut client = gateway.connect();
        assert_eq!(client.get("app.test", "/", "").text(), "hi");
        for body in
            ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
        {
            let post = format!("POST / HTTP/1.1\r\nHost: app.test\r\n{body}");
            assert_eq!(client.request(&post).text(), "hi");
            assert_eq!(origin.connections(), 1, "lane: {lane}, {body}");
        }
        let post =
            "POST / HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc";
        client.send(post);
        assert_eq!(client.response().text(), "hi");
        assert_eq!(origin.connections(), 1, "lane: {lane}, Expect");
        let upgrade = "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        client.send(upgrade);
        assert_eq!(client.response().text(), "hi");
        assert_eq!(origin.connections(), 1, "lane: {lane}, Upgrade");
    }
}

#[test]
fn the_lane_can_be_turned_off_and_on_by_a_reload() {
    let origin = SimpleOrigin::fixed("hi");
    let yaml =
        |lane| format!("proxy: {{ lane: {lane} }}\nworkers: 1\nroutes: [{{ upstream: [\"{{ORIGIN}}\"] }}]\n");
    let gateway = Gateway::with_origin(&yaml("on"), &origin);
    let mut client: Connection = gateway.connect();
    for (lane, connections) in [("off", 2), ("on", 2)] {
        assert_eq!(client.get("app.test", "/", "").text(), "hi");
        gateway.reload(&yaml(lane));
        assert_eq!(client.get("app.test", "/", "").text(), "hi");
        assert_eq!(origin.connections(), connections, "lane: {lane}");
    }
}

fn compare(cases: &[Case]) {
    compare_patient(cases, "20s");
}

/// `patience`: how long a client may be silent in the middle of a body.
fn compare_patient(cases: &[Case], patience: &str) {
    let only = std::env::var("LANE_CASE").unwrap_or_default();
    let chosen: Vec<&Case> = cases.iter().filter(|case| case.name.contains(&only)).collect();
    let mut failures = Vec::new();
    for batch in chosen.chunks(BATCH) {
        failures.extend(compare_batch(batch, patience));
    }
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), chosen.len(), failures.join("\n"));
}

fn compare_batch(batch: &[&Case], patience: &str) -> Vec<String> {
    let sides = ["on", "off"].map(|lane| Side::start(batch, lane, patience));
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(case) = batch.get(number) else { return };
                    if let Err(failure) = compare_case(case, number, &sides) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    if failures.is_empty() {
        let settled = within(DEADLINE, || (sides[0].counts(batch) == sides[1].counts(batch)).then_some(()));
        if settled.is_none() {
            failures.push(difference("metrics", &sides[0].counts(batch), &sides[1].counts(batch)));
        }
    }
    failures
}

fn compare_case(case: &Case, number: usize, sides: &[Side; 2]) -> Result<(), String> {
    let clients = sides.each_ref().map(|side| side.play(case, number));
    let notes = || {
        let [on, off] = [0, 1].map(|side: usize| sides[side].notes(case, number, &clients[side]));
        (on == off && on.is_complete(case)).then_some(())
    };
    match within(DEADLINE, notes) {
        Some(()) => Ok(()),
        None => {
            let [on, off] = [0, 1].map(|side: usize| sides[side].notes(case, number, &clients[side]));
            Err(difference(&case.name, &format!("{on:#?}"), &format!("{off:#?}")))
        }
    }
}

impl Notes {
    /// Whether there is a record for everything the client was answered.
    fn is_complete(&self, case: &Case) -> bool {
        let is_final = |note: &&String| note.starts_with("HTTP/") && !note.starts_with("HTTP/1.1 1");
        self.records.len() >= self.client.iter().filter(is_final).count().max(case.records)
    }
}

impl Side {
    fn start(batch: &[&Case], lane: &str, patience: &str) -> Side {
        let origins: Vec<Origin> =
            batch.iter().map(|case| Origin::start(case.origin.clone(), case.races)).collect();
        let mut yaml = format!(
            "workers: 1\nproxy: {{ lane: {lane} }}\nlimits: {{ body_idle_timeout: {patience} }}\n\
             access_log: {{ format: json }}\nroutes:\n"
        );
        let (mut upstreams, mut all_dead) = (String::from("upstreams:\n"), Vec::new());
        for (number, (case, origin)) in batch.iter().zip(&origins).enumerate() {
            let name = format!("c{number}");
            let (timeouts, limits) = (case.timeouts, case.limits);
            let _ = writeln!(
                yaml,
                "  - {{ name: {name}, hosts: [{name}.test], upstream: {name}, timeouts: {{ {timeouts} }}, \
                 limits: {{ {limits} }} }}"
            );
            let dead: Vec<ClosedPort> = (0..case.dead).map(|_| ClosedPort::new()).collect();
            let addresses: Vec<String> = dead.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            let endpoints = if dead.is_empty() { origin.address().to_string() } else { addresses.join(", ") };
            let _ = writeln!(upstreams, "  {name}: {{ endpoints: [{endpoints}] }}");
            all_dead.push(dead);
        }
        yaml.push_str("  - { name: rest, respond: { status: 404 } }\n");
        Side { gateway: Gateway::start(&(yaml + &upstreams)), origins, dead: all_dead }
    }

    fn play(&self, case: &Case, number: usize) -> Vec<String> {
        play(self.gateway.address(), &case.client_of(number), &self.origins[number])
    }

    fn notes(&self, case: &Case, number: usize, client: &[String]) -> Notes {
        let output = self.gateway.output();
        let host = format!("\"host\":\"c{number}.test\"");
        let own = output.lines().filter(|line| line.contains(&host));
        Notes {
            client: client.to_vec(),
            origin: self.origins[number].seen(),
            records: own.map(|record| normal_record(record, case.races)).collect(),
        }
    }

    /// Every series that counts.
    fn counts(&self, batch: &[&Case]) -> String {
        let scrape = self.gateway.admin("/metrics");
        let counts = |line: &&str| {
            line.starts_with("portcullis_")
                && !["_sum", "_bucket", "time", "build_info", "config_generation"]
                    .iter()
                    .any(|part| line.split(['{', ' ']).next().unwrap_or_default().contains(part))
        };
        let mut text = scrape.text().lines().filter(counts).collect::<Vec<_>>().join("\n");
        for (number, (case, origin)) in batch.iter().zip(&self.origins).enumerate() {
            text = text.replace(&origin.address().to_string(), &format!("origin of c{number}"));
            for (place, port) in self.dead[number].iter().enumerate() {
                text = text.replace(&format!("127.0.0.1:{port}"), &format!("{place} of c{number}"));
            }
            if case.races {
                let moved = ["request", "response"]
                    .map(|way| format!("portcullis_http_{way}_bytes_total{{route=\"c{number}\"}}"));
                let counts = |line: &&str| !moved.iter().any(|series| line.starts_with(series));
                text = text.lines().filter(counts).collect::<Vec<_>>().join("\n");
            }
        }
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

/// What is never the same twice is only noted to be there.
fn normal_record(record: &str, races: bool) -> String {
    let mut record: serde_json::Value = serde_json::from_str(record).expect("a JSON record");
    let fields = record.as_object_mut().expect("a record");
    for (name, value) in fields.iter_mut() {
        let varies = ["time", "request_id", "peer", "endpoint"].contains(&name.as_str())
            || name.contains("duration")
            || name.contains("_time")
            || name.contains("_ms")
            || (races && ["bytes_in", "bytes_out"].contains(&name.as_str()));
        if varies && !value.is_null() {
            *value = serde_json::Value::from("*");
        }
    }
    record.to_string()
}

fn difference(title: &str, on: &str, off: &str) -> String {
    let mut text = format!("== {title}\n");
    let (on, off): (Vec<&str>, Vec<&str>) = (on.lines().collect(), off.lines().collect());
    let common = on.iter().zip(&off).take_while(|(on, off)| on == off).count();
    for (name, lines) in [("lane", on), ("engine", off)] {
        let from = common.saturating_sub(12);
        let _ = writeln!(
            text,
            "-- {name}\n{}",
            lines[from.min(lines.len())..(common + 12).min(lines.len())].join("\n")
        );
    }
    text
}
