//! OCSP responses made by OpenSSL, stapled for clients that ask.

use crate::support::certificates::{Authority, Identity, Leaf};
use crate::support::commands::run;
use crate::support::eventually::until;
use crate::support::tls::{TlsClient, TlsOptions};
use crate::support::{Connection, Gateway};
use boring::ssl::SslVersion;
use std::path::Path;

const YAML: &str = "routes: [{ respond: { body: hello } }]\n\
                    certificates:\n  - { cert: bare.pem, key: bare.key }\n  - { cert: app.pem, key: app.key, ocsp: app.ocsp }\n";

/// Has OpenSSL play the responder for one certificate. `state` is a state of its index: `V` for valid,
/// `R` for revoked.
fn respond(dir: &Path, authority: &Authority, leaf: &Identity, state: char) -> Vec<u8> {
    let serial = leaf.certificate.serial_number().to_bn().unwrap().to_hex_str().unwrap().to_uppercase();
    let revoked = if state == 'R' { "250101000000Z" } else { "" };
    std::fs::write(
        dir.join("index"),
        format!("{state}\t491231235959Z\t{revoked}\t{serial}\tunknown\t/CN=x\n"),
    )
    .unwrap();
    std::fs::write(dir.join("leaf"), leaf.certificate.to_pem().unwrap()).unwrap();
    authority.write(dir, "ca");
    authority.write_key(dir, "ca.key");
    let path = |name: &str| dir.join(name).display().to_string();
    let openssl = |arguments: &[&str]| {
        let output = run("openssl", &[&["ocsp"], arguments].concat(), b"");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(&["-issuer", &path("ca"), "-cert", &path("leaf"), "-no_nonce", "-reqout", &path("request")]);
    let signer =
        ["-index", &path("index"), "-CA", &path("ca"), "-rsigner", &path("ca"), "-rkey", &path("ca.key")];
    let exchange = ["-reqin", &path("request"), "-respout", &path("response"), "-ndays", "7"];
    openssl(&[&signer[..], &exchange[..]].concat());
    std::fs::read(dir.join("response")).unwrap()
}

#[test]
fn a_response_is_stapled_for_its_names_when_the_client_asks_and_replaced_by_a_reload() {
    let scratch = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let leaf = authority.issue(&["app.test"]);
    let first = respond(scratch.path(), &authority, &leaf, 'V');
    let builder = Gateway::builder(YAML).file("app.ocsp", &first);
    leaf.write(builder.dir(), "app");
    authority.issue(&["bare.test"]).write(builder.dir(), "bare");
    let gateway = builder.start();
    let stapled = |name, ocsp, version| {
        let versions = Some((version, version));
        let client = TlsClient::new(TlsOptions { name: Some(name), ocsp, versions, ..TlsOptions::default() });
        Connection::open_tls(gateway.address(), &client).unwrap().tls().ocsp
    };
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        assert_eq!(stapled("app.test", true, version).as_ref(), Some(&first));
        assert_eq!(stapled("app.test", false, version), None);
        assert_eq!(stapled("bare.test", true, version), None);
    }

    let revoked = respond(scratch.path(), &authority, &leaf, 'R');
    std::fs::write(gateway.dir().join("app.ocsp"), revoked).unwrap();
    gateway.reload_refused(YAML, &["certificates[1].ocsp", "revoked"]);
    let foreign = respond(scratch.path(), &authority, &authority.issue(&["app.test"]), 'V');
    std::fs::write(gateway.dir().join("app.ocsp"), foreign).unwrap();
    gateway.reload_refused(YAML, &["certificates[1].ocsp", "another certificate"]);
    assert_eq!(stapled("app.test", true, SslVersion::TLS1_3).as_ref(), Some(&first));

    let second = respond(scratch.path(), &authority, &leaf, 'V');
    assert_ne!(first, second);
    std::fs::write(gateway.dir().join("app.ocsp"), &second).unwrap();
    gateway.reload(YAML);
    assert_eq!(stapled("app.test", true, SslVersion::TLS1_3).as_ref(), Some(&second));
}

/// The same response with another `nextUpdate`, so many seconds from now; the gateway leaves signatures to
/// clients.
fn holding_for(response: &[u8], seconds: i64) -> Vec<u8> {
    // GeneralizedTime of 15 bytes. In order: producedAt, thisUpdate, nextUpdate.
    let times: Vec<usize> = memchr::memmem::find_iter(response, b"\x18\x0f20").collect();
    let place = times[2] + 2;
    let until = chrono::Utc::now() + chrono::TimeDelta::seconds(seconds);
    let mut changed = response.to_vec();
    changed[place..place + 15].copy_from_slice(until.format("%Y%m%d%H%M%SZ").to_string().as_bytes());
    changed
}

#[test]
fn a_response_that_has_had_its_time_is_stapled_no_more_and_stands_in_nobodys_way() {
    let scratch = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let leaf = authority.issue(&["app.test"]);
    let bare = authority.issue(&["bare.test"]);
    let response = respond(scratch.path(), &authority, &leaf, 'V');
    let start = |response: &[u8]| {
        let builder = Gateway::builder(YAML).file("app.ocsp", response);
        leaf.write(builder.dir(), "app");
        bare.write(builder.dir(), "bare");
        builder.start()
    };
    let ocsp =
        |gateway: &Gateway| gateway.admin("/v1/certificates").json()["certificates"][1]["ocsp"].clone();
    let stapled = |gateway: &Gateway, version| {
        let client = TlsClient::new(TlsOptions {
            name: Some("app.test"),
            ocsp: true,
            versions: Some((version, version)),
            ..TlsOptions::default()
        });
        Connection::open_tls(gateway.address(), &client).unwrap().tls().ocsp
    };
    let versions = [SslVersion::TLS1_2, SslVersion::TLS1_3];

    let gateway = start(&holding_for(&response, 3_600));
    assert_eq!(ocsp(&gateway)["stapled"], true);
    let until_metric =
        || gateway.metrics().sum("portcullis_ocsp_next_update_timestamp_seconds", &[("name", "app.test")]);
    let before = until_metric();
    let short = holding_for(&response, 10);
    std::fs::write(gateway.dir().join("app.ocsp"), &short).unwrap();
    gateway.reload(YAML);
    assert!(0.0 < until_metric() && until_metric() < before);
    until("it to be stapled no more", || {
        versions.iter().all(|version| stapled(&gateway, *version).is_none())
    });
    assert_eq!(ocsp(&gateway)["stapled"], false);
    gateway.wait_log("app.test: the OCSP response was good until");
    let ready = gateway.admin("/readyz");
    assert_eq!((ready.status, &ready.json()["checks"]["certificates"]["ok"]), (200, &false.into()));

    gateway.reload(&YAML.replace("hello", "changed"));
    assert_eq!(gateway.get("x.test", "/").text(), "changed", "another change is loaded");
    std::fs::write(gateway.dir().join("app.ocsp"), holding_for(&response, -3_600)).unwrap();
    gateway.reload_refused(YAML, &["certificates[1].ocsp", "was good until"]);

    let restarted = start(&short);
    assert_eq!(stapled(&restarted, SslVersion::TLS1_3), None);
    assert!(ocsp(&restarted)["trouble"].as_str().unwrap().contains("was good until"));
    restarted.wait_log("app.test: no OCSP response is stapled");
    let until =
        restarted.metrics().get("portcullis_ocsp_next_update_timestamp_seconds", &[("name", "app.test")]);
    assert_eq!(until, Some(0.0));
    let revoked = start(&respond(scratch.path(), &authority, &leaf, 'R'));
    assert!(ocsp(&revoked)["trouble"].as_str().unwrap().contains("revoked"));
}

#[test]
fn each_kind_of_certificate_has_a_response_of_its_own() {
    let scratch = tempfile::tempdir().unwrap();
    let authority = Authority::new("root");
    let (ecdsa, rsa) = (authority.issue(&["app.test"]), Leaf::new(&["app.test"]).rsa().sign(&authority));
    let responses = [&ecdsa, &rsa].map(|leaf| respond(scratch.path(), &authority, leaf, 'V'));
    let yaml = "routes: [{ respond: { body: hello } }]\ncertificates:\n  \
                - { cert: rsa.pem, key: rsa.key, ocsp: rsa.ocsp }\n  \
                - { cert: ecdsa.pem, key: ecdsa.key, ocsp: ecdsa.ocsp }\n";
    let builder = Gateway::builder(yaml).file("ecdsa.ocsp", &responses[0]).file("rsa.ocsp", &responses[1]);
    ecdsa.write(builder.dir(), "ecdsa");
    rsa.write(builder.dir(), "rsa");
    let gateway = builder.start();
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        for (algorithms, leaf, response) in [
            ("ecdsa_secp256r1_sha256", &ecdsa, &responses[0]),
            ("rsa_pss_rsae_sha256:rsa_pkcs1_sha256", &rsa, &responses[1]),
            ("rsa_pss_rsae_sha256:ecdsa_secp256r1_sha256", &ecdsa, &responses[0]),
        ] {
            let client = TlsClient::new(TlsOptions {
                name: Some("app.test"),
                ocsp: true,
                versions: Some((version, version)),
                algorithms: Some(algorithms),
                ..TlsOptions::default()
            });
            let facts = Connection::open_tls(gateway.address(), &client).unwrap().tls();
            assert!(leaf.is(&facts.certificate), "{algorithms}");
            assert_eq!(facts.ocsp.as_ref(), Some(response), "{algorithms}");
        }
    }
    let not_after =
        gateway.metrics().label_values("portcullis_certificate_not_after_timestamp_seconds", "name");
    assert_eq!(not_after, ["app.test"], "one series, of the earlier one");
}
