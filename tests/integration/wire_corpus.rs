//! Every case of `tests/fixtures/wire`, in one piece and byte by byte, through gateways that each take many
//! of them: what the client gets, what the origin sees, and that nothing of one case is left for the next.

use crate::support::eventually::{DEADLINE, within};
use crate::support::wire::{self, Case};
use crate::support::{Connection, Gateway, Origin, Received, Reply};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const YAML: &str = "workers: 1\n\
    limits: { header_timeout: 5s, body_idle_timeout: 5s, idle_timeout: 60s, body: 1KiB }\n\
    routes:\n  - { name: own, hosts: [app.test], path: /own, respond: { body: own } }\n  \
    - { name: closed, hosts: [app.test], path: /admin, access: { deny: [0.0.0.0/0] }, upstream: [\"{ORIGIN}\"] }\n  \
    - { name: app, hosts: [app.test, \"[::1]\", b.test], upstream: [\"{ORIGIN}\"] }\n";

/// Set by the gateway on every request that goes upstream, as [`heads`] checks.
const FORWARDING: [&str; 6] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-request-id", "via"];

/// Files of cases, each a test of its own.
const FILES: [&str; 8] = ["chunks", "fields", "framing", "heads", "hosts", "methods", "pipelines", "targets"];

/// Cases of a file that run at the same time, each through a gateway of its own: they mostly wait.
const AT_ONCE: usize = 8;

#[test]
fn chunks_end_as_they_must() {
    every_case_ends_as_it_must("chunks");
}

#[test]
fn fields_end_as_they_must() {
    every_case_ends_as_it_must("fields");
}

#[test]
fn framing_ends_as_it_must() {
    every_case_ends_as_it_must("framing");
}

#[test]
fn heads_end_as_they_must() {
    every_case_ends_as_it_must("heads");
}

#[test]
fn hosts_end_as_they_must() {
    every_case_ends_as_it_must("hosts");
}

#[test]
fn methods_end_as_they_must() {
    every_case_ends_as_it_must("methods");
}

#[test]
fn pipelines_end_as_they_must() {
    every_case_ends_as_it_must("pipelines");
}

#[test]
fn targets_end_as_they_must() {
    every_case_ends_as_it_must("targets");
}

#[test]
fn no_file_of_cases_is_left_out() {
    let cases = wire::cases(&fixtures());
    let strange = cases.iter().find(|case| !FILES.iter().any(|file| is_of(case, file)));
    assert!(strange.is_none(), "no test runs {strange:?}");
    assert!(cases.len() >= 280, "{} cases", cases.len());
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wire")
}

fn is_of(case: &Case, file: &str) -> bool {
    case.name.strip_prefix(file).is_some_and(|rest| rest.starts_with(": "))
}

/// `WIRE_CASE` names some of them.
fn every_case_ends_as_it_must(file: &str) {
    let cases = wire::cases(&fixtures());
    let only = std::env::var("WIRE_CASE").unwrap_or_default();
    let wanted = cases.iter().filter(|case| is_of(case, file) && case.name.contains(&only));
    let runs: Vec<(&Case, bool)> = wanted
        .flat_map(|case| [(case, false), (case, true)])
        .filter(|(case, bytewise)| !bytewise || !case.whole)
        .collect();
    assert!(!only.is_empty() || !runs.is_empty(), "no cases");
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(runs.len()) {
            scope.spawn(|| {
                let (gateway, origin) = gateway();
                while let Some((case, bytewise)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = run(case, *bytewise, &gateway, &origin) {
                        let way = if *bytewise { "byte by byte" } else { "in one piece" };
                        failures.lock().unwrap().push(format!("{} ({way}): {failure}", case.name));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

fn gateway() -> (Gateway, Origin) {
    let origin = Origin::script(|request| match request.target() {
        "/switch" => Reply::Raw(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_vec(),
        ),
        _ => Reply::ok("hello"),
    });
    (Gateway::with_origin(YAML, &origin), origin)
}

fn run(case: &Case, bytewise: bool, gateway: &Gateway, origin: &Origin) -> Result<(), String> {
    let seen = origin.requests().len();
    let recorded = gateway.access_records().len();
    let mut connection = gateway.connect();
    if bytewise {
        // The gateway may have answered and closed before the last byte.
        let _ = case.bytes.iter().try_for_each(|byte| connection.try_send([*byte]));
    } else {
        let _ = connection.try_send(&case.bytes);
    }
    let outcome = answers(case, &mut connection);
    drop(connection);
    let requests = wire::left_behind(gateway, origin, seen)?;
    outcome?;
    let requests = match requests.split_last() {
        Some((again, requests)) if again.target() == "/again" => requests,
        _ => &requests,
    };
    if !case.upstream.contains(&requests.len()) {
        let lines: Vec<_> = requests.iter().map(Received::line).collect();
        return Err(format!("{} requests upstream, not {:?}: {lines:?}", requests.len(), case.upstream));
    }
    heads(case, requests)?;
    if let Some(reason) = &case.reason {
        let wanted = |record: &serde_json::Value| {
            let detail = case.detail.as_ref().filter(|_| !bytewise);
            reason.split('|').any(|reason| record["rejection"] == reason)
                && detail.is_none_or(|detail| record["rejection_detail"] == **detail)
        };
        let has = || gateway.access_records()[recorded..].iter().any(wanted);
        let none = || format!("no record with {reason} {:?}", case.detail);
        return within(DEADLINE, || has().then_some(())).ok_or_else(none);
    }
    Ok(())
}

/// The answers in order, and what becomes of the connection.
fn answers(case: &Case, connection: &mut Connection) -> Result<(), String> {
    let method = if case.bytes.starts_with(b"HEAD") { "HEAD" } else { "GET" };
    for (index, wanted) in case.answers.iter().enumerate() {
        let answer = connection.response_to(method).map_err(|error| format!("answer {index}: {error}"))?;
        if !wanted.contains(&answer.status) {
            return Err(format!("answer {index} is {} and not {wanted:?}", answer.status_line));
        }
    }
    if case.open == Some(true) {
        let again = connection.try_request("GET /again HTTP/1.1\r\nHost: app.test\r\n\r\n");
        return match again {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("the connection does not go on: {other:?}")),
        };
    }
    if case.open.is_none() {
        return Ok(());
    }
    match connection.try_rest() {
        Ok(rest) if rest.is_empty() => Ok(()),
        Ok(rest) => Err(format!("more than was expected: {:?}", String::from_utf8_lossy(&rest))),
        Err(error) => Err(format!("still open after {DEADLINE:?}: {error}")),
    }
}

/// What the origin must see, whatever was sent; and to the byte where the case says it.
fn heads(case: &Case, requests: &[Received]) -> Result<(), String> {
    for request in requests {
        let framing = request.all("content-length").len() + request.all("transfer-encoding").len();
        let target = request.target();
        let sound = framing <= 1
            && (target.starts_with('/') || target == "*")
            && request.all("host").len() == 1
            && request.head.lines().count() == request.head.split("\r\n").count()
            && request
                .head
                .bytes()
                .all(|byte| byte >= b' ' || byte == b'\r' || byte == b'\n' || byte == b'\t')
            && FORWARDING.iter().all(|name| request.all(name).len() == 1)
            && request.header("x-forwarded-for") == Some("127.0.0.1");
        if !sound {
            return Err(format!("the origin saw {:?}", request.head));
        }
    }
    if case.heads.is_empty() {
        return Ok(());
    }
    let own = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        !FORWARDING.iter().any(|own| own.eq_ignore_ascii_case(name))
    };
    for (request, (head, body)) in requests.iter().zip(case.heads.iter().zip(&case.bodies)) {
        let lines: Vec<&str> = request.head.split("\r\n").filter(own).collect();
        if lines != *head {
            return Err(format!("the origin saw {lines:?}, not {head:?}"));
        }
        if request.body != body.as_bytes() {
            return Err(format!("the origin got {:?}, not {body:?}", String::from_utf8_lossy(&request.body)));
        }
    }
    match requests.len() == case.heads.len() {
        true => Ok(()),
        false => Err(format!("{} heads are written down, {} came", case.heads.len(), requests.len())),
    }
}
