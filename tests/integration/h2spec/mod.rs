//! HTTP/2 conformance, section by section: the 147 cases that public suites ask of a server, numbered as
//! there (`document/section/number`), each over TLS and by prior knowledge.
//!
//! Stricter than those suites: an error of a stream must leave the connection usable, and an error of
//! the connection must be told by GOAWAY. Sections are those of RFC 7540, which RFC 9113 replaced;
//! where the new one says something else, the case says so.

mod client;
mod frame_types;
mod framing;
mod generic;
mod hpack;
mod messages;
mod streams;

use crate::support::certificates::Authority;
use crate::support::{Gateway, Origin, Reply};
use client::Client;
use std::net::SocketAddr;

/// What went wrong, if anything.
type Outcome = Result<(), String>;

/// One case.
struct Case {
    /// `section/number: behaviour`.
    name: &'static str,
    /// Whether the client shakes hands before it begins.
    shaken: bool,
    run: fn(&mut Client) -> Outcome,
}

/// On a connection whose settings are exchanged.
const fn case(name: &'static str, run: fn(&mut Client) -> Outcome) -> Case {
    Case { name, shaken: true, run }
}

/// On a connection where nothing was said yet.
const fn bare(name: &'static str, run: fn(&mut Client) -> Outcome) -> Case {
    Case { name, shaken: false, run }
}

/// In the order of the public list: generic 44, RFC 7540 95, RFC 7541 8.
const SECTIONS: [(&str, &[Case]); 9] = [
    ("generic", generic::MESSAGES),
    ("generic", generic::BLOCKS),
    ("http2", framing::CASES),
    ("http2", streams::CASES),
    ("http2", frame_types::CASES),
    ("http2", frame_types::SETTINGS_AND_PING),
    ("http2", frame_types::WINDOWS_AND_CONTINUATION),
    ("http2", messages::CASES),
    ("hpack", hpack::CASES),
];

#[test]
fn there_are_147_cases_and_no_two_of_one_name() {
    let mut names: Vec<String> = SECTIONS
        .iter()
        .flat_map(|(document, cases)| cases.iter().map(move |case| number(document, case)))
        .collect();
    assert_eq!(names.len(), 147);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 147, "{names:?}");
}

#[test]
fn every_case_holds_over_tls() {
    let (gateway, _origin) = start();
    let address = gateway.address();
    run(&gateway, |shaken| Client::over_tls(address, shaken));
}

#[test]
fn every_case_holds_by_prior_knowledge() {
    let (gateway, _origin) = start();
    let plain = SocketAddr::from(([127, 0, 0, 1], gateway.value("PORT2").parse::<u16>().expect("a port")));
    run(&gateway, |shaken| Client::by_prior_knowledge(plain, shaken));
}

/// The origin answers with what it was told: the value of `custom-key`, the body, or `hello`.
fn start() -> (Gateway, Origin) {
    let origin = Origin::script(|request| match (request.header("custom-key"), request.body.as_slice()) {
        (Some(value), _) => Reply::ok(value),
        (None, b"") => Reply::ok("hello"),
        (None, body) => Reply::ok(&String::from_utf8_lossy(body)),
    });
    let builder = Gateway::builder(
        "routes: [{ upstream: [\"{ORIGIN}\"] }]\ncertificates: [{ cert: app.pem, key: app.key }]\n\
         listeners:\n  - { address: \"127.0.0.1:{PORT}\" }\n  - { address: \"127.0.0.1:{PORT2}\", tls: off }\n",
    );
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    (builder.origin(&origin).start(), origin)
}

/// `H2SPEC_CASE` picks the cases whose number or name contains it.
fn run(gateway: &Gateway, open: impl Fn(bool) -> Client) {
    let only = std::env::var("H2SPEC_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    for (document, cases) in SECTIONS {
        for case in cases {
            let name = format!("{document}/{}", case.name);
            if name.contains(&only)
                && let Err(failure) = (case.run)(&mut open(case.shaken))
            {
                failures.push(format!("{name}: {failure}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
    assert_eq!(gateway.get("app.test", "/").text(), "hello");
}

fn number(document: &str, case: &Case) -> String {
    format!("{document}/{}", case.name.split(':').next().unwrap_or_default())
}
