//! Which endpoint a request goes to, by every policy.

use crate::support::eventually::{until, within};
use crate::support::{Connection, Gate, Gateway, Origin, Reply};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slower than a busy machine makes the others.
const SLOW: Duration = Duration::from_secs(1);

fn upstream(settings: &str) -> String {
    format!(
        "workers: 2\nroutes: [{{ upstream: app }}]\naccess_log: {{ output: off }}\n\
         upstreams: {{ app: {{ endpoints: [\"{{A}}\", \"{{B}}\", \"{{C}}\"], {settings} }} }}\n"
    )
}

/// Three origins, each of which answers with its name.
fn named() -> [Origin; 3] {
    [Origin::fixed("a"), Origin::fixed("b"), Origin::fixed("c")]
}

fn start(yaml: &str, origins: &[Origin; 3]) -> Gateway {
    let builder = Gateway::builder(yaml);
    let [a, b, c] = origins;
    builder.set("A", a.address()).set("B", b.address()).set("C", c.address()).start()
}

fn counts(origins: &[Origin; 3]) -> [usize; 3] {
    [origins[0].requests().len(), origins[1].requests().len(), origins[2].requests().len()]
}

/// So many requests from each of some clients, each on a connection of its own; how long each took, sorted.
fn load(address: SocketAddr, clients: usize, requests: usize) -> Vec<Duration> {
    let client = || {
        let mut connection = Connection::open(address);
        let timed = |_| {
            let start = Instant::now();
            assert_eq!(connection.get("a", "/", "").status, 200);
            start.elapsed()
        };
        (0..requests).map(timed).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let mut took: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        took.sort();
        took
    })
}

/// Of so many requests when one of three endpoints takes [`SLOW`] longer: the P99, and how many that one got.
fn slowed(balance: &str, requests: usize) -> (Duration, usize) {
    let slow = Origin::script(|_| {
        within(SLOW, || None::<()>);
        Reply::ok("slow")
    });
    let origins = [Origin::fixed("a"), slow, Origin::fixed("c")];
    let gateway = start(&upstream(&format!("balance: {balance}")), &origins);
    let took = load(gateway.address(), 2, requests / 2);
    (took[took.len() * 99 / 100], counts(&origins)[1])
}

#[test]
fn one_slow_endpoint_hardly_slows_p2c() {
    let (p99, got) = slowed("round_robin", 30);
    assert!(p99 >= SLOW && got == 10, "{p99:?}, {got} requests");
    // Fewer than one in a hundred: the P99 is that of the fast endpoints.
    let (p99, got) = slowed("p2c", 300);
    assert!(p99 < SLOW && got < 3, "{p99:?}, {got} requests");
}

#[test]
fn least_requests_keeps_away_from_an_endpoint_that_holds_on_to_them() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let stuck = Origin::script(move |_| Reply::ok("late").after(&held));
    let origins = [Origin::fixed("a"), stuck, Origin::fixed("c")];
    let gateway = start(&upstream("balance: least_requests"), &origins);
    // Until the first one hangs there, on whichever worker.
    let mut hanging = Vec::new();
    until("a request that hangs", || {
        let mut connection = gateway.connect();
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        hanging.push(connection);
        until("it to arrive", || counts(&origins).iter().sum::<usize>() == hanging.len());
        counts(&origins)[1] == 1
    });
    load(gateway.address(), 1, 200);
    assert_eq!(counts(&origins)[1], 1, "an idle endpoint was there for every other request");
    gate.open();
}

/// Which origin answers each of these paths.
fn owners(gateway: &Gateway, keys: usize, header: impl Fn(usize) -> String) -> BTreeMap<usize, String> {
    let mut connection = gateway.connect();
    let mut owner = |key: usize| {
        let answer = connection.get("a", &format!("/{}", key % 7), &header(key));
        assert_eq!(answer.status, 200);
        (key, answer.text().to_owned())
    };
    (0..keys).map(&mut owner).collect()
}

#[test]
fn a_key_keeps_its_endpoint_and_only_those_of_a_removed_one_move() {
    let origins = named();
    let settings = "balance: { hash: { by: { header: x-tenant } } }";
    let yaml = upstream(settings);
    let gateway = start(&yaml, &origins);
    let tenant = |key: usize| format!("X-Tenant: tenant-{key}\r\n");
    let before = owners(&gateway, 300, tenant);
    assert_eq!(owners(&gateway, 300, tenant), before);
    for name in ["a", "b", "c"] {
        let share = before.values().filter(|owner| *owner == name).count();
        assert!((60..=140).contains(&share), "{name} owns {share} of 300");
    }
    gateway.reload(&yaml.replace(", \"{B}\"", ""));
    for (key, owner) in owners(&gateway, 300, tenant) {
        assert!(owner == before[&key] || before[&key] == "b", "{key} moved from {} to {owner}", before[&key]);
    }
    gateway.reload(&yaml);
    assert_eq!(owners(&gateway, 300, tenant), before);
    // Another process agrees: nothing depends on chance.
    assert_eq!(owners(&start(&yaml, &origins), 300, tenant), before);
}

#[test]
fn keys_are_what_the_upstream_says() {
    let origins = named();
    let distinct = |by: &str, header: &dyn Fn(usize) -> String| {
        let gateway = start(&upstream(&format!("balance: {{ hash: {{ by: {by} }} }}")), &origins);
        let owners = owners(&gateway, 140, header);
        // Paths repeat after seven.
        let stable = owners.iter().all(|(key, owner)| owners[&(key % 7)] == *owner);
        let mut distinct: Vec<_> = owners.into_values().collect();
        distinct.sort();
        distinct.dedup();
        (distinct.len() > 1, stable)
    };
    let varied = |key: usize| format!("Cookie: theme=dark; session=s{key}\r\nX-Tenant: t{key}\r\n");
    assert_eq!(distinct("client", &varied), (false, true));
    assert_eq!(distinct("path", &varied), (true, true));
    assert_eq!(distinct("{ cookie: session }", &varied), (true, false));
    let one_session = |key: usize| format!("Cookie: theme=t{key}; session=mine\r\n");
    assert_eq!(distinct("{ cookie: session }", &one_session), (false, true));
    assert_eq!(distinct("{ header: x-tenant }", &|_| String::new()), (true, false), "no key: in turn");
}

#[test]
fn a_backup_serves_only_while_no_primary_can() {
    let origins = named();
    let yaml = "routes: [{ upstream: app }]\naccess_log: { output: off }\nupstreams:\n  app:\n    endpoints: \
                [\"{A}\", { address: \"{B}\", backup: true }, { address: \"{C}\", weight: 2 }]\n";
    let gateway = start(yaml, &origins);
    load(gateway.address(), 2, 30);
    assert_eq!(counts(&origins), [20, 0, 40]);
    // Refused connections are tried elsewhere, in the end at the backup.
    origins[0].kill();
    gateway.reload(&yaml.replace(", { address: \"{C}\", weight: 2 }", ""));
    assert_eq!(gateway.get("a", "/").text(), "b");
}

#[test]
fn a_canary_gets_its_share_across_workers() {
    let origins = named();
    let yaml = "workers: 2\nroutes: [{ upstream: [{ app: 95 }, { next: 5 }] }]\naccess_log: { output: off }\n\
                upstreams: { app: { endpoints: [\"{A}\", \"{B}\"] }, next: { endpoints: [\"{C}\"] } }\n";
    let gateway = start(yaml, &origins);
    load(gateway.address(), 4, 100);
    assert_eq!(counts(&origins), [190, 190, 20]);
}

#[test]
fn an_endpoint_that_is_added_starts_slowly() {
    let origins = named();
    let yaml = upstream("slow_start: 1h");
    let gateway = start(&yaml.replace(", \"{C}\"", ""), &origins);
    gateway.reload(&yaml);
    load(gateway.address(), 2, 200);
    let [old, other, new] = counts(&origins);
    assert!(new < 40 && old > 150 && other > 150, "{old}, {other}, {new}");
}

#[test]
fn an_endpoint_that_fails_fast_does_not_attract_requests() {
    let origins = [Origin::fixed("a"), Origin::script(|_| Reply::status(503, "", "")), Origin::fixed("c")];
    let gateway = start(&upstream("balance: p2c"), &origins);
    let mut connection = gateway.connect();
    let failed = (0..200).filter(|_| connection.get("a", "/", "").status != 200).count();
    assert!((1..=4).contains(&failed), "{failed} of 200 went to the one that fails");
}

#[test]
fn a_slow_upload_is_not_the_latency_of_the_endpoint() {
    let origin = Origin::fixed("a");
    let yaml =
        "routes: [{ upstream: app }]\nupstreams: { app: { endpoints: [\"{ORIGIN}\"], balance: p2c } }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    let latency =
        || gateway.admin("/v1/upstreams").json()["upstreams"][0]["endpoints"][0]["latency_ms"].clone();
    assert!(latency().is_null(), "{}", latency());
    let mut connection = gateway.connect();
    connection.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    assert!(connection.is_quiet_for(Duration::from_secs(3)));
    connection.send("b");
    assert_eq!(connection.response().status, 200);
    let latency = latency().as_f64().expect("a latency");
    assert!(latency > 0.0 && latency < 3_000.0, "{latency} ms: the client's pause is in it");
}
