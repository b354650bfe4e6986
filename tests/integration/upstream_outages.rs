//! Services that die, stand still and come back under load.

use crate::support::Gateway;
use crate::support::eventually::until;
use crate::support::load::Load;
use crate::support::service::Service;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
/// How long a request may wait for its answer; services that are well answer sooner on any machine.
const RESPONSE: Duration = Duration::from_secs(5);
/// How often a service is checked, and how long it has to answer.
const INTERVAL: Duration = Duration::from_millis(500);
/// Three checks that fail, each after its time.
const NOTICED: Duration = Duration::from_millis(3 * 500 + 500);
/// A machine that runs much else at once is late itself, and by far not as late as who waits for ever.
const SLACK: Duration = Duration::from_secs(20);

fn yaml(retry: &str) -> String {
    format!(
        "workers: 2\naccess_log: {{ output: off }}\n\
         routes: [{{ upstream: app, timeouts: {{ connect: 5s, response: {}ms }} }}]\n\
         upstreams:\n  app:\n    endpoints: [\"{{A}}\", \"{{B}}\", \"{{C}}\"]\n    \
         retry: {{ on: {retry}, budget_percent: 100 }}\n    \
         health_check: {{ path: /healthz, interval: {interval}ms, timeout: {interval}ms, unhealthy: 3, healthy: 1 }}\n",
        RESPONSE.as_millis(),
        interval = INTERVAL.as_millis()
    )
}

struct Site {
    services: Vec<Service>,
    gateway: Gateway,
}

impl Site {
    fn new(retry: &str) -> Site {
        let services: Vec<Service> = ["a", "b", "c"].map(Service::start).into();
        let [a, b, c] = [0, 1, 2].map(|index: usize| services[index].address());
        let gateway = Gateway::builder(&yaml(retry)).set("A", a).set("B", b).set("C", c).start();
        Site { services, gateway }
    }

    /// Waits until checks say so of the first service; how long that took.
    fn wait_up(&self, wanted: bool) -> Duration {
        let began = Instant::now();
        let address = self.services[0].address().to_string();
        let labels = [("upstream", "app"), ("endpoint", address.as_str())];
        let wanted = if wanted { 1.0 } else { 0.0 };
        until("a change of health", || {
            self.gateway.metrics().get("portcullis_upstream_endpoint_up", &labels) == Some(wanted)
        });
        began.elapsed()
    }

    /// Waits for more requests.
    fn go_on(&self) {
        let count = || self.gateway.metrics().sum("portcullis_http_requests_total", &[]);
        let wanted = count() + 100.0;
        until("more requests", || count() >= wanted);
    }
}

#[test]
fn a_service_that_is_killed_and_restarted_costs_what_was_in_flight_on_it_at_most() {
    let mut site = Site::new("[connect, stale]");
    let load = Load::start(site.gateway.address(), "/", CLIENTS, Duration::from_millis(2));
    for _ in 0..2 {
        site.go_on();
        site.services[0].kill();
        let noticed = site.wait_up(false);
        assert!(noticed < NOTICED + SLACK, "{noticed:?}");
        site.go_on();
        site.services[0].restart();
        let back = site.wait_up(true);
        assert!(back < INTERVAL + SLACK, "{back:?}");
        site.go_on();
    }
    let tally = load.stop();
    assert!(tally.failures.len() <= 2 * CLIENTS, "{} good, failed: {:?}", tally.good, tally.failures);
}

#[test]
fn a_service_that_stands_still_costs_what_was_in_flight_on_it_at_most() {
    let site = Site::new("[connect, stale]");
    let load = Load::start(site.gateway.address(), "/", CLIENTS, Duration::from_millis(2));
    site.go_on();
    site.services[0].signal(libc::SIGSTOP);
    let noticed = site.wait_up(false);
    assert!(noticed < NOTICED + SLACK, "{noticed:?}");
    // Those that wait for it are over.
    until("the late ones to end", || {
        let late = site.gateway.metrics().sum("portcullis_http_requests_total", &[("code", "504")]);
        late > 0.0 || site.gateway.metrics().sum("portcullis_http_requests_in_flight", &[]) == 0.0
    });
    site.go_on();
    site.services[0].signal(libc::SIGCONT);
    let back = site.wait_up(true);
    assert!(back < INTERVAL + SLACK, "{back:?}");
    site.go_on();
    let tally = load.stop();
    // A client waits for its answer: it can have lost one for each timeout that began before checks noticed.
    let lost = CLIENTS * (1 + noticed.as_millis() as usize / RESPONSE.as_millis() as usize);
    assert!(tally.failures.len() <= lost, "{} good, failed: {:?}", tally.good, tally.failures);
    assert!(tally.slowest < RESPONSE + SLACK, "{:?}", tally.slowest);
}

#[test]
fn with_retries_of_timeouts_a_service_that_stands_still_costs_no_request() {
    let site = Site::new("[connect, stale, timeout]");
    let load = Load::start(site.gateway.address(), "/", CLIENTS, Duration::from_millis(2));
    site.go_on();
    site.services[0].signal(libc::SIGSTOP);
    site.wait_up(false);
    site.go_on();
    site.services[0].signal(libc::SIGCONT);
    site.wait_up(true);
    site.go_on();
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{} good, failed: {:?}", tally.good, tally.failures);
}

#[test]
fn services_that_move_one_after_the_other_cost_no_request() {
    let mut site = Site::new("[connect, stale]");
    let load = Load::start(site.gateway.address(), "/", CLIENTS, Duration::from_millis(2));
    let mut addresses: Vec<String> =
        site.services.iter().map(|service| service.address().to_string()).collect();
    for index in 0..3 {
        let moved = Service::start("moved");
        let from = std::mem::replace(&mut addresses[index], moved.address().to_string());
        let [a, b, c] = &addresses[..] else { panic!("three") };
        let yaml = yaml("[connect, stale]").replace("{A}", a).replace("{B}", b).replace("{C}", c);
        site.gateway.reload(&yaml);
        until("the old one to be idle", || {
            let shown = site.gateway.admin("/v1/upstreams").json();
            !shown.to_string().contains(&from)
        });
        site.go_on();
        site.services[index] = moved;
        site.go_on();
    }
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{} good, failed: {:?}", tally.good, tally.failures);
}
