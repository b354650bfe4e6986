//! Endpoints by name: resolved while running, changed under load, and never forgotten because of trouble.

use crate::support::dns::{Dnsmasq, ScriptedDns};
use crate::support::eventually::{holds, until};
use crate::support::load::Load;
use crate::support::{Connection, Gateway};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Origins at several addresses of loopback and one port, that answer with their address.
struct Site {
    port: u16,
    served: Arc<Mutex<Vec<IpAddr>>>,
    /// Of these, `/healthz` is bad.
    sick: Arc<Mutex<Vec<IpAddr>>>,
}

impl Site {
    fn at(addresses: &[&str]) -> Site {
        let (served, sick) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let listeners: Vec<TcpListener> = crate::support::eventually::eventually("one port for all", || {
            let mut port = 0;
            addresses
                .iter()
                .map(|address| {
                    let listener = TcpListener::bind((address.parse::<IpAddr>().unwrap(), port)).ok()?;
                    port = listener.local_addr().ok()?.port();
                    Some(listener)
                })
                .collect()
        });
        let port = listeners[0].local_addr().unwrap().port();
        for listener in listeners {
            let ip = listener.local_addr().unwrap().ip();
            let (served, sick) = (Arc::clone(&served), Arc::clone(&sick));
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (served, sick) = (Arc::clone(&served), Arc::clone(&sick));
                    std::thread::spawn(move || serve(stream, ip, &served, &sick));
                }
            });
        }
        Site { port, served, sick }
    }

    fn served(&self, address: &str) -> usize {
        let address: IpAddr = address.parse().unwrap();
        self.served.lock().unwrap().iter().filter(|served| **served == address).count()
    }
}

fn serve(
    mut stream: std::net::TcpStream,
    ip: IpAddr,
    served: &Mutex<Vec<IpAddr>>,
    sick: &Mutex<Vec<IpAddr>>,
) {
    let mut buffer = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        buffer.extend_from_slice(&piece[..length]);
        if !buffer.ends_with(b"\r\n\r\n") {
            continue;
        }
        let check = buffer.starts_with(b"GET /healthz");
        buffer.clear();
        let code = if check && sick.lock().unwrap().contains(&ip) { 503 } else { 200 };
        if !check {
            served.lock().unwrap().push(ip);
        }
        let body = ip.to_string();
        let answer = format!("HTTP/1.1 {code} x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

const RESOLVER: &str = "resolver: { servers: [\"{DNS}\"], timeout: 1s, min_ttl: 100ms }\n";

fn yaml(more: &str) -> String {
    format!(
        "{RESOLVER}routes: [{{ upstream: app }}]\nupstreams:\n  \
         app: {{ endpoints: [\"app.test:{{SITE}}\"]{more} }}\n"
    )
}

fn start(yaml: &str, dns: SocketAddr, site: &Site) -> Gateway {
    Gateway::builder(yaml).set("DNS", dns).set("SITE", site.port).start()
}

fn addresses(gateway: &Gateway) -> Vec<String> {
    let answer = gateway.admin("/v1/upstreams").json();
    let endpoints = answer["upstreams"][0]["endpoints"].as_array().unwrap().clone();
    let address = |endpoint: &serde_json::Value| endpoint["address"].as_str().unwrap().to_owned();
    let ip = |address: String| address.rsplit_once(':').unwrap().0.to_owned();
    endpoints.iter().map(address).map(ip).collect()
}

fn name(gateway: &Gateway) -> serde_json::Value {
    gateway.admin("/v1/upstreams").json()["upstreams"][0]["names"][0].clone()
}

#[test]
fn addresses_change_while_running_and_no_request_fails() {
    let site = Site::at(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let dns = Dnsmasq::start("127.0.0.1 app.test\n127.0.0.2 app.test\n", 1);
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(addresses(&gateway), ["127.0.0.1", "127.0.0.2"], "resolved before the gateway is ready");
    let load = Load::start(gateway.address(), "/", 2, Duration::from_millis(2));
    until("both to serve", || site.served("127.0.0.1") > 20 && site.served("127.0.0.2") > 20);
    dns.set("127.0.0.2 app.test\n127.0.0.3 app.test\n");
    until("the new address to serve", || site.served("127.0.0.3") > 20);
    assert_eq!(addresses(&gateway), ["127.0.0.2", "127.0.0.3"]);
    let gone = site.served("127.0.0.1");
    let more = site.served("127.0.0.3") + 20;
    until("more requests", || site.served("127.0.0.3") > more);
    assert!(site.served("127.0.0.1") <= gone + 2, "requests at an address that is gone");
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    let metrics = gateway.metrics();
    let gone = format!("127.0.0.1:{}", site.port);
    assert_eq!(metrics.get("portcullis_upstream_endpoint_up", &[("endpoint", &gone)]), None);
    let resolved =
        metrics.get("portcullis_upstream_last_resolution_timestamp_seconds", &[("name", "app.test")]);
    assert!(resolved.unwrap() > 1.7e9);
    assert!(metrics.sum("portcullis_upstream_resolutions_total", &[("result", "success")]) >= 2.0);
    gateway.wait_log("upstream app: app.test is 127.0.0.2, 127.0.0.3");
}

#[test]
fn trouble_keeps_the_last_good_answer() {
    let site = Site::at(&["127.0.0.1"]);
    let dns = Dnsmasq::start("127.0.0.1 app.test\n", 1);
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    // The name is gone.
    dns.set("127.0.0.1 other.test\n");
    gateway.wait_metric("portcullis_upstream_resolutions_total", &[("result", "no_such_name")], 1.0);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    assert_eq!(name(&gateway)["trouble"], "there is no such name");
    assert_eq!(name(&gateway)["addresses"][0], "127.0.0.1");
    gateway.wait_log("upstream app: app.test is kept as it was: there is no such name");
    // A reload in the middle of it keeps it too.
    gateway.reload(&yaml(", balance: random"));
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    // The server is silent, then back.
    dns.signal(libc::SIGSTOP);
    gateway.wait_metric("portcullis_upstream_resolutions_total", &[("result", "timeout")], 1.0);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    dns.signal(libc::SIGCONT);
    dns.set("127.0.0.1 app.test\n");
    gateway.wait_log("upstream app: app.test is resolved again");
    assert!(name(&gateway)["trouble"].is_null());
}

#[test]
fn a_name_that_was_never_resolved_answers_503_until_it_is() {
    let site = Site::at(&["127.0.0.1"]);
    let dns = Dnsmasq::start("127.0.0.9 other.test\n", 1);
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(gateway.get("a", "/").status, 503);
    assert_eq!(gateway.wait_record_of("/")["rejection"], "no_endpoint");
    gateway.wait_log("app.test cannot be resolved: there is no such name");
    let resolved = gateway.metrics().get("portcullis_upstream_last_resolution_timestamp_seconds", &[]);
    assert_eq!(resolved, Some(0.0));
    dns.set("127.0.0.1 app.test\n");
    until("an answer", || gateway.get("a", "/").status == 200);
}

#[test]
fn a_new_address_gets_nothing_before_its_first_good_check() {
    let site = Site::at(&["127.0.0.1", "127.0.0.2"]);
    let dns = Dnsmasq::start("127.0.0.1 app.test\n", 1);
    let check = ", health_check: { path: /healthz, interval: 500ms, timeout: 500ms }";
    let gateway = start(&yaml(check), dns.address(), &site);
    let sick: IpAddr = "127.0.0.2".parse().unwrap();
    site.sick.lock().unwrap().push(sick);
    dns.set("127.0.0.1 app.test\n127.0.0.2 app.test\n");
    until("the address", || addresses(&gateway).len() == 2);
    for _ in 0..50 {
        assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    }
    site.sick.lock().unwrap().clear();
    until("requests there", || gateway.get("a", "/").text() == "127.0.0.2");
}

#[test]
fn a_reload_with_a_new_name_waits_for_its_addresses() {
    let site = Site::at(&["127.0.0.1", "127.0.0.2"]);
    let dns = Dnsmasq::start("127.0.0.1 app.test\n127.0.0.2 new.test\n", 1);
    let gateway = start(&yaml(""), dns.address(), &site);
    let load = Load::start(gateway.address(), "/", 2, Duration::from_millis(1));
    gateway.reload(&yaml("").replace("app.test", "new.test"));
    until("requests at the new name", || site.served("127.0.0.2") > 20);
    let tally = load.stop();
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    assert_eq!(addresses(&gateway), ["127.0.0.2"]);
}

#[test]
fn the_hosts_file_is_asked_first_and_both_families_serve() {
    let site = Site::at(&["127.0.0.1", "::1"]);
    let dns = ScriptedDns::start(|query, _| vec![query.reply(3, &[], 0)]);
    let yaml = yaml("").replace("app.test", "localhost");
    let gateway = start(&yaml, dns.address(), &site);
    let listed = std::fs::read_to_string("/etc/hosts").unwrap();
    let both = listed.lines().any(|line| line.starts_with("::1") && line.contains("localhost"));
    until("each address to serve", || {
        gateway.get("a", "/");
        site.served("127.0.0.1") > 0 && (!both || site.served("::1") > 0)
    });
    assert!(dns.queries().is_empty(), "{:?}", dns.queries());
}

#[test]
fn a_family_that_leads_nowhere_costs_no_request_anything() {
    let site = Site::at(&["127.0.0.1"]);
    // Nobody listens at the one, and there is no way to the other.
    let dns = Dnsmasq::start("127.0.0.1 app.test\n::1 app.test\n2001:db8::1 app.test\n", 1);
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(addresses(&gateway), ["127.0.0.1"]);
    for _ in 0..20 {
        assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    }
    assert_eq!(gateway.metrics().sum("portcullis_upstream_retries_total", &[]), 0.0);
}

#[test]
fn hostile_and_broken_answers_change_nothing() {
    let site = Site::at(&["127.0.0.1", "127.0.0.2"]);
    let [good, bad] = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
    // Each of them in turn, until the test goes on to the next.
    let phase = Arc::new(AtomicU8::new(0));
    let scripted = Arc::clone(&phase);
    let dns = ScriptedDns::start(move |query, _| {
        let forged = query.reply(0, &[bad], 60);
        let changed = |place: usize| {
            let mut message = forged.clone();
            message[place] ^= 0x01;
            message
        };
        match scripted.load(Ordering::SeqCst) {
            0 => vec![query.reply(0, &[good], 0)],
            1 => vec![query.reply(2, &[], 0)],
            2 => vec![query.reply(5, &[bad], 60)],
            // Another id, another name, noise, and only then the answer.
            3 => vec![
                changed(0),
                changed(13),
                forged[2..].to_vec(),
                vec![0xff; 600],
                Vec::new(),
                query.reply(0, &[good], 0),
            ],
            // Cut off: it has the right id, so it is the server's, and no other is waited for.
            4 => vec![forged[..20].to_vec()],
            5 => vec![forged[..forged.len() - 1].to_vec()],
            6 => vec![changed(1)],
            _ => Vec::new(),
        }
    });
    let gateway = start(&yaml(""), dns.address(), &site);
    for (number, result) in [
        (0, "success"),
        (1, "server"),
        (2, "server"),
        (3, "success"),
        (4, "server"),
        (5, "server"),
        (0, "success"),
        (6, "timeout"),
        (7, "timeout"),
    ] {
        phase.store(number, Ordering::SeqCst);
        let labels = [("result", result)];
        let before = gateway.metrics().sum("portcullis_upstream_resolutions_total", &labels);
        gateway.wait_metric("portcullis_upstream_resolutions_total", &labels, before + 2.0);
        assert_eq!(addresses(&gateway), ["127.0.0.1"], "phase {number}");
        assert_eq!(gateway.get("a", "/").text(), "127.0.0.1", "phase {number}");
    }
    assert!(site.served("127.0.0.2") == 0);
    let ids: std::collections::BTreeSet<_> =
        dns.queries().iter().map(|query| query.message[..2].to_vec()).collect();
    assert!(ids.len() > dns.queries().len() / 2, "identifiers repeat");
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_over_tcp() {
    let site = Site::at(&["127.0.0.1"]);
    let over_tcp = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over_tcp);
    let dns = ScriptedDns::start(move |query, tcp| {
        seen.fetch_or(tcp, Ordering::SeqCst);
        match tcp {
            true => vec![query.reply(0, &[Ipv4Addr::LOCALHOST], 60)],
            false => vec![query.truncated()],
        }
    });
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    assert!(over_tcp.load(Ordering::SeqCst));
    assert!(dns.queries().iter().all(|query| query.name == "app.test"));
}

#[test]
fn an_alias_is_followed_and_holds_as_long_as_its_shortest_part() {
    let site = Site::at(&["127.0.0.1"]);
    let dns = ScriptedDns::start(|query, _| match query.name.as_str() {
        "app.test" => vec![query.alias(b"\x04real\x04test\0", 0)],
        "real.test" => vec![query.reply(0, &[Ipv4Addr::LOCALHOST], 3600)],
        _ => vec![query.reply(3, &[], 0)],
    });
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    let asked = dns.queries().iter().filter(|query| query.name == "app.test").count();
    until("the alias is asked for again", || {
        dns.queries().iter().filter(|query| query.name == "app.test").count() > asked + 2
    });
    assert_eq!(addresses(&gateway), ["127.0.0.1"]);
}

#[test]
fn an_alias_that_leads_in_a_circle_is_trouble_and_no_flood() {
    let site = Site::at(&["127.0.0.1"]);
    let dns = ScriptedDns::start(|query, _| vec![query.alias(b"\x03app\x04test\0", 60)]);
    let gateway = start(&yaml(""), dns.address(), &site);
    assert_eq!(gateway.get("a", "/").status, 503);
    gateway.wait_log("app.test cannot be resolved");
    let asked = dns.queries().len();
    // Two families, eight steps, twice; the pauses are 100, 200, 400 and 800 ms.
    holds("few questions", Duration::from_secs(1), || dns.queries().len() <= asked + 4 * 32);
}

#[test]
fn a_lifetime_of_zero_is_no_flood_and_a_long_one_is_believed() {
    let site = Site::at(&["127.0.0.1"]);
    let dns = ScriptedDns::start(|query, _| vec![query.reply(0, &[Ipv4Addr::LOCALHOST], 0)]);
    let patient = yaml("").replace("min_ttl: 100ms", "min_ttl: 500ms");
    let begun = Instant::now();
    let gateway = start(&patient, dns.address(), &site);
    // Two families, every half second at most.
    let at_most = || 2 * (1 + begun.elapsed().as_millis() as usize / 500);
    holds("the floor", Duration::from_millis(1400), || dns.queries().len() <= at_most());
    drop(gateway);
    let dns = ScriptedDns::start(|query, _| vec![query.reply(0, &[Ipv4Addr::LOCALHOST], 3600)]);
    let gateway = start(&yaml(""), dns.address(), &site);
    let asked = dns.queries().len();
    holds("one answer", Duration::from_secs(1), || dns.queries().len() == asked);
    assert_eq!(gateway.get("a", "/").status, 200);
}

#[test]
fn a_second_server_is_asked_when_the_first_has_an_error() {
    let site = Site::at(&["127.0.0.1"]);
    let broken = ScriptedDns::start(|query, _| vec![query.reply(2, &[], 0)]);
    let dns = ScriptedDns::start(|query, _| vec![query.reply(0, &[Ipv4Addr::LOCALHOST], 0)]);
    let both = yaml("").replace("[\"{DNS}\"]", &format!("[\"{}\", \"{{DNS}}\"]", broken.address()));
    let gateway = start(&both, dns.address(), &site);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    let asked = broken.queries().len();
    until("more lookups", || broken.queries().len() > asked + 4);
    let results =
        |result| gateway.metrics().sum("portcullis_upstream_resolutions_total", &[("result", result)]);
    assert!(results("success") >= 2.0 && results("server") == 0.0);
}

#[test]
fn a_second_server_is_asked_when_the_first_is_silent() {
    let site = Site::at(&["127.0.0.1"]);
    let silent = ScriptedDns::start(|_, _| Vec::new());
    let dns = Dnsmasq::start("127.0.0.1 app.test\n", 1);
    let both = yaml("").replace("[\"{DNS}\"]", &format!("[\"{}\", \"{{DNS}}\"]", silent.address()));
    let gateway = start(&both, dns.address(), &site);
    assert_eq!(gateway.get("a", "/").text(), "127.0.0.1");
    assert!(!silent.queries().is_empty());
}

fn modes(gateway: &Gateway) -> Vec<String> {
    let answer = gateway.admin("/v1/upstreams").json();
    let endpoints = answer["upstreams"][0]["endpoints"].as_array().unwrap().clone();
    let mode = |it: &serde_json::Value| it["mode"].as_str().unwrap().to_owned();
    endpoints.iter().map(mode).collect()
}

#[test]
fn a_drained_address_that_comes_back_is_still_drained() {
    let site = Site::at(&["127.0.0.1", "127.0.0.2"]);
    let both = "127.0.0.1 app.test\n127.0.0.2 app.test\n";
    let dns = Dnsmasq::start(both, 0);
    let gateway = start(&yaml(""), dns.address(), &site);
    let path = format!("/v1/upstreams/app/endpoints/127.0.0.2:{}/", site.port);
    let post = |what: &str| {
        let request = format!("POST {path}{what} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(Connection::open(gateway.admin_address()).request(&request).status, 200);
    };
    post("drain");
    assert_eq!(modes(&gateway), ["enabled", "drained"]);
    dns.set("127.0.0.1 app.test\n");
    until("the address to be gone", || modes(&gateway) == ["enabled"]);
    gateway.reload(&yaml(", balance: random"));
    dns.set(both);
    until("the address to be back", || addresses(&gateway).len() == 2);
    assert_eq!(modes(&gateway), ["enabled", "drained"]);
    let before = site.served("127.0.0.2");
    (0..50).for_each(|_| assert_eq!(gateway.get("a", "/").text(), "127.0.0.1"));
    assert_eq!(site.served("127.0.0.2"), before);
    post("enable");
    until("requests at it again", || gateway.get("a", "/").text() == "127.0.0.2");
}

#[test]
fn at_the_start_of_the_process_nobody_starts_slowly_and_newcomers_do() {
    let site = Site::at(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    for check in ["", ", health_check: { path: /healthz, interval: 1h, timeout: 1m }"] {
        let dns = Dnsmasq::start("127.0.0.2 app.test\n", 0);
        let yaml =
            yaml(&format!(", slow_start: 1h{check}")).replace("[\"app", "[\"127.0.0.1:{SITE}\", \"app");
        let gateway = start(&yaml, dns.address(), &site);
        let served = |count: usize| {
            let before = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|address| site.served(address));
            let mut connection = gateway.connect();
            (0..count).for_each(|_| assert_eq!(connection.get("a", "/", "").status, 200));
            let after = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|address| site.served(address));
            [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
        };
        assert_eq!(served(100), [50, 50, 0], "the name takes its time, and is no newcomer");
        dns.set("127.0.0.2 app.test\n127.0.0.3 app.test\n");
        until("the newcomer", || addresses(&gateway).len() == 3);
        if !check.is_empty() {
            let newcomer = format!("127.0.0.3:{}", site.port);
            gateway.wait_metric("portcullis_upstream_endpoint_up", &[("endpoint", &newcomer)], 1.0);
        }
        let [fixed, known, new] = served(400);
        // A tenth of its quarter, by draws.
        assert!(new < 40 && known > 60 && fixed > 150, "{fixed}, {known}, {new}");
    }
}

#[test]
fn a_long_min_ttl_does_not_stretch_the_wait_after_trouble() {
    const SERVFAIL: u8 = 2;
    let site = Site::at(&["127.0.0.1"]);
    let questions = AtomicU8::new(0);
    // Of the first questions, both families are told of trouble; later IPv6 alone, and then neither.
    let dns = ScriptedDns::start(move |query, _| {
        let asked = questions.fetch_add(1, Ordering::SeqCst);
        let code = if asked < 8 || (asked < 16 && query.kind == 28) { SERVFAIL } else { 0 };
        let addresses: &[Ipv4Addr] = if query.kind == 1 && code == 0 { &[Ipv4Addr::LOCALHOST] } else { &[] };
        vec![query.reply(code, addresses, 1)]
    });
    let yaml = yaml("").replace("min_ttl: 100ms", "min_ttl: 1h, max_ttl: 1h");
    let gateway = start(&yaml, dns.address(), &site);
    until("the name to be known", || gateway.get("a", "/").text() == "127.0.0.1");
    until("both families to be known", || name(&gateway)["trouble"].is_null());
    let asked = dns.queries().len();
    holds("an answer that holds", Duration::from_millis(1500), || dns.queries().len() == asked);
}
