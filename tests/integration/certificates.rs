//! Certificates and reload: swapped without touching open connections, refused when wrong.

use crate::support::certificates::{Authority, Leaf};
use crate::support::eventually::until;
use crate::support::{Gateway, check};

const YAML: &str = "routes: [{ name: app, respond: { body: hello } }]\n\
                    certificates: [{ cert: app.pem, key: app.key }]\n";

#[test]
fn a_reload_swaps_the_certificate_under_open_connections() {
    let authority = Authority::new("root");
    let (old, new) =
        (authority.issue(&["app.test"]), Leaf::new(&["app.test"]).days(-1, 300).sign(&authority));
    let builder = Gateway::builder(YAML);
    old.write(builder.dir(), "app");
    let gateway = builder.start();
    let mut open = gateway.connect_tls("app.test");
    assert_eq!(open.get("app.test", "/", "").text(), "hello");
    let until = || gateway.metrics().sum("portcullis_certificate_not_after_timestamp_seconds", &[]);
    let before = until();

    new.write(gateway.dir(), "app");
    gateway.reload(YAML);
    assert_eq!(open.get("app.test", "/", "").text(), "hello", "the open connection goes on");
    assert!(old.is(&open.tls().certificate));
    assert!(new.is(&gateway.connect_tls("app.test").tls().certificate));
    assert!(until() > before, "the metric follows");
}

#[test]
fn wrong_certificates_are_refused_and_the_last_good_one_stays() {
    let authority = Authority::new("root");
    let good = authority.issue(&["app.test"]);
    let other = authority.issue(&["app.test"]);
    let expired = Leaf::new(&["app.test"]).days(-10, -1).sign(&authority);
    let builder = Gateway::builder(YAML);
    good.write(builder.dir(), "app");
    let gateway = builder.start();

    let rows: &[(&str, Vec<u8>, Vec<u8>)] = &[
        ("the key of another certificate", good.chain_pem(), other.key_pem()),
        ("an expired certificate", expired.chain_pem(), expired.key_pem()),
        ("a chain in the wrong order", good.reversed_chain_pem(), good.key_pem()),
        ("no certificate in the file", b"nothing\n".to_vec(), good.key_pem()),
        ("no key in the file", good.chain_pem(), b"nothing\n".to_vec()),
        ("an empty file", Vec::new(), good.key_pem()),
    ];
    for (name, cert, key) in rows {
        std::fs::write(gateway.dir().join("app.pem"), cert).unwrap();
        std::fs::write(gateway.dir().join("app.key"), key).unwrap();
        let outcome = check(&gateway.config_file(), &[]);
        // A start would take one that has only run out of time.
        let code = i32::from(*name != "an expired certificate");
        assert_eq!(outcome.code, code, "{name}: {outcome:?}");
        gateway.reload_refused(YAML, &["certificates[0]"]);
        assert!(good.is(&gateway.connect_tls("app.test").tls().certificate), "{name}");
    }

    std::fs::remove_file(gateway.dir().join("app.pem")).unwrap();
    gateway.reload_refused(YAML, &["app.pem"]);
    good.write(gateway.dir(), "app");
    gateway.reload(YAML);
    gateway.wait_reload_successful();
}

#[test]
fn the_admin_port_lists_certificates() {
    let authority = Authority::new("root");
    let builder = Gateway::builder(YAML);
    authority.issue(&["app.test", "*.app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    let listing = gateway.admin("/v1/certificates");
    assert_eq!(listing.status, 200);
    assert!(listing.text().contains("*.app.test"), "{}", listing.text());
    assert!(!listing.text().contains("PRIVATE"), "no key material");
}

/// Two names; the first is not to be disturbed by the second.
const TWO: &str = "routes: [{ name: app, respond: { body: BODY } }]\n\
                   certificates: [{ cert: good.pem, key: good.key }, { cert: app.pem, key: app.key }]\n";

fn two(body: &str) -> String {
    TWO.replace("BODY", body)
}

fn certificates_check(gateway: &Gateway) -> (bool, String) {
    let ready = gateway.admin("/readyz");
    assert_eq!(ready.status, 200, "never for a certificate");
    let check = ready.json()["checks"]["certificates"].clone();
    (check["ok"].as_bool().unwrap(), check["detail"].as_str().unwrap().to_owned())
}

#[test]
fn a_certificate_out_of_its_time_keeps_nothing_else_from_starting_or_being_reloaded() {
    let authority = Authority::new("root");
    for (from, until, state, says) in [
        (-10, -1, "expired", "app.test: the certificate expired on"),
        (2, 9, "not_yet_valid", "not valid before"),
    ] {
        let good = authority.issue(&["good.test"]);
        let bad = || Leaf::new(&["app.test"]).days(from, until).sign(&authority);
        let (serving, another) = (bad(), bad());
        let builder = Gateway::builder(&two("one"));
        good.write(builder.dir(), "good");
        serving.write(builder.dir(), "app");
        let gateway = builder.start();
        let checked = check(&gateway.config_file(), &[]);
        assert_eq!(checked.code, 0, "{checked:?}");
        assert!(checked.stderr.contains("warning: app.test: the certificate"), "{checked:?}");

        gateway.wait_log(says);
        let (ok, detail) = certificates_check(&gateway);
        assert!(!ok && detail.contains(says), "{detail}");
        let listed = gateway.admin("/v1/certificates").json();
        assert_eq!(listed["certificates"][0]["state"], "valid");
        assert_eq!(listed["certificates"][1]["state"], state);
        assert!(good.is(&gateway.connect_tls("good.test").tls().certificate));
        assert!(serving.is(&gateway.connect_tls("app.test").tls().certificate));

        gateway.reload(&two("two"));
        assert_eq!(gateway.get("good.test", "/").text(), "two", "another change is loaded");
        another.write(gateway.dir(), "app");
        gateway.reload_refused(&two("three"), &["certificates[1].cert", "the certificate"]);
        authority.issue(&["app.test"]).write(gateway.dir(), "app");
        gateway.reload(&two("four"));
        assert_eq!(certificates_check(&gateway), (true, "certificates: 2, all of them good".to_owned()));
    }
}

#[test]
fn a_certificate_that_runs_out_while_it_serves_is_told_of() {
    let authority = Authority::new("root");
    let builder = Gateway::builder(&two("one"));
    authority.issue(&["good.test"]).write(builder.dir(), "good");
    Leaf::new(&["app.test"]).seconds(3).sign(&authority).write(builder.dir(), "app");
    let gateway = builder.start();
    gateway.wait_log("app.test: the certificate expired on");
    until("readiness to name it", || !certificates_check(&gateway).0);
    gateway.reload(&two("two"));
    assert_eq!(gateway.get("good.test", "/").text(), "two");
}

#[test]
fn client_authorities_that_have_all_expired_keep_nothing_else_from_starting() {
    let authority = Authority::new("root");
    let yaml = two("one").replace("app.key }", "app.key, client_auth: { ca: clients.pem } }");
    let builder = Gateway::builder(&yaml);
    authority.issue(&["good.test"]).write(builder.dir(), "good");
    authority.issue(&["app.test"]).write(builder.dir(), "app");
    let old = || Leaf::new(&["clients"]).days(-10, -1).sign(&authority).certificate.to_pem().unwrap();
    std::fs::write(builder.dir().join("clients.pem"), old()).unwrap();
    let gateway = builder.start();
    let (ok, detail) = certificates_check(&gateway);
    assert!(!ok && detail.contains("app.test: the last authority of its client_auth expired"), "{detail}");
    gateway.reload(&yaml.replace("one", "two"));
    assert_eq!(gateway.get("good.test", "/").text(), "two");
    std::fs::write(gateway.dir().join("clients.pem"), old()).unwrap();
    gateway.reload_refused(&yaml, &["certificates[1].client_auth.ca", "has expired"]);
}
