//! TLS towards an upstream: verified, and refused when it is somebody else.

use crate::support::certificates::{Authority, Leaf};
use crate::support::{Gateway, Origin, Reply};

fn yaml(tls: &str) -> String {
    format!(
        "routes: [{{ upstream: app }}]\nupstreams:\n  app:\n    endpoints: [\"{{ORIGIN}}\"]\n    tls: {tls}\n"
    )
}

#[test]
fn a_verified_upstream_is_served() {
    let authority = Authority::new("root");
    let origin = Origin::tls(&authority.issue(&["origin.test"]), |_| Reply::ok("secret"));
    let builder = Gateway::builder(&yaml("{ server_name: origin.test, ca: ca.pem }")).origin(&origin);
    authority.write(builder.dir(), "ca.pem");
    let gateway = builder.start();
    for _ in 0..3 {
        assert_eq!(gateway.get("a", "/").text(), "secret");
    }
    assert!(origin.connections() <= 2, "TLS connections are kept too");
}

#[test]
fn an_upstream_that_is_somebody_else_is_502() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let rows = [
        ("signed by a stranger", stranger.issue(&["origin.test"])),
        ("another name", authority.issue(&["other.test"])),
        ("expired", Leaf::new(&["origin.test"]).days(-9, -1).sign(&authority)),
    ];
    for (name, identity) in rows {
        let origin = Origin::tls(&identity, |_| Reply::ok("secret"));
        let builder = Gateway::builder(&yaml("{ server_name: origin.test, ca: ca.pem }")).origin(&origin);
        authority.write(builder.dir(), "ca.pem");
        let gateway = builder.start();
        assert_eq!(gateway.get("a", "/").status, 502, "{name}");
        assert!(origin.requests().is_empty(), "{name}");
        let record = gateway.wait_record(|record| record["status"] == 502);
        assert!(record["rejection"].is_string(), "{name}: {record}");
    }
}

#[test]
fn verification_can_be_switched_off() {
    let origin = Origin::tls(&Authority::new("stranger").issue(&["other.test"]), |_| Reply::ok("secret"));
    let yaml = yaml("{ server_name: origin.test, verify: false }");
    assert_eq!(Gateway::with_origin(&yaml, &origin).get("a", "/").text(), "secret");
}

#[test]
fn two_upstreams_at_one_address_never_share_a_connection() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let origin = Origin::tls(&authority.issue(&["origin.test"]), |_| Reply::ok("secret"));
    let yaml = "workers: 1\nroutes:\n  - { path: /good, upstream: good }\n  - { path: /bad, upstream: bad }\n\
        upstreams:\n  good: { endpoints: [\"{ORIGIN}\"], tls: { server_name: origin.test, ca: ca.pem } }\n  \
        bad: { endpoints: [\"{ORIGIN}\"], tls: { server_name: origin.test, ca: stranger.pem } }\n";
    let builder = Gateway::builder(yaml).origin(&origin);
    authority.write(builder.dir(), "ca.pem");
    stranger.write(builder.dir(), "stranger.pem");
    let gateway = builder.start();
    assert_eq!(gateway.get("a", "/good").text(), "secret");
    assert_eq!(
        gateway.get("a", "/bad").status,
        502,
        "a kept connection was verified against another authority"
    );
}

#[test]
fn requests_and_checks_show_their_certificate_and_say_whom_they_want() {
    let (root, clients, others) =
        (Authority::new("root"), Authority::new("clients"), Authority::new("others"));
    // An origin with an opinion on both: another gateway.
    let origin = Gateway::builder(
        "routes: [{ respond: { body: secret } }]\ntls: { unknown_names: refuse }\n\
         certificates: [{ cert: strict.pem, key: strict.key, client_auth: { ca: clients.pem } }]\n",
    );
    root.issue(&["strict.test"]).write(origin.dir(), "strict");
    clients.write(origin.dir(), "clients.pem");
    let origin = origin.start();
    let rows = [
        ("strict.test", "verify: true, cert: known.pem, key: known.key", 200),
        ("strict.test", "verify: true", 502),
        ("strict.test", "verify: true, cert: stranger.pem, key: stranger.key", 502),
        ("unknown.test", "verify: false, cert: known.pem, key: known.key", 502),
    ];
    for (name, settings, status) in rows {
        let tls = format!("{{ server_name: {name}, ca: ca.pem, {settings} }}\n    health_check: {{}}");
        let builder = Gateway::builder(&yaml(&tls)).set("ORIGIN", origin.address());
        root.write(builder.dir(), "ca.pem");
        clients.issue(&["known"]).write(builder.dir(), "known");
        others.issue(&["known"]).write(builder.dir(), "stranger");
        let gateway = builder.start();
        let up = gateway.metrics().get("portcullis_upstream_endpoint_up", &[]);
        assert_eq!(up, Some(f64::from(u8::from(status == 200))), "the check: {name} {settings}");
        assert_eq!(gateway.get("strict.test", "/").status, status, "{name} {settings}");
    }
}
