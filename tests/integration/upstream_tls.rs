//! TLS towards an upstream: verified, and refused when it is somebody else.

use crate::support::certificates::{Authority, Leaf};
use crate::support::http2_origin::{Call, Http2Origin};
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

/// Every way a request can take to an endpoint that has no name: settings of the file and of the upstream.
const WAYS: [(&str, &str); 4] = [
    ("", ""),
    ("proxy: { lane: off }\n", ""),
    ("", "\n    protocol: auto"),
    ("", "\n    proxy_protocol: off\n    health_check: { type: tcp, timeout: 5s }"),
];

#[test]
fn an_endpoint_without_a_name_is_verified_by_its_address_whichever_way_requests_take() {
    let authority = Authority::new("root");
    for (of_file, of_upstream) in WAYS {
        for (names, served) in [(&["127.0.0.1"][..], true), (&["127.0.0.2", "origin.test"], false)] {
            let origin = Origin::tls(&authority.issue(names), |_| Reply::ok("secret"));
            let yaml = format!("{of_file}{}", yaml(&format!("{{ ca: ca.pem }}{of_upstream}")));
            let builder = Gateway::builder(&yaml).origin(&origin);
            authority.write(builder.dir(), "ca.pem");
            let gateway = builder.start();
            let status = if served { 200 } else { 502 };
            for headers in ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"] {
                let answer = gateway.connect().get("a", "/", headers);
                assert_eq!(answer.status, status, "{of_file}{of_upstream}{headers} {names:?}");
            }
            assert_eq!(origin.requests().is_empty(), !served, "{of_file}{of_upstream} {names:?}");
            let up = gateway.metrics().get("portcullis_upstream_endpoint_up", &[]);
            let is_checked = of_upstream.contains("health_check");
            assert_eq!(up, Some(f64::from(u8::from(served || !is_checked))));
            if !served {
                let record = gateway.wait_record(|record| record["status"] == 502);
                assert_eq!(record["rejection"], "upstream_tls", "{of_file}{of_upstream}");
            }
        }
    }
}

#[test]
fn copies_and_requests_of_http2_go_to_no_other_address_either() {
    let authority = Authority::new("root");
    let answered = |call: Call| async move { call.ok("secret") };
    for (names, served) in [(&["127.0.0.1"][..], true), (&["127.0.0.2"], false)] {
        let identity = authority.issue(names);
        let origin = Http2Origin::tls(&identity, answered);
        let builder =
            Gateway::builder(&yaml("{ ca: ca.pem }\n    protocol: http2")).set("ORIGIN", origin.address());
        authority.write(builder.dir(), "ca.pem");
        assert_eq!(builder.start().get("a", "/").status, if served { 200 } else { 502 });

        let (original, copied) = (Origin::fixed("original"), Origin::tls(&identity, |_| Reply::ok("copy")));
        let yaml = "routes: [{ upstream: app, mirror: { upstream: copies } }]\nupstreams:\n  \
                    app: { endpoints: [\"{ORIGIN}\"] }\n  \
                    copies: { endpoints: [\"{COPIES}\"], tls: { ca: ca.pem } }\n";
        let builder = Gateway::builder(yaml).origin(&original).set("COPIES", copied.address());
        authority.write(builder.dir(), "ca.pem");
        let gateway = builder.start();
        assert_eq!(gateway.get("a", "/").text(), "original");
        let result = if served { "sent" } else { "failed" };
        gateway.wait_metric("portcullis_upstream_mirrored_requests_total", &[("result", result)], 1.0);
        assert_eq!(copied.requests().is_empty(), !served);
    }
}

#[test]
fn without_verification_no_name_is_needed_and_an_address_can_be_demanded() {
    let authority = Authority::new("root");
    let origin = Origin::tls(&authority.issue(&["10.1.2.3"]), |_| Reply::ok("secret"));
    for (tls, status) in [
        ("{ verify: false }", 200),
        ("{ server_name: 10.1.2.3, ca: ca.pem }", 200),
        ("{ server_name: 10.1.2.4, ca: ca.pem }", 502),
        ("{ server_name: 10.1.2.4, verify: false }", 200),
        ("{ ca: ca.pem }", 502),
    ] {
        let builder = Gateway::builder(&yaml(tls)).origin(&origin);
        authority.write(builder.dir(), "ca.pem");
        assert_eq!(builder.start().get("a", "/").status, status, "{tls}");
    }
    let named = yaml("{ ca: ca.pem }").replace("{ORIGIN}", "localhost:{PORT2}");
    let builder = Gateway::builder(&named);
    authority.write(builder.dir(), "ca.pem");
    assert_eq!(builder.start().get("a", "/").status, 502, "loads: the name is the endpoint's");
}
