//! TLS: which certificate a name gets, versions, resumption.

use crate::support::certificates::{Authority, Identity, Leaf};
use crate::support::eventually::until;
use crate::support::gateway::Builder;
use crate::support::tls::{TlsClient, TlsFacts, TlsOptions};
use crate::support::{Connection, Gateway};
use boring::ssl::SslVersion;

const ROUTES: &str = "routes: [{ name: app, respond: { body: hello } }]\n";
const PAIRS: &str =
    "certificates:\n  - { cert: exact.pem, key: exact.key }\n  - { cert: wild.pem, key: wild.key }\n";

struct Names {
    exact: Identity,
    wild: Identity,
}

/// Two certificates beside the configuration: `exact.test` (P-256), `*.wild.test` (RSA).
fn with_certificates(yaml: &str) -> (Builder, Names) {
    let authority = Authority::new("root");
    let names = Names {
        exact: authority.issue(&["exact.test", "other.test"]),
        wild: Leaf::new(&["*.wild.test"]).rsa().sign(&authority),
    };
    let builder = Gateway::builder(yaml);
    names.exact.write(builder.dir(), "exact");
    names.wild.write(builder.dir(), "wild");
    (builder, names)
}

fn handshake(gateway: &Gateway, name: Option<&'static str>) -> Result<TlsFacts, std::io::Error> {
    let client = TlsClient::new(TlsOptions { name, ..TlsOptions::default() });
    Connection::open_tls(gateway.address(), &client).map(|connection| connection.tls())
}

#[test]
fn the_server_name_chooses_the_certificate() {
    let (builder, names) = with_certificates(&format!("{ROUTES}{PAIRS}"));
    let gateway = builder.start();
    let rows: &[(Option<&'static str>, &Identity)] = &[
        (Some("exact.test"), &names.exact),
        (Some("other.test"), &names.exact),
        (Some("EXACT.Test"), &names.exact),
        (Some("a.wild.test"), &names.wild),
        (Some("A.WILD.test"), &names.wild),
        (Some("a.b.wild.test"), &names.exact),
        (Some("wild.test"), &names.exact),
        (Some("exact.test."), &names.exact),
        (Some("a.wild.test."), &names.wild),
        (Some("unknown.test"), &names.exact),
        (Some("127.0.0.1"), &names.exact),
        (Some("::1"), &names.exact),
        (None, &names.exact),
    ];
    for (name, expected) in rows {
        let facts = handshake(&gateway, *name).unwrap();
        assert!(expected.is(&facts.certificate), "{name:?} got {:?}", facts.certificate.subject_name());
    }
}

#[test]
fn the_marked_certificate_is_the_default() {
    let pairs = PAIRS.replace("wild.key }", "wild.key, default: true }");
    let (builder, names) = with_certificates(&format!("{ROUTES}{pairs}"));
    let gateway = builder.start();
    for name in [None, Some("unknown.test")] {
        assert!(names.wild.is(&handshake(&gateway, name).unwrap().certificate), "{name:?}");
    }
}

#[test]
fn unknown_names_can_be_refused() {
    let (builder, names) = with_certificates(&format!("{ROUTES}{PAIRS}tls: {{ unknown_names: refuse }}"));
    let gateway = builder.start();
    let error = handshake(&gateway, Some("unknown.test")).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("unrecognized_name"), "{error}");
    for none in [None, Some("127.0.0.1"), Some("::1")] {
        assert!(names.exact.is(&handshake(&gateway, none).unwrap().certificate), "{none:?}");
    }
    assert!(names.wild.is(&handshake(&gateway, Some("a.wild.test")).unwrap().certificate));
    gateway.wait_metric("portcullis_tls_handshakes_total", &[("listener", "edge")], 3.0);
}

#[test]
fn versions_below_the_lowest_are_refused() {
    let version = |gateway: &Gateway, version| {
        let options = TlsOptions { versions: Some((version, version)), ..TlsOptions::default() };
        let connection = Connection::open_tls(gateway.address(), &TlsClient::new(options));
        connection.ok().map(|connection| connection.tls().version)
    };
    let gateway = Gateway::start(ROUTES);
    assert_eq!(version(&gateway, SslVersion::TLS1_1), None);
    assert_eq!(version(&gateway, SslVersion::TLS1_2).as_deref(), Some("TLSv1.2"));
    assert_eq!(version(&gateway, SslVersion::TLS1_3).as_deref(), Some("TLSv1.3"));
    let strict = Gateway::start(&format!("{ROUTES}tls: {{ min_version: \"1.3\" }}"));
    assert_eq!(version(&strict, SslVersion::TLS1_2), None);
    assert_eq!(version(&strict, SslVersion::TLS1_3).as_deref(), Some("TLSv1.3"));
}

#[test]
fn key_agreement_withstands_quantum_computers_where_the_client_can() {
    let gateway = Gateway::start(ROUTES);
    for (offered, agreed) in [
        ("X25519MLKEM768:X25519", Some("X25519MLKEM768")),
        ("X25519:X25519MLKEM768", Some("X25519MLKEM768")),
        ("X25519:P-256", Some("X25519")),
        ("P-384:P-256", Some("P-256")),
        ("P-521", None),
    ] {
        let client = TlsClient::new(TlsOptions { groups: Some(offered), ..TlsOptions::default() });
        let connection = Connection::open_tls(gateway.address(), &client);
        assert_eq!(connection.ok().and_then(|connection| connection.tls().group), agreed, "{offered}");
    }
}

#[test]
fn without_certificates_a_self_signed_one_is_made_with_a_warning() {
    let gateway = Gateway::start(ROUTES);
    let certificate = handshake(&gateway, Some("any.test")).unwrap().certificate;
    assert_eq!(certificate.issuer_name().to_der().unwrap(), certificate.subject_name().to_der().unwrap());
    gateway.wait_log("self-signed");
}

fn resumes(version: SslVersion) {
    let (builder, _) = with_certificates(&format!("{ROUTES}{PAIRS}"));
    let gateway = builder.start();
    let client = TlsClient::new(TlsOptions {
        name: Some("exact.test"),
        versions: Some((version, version)),
        resume: true,
        ..TlsOptions::default()
    });
    let visit = || {
        let mut connection = Connection::open_tls(gateway.address(), &client).expect("a handshake");
        assert_eq!(connection.get("exact.test", "/", "").text(), "hello");
        connection.tls().resumed
    };
    assert!(!visit(), "the first handshake is a full one");
    assert!(client.has_session(), "no ticket came");
    // More visits than workers, so that tickets meet workers that did not issue them.
    assert!((0..8).all(|_| visit()), "a ticket was not accepted");
    gateway.reload(&format!("{ROUTES}{PAIRS}log: {{ level: debug }}"));
    assert!((0..8).all(|_| visit()), "a ticket was not accepted after a reload");
    until("resumed handshakes in the metric", || {
        gateway.metrics().sum("portcullis_tls_handshakes_total", &[("resumed", "true")]) >= 16.0
    });
}

#[test]
fn tls12_sessions_resume_across_workers_and_reloads() {
    resumes(SslVersion::TLS1_2);
}

#[test]
fn tls13_sessions_resume_across_workers_and_reloads() {
    resumes(SslVersion::TLS1_3);
}

#[test]
fn ticket_keys_rotate_and_the_one_before_still_opens() {
    let gateway = Gateway::start(&format!("{ROUTES}tls: {{ ticket_lifetime: 2s }}"));
    let client = TlsClient::new(TlsOptions { resume: true, ..TlsOptions::default() });
    let visit = || {
        let mut connection = Connection::open_tls(gateway.address(), &client).expect("a handshake");
        assert_eq!(connection.get("a.test", "/", "").text(), "hello");
        connection.tls().resumed
    };
    assert!(!visit());
    // With TLS 1.3 each visit brings a new ticket, so the keys pass by under a session that goes on.
    let mut keys = vec![client.ticket_key().expect("a ticket")];
    until("two more keys", || {
        assert!(visit(), "a ticket was not accepted after {} keys", keys.len());
        keys.extend(client.ticket_key().filter(|key| !keys.contains(key)));
        keys.len() == 3
    });
}

#[test]
fn tickets_can_be_switched_off() {
    let gateway = Gateway::start(&format!("{ROUTES}tls: {{ tickets: false }}"));
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let versions = Some((version, version));
        let client = TlsClient::new(TlsOptions { versions, resume: true, ..TlsOptions::default() });
        for _ in 0..2 {
            let mut connection = Connection::open_tls(gateway.address(), &client).expect("a handshake");
            assert_eq!(connection.get("a.test", "/", "").text(), "hello");
            assert!(!connection.tls().resumed);
        }
        assert_eq!(client.ticket_key(), None, "{version:?}");
    }
    gateway.reload(&format!("{ROUTES}tls: {{ tickets: true }}"));
    let client = TlsClient::new(TlsOptions { resume: true, ..TlsOptions::default() });
    let mut connection = Connection::open_tls(gateway.address(), &client).expect("a handshake");
    assert_eq!(connection.get("a.test", "/", "").text(), "hello");
    assert!(client.ticket_key().is_some());
}

#[test]
fn a_handshake_that_breaks_off_is_counted_and_harms_nobody() {
    let gateway = Gateway::start(ROUTES);
    let mut broken = gateway.connect();
    broken.send([0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]);
    broken.rest();
    gateway.wait_metric("portcullis_tls_handshakes_total", &[("listener", "edge")], 1.0);
    assert_eq!(gateway.connect_tls("a.test").get("a.test", "/", "").text(), "hello");
}
