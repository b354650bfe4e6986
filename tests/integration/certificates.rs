//! Certificates and reload: swapped without touching open connections, refused when wrong.

use crate::support::certificates::{Authority, Leaf};
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
        assert_eq!(outcome.code, 1, "{name}: {outcome:?}");
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
