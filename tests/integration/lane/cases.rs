//! The table of cases: what a client sends, what an origin answers, and how.
//!
//! Only what is done is written here, not what must come of it: that lane and engine make the same of it is
//! what is tested. `{n}` in a request stands for the number of the case.

use super::play::{Act, Do};
use super::texts::{ANSWERS, REQUESTS, RESPONSES};

/// One case.
#[derive(Debug, Clone)]
pub struct Case {
    /// What is told of it when it fails.
    pub name: String,
    /// What the client does.
    pub client: Vec<Do>,
    /// What the origin does, request by request; 200 to those after.
    pub origin: Vec<Vec<Act>>,
    /// Timeouts of the route.
    pub timeouts: &'static str,
    /// Limits of the route.
    pub limits: &'static str,
    /// So many endpoints that refuse connections, in place of the origin.
    pub dead: usize,
    /// Access records there must be in the end, whatever the client has read.
    pub records: usize,
    /// How much of a body is sent before somebody has left is not the same twice.
    pub races: bool,
}

impl Case {
    /// A case that must leave a record, of a client and an origin without haste.
    pub fn new(name: impl Into<String>, client: Vec<Do>, origin: Vec<Vec<Act>>) -> Case {
        let (timeouts, limits) = ("response: 20s", "body: 8MiB");
        let (dead, records, races) = (0, 1, false);
        Case { name: name.into(), client, origin, timeouts, limits, dead, records, races }
    }

    /// What the client does when this is case `number`.
    pub fn client_of(&self, number: usize) -> Vec<Do> {
        let number = number.to_string();
        let filled = |bytes: &Vec<u8>| match String::from_utf8(bytes.clone()) {
            Ok(text) => text.replace("{n}", &number).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let steps = self.client.iter();
        steps
            .map(|step| if let Do::Send(bytes) = step { Do::Send(filled(bytes)) } else { step.clone() })
            .collect()
    }
}

/// A request without a body.
pub const GET: &str = "GET /a?b=c HTTP/1.1\r\nHost: c{n}.test\r\nUser-Agent: Case/1\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nHost: c{n}.test\r\nContent-Length: 0\r\n\r\n";
/// Timeouts for an origin that is to be late. None may be late by accident: a busy machine takes a while.
pub const LATE: &str = "response: 1s, idle: 1s";
/// Another one.
pub const AGAIN: &str = "GET /again HTTP/1.1\r\nHost: c{n}.test\r\n\r\n";

/// Sends this.
pub fn send(text: &str) -> Do {
    Do::Send(text.as_bytes().to_vec())
}

/// Sends a request, reads the response, and asks again on the same connection, which shows whether the
/// connections of both sides were kept.
pub fn twice(request: &str) -> Vec<Do> {
    vec![send(request), Do::Read, send(AGAIN), Do::Read]
}

/// Responses too large to write down.
fn large_responses() -> Vec<(String, Vec<u8>)> {
    let ok = |fields: &str, body: String| format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}").into_bytes();
    let text = |length: usize| -> String { ('a'..='z').cycle().take(length).collect() };
    let mut all = Vec::new();
    for length in [400, 16_000, 16_384, 20_000, 65_536, 300_000, 3_000_000] {
        all.push((format!("length of {length}"), ok(&format!("Content-Length: {length}\r\n"), text(length))));
        let chunks: String = (0..length / 1_000).map(|_| format!("3e8\r\n{}\r\n", text(1_000))).collect();
        all.push((format!("chunks of {length}"), ok("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n")));
        all.push((format!("!until close, {length}"), ok("", text(length))));
    }
    let one = format!("493e0\r\n{}\r\n0\r\n\r\n", text(300_000));
    all.push(("one chunk of 300000".into(), ok("Transfer-Encoding: chunked\r\n", one)));
    for (name, count, length) in [
        ("90 fields", 90, 20),
        ("300 fields", 300, 20),
        ("fields of 60 KiB", 3, 20 << 10),
        ("fields of 1.3 MiB", 13, 100 << 10),
    ] {
        let fields: String = (0..count).map(|number| format!("X-F{number}: {}\r\n", text(length))).collect();
        all.push((name.into(), ok(&format!("{fields}Content-Length: 5\r\n"), "hello".into())));
    }
    let trailers = format!("0\r\nX-T: {}\r\n\r\n", text(70_000));
    all.push(("huge trailers".into(), ok("Transfer-Encoding: chunked\r\n", trailers)));
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", text(9_000));
    all.push(("huge chunk extension".into(), ok("Transfer-Encoding: chunked\r\n", extension)));
    all
}

/// Every response in one piece, with a pause after its head, and byte by byte.
pub fn responses() -> Vec<Case> {
    let mut cases = Vec::new();
    let small = RESPONSES.iter().map(|(name, text)| match text.strip_prefix('!') {
        Some(text) => (format!("!{name}"), text.as_bytes().to_vec()),
        None => ((*name).to_owned(), text.as_bytes().to_vec()),
    });
    for (name, bytes) in small.chain(large_responses()) {
        let end = if name.starts_with('!') { vec![Act::Close] } else { Vec::new() };
        let head = bytes.windows(4).position(|part| part == b"\r\n\r\n").map_or(0, |at| at + 4);
        let (head, rest) = bytes.split_at(head);
        let mut ways = vec![("whole", vec![Act::Send(bytes.clone())])];
        if !rest.is_empty() {
            ways.push(("in two", vec![Act::Send(head.to_vec()), Act::Pause, Act::Send(rest.to_vec())]));
        }
        if bytes.len() < 300 {
            ways.push(("in bytes", vec![Act::Trickle(bytes.clone())]));
        }
        for (way, acts) in ways {
            let acts = [acts, end.clone()].concat();
            // Whether a close is seen before the next request must not be a matter of luck.
            let client = [&twice(GET)[..2], &vec![Do::Pause; 2 * end.len()], &twice(AGAIN)[..2]].concat();
            cases.push(Case::new(format!("{name}, {way}"), client, vec![acts]));
        }
    }
    cases
}

/// Every request with every answer, and requests sent before the answers to those before them.
pub fn requests() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, request) in REQUESTS {
        for (answer, bytes) in ANSWERS {
            let head = request.starts_with("HEAD");
            let mut closes = bytes.strip_prefix('!');
            let mut bytes = closes.unwrap_or(bytes);
            if head {
                // The heads are all of it, and what follows on the connection another matter.
                closes = None;
                let heads = bytes.split_inclusive("\r\n\r\n");
                let heads = heads.take_while(|head| head.starts_with("HTTP/") || *head == "nonsense\r\n\r\n");
                bytes = bytes.get(..heads.map(str::len).sum()).unwrap_or(bytes);
            }
            let mut acts = vec![Act::Send(bytes.as_bytes().to_vec())];
            acts.extend(closes.map(|_| Act::Close));
            let client = twice(&format!("{request}\r\n"));
            let mut case = Case::new(format!("{name}: {answer}"), client, vec![acts]);
            // Those that are refused, and the second of those whose connection closes.
            case.records = 0;
            cases.push(case);
        }
    }
    for (count, gap) in [(2, false), (5, false), (2, true), (5, true)] {
        let mut client = Vec::new();
        for _ in 0..count {
            client.push(send(GET));
            client.extend(gap.then_some(Do::Pause));
        }
        let joined = if gap { client } else { vec![send(&GET.repeat(count))] };
        let client = [joined, vec![Do::Read; count], vec![send(AGAIN), Do::Read]].concat();
        for (answer, bytes) in ANSWERS.iter().filter(|(_, bytes)| !bytes.starts_with('!')) {
            // The first answer comes after the last request.
            let mut acts = vec![vec![Act::Send(bytes.as_bytes().to_vec())]; count];
            acts[0].splice(0..0, vec![Act::Pause; count + 3]);
            let mut case = Case::new(format!("{count} at once, gap {gap}: {answer}"), client.clone(), acts);
            case.records = 0;
            cases.push(case);
        }
    }
    cases
}

/// Responses cut at bytes of every class, at the first request of a connection and at a later one.
pub fn broken_off() -> Vec<Case> {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhello...";
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\n...\r\n0\r\nX-T: 1\r\n\r\n";
    let interim = "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let cuts = [
        (length, vec![0, 3, 9, 12, 15, 16, 17, 25, 33, 35, 36, 37, 38, 39, 41, 46]),
        (chunked, vec![47, 48, 49, 50, 52, 55, 56, 57, 58, 60, 63, 65, 66, 67, 68, 70, 75, 76, 77]),
        (interim, vec![10, 34, 36, 40, 60]),
    ];
    let mut cases = Vec::new();
    for (response, at) in cuts {
        for cut in at {
            let bytes = response.as_bytes()[..cut].to_vec();
            for (ending, end) in [("closed", Act::Close), ("reset", Act::Reset)] {
                for (method, request) in [("GET", GET), ("POST", POST)] {
                    let name = format!("{:?} {ending} after {cut}, {method}", &response[..cut.min(60)]);
                    let acts = vec![Act::Send(bytes.clone()), Act::Pause, end.clone()];
                    let first = Case::new(name.clone(), twice(request), vec![acts.clone()]);
                    let warm = vec![Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwarm".to_vec())];
                    let client = [twice(request), vec![send(request), Do::Read]].concat();
                    let second = Case::new(format!("{name}, reused"), client, vec![warm, acts]);
                    cases.extend([first, second]);
                }
            }
        }
    }
    cases
}

/// Slow origins, slow clients, clients that leave, connections that go bad while they are idle.
pub fn paces() -> Vec<Case> {
    let mut cases = Vec::new();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n".to_vec();
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
    let open = b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec();
    let half = [head.clone(), b"hello".to_vec()].concat();
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec();
    let begun = [
        ("nothing", Vec::new()),
        ("half a head", head[..20].to_vec()),
        ("interim", interim),
        ("a head", head.clone()),
        ("half a body", half),
        ("a chunk", chunks),
        ("an open body", open),
    ];
    for (name, bytes) in &begun {
        let acts = vec![Act::Send(bytes.clone()), Act::Gone];
        for (method, request) in [("GET", GET), ("POST", POST)] {
            // The engine takes the end of a connection it has shut itself for the end of the answer
            // (`streaming::an_origin_that_stops_is_not_taken_for_one_that_has_ended`).
            if *name == "an open body" {
                continue;
            }
            let mut case =
                Case::new(format!("stuck after {name}, {method}"), twice(request), vec![acts.clone()]);
            case.timeouts = LATE;
            cases.push(case);
        }
        for (ending, end) in [("closes", Do::Close), ("resets", Do::Reset), ("says no more", Do::HalfClose)] {
            let mut client = vec![send(GET), Do::Arrived(1), Do::Pause, end];
            if ending == "says no more" {
                client.push(Do::Read);
            }
            cases.push(Case::new(format!("client {ending} after {name}"), client, vec![acts.clone()]));
        }
    }
    cases.extend(slow_and_huge());
    cases.extend(idle_connections());
    for dead in [1, 2, 3] {
        let mut case = Case::new(format!("{dead} endpoints refuse"), twice(GET), Vec::new());
        case.dead = dead;
        cases.push(case);
    }
    cases
}

/// A response with a body of `x` in each framing; the origin closes after the last.
fn huge(length: usize) -> [(&'static str, Vec<Act>); 3] {
    let body = "x".repeat(length);
    let ok = |rest: String| Act::Send(format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes());
    [
        ("length", vec![ok(format!("Content-Length: {length}\r\n\r\n{body}"))]),
        ("chunked", vec![ok(format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"))]),
        ("until close", vec![ok(format!("\r\n{body}")), Act::Close]),
    ]
}

fn slow_and_huge() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, acts) in huge(6 << 20) {
        let slow =
            [vec![send(GET), Do::Arrived(1)], vec![Do::Pause; 5], vec![Do::Read, send(AGAIN), Do::Read]];
        cases.push(Case::new(format!("slow reader, {name}"), slow.concat(), vec![acts]));
    }
    // More than all the buffers between origin and client hold.
    for (name, acts) in huge(32 << 20) {
        for (ending, end) in [("closes", Do::Close), ("resets", Do::Reset)] {
            let client = vec![send(GET), Do::Arrived(1), Do::Pause, Do::Bytes(1_000), end];
            let mut case =
                Case::new(format!("client {ending} in a huge body, {name}"), client, vec![acts.clone()]);
            case.races = true;
            cases.push(case);
        }
    }
    let drip = |head: &str, pieces: &[&str]| {
        let first = Act::Send(format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes());
        let rest = pieces.iter().flat_map(|piece| [Act::Pause, Act::Send(piece.as_bytes().to_vec())]);
        [first].into_iter().chain(rest).collect::<Vec<_>>()
    };
    let chunks =
        drip("Transfer-Encoding: chunked\r\n", &["3\r\nabc\r\n", "3\r", "\ndef", "\r\n", "0\r\n", "\r\n"]);
    cases.push(Case::new("chunks with pauses", twice(GET), vec![chunks]));
    let length = drip("Content-Length: 9\r\n", &["abc", "d", "ef", "ghi"]);
    cases.push(Case::new("pieces with pauses", twice(GET), vec![length]));
    let open = [drip("", &["abc", "d", "ef", "ghi"]), vec![Act::Close]].concat();
    cases.push(Case::new("pieces with pauses until close", twice(GET), vec![open]));
    let slow_head = ["HTTP/1.1 2", "00 OK\r\nConte", "nt-Length: 5\r", "\n\r", "\nhello"];
    let slow_head = slow_head.iter().flat_map(|piece| [Act::Pause, Act::Send(piece.as_bytes().to_vec())]);
    cases.push(Case::new("a slow head", twice(GET), vec![slow_head.collect()]));
    cases
}

/// What becomes of a kept connection whose origin does something while nobody asks.
fn idle_connections() -> Vec<Case> {
    let ok = Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec());
    let client = |pause: bool, request: &str| {
        let pauses = vec![Do::Pause; if pause { 3 } else { 0 }];
        [twice(GET), pauses, twice(request)].concat()
    };
    let mut cases = Vec::new();
    for (method, request) in [("GET", GET), ("POST", POST)] {
        let closes = vec![vec![ok.clone()], vec![ok.clone(), Act::Close]];
        cases.push(Case::new(format!("closed while idle, {method}"), client(true, request), closes));
        let resets = vec![vec![ok.clone()], vec![ok.clone(), Act::Reset]];
        cases.push(Case::new(format!("reset while idle, {method}"), client(true, request), resets));
        let speaks = vec![
            vec![ok.clone()],
            vec![ok.clone(), Act::Pause, Act::Send(b"HTTP/1.1 408 x\r\n\r\n".to_vec())],
        ];
        cases.push(Case::new(format!("speaks while idle, {method}"), client(true, request), speaks));
        for (ending, end) in [("closed", Act::Close), ("reset", Act::Reset)] {
            let stale = vec![vec![ok.clone()], vec![ok.clone()], vec![end]];
            cases.push(Case::new(
                format!("{ending} when asked again, {method}"),
                client(false, request),
                stale,
            ));
        }
        let stale =
            vec![vec![ok.clone()], vec![Act::Close], vec![Act::Close], vec![Act::Close], vec![Act::Close]];
        cases.push(Case::new(format!("closed whenever asked, {method}"), client(false, request), stale));
    }
    for case in &mut cases {
        case.records = 2;
    }
    cases
}
