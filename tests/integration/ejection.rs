//! Endpoints that keep failing are out for a while, and never too many of them.

use crate::support::eventually::until;
use crate::support::ports::ClosedPort;
use crate::support::{Connection, Gateway, Origin, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn upstream(settings: &str) -> String {
    format!(
        "workers: 2\nroutes: [{{ upstream: app }}]\naccess_log: {{ output: off }}\n\
         upstreams: {{ app: {{ endpoints: [\"{{A}}\", \"{{B}}\", \"{{C}}\"], {settings} }} }}\n"
    )
}

fn start(yaml: &str, origins: [&dyn ToString; 3]) -> Gateway {
    let builder = Gateway::builder(yaml);
    let [a, b, c] = origins.map(ToString::to_string);
    builder.set("A", a).set("B", b).set("C", c).start()
}

/// An origin that answers 503 while the switch is on.
fn failing() -> (Origin, Arc<AtomicBool>) {
    let bad = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&bad);
    let script = move |_: &_| match switch.load(Ordering::SeqCst) {
        true => Reply::status(503, "", "broken"),
        false => Reply::ok("well"),
    };
    (Origin::script(script), bad)
}

fn ask(gateway: &Gateway, requests: usize) {
    let mut connection = gateway.connect();
    for _ in 0..requests {
        connection.get("a", "/", "");
    }
}

/// What `/v1/upstreams` says of an endpoint of the only upstream.
fn endpoint(gateway: &Gateway, index: usize) -> serde_json::Value {
    gateway.admin("/v1/upstreams").json()["upstreams"][0]["endpoints"][index].clone()
}

fn up(gateway: &Gateway, endpoint: &str) -> Option<f64> {
    gateway.metrics().get("portcullis_upstream_endpoint_up", &[("upstream", "app"), ("endpoint", endpoint)])
}

#[test]
fn an_endpoint_that_keeps_answering_503_is_out_and_a_reload_does_not_bring_it_back() {
    let (a, (b, _), c) = (Origin::fixed("a"), failing(), Origin::fixed("c"));
    let yaml = upstream("ejection: { failures: 3, for: 1h }");
    let gateway = start(&yaml, [&a.address(), &b.address(), &c.address()]);
    assert_eq!(up(&gateway, &b.address()), Some(1.0));
    ask(&gateway, 60);
    assert_eq!(b.requests().len(), 3);
    assert_eq!((up(&gateway, &a.address()), up(&gateway, &b.address())), (Some(1.0), Some(0.0)));
    assert_eq!(gateway.metrics().sum("portcullis_upstream_ejections_total", &[("upstream", "app")]), 1.0);
    let shown = endpoint(&gateway, 1);
    assert!(shown["ejected_until"].is_string() && shown["up"] == false, "{shown}");
    gateway.wait_log("is out for 3600s after 3 failures within 10s");
    gateway.reload(&yaml.replace("for: 1h }", "for: 2h }, keepalive: 7"));
    ask(&gateway, 30);
    assert_eq!(b.requests().len(), 3);
}

#[test]
fn an_ejected_endpoint_comes_back_when_its_time_is_over() {
    let (a, (b, bad), c) = (Origin::fixed("a"), failing(), Origin::fixed("c"));
    let yaml = upstream("ejection: { failures: 2, for: 5s }");
    let gateway = start(&yaml, [&a.address(), &b.address(), &c.address()]);
    ask(&gateway, 12);
    assert_eq!(b.requests().len(), 2);
    bad.store(false, Ordering::SeqCst);
    until("its return", || {
        ask(&gateway, 3);
        b.requests().len() > 2
    });
    until("its series to say so", || up(&gateway, &b.address()) == Some(1.0));
}

#[test]
fn refused_connections_count_and_the_clients_notice_nothing() {
    let (a, closed, c) = (Origin::fixed("a"), ClosedPort::new(), Origin::fixed("c"));
    let yaml = upstream("ejection: { failures: 3, for: 1h }");
    let gateway = start(&yaml, [&a.address(), &format!("127.0.0.1:{closed}"), &c.address()]);
    let mut connection = gateway.connect();
    for _ in 0..60 {
        assert_eq!(connection.get("a", "/", "").status, 200);
    }
    assert_eq!(gateway.metrics().sum("portcullis_upstream_retries_total", &[("reason", "connect")]), 3.0);
    assert_eq!(a.requests().len() + c.requests().len(), 60);
}

#[test]
fn never_more_than_the_share_allowed_is_out() {
    let (a, (b, _), (c, _)) = (Origin::fixed("a"), failing(), failing());
    let yaml = upstream("ejection: { failures: 2, for: 1h, max_percent: 50 }");
    let gateway = start(&yaml, [&a.address(), &b.address(), &c.address()]);
    ask(&gateway, 90);
    let (b, c) = (b.requests().len(), c.requests().len());
    assert!(b.min(c) == 2 && b.max(c) >= 40, "one of both is out: {b}, {c}");
    assert_eq!(gateway.metrics().sum("portcullis_upstream_ejections_total", &[]), 1.0);
}

#[test]
fn when_too_many_are_out_all_are_used() {
    let (a, (b, _), (c, _)) = (Origin::fixed("a"), failing(), failing());
    let yaml = upstream("panic_percent: 50, ejection: { failures: 2, for: 1h, max_percent: 100 }");
    let gateway = start(&yaml, [&a.address(), &b.address(), &c.address()]);
    ask(&gateway, 90);
    assert_eq!(gateway.metrics().sum("portcullis_upstream_ejections_total", &[]), 2.0);
    assert_eq!(gateway.metrics().sum("portcullis_upstream_panicking", &[("upstream", "app")]), 1.0);
    assert_eq!(gateway.admin("/v1/upstreams").json()["upstreams"][0]["serving"], "panic");
    assert!(b.requests().len() > 20 && c.requests().len() > 20);
    gateway.reload(&yaml.replace("panic_percent: 50, ", ""));
    let before = a.requests().len();
    ask(&gateway, 30);
    assert_eq!(a.requests().len(), before + 30, "without panic, the one that is well serves alone");
    assert_eq!(gateway.metrics().sum("portcullis_upstream_panicking", &[("upstream", "app")]), 0.0);
}

#[test]
fn a_bad_answer_of_the_application_is_not_the_endpoints_failure() {
    let b = Origin::script(|_| Reply::status(500, "", "a bug"));
    let (a, c) = (Origin::fixed("a"), Origin::fixed("c"));
    let gateway =
        start(&upstream("ejection: { failures: 1, for: 1h }"), [&a.address(), &b.address(), &c.address()]);
    ask(&gateway, 30);
    assert_eq!(b.requests().len(), 10);
}

#[test]
fn an_endpoint_killed_under_load_costs_no_more_than_what_was_in_flight_on_it() {
    const CLIENTS: usize = 4;
    let origins = [Origin::fixed("a"), Origin::fixed("b"), Origin::fixed("c")];
    let yaml = upstream("ejection: { failures: 3, for: 1h }");
    let gateway = start(&yaml, [&origins[0].address(), &origins[1].address(), &origins[2].address()]);
    let (address, stop) = (gateway.address(), AtomicBool::new(false));
    let (done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = Connection::open(address);
                while !stop.load(Ordering::SeqCst) {
                    let answer = connection.get("a", "/", "");
                    failed.fetch_add(usize::from(answer.status != 200), Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let more = |count: usize| {
            let wanted = done.load(Ordering::SeqCst) + count;
            until("more requests", || done.load(Ordering::SeqCst) >= wanted);
        };
        more(300);
        origins[1].kill();
        more(600);
        stop.store(true, Ordering::SeqCst);
    });
    let failed = failed.load(Ordering::SeqCst);
    assert!(failed <= CLIENTS, "{failed} of {} failed", done.load(Ordering::SeqCst));
    assert_eq!(up(&gateway, &origins[1].address()), Some(0.0));
}
