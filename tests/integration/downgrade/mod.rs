//! From HTTP/2 down to HTTP/1: hostile requests by the frame, and what an HTTP/1 origin behind the gateway
//! sees of them. The counterpart of `tests/fixtures/wire` for what HTTP/2 can say and HTTP/1 cannot.
//!
//! Lengths are counted in HTTP/2 and written down in HTTP/1, so whatever a field carries there must not
//! become a line, a length or a request here. After every case a request of another client must get its own
//! answer, over whatever connection to the origin the case has left.

mod fields;
mod framing;
mod targets;

use crate::support::eventually::{DEADLINE, within};
use crate::support::frames::{END_STREAM, Frames, frame, headers, kind, timed_out};
use crate::support::wire::left_behind;
use crate::support::{Gateway, Origin, Received};

const YAML: &str = "workers: 1\n\
    limits: { header_timeout: 5s, body_idle_timeout: 5s, body: 1KiB, headers: 4KiB, header_count: 50 }\n\
    routes:\n  - { name: own, hosts: [app.test], path: /own, respond: { body: own } }\n  \
    - { name: closed, hosts: [app.test], path: /admin, access: { deny: [0.0.0.0/0] }, upstream: [\"{ORIGIN}\"] }\n  \
    - { name: app, hosts: [app.test, \"[::1]\", b.test], upstream: [\"{ORIGIN}\"] }\n";

/// Set by the gateway on every request that goes upstream.
const FORWARDING: [&str; 6] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-request-id", "via"];

/// A field as it is sent.
type Field = (&'static str, &'static str);

/// The head of a `GET` of `/`.
const GET: [Field; 4] = [(":method", "GET"), (":scheme", "http"), (":authority", "app.test"), (":path", "/")];
/// The head of a `POST` to `/`.
const POST: [Field; 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "app.test"), (":path", "/")];

/// One case.
struct Case {
    name: &'static str,
    /// What is sent after the preface and settings.
    frames: fn() -> Vec<u8>,
    must: Must,
}

/// What must come of it.
enum Must {
    /// 200, and the origin sees this head (its lines joined by `|`, names in small letters, without what the
    /// gateway sets itself) and this body.
    Pass(&'static str, &'static str),
    /// The gateway's own answer: status and reason. The origin sees nothing.
    Refuse(u16, &'static str),
    /// An empty answer of the engine with status 400, recorded as malformed. The origin sees nothing.
    Empty400,
    /// An error of the stream; the connection goes on. The origin sees no whole request.
    Reset,
    /// An error of the connection. The origin sees nothing.
    End,
    /// No word: only the ping behind it is answered. The origin sees no whole request.
    Nothing,
}

/// A whole request without a body.
fn whole(fields: &[Field]) -> Vec<u8> {
    headers(1, END_STREAM, fields)
}

/// A `GET` with these fields behind its own.
fn get_with(fields: &[Field]) -> Vec<u8> {
    whole(&[&GET[..], fields].concat())
}

#[test]
fn every_case_ends_as_it_must() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(YAML, &origin);
    let only = std::env::var("DOWNGRADE_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let cases = [fields::CASES, fields::PSEUDO_HEADERS, framing::CASES, targets::CASES];
    for case in cases.into_iter().flatten().filter(|case| case.name.contains(&only)) {
        if let Err(failure) = run(case, &gateway, &origin) {
            failures.push(format!("{}: {failure}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

fn run(case: &Case, gateway: &Gateway, origin: &Origin) -> Result<(), String> {
    let (seen, recorded) = (origin.requests().len(), gateway.access_records().len());
    let mut client = Frames::open(gateway.address());
    let _ = client.try_send((case.frames)());
    let outcome = outcome(&mut client);
    drop(client);
    let requests = &left_behind(gateway, origin, seen)?;
    let (wanted, reason) = match case.must {
        Must::Pass(head, body) => {
            passed(head, body, requests).map_err(|error| format!("{error}; the client: {outcome:?}"))?;
            (Outcome::Answer(200, true), None)
        }
        Must::Refuse(status, reason) => (Outcome::Answer(status, true), Some(reason)),
        Must::Empty400 => (Outcome::Answer(400, false), Some("malformed")),
        Must::Reset => (Outcome::Reset, None),
        Must::End => (Outcome::End, None),
        Must::Nothing => (Outcome::Nothing, None),
    };
    if outcome != wanted {
        return Err(format!("{outcome:?} and not {wanted:?}; upstream: {requests:?}"));
    }
    if !matches!(case.must, Must::Pass(..)) && !requests.is_empty() {
        return Err(format!("upstream: {requests:?}"));
    }
    let Some(reason) = reason else { return Ok(()) };
    let has = || gateway.access_records()[recorded..].iter().any(|record| record["rejection"] == *reason);
    within(DEADLINE, || has().then_some(())).ok_or_else(|| format!("no record with {reason}"))
}

/// What the client gets.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// This status, with a body or without.
    Answer(u16, bool),
    /// RST_STREAM with PROTOCOL_ERROR, and a ping is answered after it.
    Reset,
    /// GOAWAY with PROTOCOL_ERROR, and the end.
    End,
    /// The answer to a ping.
    Nothing,
    /// Anything else.
    Other(String),
}

fn outcome(client: &mut Frames) -> Outcome {
    let mut status = 0;
    loop {
        let seen = match client.next() {
            Ok(seen) => seen,
            Err(error) => return Outcome::Other(format!("{error}")),
        };
        match (seen.kind, seen.stream) {
            (kind::HEADERS, 1) => status = seen.status(),
            (kind::RST_STREAM, 1) if status == 0 => return reset(client, seen.code(0)),
            (kind::RST_STREAM, 1) => return Outcome::Other(format!("{status}, then {seen:?}")),
            (kind::PING, _) => return Outcome::Nothing,
            (kind::GOAWAY, _) => return ended(client, seen.code(4)),
            _ => {}
        }
        if seen.stream == 1 && seen.flags & END_STREAM != 0 && matches!(seen.kind, kind::HEADERS | kind::DATA)
        {
            return Outcome::Answer(status, seen.kind == kind::DATA);
        }
    }
}

fn reset(client: &mut Frames, code: u32) -> Outcome {
    let _ = client.try_send(frame(kind::PING, 0, 0, b"are you?"));
    loop {
        match client.next() {
            Ok(seen) if seen.kind == kind::PING && code == 1 => return Outcome::Reset,
            Ok(seen) if matches!(seen.kind, kind::PING | kind::GOAWAY) => {
                return Outcome::Other(format!("reset with {code}, then {seen:?}"));
            }
            Ok(_) => {}
            Err(error) => return Outcome::Other(format!("reset with {code}, then {error}")),
        }
    }
}

fn ended(client: &mut Frames, code: u32) -> Outcome {
    loop {
        match client.next() {
            Ok(_) => {}
            Err(error) if timed_out(&error) => return Outcome::Other("not closed after GOAWAY".to_owned()),
            Err(_) if code == 1 => return Outcome::End,
            Err(_) => return Outcome::Other(format!("GOAWAY with {code}")),
        }
    }
}

/// One request, sound, with this head and body and nothing else.
fn passed(head: &str, body: &str, requests: &[Received]) -> Result<(), String> {
    let [request] = requests else { return Err(format!("upstream: {requests:?}")) };
    let framing = request.all("content-length").len() + request.all("transfer-encoding").len();
    let sound = framing <= 1
        && request.all("host").len() == 1
        && request.head.lines().count() == request.head.split("\r\n").count()
        && FORWARDING.iter().all(|name| request.all(name).len() == 1)
        && request.header("x-forwarded-for") == Some("127.0.0.1")
        && request.header("x-forwarded-proto") == Some("http");
    let mut lines = request.head.split("\r\n");
    let mut seen = vec![lines.next().unwrap_or_default().to_owned()];
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("the line {line:?}"))?;
        let name = name.to_ascii_lowercase();
        if !FORWARDING.contains(&name.as_str()) {
            seen.push(format!("{name}:{value}"));
        }
    }
    seen[1..].sort();
    let seen = seen.join("|");
    match sound && seen == head && request.body == body.as_bytes() {
        true => Ok(()),
        false => Err(format!("the origin saw {seen:?}, {:?}", String::from_utf8_lossy(&request.body))),
    }
}
