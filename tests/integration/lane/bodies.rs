//! The cases whose requests have a body: how it is framed and sent, where it breaks off, and what the origin
//! does before it has it all.

use super::cases::{AGAIN, Case, GET, LATE, send, twice};
use super::play::{Act, Do};
use super::texts::ANSWERS;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const HOST: &str = "Host: c{n}.test\r\n";

/// More than is kept for another attempt.
const LARGE: usize = 70_000;
/// More than a socket takes at once.
const HUGE: usize = 1 << 20;

fn answer(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

fn text(length: usize) -> String {
    ('a'..='z').cycle().take(length).collect()
}

/// A request with a body of letters.
fn post(length: usize) -> String {
    format!("POST /a HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\n{}", text(length))
}

/// The same in chunks of `size`.
fn chunked(length: usize, size: usize) -> String {
    let body = text(length);
    let chunks = body.as_bytes().chunks(size);
    let chunks: String =
        chunks.map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))).collect();
    in_chunks(&format!("{chunks}0\r\n\r\n"))
}

fn in_chunks(body: &str) -> String {
    format!("POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}")
}

/// A request cut behind its head and `behind` bytes more.
fn cut(request: &str, behind: usize) -> (&str, &str) {
    let head = request.find("\r\n\r\n").map_or(request.len(), |end| end + 4);
    request.split_at((head + behind).min(request.len()))
}

/// The request in so many pieces of its body, one after the other.
fn in_pieces(request: &str, count: usize) -> Vec<Do> {
    let (head, body) = cut(request, 0);
    let size = body.len().div_ceil(count).max(1);
    let pieces = body.as_bytes().chunks(size).flat_map(|piece| [Do::Pause, Do::Send(piece.to_vec())]);
    [vec![send(head)], pieces.collect()].concat()
}

/// Every framing and size, sent in one piece, behind its head, and in pieces.
pub fn framings() -> Vec<Case> {
    let mut cases = Vec::new();
    let odd = [
        ("chunked, empty", "0\r\n\r\n"),
        ("chunked, extensions", "5;a=b;c=\"d e\"\r\nhello\r\n3 ;x\r\n...\r\n0;y\r\n\r\n"),
        ("chunked, trailers", "5\r\nhello\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n"),
        ("chunked, odd sizes", "0005\r\nhello\r\nA\r\n0123456789\r\n000\r\n\r\n"),
        ("chunked, looks like a request", "1a\r\nGET / HTTP/1.0\r\nHost: x\r\n\r\n\r\n0\r\n\r\n"),
    ];
    let sizes = [1, 100, 16_384, 65_536, 65_537, LARGE, HUGE];
    let lengths = sizes.map(|length| (format!("length {length}"), post(length)));
    let chunks = sizes.map(|length| (format!("chunks of {length}"), chunked(length, 1_000)));
    let single = sizes.map(|length| (format!("a chunk of {length}"), chunked(length, length)));
    let odd = odd.map(|(name, body)| (name.to_owned(), in_chunks(body)));
    for (name, request) in lengths.into_iter().chain(chunks).chain(single).chain(odd) {
        let (head, body) = cut(&request, 0);
        let mut ways = vec![
            ("whole", vec![send(&request)]),
            ("behind the head", vec![send(head), Do::Pause, send(body)]),
            ("in three", in_pieces(&request, 3)),
        ];
        if body.len() < 200 {
            ways.push((
                "in bytes",
                body.bytes().fold(vec![send(head)], |mut all, byte| {
                    all.push(Do::Send(vec![byte]));
                    all
                }),
            ));
        }
        for (way, sent) in ways {
            let client = [sent, vec![Do::Read], twice(&request)].concat();
            cases.push(Case::new(format!("{name}, {way}"), client, vec![vec![answer(OK)]]));
        }
    }
    cases.extend(methods());
    cases.extend(pipelined());
    cases.extend(over_the_limit());
    cases
}

/// Methods and versions, with every answer.
fn methods() -> Vec<Case> {
    let length = |line: &str, fields: &str| format!("{line}\r\n{HOST}{fields}Content-Length: 5\r\n\r\nhello");
    let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let requests = [
        ("PUT", length("PUT /a HTTP/1.1", "")),
        ("GET", length("GET /a HTTP/1.1", "")),
        ("GET, chunked", format!("GET /a HTTP/1.1\r\n{HOST}{chunks}")),
        ("HEAD", length("HEAD /a HTTP/1.1", "")),
        ("DELETE", length("DELETE /a HTTP/1.1", "")),
        ("DELETE, chunked", format!("DELETE /a HTTP/1.1\r\n{HOST}{chunks}")),
        ("BREW", length("BREW /a HTTP/1.1", "")),
        ("1.0", length("POST /a HTTP/1.0", "")),
        ("1.0, kept", length("POST /a HTTP/1.0", "Connection: keep-alive\r\n")),
        ("close", length("POST /a HTTP/1.1", "Connection: close\r\n")),
        ("nominated", length("POST /a HTTP/1.1", "Connection: x-a, te\r\nX-A: 1\r\nTE: trailers\r\n")),
        ("trailer announced", format!("POST /a HTTP/1.1\r\n{HOST}Trailer: X-T\r\n{chunks}")),
        ("no upgrade", length("POST /a HTTP/1.1", "Connection: upgrade\r\nUpgrade: x\r\n")),
        ("length and chunked", length("POST /a HTTP/1.1", "Transfer-Encoding: chunked\r\n")),
        (
            "forwarding claims",
            length("POST /a HTTP/1.1", "X-Forwarded-For: 192.0.2.1\r\nForwarded: for=x\r\n"),
        ),
    ];
    let mut cases = Vec::new();
    for (name, request) in &requests {
        for (how, bytes) in ANSWERS {
            let mut closes = bytes.strip_prefix('!');
            let mut bytes = closes.unwrap_or(bytes);
            if request.starts_with("HEAD") {
                // The heads are all of it, and what follows on the connection another matter.
                closes = None;
                let end = bytes.rfind("\r\n\r\n").unwrap_or_default();
                bytes =
                    bytes.get(..end + 4).filter(|_| *how != "chunked").unwrap_or("HTTP/1.1 200 OK\r\n\r\n");
            }
            let acts = [answer(bytes)].into_iter().chain(closes.map(|_| Act::Close)).collect();
            let mut case = Case::new(format!("{name}: {how}"), twice(request), vec![acts]);
            case.records = 0;
            cases.push(case);
        }
    }
    let expect = length("POST /a HTTP/1.1", "Expect: 100-continue\r\n");
    let client = vec![send(&expect), Do::Read, send(&expect), Do::Read];
    cases.push(Case::new("expect", client, Vec::new()));
    for dead in [1, 3] {
        let mut case = Case::new(format!("{dead} endpoints refuse"), twice(&post(5)), Vec::new());
        case.dead = dead;
        cases.push(case);
    }
    cases
}

/// Requests sent along with the end of a body before them.
fn pipelined() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, request) in [
        ("length", post(5)),
        ("chunked", chunked(5, 2)),
        ("large", post(LARGE)),
        ("large, chunked", chunked(LARGE, 1_000)),
    ] {
        for (what, next) in [("GET", GET.to_owned()), ("the same", request.clone())] {
            let reads = vec![Do::Read; 2];
            let joined = vec![send(&format!("{request}{next}"))];
            let slow = vec![answer(OK)];
            let late = vec![Act::Pause, Act::Pause, answer(OK)];
            for (pace, acts) in [("at once", slow), ("late", late)] {
                let client = [joined.clone(), reads.clone(), twice(AGAIN)].concat();
                cases.push(Case::new(format!("{what} behind {name}, answered {pace}"), client, vec![acts]));
            }
            let (head, body) = cut(&request, 0);
            let client = [vec![send(head), Do::Pause, send(&format!("{body}{next}"))], reads].concat();
            cases.push(Case::new(format!("{what} behind {name}, in two"), client, vec![vec![answer(OK)]]));
        }
    }
    for case in &mut cases {
        case.records = 2;
    }
    cases
}

/// Bodies over the limit of the route, and just within.
fn over_the_limit() -> Vec<Case> {
    let mut cases = Vec::new();
    for (limit, within, over) in
        [("body: 10B", 10, 11), ("body: 64KiB", 65_536, LARGE), ("body: 512KiB", 524_288, HUGE)]
    {
        for length in [within, over] {
            for (name, request) in [("length", post(length)), ("chunked", chunked(length, 1_000))] {
                let ways = [("whole", vec![send(&request)]), ("in three", in_pieces(&request, 3))];
                for (way, sent) in ways {
                    let client = [sent, vec![Do::Read, send(AGAIN), Do::Read]].concat();
                    let mut case = Case::new(format!("{limit}: {name} {length}, {way}"), client, Vec::new());
                    case.limits = limit;
                    case.races = length > within;
                    cases.push(case);
                }
            }
        }
    }
    cases
}

/// Clients that leave and origins that do, in the middle of a body; and bodies that cannot be read.
pub fn broken_off() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, request) in [
        ("length", post(10)),
        ("chunked", chunked(10, 5)),
        ("huge", post(HUGE)),
        ("huge, chunked", chunked(HUGE, 1_000)),
    ] {
        let half = cut(&request, 0).1.len() / 2;
        for behind in [0, 1, half] {
            for (ending, end) in
                [("closes", Do::Close), ("resets", Do::Reset), ("says no more", Do::HalfClose)]
            {
                let (sent, _) = cut(&request, behind);
                let mut client = vec![send(sent), Do::Arrived(1), Do::Pause, Do::Pause, end.clone()];
                client.extend(matches!(end, Do::HalfClose).then_some(Do::Read));
                let mut case =
                    Case::new(format!("client {ending} {behind} bytes into {name}"), client, Vec::new());
                case.races = behind > 1_000;
                cases.push(case);
            }
        }
    }
    for (name, rest) in [
        ("size no number", "zz\r\nhello\r\n0\r\n\r\n"),
        ("size negative", "-5\r\nhello\r\n0\r\n\r\n"),
        ("size empty", "\r\nhello\r\n0\r\n\r\n"),
        ("size beyond numbers", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("chunk too long", "4\r\nhello\r\n0\r\n\r\n"),
        ("no CR", "5\nhello\n0\n\n"),
        ("extension with a line feed", "5;\nxx\r\nhello\r\n0\r\n\r\n"),
        ("trailer without CR", "0\r\nX: y\n\nGET / HTTP/1.1\r\n\r\n"),
    ] {
        let begun = in_chunks("5\r\nhello\r\n");
        let whole = vec![send(&format!("{begun}{rest}")), Do::Read];
        let paused = vec![send(&begun), Do::Arrived(1), Do::Pause, send(rest), Do::Read];
        for (way, client) in [("whole", whole), ("behind a pause", paused)] {
            let mut case = Case::new(format!("{name}, {way}"), client, Vec::new());
            case.races = way == "whole";
            cases.push(case);
        }
    }
    cases.extend(origins_that_leave());
    cases
}

/// On a connection nobody has used, and on one that was kept: what is little is sent once more.
fn origins_that_leave() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, request, read) in [
        ("a small body", post(5), 0),
        ("a small body, read", post(5), 5),
        ("a small body in chunks", chunked(10, 5), 0),
        ("a small body in chunks, read", chunked(10, 5), 10),
        ("half of 30000", post(30_000), 15_000),
        ("half of 30000 in chunks", chunked(30_000, 1_000), 15_000),
        ("more than is kept", post(LARGE), 66_000),
        ("more than is kept, in chunks", chunked(LARGE, 1_000), 66_000),
        ("a tenth of a huge body", post(HUGE), 100_000),
        ("a tenth of a huge body, in chunks", chunked(HUGE, 1_000), 100_000),
    ] {
        // More than the origin reads, and no more than all buffers hold: how much is sent is not a matter of luck.
        let (sent, _) = cut(&request, 200_000);
        for (ending, end) in [("closes", Act::Close), ("resets", Act::Reset)] {
            for method in ["POST", "PUT"] {
                let sent = sent.replace("POST", method);
                let acts = vec![Act::Early(read), Act::Idle, end.clone()];
                let fresh = vec![send(&sent), Do::Read];
                let mut case =
                    Case::new(format!("{ending} after {name}, {method}"), fresh, vec![acts.clone()]);
                case.races = sent.len() > 200_000;
                cases.push(case.clone());
                case.name += ", reused";
                case.client = [twice(GET), vec![send(&sent), Do::Read]].concat();
                case.origin = vec![vec![answer(OK)], vec![answer(OK)], acts];
                cases.push(case);
            }
            let client = [twice(GET), vec![Do::Pause; 3], twice(&request)].concat();
            let idle = vec![vec![answer(OK)], vec![answer(OK), end.clone()]];
            cases.push(Case::new(format!("{ending} while idle, then {name}"), client, idle));
        }
    }
    cases
}

/// Answers that come before the request is whole.
pub fn early_answers() -> Vec<Case> {
    let answers = [
        ("length", "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"),
        ("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ("nothing", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("closing", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"),
        ("interim", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("nonsense", "nonsense\r\n\r\n"),
    ];
    let bodies = [
        ("a small body", post(10)),
        ("a small body in chunks", chunked(10, 5)),
        ("a large body", post(LARGE)),
        ("a huge body", post(HUGE)),
        ("a huge body in chunks", chunked(HUGE, 1_000)),
    ];
    let mut cases = Vec::new();
    for (name, request) in &bodies {
        let (head, body) = cut(request, 0);
        let (begun, rest) = cut(request, body.len() / 2);
        for (what, text) in answers {
            let early = |read: usize, then: Vec<Act>| [vec![Act::Early(read), answer(text)], then].concat();
            let before = vec![send(head), Do::Read, send(body), Do::Read];
            let within = vec![send(begun), Do::Read, send(rest), Do::Read];
            let leaves = vec![send(begun), Do::Read, Do::Close];
            let stops = vec![send(head), Do::Read, Do::HalfClose, Do::Read];
            for (how, client, acts) in [
                ("before", before.clone(), early(0, Vec::new())),
                ("within", within, early(1, Vec::new())),
                ("and the client leaves", leaves, early(1, Vec::new())),
                ("and the client says no more", stops, early(0, Vec::new())),
                ("and the origin closes", before.clone(), early(0, vec![Act::Close])),
            ] {
                // Nobody waits for the rest of a request that its origin has answered for good; the engine blames the
                // client that knows it, too (`streaming::nobody_waits_for_what_a_closing_origin_does_not_want`).
                if what == "closing" && how.starts_with("and the client") {
                    continue;
                }
                let mut case = Case::new(format!("{what} before {name}: {how}"), client, vec![acts]);
                case.races = true;
                cases.push(case);
            }
        }
        cases.extend(half_answers(name, request));
    }
    cases.extend(origins_that_take_their_time());
    cases
}

/// The answer begins before the request is whole and ends after it, or never.
fn half_answers(name: &str, request: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let (head, body) = cut(request, 0);
    let chunks =
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "3\r\ndef\r\n0\r\n\r\n");
    let length = ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "world");
    let interim = ("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", OK);
    for (what, (begun, ended)) in [("chunks", chunks), ("length", length), ("interim", interim)] {
        // Of an answer with a length, little is held back until there is more.
        let begins =
            if what == "length" { vec![Do::Arrived(1), Do::Pause, Do::Pause] } else { vec![Do::Bytes(20)] };
        let whole = [vec![send(head)], begins, vec![send(body), Do::Read]].concat();
        let client = [whole.clone(), vec![send(AGAIN), Do::Read]].concat();
        let acts = vec![Act::Early(0), answer(begun), Act::Rest, answer(ended)];
        cases.push(Case::new(format!("{what} around {name}"), client, vec![acts]));
        let acts = vec![Act::Early(0), answer(begun), Act::Rest, Act::Close];
        cases.push(Case::new(format!("half of {what} around {name}"), whole.clone(), vec![acts]));
        let acts = vec![Act::Early(0), answer(begun), Act::Pause, Act::Close];
        let mut case = Case::new(format!("half of {what} before {name}"), whole.clone(), vec![acts]);
        case.races = true;
        cases.push(case);
    }
    cases
}

/// Origins that let a body wait, for a while or for too long.
fn origins_that_take_their_time() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, request) in [("length", post(6 << 20)), ("chunked", chunked(6 << 20, 10_000))] {
        let acts = [vec![Act::Early(0)], vec![Act::Idle; 5], vec![Act::Rest, answer(OK)]].concat();
        cases.push(Case::new(format!("slow origin, {name}"), twice(&request), vec![acts]));
        let acts = [vec![Act::Early(0)], vec![Act::Idle; 50]].concat();
        let client = vec![send(&request), Do::Read];
        let mut case = Case::new(format!("origin that takes nothing, {name}"), client, vec![acts]);
        case.timeouts = LATE;
        case.races = true;
        cases.push(case);
    }
    for (name, request) in [("length", post(5)), ("chunked", chunked(10, 5))] {
        for (ending, end) in [("closes", Do::Close), ("resets", Do::Reset)] {
            let client = vec![send(&request), Do::Arrived(1), Do::Pause, end];
            let acts = vec![Act::Gone];
            cases.push(Case::new(format!("client {ending} while it waits, {name}"), client, vec![acts]));
        }
        let client = vec![send(&request), Do::Read];
        let mut case = Case::new(format!("no answer to {name}"), client, vec![vec![Act::Gone]]);
        case.timeouts = LATE;
        cases.push(case);
    }
    cases
}

/// Clients that stop sending and stay, before an answer and after it.
pub fn stalls() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, request) in [
        ("length", post(10)),
        ("chunked", chunked(10, 5)),
        ("large", post(LARGE)),
        ("huge", chunked(HUGE, 1_000)),
    ] {
        let half = cut(&request, 0).1.len() / 2;
        for behind in [0, 1, half] {
            let (sent, _) = cut(&request, behind);
            let client = vec![send(sent), Do::Read, Do::Read];
            let mut case = Case::new(format!("{behind} bytes of {name}"), client.clone(), Vec::new());
            case.races = behind > 1_000;
            cases.push(case.clone());
            case.name = format!("{behind} bytes of {name}, after an answer");
            case.origin = vec![vec![Act::Early(0), answer(OK)]];
            cases.push(case.clone());
            if behind == 0 {
                // The engine watches nothing then; the lane says that the upstream is late, as it does below.
                continue;
            }
            case.name = format!("{behind} bytes of {name}, in the middle of an answer");
            case.origin =
                vec![vec![Act::Early(0), answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel")]];
            case.timeouts = LATE;
            cases.push(case);
        }
    }
    cases
}
