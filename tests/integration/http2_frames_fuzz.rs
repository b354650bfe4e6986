//! Random sequences of HTTP/2 frames, right and nearly right, against everything a request can meet behind the door:
//! an own answer, an upstream of HTTP/1, one of HTTP/2. The seeds are fixed, so a failure comes again.
//!
//! Whatever is sent, the gateway goes on: every worker answers others, no exchange is left, and no upstream has seen a
//! request that was not legal and whole.

use crate::support::frames::{
    self, END_STREAM, Frames, PADDED, data, frame, headers, kind, priority, reset, window_update,
};
use crate::support::http2_origin::{Call, Http2Origin};
use crate::support::{Gateway, Origin, Reply};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const SEEDS: u64 = 300;
const YAML: &str = "workers: 2\nlimits: { body_idle_timeout: 5s, requests_per_connection: 1000 }\nroutes:\n  \
    - { path: /own, respond: { body: own } }\n  - { path: /http1, upstream: [\"{ORIGIN}\"] }\n  \
    - { path: /h2c, upstream: h2 }\nupstreams: { h2: { endpoints: [\"{H2}\"], protocol: h2c } }\n";

/// One request, in frames, as somebody may send it.
fn request(random: &mut SmallRng, stream: u32) -> Vec<u8> {
    let path = ["/own", "/http1", "/h2c"].choose(random).expect("some");
    let method = ["GET", "POST", "POST", "HEAD", "PUT"].choose(random).expect("some");
    let mut pieces: Vec<usize> = (0..random.gen_range(0..5)).map(|_| random.gen_range(0..2_000)).collect();
    if random.gen_ratio(1, 8) {
        pieces.push(16_000);
    }
    let whole: usize = pieces.iter().sum();
    let length = match random.gen_range(0..6) {
        0 => Some("0".to_owned()),
        1 => Some((whole + 1).to_string()),
        2 | 3 => Some(whole.to_string()),
        _ => None,
    };
    let mut fields = frames::get("a", path).to_vec();
    fields[0].1 = method;
    if let Some(length) = &length {
        fields.push(("content-length", length));
    }
    let more =
        [("expect", "100-continue"), ("x\"y", "z"), ("te", "trailers"), ("cookie", "a=b"), ("x", " y")];
    fields.extend(more.iter().filter(|_| random.gen_ratio(1, 10)));
    let ends_at_once = pieces.is_empty() && random.gen_bool(0.7);
    let mut sent = headers(stream, if ends_at_once { END_STREAM } else { 0 }, &fields);
    if random.gen_ratio(1, 10) {
        sent.extend(frame(kind::PRIORITY, 0, stream, &priority(0, 1)));
    }
    if !ends_at_once {
        sent.extend(body(random, stream, &pieces));
    }
    sent
}

/// The body and its end: by the last piece, an empty one, trailers, a reset, or not at all.
fn body(random: &mut SmallRng, stream: u32, pieces: &[usize]) -> Vec<u8> {
    let end = random.gen_range(0..7);
    let mut sent = Vec::new();
    for (index, size) in pieces.iter().enumerate() {
        let last = end == 0 && index + 1 == pieces.len();
        let flags = if last { END_STREAM } else { 0 };
        let bytes = vec![b'x'; *size];
        sent.extend(match random.gen_ratio(1, 6) {
            true => frame(kind::DATA, flags | PADDED, stream, &[&[3][..], &bytes, &[0; 3]].concat()),
            false => data(stream, flags, &bytes),
        });
        if random.gen_ratio(1, 6) {
            sent.extend(noise(random, stream));
        }
    }
    sent.extend(match end {
        0 | 1 => data(stream, END_STREAM, b""),
        2 | 3 => headers(stream, END_STREAM, &[("x-trailer", "1")]),
        4 => headers(
            stream,
            END_STREAM,
            &[*[("transfer-encoding", "chunked"), (":path", "/")].choose(random).expect("some")],
        ),
        5 => reset(stream, 8),
        _ => Vec::new(),
    });
    sent
}

/// Frames between those of a request.
fn noise(random: &mut SmallRng, stream: u32) -> Vec<u8> {
    match random.gen_range(0..5) {
        0 => frame(kind::PING, 0, 0, &[0; 8]),
        1 => window_update(0, random.gen_range(1..1_000)),
        2 => window_update(stream, random.gen_range(1..1_000)),
        3 => frame(kind::SETTINGS, 0, 0, &[]),
        _ => frame(kind::PRIORITY, 0, stream, &priority(0, 7)),
    }
}

#[test]
fn no_sequence_of_frames_stops_a_worker_or_reaches_an_upstream_in_half() {
    let origin = Origin::script(|_| Reply::ok("http1"));
    let h2 = Http2Origin::plain(async |call: Call| call.ok_if_wanted("h2"));
    let gateway = Gateway::builder(YAML).origin(&origin).set("H2", h2.address()).start();
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut client = Frames::open(gateway.address());
        let mut sent = Vec::new();
        for number in 0..random.gen_range(1..4) {
            sent.extend(request(&mut random, 2 * number + 1));
        }
        // In one piece or in several, so that reads of the gateway end anywhere.
        let step = if random.gen_bool(0.5) { sent.len() } else { random.gen_range(1..400) };
        for piece in sent.chunks(step) {
            if client.try_send(piece).is_err() {
                break;
            }
        }
        if random.gen_bool(0.5) {
            let _ = client.try_send(frame(kind::PING, 0, 0, b"the end."));
            while client.next().is_ok_and(|frame| frame.kind != kind::PING || frame.payload != b"the end.") {}
        }
        drop(client);
        // Fresh connections, more than workers.
        for _ in 0..3 {
            assert_eq!(gateway.get("a", "/own").text(), "own", "after seed {seed}");
        }
    }
    gateway.wait_metric_is("portcullis_http_requests_in_flight", &[], 0.0);
    for seen in origin.requests() {
        let announced =
            seen.header("content-length").map(|length| length.parse::<usize>().expect("a number"));
        assert!(announced.is_none_or(|length| length == seen.body.len()), "{}", seen.head);
        assert!(seen.body.iter().all(|byte| *byte == b'x'), "{}", seen.head);
        assert!(!seen.head.contains("x\"y") && !seen.head.contains("x-trailer"), "{}", seen.head);
    }
}
