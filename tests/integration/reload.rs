//! Reload: whole or not at all, and never at the cost of a connection.

use crate::support::eventually::until;
use crate::support::{Gate, Gateway, Origin, Reply};
use std::net::TcpStream;
use std::sync::Arc;

fn body(text: &str) -> String {
    format!("routes: [{{ name: app, respond: {{ body: {text} }} }}]\n")
}

#[test]
fn a_new_file_serves_without_closing_connections() {
    let gateway = Gateway::start(&body("one"));
    let mut connection = gateway.connect();
    assert_eq!(connection.get("a", "/", "").text(), "one");
    gateway.reload(&body("two"));
    assert_eq!(connection.get("a", "/", "").text(), "two");
    assert_eq!(gateway.wait_record(|record| record["generation"] == 2)["status"], 200);
}

#[test]
fn a_broken_file_changes_nothing_and_says_so() {
    let good = body("good");
    let gateway = Gateway::start(&good);
    let rows = [
        ("routes: [\n", ""),
        ("routes:\n  - name: app\n    upstrem: [127.0.0.1:1]\n", "portcullis.yaml:3"),
        ("routes: [{ upstream: nosuch }]\n", "nosuch"),
        ("routes:\n  - { respond: { body: x } }\naccess:\n  deny: [10.0.0.0/33]\n", "portcullis.yaml:4"),
        ("routes: [{ respond: { body: x } }]\nroutes: []\n", ""),
        ("", ""),
    ];
    for (broken, place) in rows {
        gateway.reload_refused(broken, &["portcullis.yaml", place]);
        assert_eq!(gateway.get("a", "/").text(), "good", "{broken:?}");
        let readiness = gateway.admin("/readyz");
        assert_eq!(readiness.status, 200, "{broken:?}");
        assert!(readiness.text().contains("portcullis.yaml"), "names the failure: {}", readiness.text());
    }
    gateway.reload(&good);
    gateway.wait_reload_successful();
    assert_eq!(gateway.generation(), 2);
}

#[test]
fn a_file_that_is_gone_changes_nothing() {
    let gateway = Gateway::start(&body("good"));
    std::fs::remove_file(gateway.config_file()).unwrap();
    gateway.sighup();
    until("a failed reload", || {
        gateway.metrics().get("portcullis_config_last_reload_successful", &[]) == Some(0.0)
    });
    assert_eq!(gateway.get("a", "/").text(), "good");
}

#[test]
fn what_cannot_change_live_is_refused_with_all_its_keys() {
    let gateway = Gateway::start(&body("good"));
    let elsewhere = body("new")
        + "workers: 1\nadmin: { address: \"127.0.0.1:{PORT3}\" }\nlisteners: [{ name: edge, address: \"127.0.0.1:{PORT2}\" }]\n";
    gateway.reload_refused(&elsewhere, &["workers", "admin.address"]);
    assert_eq!(gateway.get("a", "/").text(), "good");
}

#[test]
fn hangups_during_start_up_are_survived() {
    for _ in 0..5 {
        let mut gateway = Gateway::builder(&body("good")).spawn();
        // Before `main` nobody can catch anything; from its first moment on the process must.
        until("a handler for HUP", || gateway.catches(libc::SIGHUP));
        let admin = gateway.admin_address();
        until("a start", || {
            gateway.sighup();
            assert!(gateway.is_running(), "the process is gone");
            TcpStream::connect(admin).is_ok()
        });
        gateway.wait_ready().unwrap();
        assert_eq!(gateway.get("a", "/").text(), "good");
    }
}

#[test]
fn of_two_hangups_in_flight_the_last_file_wins() {
    let gateway = Gateway::start(&body("v0"));
    for round in 1..=20 {
        gateway.write_config(&body(&format!("x{round}")));
        gateway.sighup();
        gateway.write_config(&body(&format!("v{round}")));
        gateway.sighup();
        until("the last file to serve", || gateway.get("a", "/").text() == format!("v{round}"));
    }
}

#[test]
fn a_request_keeps_the_configuration_it_started_with() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |_| Reply::ok("from the old upstream").after(&held));
    let old = "routes: [{ name: old, upstream: [\"{ORIGIN}\"] }]\n";
    let gateway = Gateway::with_origin(old, &origin);
    let mut connection = gateway.connect();
    connection.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_requests(1);
    gateway.reload(&body("new"));
    gate.open();
    assert_eq!(connection.response().text(), "from the old upstream");
    assert_eq!(connection.get("a", "/", "").text(), "new");
    let record = gateway.wait_record_of("/held");
    assert_eq!((record["generation"].as_u64(), record["route"].as_str()), (Some(1), Some("old")));
}

#[test]
fn counters_survive_and_removed_series_disappear() {
    let origin = Origin::fixed("hello");
    let both = "routes:\n  - { name: kept, path: /kept, upstream: app }\n  - { name: gone, path: /gone, upstream: old }\n\
                upstreams: { app: { endpoints: [\"{ORIGIN}\"] }, old: { endpoints: [\"{ORIGIN}\"] } }\n";
    let one = "routes:\n  - { name: kept, path: /kept, upstream: app }\n\
               upstreams: { app: { endpoints: [\"{ORIGIN}\"] } }\n";
    let gateway = Gateway::with_origin(both, &origin);
    gateway.get("a", "/kept");
    gateway.get("a", "/gone");
    for route in ["kept", "gone"] {
        gateway.wait_metric("portcullis_http_requests_total", &[("route", route)], 1.0);
    }
    gateway.reload(one);
    gateway.get("a", "/kept");
    gateway.wait_metric("portcullis_http_requests_total", &[("route", "kept")], 2.0);
    gateway.wait_metric("portcullis_upstream_requests_total", &[("upstream", "app")], 2.0);
    let metrics = gateway.metrics();
    assert!(!metrics.label_values("portcullis_http_requests_total", "route").contains(&"gone".to_owned()));
    assert!(
        !metrics.label_values("portcullis_upstream_requests_total", "upstream").contains(&"old".to_owned())
    );
}

#[test]
fn kept_upstreams_keep_their_connections() {
    let origin = Origin::fixed("hello");
    let yaml = "workers: 1\nroutes: [{ upstream: app }]\nupstreams: { app: { endpoints: [\"{ORIGIN}\"] } }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    gateway.get("a", "/");
    gateway.reload(&format!("{yaml}log: {{ level: debug }}"));
    gateway.get("a", "/");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_refused_file_leaves_nothing_behind() {
    let gateway = Gateway::start(&body("good"));
    let phantom = "routes:\n  - { name: app, hosts: [a], respond: { body: x } }\n  - { name: phantom, upstream: phantom }\n\
                   upstreams: { phantom: { endpoints: [\"127.0.0.1:1\"], health_check: { type: tcp } } }\n";
    let listeners = "listeners:\n  - { name: edge, address: \"127.0.0.1:{PORT}\" }\n  \
                     - { name: phantom, address: \"127.0.0.1:{PORT2}\" }\n";
    let second =
        std::net::SocketAddr::from(([127, 0, 0, 1], gateway.value("PORT2").parse().expect("a port")));
    let threads = || std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).expect("a process").count();
    let before = threads();
    for (reason, named) in [
        ("not_found: { body_file: nosuch }\n", "not_found.body_file"),
        ("workers: 7\n", "workers"),
        ("admin: { address: \"127.0.0.1:1\" }\n", "admin.address"),
        ("access_log: { output: missing/folder/access.log }\n", "access_log.output"),
    ] {
        gateway.reload_refused(&format!("{phantom}{listeners}{reason}"), &[named]);
        let series = gateway.admin("/metrics");
        assert!(!series.text().contains("phantom"), "{named}: {}", series.text());
        assert!(TcpStream::connect(second).is_err(), "{named}: a listener nobody wants");
    }
    until("no more threads than before", || threads() <= before + 1);
    assert_eq!(gateway.get("a", "/").text(), "good");
}
