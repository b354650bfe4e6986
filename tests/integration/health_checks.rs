//! Active checks: who gets requests when, across failures, reloads and deployments.

use crate::support::eventually::{DEADLINE, holds, until};
use crate::support::load::Load;
use crate::support::ports::ClosedPort;
use crate::support::service::Service;
use crate::support::{Gate, Gateway, Origin, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Often, and with the patience a busy machine needs: an endpoint that is well must not be taken for a sick one.
const CHECK: &str = "health_check: { path: /healthz, interval: 500ms, timeout: 500ms }";

/// An origin whose `/healthz` can be switched; everything else is answered with its name.
struct Switched {
    origin: Origin,
    well: Arc<AtomicBool>,
}

impl Switched {
    fn new(name: &'static str, well: bool) -> Switched {
        let well = Arc::new(AtomicBool::new(well));
        let asked = Arc::clone(&well);
        let origin = Origin::script(move |request| match request.target() {
            "/healthz" if !asked.load(Ordering::SeqCst) => Reply::status(500, "", "sick"),
            _ => Reply::ok(name),
        });
        Switched { origin, well }
    }

    fn set(&self, well: bool) {
        self.well.store(well, Ordering::SeqCst);
    }

    fn address(&self) -> String {
        self.origin.address()
    }

    /// Requests that were no checks.
    fn served(&self) -> usize {
        self.origin.requests().iter().filter(|request| request.target() != "/healthz").count()
    }
}

fn yaml(endpoints: &[&str], more: &str) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(|address| format!("\"{address}\"")).collect();
    let endpoints = endpoints.join(", ");
    format!("routes: [{{ upstream: app }}]\nupstreams:\n  app: {{ endpoints: [{endpoints}], {more} }}\n")
}

fn up(gateway: &Gateway, upstream: &str, endpoint: &str) -> Option<f64> {
    let labels = [("upstream", upstream), ("endpoint", endpoint)];
    gateway.metrics().get("portcullis_upstream_endpoint_up", &labels)
}

fn wait_up(gateway: &Gateway, endpoint: &str, wanted: bool) {
    let wanted = if wanted { 1.0 } else { 0.0 };
    until(&format!("{endpoint} to be {wanted}"), || up(gateway, "app", endpoint) == Some(wanted));
}

/// What the admin port says of an endpoint.
fn shown(gateway: &Gateway, endpoint: &str) -> serde_json::Value {
    let answer = gateway.admin("/v1/upstreams").json();
    let endpoints = answer["upstreams"].as_array().unwrap().iter().flat_map(|u| u["endpoints"].as_array());
    endpoints.flatten().find(|found| found["address"] == endpoint).expect("the endpoint").clone()
}

fn health(gateway: &Gateway, endpoint: &str) -> String {
    shown(gateway, endpoint)["health"].as_str().expect("a health").to_owned()
}

#[test]
fn an_endpoint_goes_and_comes_back_by_the_thresholds_and_no_request_fails() {
    let (one, other) = (Switched::new("one", true), Switched::new("other", true));
    let gateway = Gateway::start(&yaml(&[&one.address(), &other.address()], CHECK));
    assert_eq!(health(&gateway, &one.address()), "up", "known before the gateway is ready");
    let load = Load::start(gateway.address(), "/", 2, Duration::from_millis(2));
    one.set(false);
    wait_up(&gateway, &one.address(), false);
    assert_eq!(health(&gateway, &one.address()), "down");
    let served = one.served();
    let more = other.served() + 50;
    until("requests at the other one", || other.served() >= more);
    assert!(one.served() <= served + 2, "requests at an endpoint that is down");
    one.set(true);
    wait_up(&gateway, &one.address(), true);
    until("requests at it again", || one.served() > served + 20);
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);

    let address = one.address();
    let logged = |text: &str| gateway.log().matches(&format!("upstream app: {address} {text}")).count();
    until("both its returns in the log", || logged("is up") == 2);
    assert_eq!(logged("is down, 3 checks failed: status 500"), 1, "{}", gateway.log());
    let metrics = gateway.metrics();
    let results = |result| {
        metrics.sum("portcullis_upstream_health_checks_total", &[("upstream", "app"), ("result", result)])
    };
    assert!(results("success") >= 4.0 && results("status") >= 3.0);
}

#[test]
fn two_upstreams_at_one_address_have_a_health_each() {
    let origin = Origin::script(|request| match request.target() {
        "/bad" => Reply::status(500, "", "bad"),
        _ => Reply::ok("good"),
    });
    let yaml = "routes:\n  - { path: /one, upstream: one }\n  - { path: /two, upstream: two }\n\
        upstreams:\n  one: { endpoints: [\"{ORIGIN}\"], health_check: { path: /good, timeout: 5s } }\n  \
        two: { endpoints: [\"{ORIGIN}\"], health_check: { path: /bad, timeout: 5s }, panic_percent: 0 }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    assert_eq!(up(&gateway, "one", &origin.address()), Some(1.0));
    assert_eq!(up(&gateway, "two", &origin.address()), Some(0.0));
    assert_eq!(gateway.get("a", "/one").text(), "good");
    assert_eq!(gateway.get("a", "/two").status, 503);
    assert_eq!(gateway.wait_record_of("/two")["rejection"], "no_endpoint");
    let ready = gateway.admin("/readyz");
    assert_eq!(ready.status, 200, "an upstream that is down concerns its own routes");
    assert_eq!(ready.json()["checks"]["upstreams"]["detail"], "upstreams: 2, endpoints: 2, available: 1");
}

#[test]
fn a_new_endpoint_gets_nothing_before_its_first_good_check() {
    let (old, new) = (Switched::new("old", true), Switched::new("new", false));
    let gateway = Gateway::start(&yaml(&[&old.address()], CHECK));
    gateway.reload(&yaml(&[&old.address(), &new.address()], CHECK));
    for _ in 0..50 {
        assert_eq!(gateway.get("a", "/").text(), "old");
    }
    new.origin.wait_requests(3);
    assert_eq!(new.served(), 0);
    new.set(true);
    until("requests at the new one", || gateway.get("a", "/").text() == "new");
    // A third one that is well is asked at once, and the reload is there before its first interval ends.
    let third = Switched::new("third", true);
    let slow = CHECK.replace("interval: 500ms", "interval: 1h");
    gateway.reload(&yaml(&[&third.address()], &slow));
    assert_eq!(gateway.get("a", "/").text(), "third");
    assert_eq!(up(&gateway, "app", &old.address()), None, "a removed endpoint has no series");
    let asked = old.origin.requests().len();
    holds("silence at a removed endpoint", Duration::from_millis(1_500), || {
        old.origin.requests().len() <= asked + 1
    });
}

#[test]
fn a_reload_that_replaces_every_endpoint_fails_no_request() {
    let services = [Switched::new("one", true), Switched::new("other", true)];
    let gateway = Gateway::start(&yaml(&[&services[0].address()], CHECK));
    let load = Load::start(gateway.address(), "/", 2, Duration::from_millis(1));
    for round in 1..=10 {
        gateway.reload(&yaml(&[&services[round % 2].address()], CHECK));
        let served = services[round % 2].served();
        until("requests at the new one", || services[round % 2].served() > served + 10);
    }
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{tally:?}");
}

#[test]
fn a_reload_keeps_what_is_known_and_counted() {
    let (one, other) = (Switched::new("one", false), Switched::new("other", true));
    let rare = "health_check: { path: /healthz, interval: 1h }";
    let gateway = Gateway::start(&yaml(&[&one.address(), &other.address()], rare));
    assert_eq!(health(&gateway, &one.address()), "down");
    one.set(true);
    for balance in ["random", "round_robin", "random"] {
        gateway.reload(&yaml(&[&one.address(), &other.address()], &format!("balance: {balance}, {rare}")));
        assert_eq!(health(&gateway, &one.address()), "down", "forgotten by a reload");
    }
    assert_eq!(one.origin.requests().len(), 1, "a reload is no reason to ask again");
    // Reloads more often than checks do not put a verdict off for ever.
    let gateway = Gateway::start(&yaml(&[&one.address(), &other.address()], CHECK));
    one.set(false);
    let mut round = 0;
    until("a verdict under constant reloads", || {
        round += 1;
        let balance = if round % 2 == 0 { "random" } else { "round_robin" };
        gateway.reload(&yaml(&[&one.address(), &other.address()], &format!("balance: {balance}, {CHECK}")));
        health(&gateway, &one.address()) == "down"
    });
    gateway.reload(&yaml(&[&one.address(), &other.address()], "keepalive: 8"));
    until("unchecked", || health(&gateway, &one.address()) == "unchecked");
    assert_eq!(up(&gateway, "app", &one.address()), Some(1.0));
}

#[test]
fn checks_that_are_new_take_out_nobody_at_once_and_slow_ones_hold_up_no_request() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |request| match request.target() {
        "/healthz" => Reply::ok("well").after(&held),
        _ => Reply::ok("served"),
    });
    let gateway = Gateway::start(&yaml(&[&origin.address()], "keepalive: 8"));
    assert_eq!(health(&gateway, &origin.address()), "unchecked");
    let slow =
        "panic_percent: 0, health_check: { path: /healthz, interval: 10s, timeout: 10s, unhealthy: 2 }";
    gateway.reload(&yaml(&[&origin.address()], slow));
    until("the first check", || origin.requests().iter().any(|request| request.target() == "/healthz"));
    // If they waited for a check, it would be down by checks long before the last of them.
    for _ in 0..50 {
        assert_eq!(gateway.get("a", "/").text(), "served");
    }
    wait_up(&gateway, &origin.address(), false);
    gateway.wait_log("is down, 2 checks failed: no answer within 10000 ms");
    assert_eq!(gateway.get("a", "/").status, 503);
    gate.open();
    wait_up(&gateway, &origin.address(), true);
}

#[test]
fn a_paused_service_is_noticed_and_a_killed_one_too() {
    let (mut one, other) = (Service::start("one"), Service::start("other"));
    let (first, second) = (one.address().to_string(), other.address().to_string());
    let gateway = Gateway::start(&yaml(&[&first, &second], CHECK));
    one.signal(libc::SIGSTOP);
    wait_up(&gateway, &first, false);
    gateway.wait_log("no answer within 500 ms");
    for _ in 0..20 {
        assert_eq!(gateway.get("a", "/").text(), "other");
    }
    one.signal(libc::SIGCONT);
    wait_up(&gateway, &first, true);
    one.kill();
    wait_up(&gateway, &first, false);
    gateway.wait_log("3 checks failed: ConnectRefused");
}

#[test]
fn a_rolling_deployment_under_load_fails_no_request() {
    let mut services: Vec<Service> = ["one", "two", "three"].map(Service::start).into();
    let addresses: Vec<String> = services.iter().map(|service| service.address().to_string()).collect();
    let endpoints: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let gateway = Gateway::start(&yaml(&endpoints, CHECK));
    let load = Load::start(gateway.address(), "/", 4, Duration::from_millis(18));
    for (service, address) in services.iter_mut().zip(&addresses) {
        load.wait_more(30);
        // As a deployment does: it says that it leaves, is left alone, and goes.
        service.set_well(false);
        wait_up(&gateway, address, false);
        until("nothing in flight on it", || shown(&gateway, address)["requests_in_flight"] == 0);
        service.kill();
        load.wait_more(30);
        service.set_well(true);
        service.restart();
        wait_up(&gateway, address, true);
        load.wait_more(30);
    }
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{} good, failed: {:?}", tally.good, tally.failures);
}

#[test]
fn an_upgrade_waits_for_the_first_checks_and_fails_no_request() {
    let gate = Gate::closed();
    let (held, asked) = (Arc::clone(&gate), Arc::new(AtomicBool::new(false)));
    let first = Arc::clone(&asked);
    // The check of the old process is answered at once, that of the new one when the gate opens.
    let origin = Origin::script(move |request| match request.target() {
        "/healthz" if first.swap(true, Ordering::SeqCst) => Reply::ok("well").after(&held),
        _ => Reply::ok("served"),
    });
    let yaml = yaml(&[&origin.address()], "health_check: { path: /healthz, interval: 1h, timeout: 30s }");
    let mut old = Gateway::start(&yaml);
    let load = Load::start(old.address(), "/", 2, Duration::from_millis(2));
    let new = old.upgrade(&yaml);
    until("the check of the new process", || {
        origin.requests().iter().filter(|request| request.target() == "/healthz").count() == 2
    });
    holds("the old one to be on its own", Duration::from_millis(300), || {
        !old.log().contains("serves as well")
    });
    gate.open();
    old.wait_log("serves as well");
    load.wait_more(20);
    old.signal(libc::SIGQUIT);
    assert_eq!(old.wait_exit(DEADLINE), 0);
    new.wait_log("has handed over");
    load.wait_more(20);
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{} good, failed: {:?}", tally.good, tally.failures);
}

#[test]
fn a_start_waits_for_checks_but_not_for_ever_and_can_be_ended_meanwhile() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::script(move |_| Reply::ok("late").after(&held));
    let patient = yaml(&[&origin.address()], "health_check: { interval: 1h, timeout: 1m }")
        .replace("routes: [", "routes: [{ path: /own, respond: { body: own } }, ");
    let mut gateway = Gateway::builder(&patient).spawn();
    origin.wait_requests(1);
    let ready = gateway.admin("/readyz");
    assert_eq!((ready.status, ready.json()["state"].as_str()), (503, Some("starting")));
    gateway.term();
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
    assert!(
        !gateway.log().contains("not all is known yet"),
        "a start can be ended before: {}",
        gateway.log()
    );
    let begun = Instant::now();
    let gateway = Gateway::start(&patient);
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    gateway.wait_log("not all is known yet of app");
    assert_eq!(gateway.get("a", "/own").text(), "own");
    assert_eq!(gateway.get("a", "/").status, 503);
    assert_eq!(health(&gateway, &origin.address()), "pending");
    gate.open();
    until("an answer", || gateway.get("a", "/").status == 200);
}

#[test]
fn a_small_upstream_loses_nothing_to_endpoints_that_checks_know_to_be_bad() {
    let (well, sick) = (Switched::new("well", true), Switched::new("sick", false));
    let closed = ClosedPort::new();
    let gone = format!("127.0.0.1:{closed}");
    let gateway = Gateway::start(&yaml(&[&well.address(), &sick.address(), &gone], CHECK));
    assert_eq!(health(&gateway, &gone), "down");
    for _ in 0..100 {
        assert_eq!(gateway.get("a", "/").text(), "well");
    }
    assert_eq!(gateway.admin("/v1/upstreams").json()["upstreams"][0]["serving"], "primaries");
    // Above the threshold all are used, but nobody is sent where nothing listens.
    let panics = format!("{CHECK}, panic_percent: 100");
    gateway.reload(&yaml(&[&well.address(), &sick.address(), &gone], &panics));
    (0..100).for_each(|_| assert_eq!(gateway.get("a", "/").status, 200));
    assert!(sick.served() > 20, "panic");
    assert_eq!(gateway.metrics().sum("portcullis_upstream_retries_total", &[]), 0.0);
}
