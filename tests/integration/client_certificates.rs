//! Client certificates: who gets in, what routes and upstreams are told, and which connection may serve
//! which host.

use crate::support::certificates::{Authority, Identity, Leaf};
use crate::support::http2::Http2;
use crate::support::response::Response;
use crate::support::tls::{TlsClient, TlsOptions};
use crate::support::{Connection, Gateway, Origin, Reply};
use boring::ssl::SslVersion;
use std::io;

const YAML: &str = "\
certificates:
  - { cert: open.pem, key: open.key }
  - { cert: strict.pem, key: strict.key, client_auth: { ca: clients.pem } }
  - { cert: same.pem, key: same.key, client_auth: { ca: clients.pem, mode: require } }
  - { cert: other.pem, key: other.key, client_auth: { ca: others.pem } }
  - { cert: maybe.pem, key: maybe.key, client_auth: { ca: clients.pem, mode: request } }
routes:
  - { name: app, upstream: [\"{ORIGIN}\"] }
  - { name: any, path: /any, client_certificate: { fingerprint: { present: true } }, respond: { body: any } }
  - { name: nobody, path: /any, respond: { body: none } }
  - name: named
    path: /any
    client_certificate: { subject: \"CN=billing\", san: { regex: \"^URI:spiffe://mesh/\" } }
    respond: { body: named }
";

struct World {
    gateway: Gateway,
    origin: Origin,
    clients: Authority,
    others: Authority,
}

fn start() -> World {
    let origin = Origin::script(|_| Reply::ok("hello"));
    let builder = Gateway::builder(YAML);
    let (root, clients, others) =
        (Authority::new("root"), Authority::new("clients"), Authority::new("others"));
    for name in ["open", "strict", "same", "other", "maybe"] {
        root.issue(&[&format!("{name}.test"), &format!("*.{name}.test")]).write(builder.dir(), name);
    }
    clients.write(builder.dir(), "clients.pem");
    others.write(builder.dir(), "others.pem");
    World { gateway: builder.origin(&origin).start(), origin, clients, others }
}

fn showing(identity: Option<&Identity>, version: SslVersion) -> TlsClient {
    TlsClient::new(TlsOptions {
        identity: identity.cloned(),
        versions: Some((version, version)),
        resume: true,
        ..TlsOptions::default()
    })
}

impl World {
    /// A request by a client for a name, on a connection of its own; whether its session was resumed.
    fn ask(&self, client: &TlsClient, name: &str, path: &str) -> io::Result<(Response, bool)> {
        let mut connection = Connection::open_tls(self.gateway.address(), &client.renamed(name))?;
        let resumed = connection.tls().resumed;
        // With TLS 1.3 the client learns only now that it was refused.
        connection.try_send(format!("GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n"))?;
        Ok((connection.try_response()?, resumed))
    }

    fn refuses(&self, client: &TlsClient, name: &str) {
        let outcome = self.ask(client, name, "/");
        assert!(outcome.is_err(), "{name}: {}", outcome.unwrap().0.status);
    }
}

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3];

#[test]
fn only_valid_certificates_of_the_named_authority_come_in() {
    let world = start();
    let client = world.clients.issue(&["billing"]);
    let stranger = world.others.issue(&["billing"]);
    let expired = Leaf::new(&["billing"]).days(-9, -1).sign(&world.clients);
    for version in VERSIONS {
        for name in ["strict.test", "a.strict.test", "same.test", "maybe.test", "open.test"] {
            let (response, _) = world.ask(&showing(Some(&client), version), name, "/").unwrap();
            assert_eq!(response.text(), "hello", "{name}");
        }
        for name in ["strict.test", "maybe.test"] {
            world.refuses(&showing(Some(&stranger), version), name);
            world.refuses(&showing(Some(&expired), version), name);
        }
        world.refuses(&showing(None, version), "strict.test");
        assert_eq!(world.ask(&showing(None, version), "maybe.test", "/").unwrap().0.status, 200);
    }
    let reason = [("reason", "client_certificate")];
    world.gateway.wait_metric("portcullis_connections_refused_total", &reason, 10.0);
}

#[test]
fn upstreams_are_told_who_it_is_and_believe_nobody_else() {
    let world = start();
    let identity = world.clients.issue(&["billing", "spiffe://mesh/billing", "b@a.test"]);
    let ask = |client: &TlsClient, name: &str| {
        let mut connection = Connection::open_tls(world.gateway.address(), &client.renamed(name)).unwrap();
        let forged = "X-Client-Cert-Subject: CN=admin\r\nx_client_cert_san: DNS:admin\r\n\
                      X-Client-Cert-Fingerprint: 00\r\nX-Client-Cert-Verified: yes\r\n";
        assert_eq!(connection.get(name, "/", forged).status, 200);
        let seen = world.origin.requests().pop().unwrap();
        assert!(!seen.head.to_lowercase().contains("admin\r\n"), "{}", seen.head);
        assert!(!seen.head.to_lowercase().contains("verified"), "{}", seen.head);
        seen
    };
    for name in ["open.test", "maybe.test"] {
        assert!(!ask(&showing(None, SslVersion::TLS1_3), name).head.to_lowercase().contains("x-client-cert"));
    }
    for version in VERSIONS {
        let client = showing(Some(&identity), version);
        // The second session is resumed and knows the same client.
        for _ in 0..2 {
            let seen = ask(&client, "strict.test");
            assert_eq!(seen.all("x-client-cert-subject"), ["CN=billing"]);
            let sans = "DNS:billing,URI:spiffe://mesh/billing,email:b@a.test";
            assert_eq!(seen.all("x-client-cert-san"), [sans]);
            assert_eq!(seen.header("x-client-cert-fingerprint").unwrap().len(), 64);
        }
        assert!(ask(&client, "strict.test").header("x-client-cert-subject").is_some());
    }
}

#[test]
fn routes_tell_clients_apart() {
    let world = start();
    let billing = world.clients.issue(&["billing", "spiffe://mesh/billing"]);
    let other = world.clients.issue(&["other", "spiffe://mesh/other"]);
    for (identity, name, expected) in [
        (Some(&billing), "strict.test", "named"),
        (Some(&other), "strict.test", "any"),
        (Some(&billing), "maybe.test", "named"),
        (None, "maybe.test", "none"),
        (Some(&billing), "open.test", "none"),
    ] {
        let client = showing(identity, SslVersion::TLS1_3);
        assert_eq!(world.ask(&client, name, "/any").unwrap().0.text(), expected, "{name}");
    }
}

#[test]
fn sessions_never_cross_policies() {
    let world = start();
    let identity = world.clients.issue(&["billing"]);
    for version in VERSIONS {
        let client = showing(Some(&identity), version);
        assert!(!world.ask(&client, "strict.test", "/").unwrap().1);
        assert!(world.ask(&client, "strict.test", "/").unwrap().1, "{version:?}: the same policy");
        assert!(world.ask(&client, "same.test", "/").unwrap().1, "{version:?}: an equal policy");
        assert!(!world.ask(&client, "maybe.test", "/").unwrap().1, "{version:?}: another mode");
        let client = showing(Some(&identity), version);
        assert_eq!(world.ask(&client, "strict.test", "/").unwrap().0.status, 200);
        world.refuses(&client, "other.test");
        let nobody = showing(None, version);
        for name in ["open.test", "maybe.test"] {
            assert_eq!(world.ask(&nobody, name, "/").unwrap().0.status, 200);
            world.refuses(&nobody, "strict.test");
        }
    }
}

#[test]
fn a_new_authority_ends_old_sessions() {
    let world = start();
    let identity = world.clients.issue(&["billing"]);
    let client = showing(Some(&identity), SslVersion::TLS1_3);
    let mut kept = Connection::open_tls(world.gateway.address(), &client.renamed("strict.test")).unwrap();
    assert_eq!(kept.get("strict.test", "/", "").status, 200);
    world.others.write(world.gateway.dir(), "clients.pem");
    world.gateway.reload(YAML);
    world.refuses(&client, "strict.test");
    let response = kept.get("strict.test", "/", "");
    assert_eq!((response.status, response.header("connection")), (421, Some("close")));
}

#[test]
fn a_connection_serves_only_hosts_of_its_own_policy() {
    let world = start();
    let identity = world.clients.issue(&["billing"]);
    let options =
        |name| TlsOptions { name: Some(name), identity: Some(identity.clone()), ..Default::default() };
    let rows: &[(&'static str, &[(&str, u16)])] = &[
        (
            "open.test",
            &[("a.open.test", 200), ("strict.test", 421), ("maybe.test", 421), ("unknown.test", 200)],
        ),
        (
            "strict.test",
            &[("a.strict.test", 200), ("same.test", 200), ("other.test", 421), ("open.test", 421)],
        ),
        ("maybe.test", &[("a.maybe.test", 200), ("strict.test", 421), ("unknown.test", 421)]),
    ];
    for (name, hosts) in rows {
        let mut http2 = Http2::open_with(world.gateway.address(), options(name));
        for (host, status) in *hosts {
            assert_eq!(http2.get(&format!("https://{host}/")).status, *status, "HTTP/2 {name} for {host}");
            let client = TlsClient::new(options(name));
            let mut connection = Connection::open_tls(world.gateway.address(), &client).unwrap();
            assert_eq!(connection.get(host, "/", "").status, *status, "HTTP/1 {name} for {host}");
        }
        assert_eq!(http2.get(&format!("https://{name}/")).status, 200, "a refusal does not end it");
    }
    world.gateway.wait_metric("portcullis_rejections_total", &[("reason", "misdirected")], 10.0);
}

#[test]
fn plain_http_reaches_no_name_that_requires_a_certificate() {
    let world = start();
    for (host, status) in [
        ("strict.test", 421),
        ("STRICT.test:80", 421),
        ("other.test", 421),
        ("maybe.test", 200),
        ("open.test", 200),
    ] {
        assert_eq!(world.gateway.get(host, "/").status, status, "{host}");
    }
    let redirecting = "listeners: [{ address: \"127.0.0.1:{PORT}\", redirect_http: true }]\n";
    let builder = Gateway::builder(&format!("{redirecting}{YAML}"));
    for name in ["open", "strict", "same", "other", "maybe"] {
        world.clients.issue(&[&format!("{name}.test")]).write(builder.dir(), name);
    }
    world.clients.write(builder.dir(), "clients.pem");
    world.clients.write(builder.dir(), "others.pem");
    let gateway = builder.origin(&world.origin).start();
    assert_eq!(gateway.get("strict.test", "/").status, 308);
}

#[test]
fn names_may_ask_for_a_higher_version_than_others() {
    let yaml = "routes: [{ respond: { body: hello } }]\n\
                certificates: [{ cert: a.pem, key: a.key }, { cert: b.pem, key: b.key, min_version: \"1.3\" }]";
    let builder = Gateway::builder(yaml);
    let root = Authority::new("root");
    root.issue(&["a.test"]).write(builder.dir(), "a");
    root.issue(&["b.test"]).write(builder.dir(), "b");
    let gateway = builder.start();
    let connect =
        |name: &str, version| Connection::open_tls(gateway.address(), &showing(None, version).renamed(name));
    assert!(connect("b.test", SslVersion::TLS1_2).is_err());
    assert_eq!(connect("b.test", SslVersion::TLS1_3).unwrap().get("b.test", "/", "").status, 200);
    let mut old = connect("a.test", SslVersion::TLS1_2).unwrap();
    assert_eq!(old.get("a.test", "/", "").status, 200);
    assert_eq!(old.get("b.test", "/", "").status, 421);
    assert_eq!(connect("a.test", SslVersion::TLS1_3).unwrap().get("b.test", "/", "").status, 200);
}

#[test]
fn a_default_certificate_may_be_the_laxer_one_or_the_stricter_one() {
    for (first, second) in [("1.2", "1.3"), ("1.3", "1.2")] {
        let yaml = format!(
            "routes: [{{ respond: {{ body: hello }} }}]\ncertificates:\n  - {{ cert: a.pem, key: a.key, min_version: \
             \"{first}\" }}\n  - {{ cert: b.pem, key: b.key, min_version: \"{second}\" }}\n"
        );
        let builder = Gateway::builder(&yaml);
        let root = Authority::new("root");
        root.issue(&["a.test"]).write(builder.dir(), "a");
        root.issue(&["b.test"]).write(builder.dir(), "b");
        let gateway = builder.start();
        for (name, min) in [("a.test", first), ("b.test", second), ("unknown.test", first)] {
            let client = showing(None, SslVersion::TLS1_2).renamed(name);
            let outcome = Connection::open_tls(gateway.address(), &client);
            assert_eq!(outcome.is_ok(), min == "1.2", "{name} {min}");
        }
    }
}

#[test]
fn one_certificate_asks_for_clients_under_some_of_its_names() {
    let (root, clients) = (Authority::new("root"), Authority::new("clients"));
    let yaml = "routes: [{ respond: { body: hello } }]\ncertificates:\n  \
                - { cert: all.pem, key: all.key }\n  \
                - { cert: all.pem, key: all.key, names: [admin.all.test], client_auth: { ca: clients.pem } }\n";
    let builder = Gateway::builder(yaml);
    root.issue(&["all.test", "*.all.test"]).write(builder.dir(), "all");
    clients.write(builder.dir(), "clients.pem");
    let gateway = builder.start();
    let known = clients.issue(&["known"]);
    let status = |identity: Option<&Identity>, name: &str, host: &str| {
        let client = showing(identity, SslVersion::TLS1_3).renamed(name);
        let mut connection = Connection::open_tls(gateway.address(), &client).ok()?;
        connection.try_request(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).ok().map(|it| it.status)
    };
    assert_eq!(status(None, "admin.all.test", "admin.all.test"), None, "nobody without a certificate");
    assert_eq!(status(Some(&known), "admin.all.test", "admin.all.test"), Some(200));
    // Both names are in the certificate, so clients may share a connection for them.
    assert_eq!(status(None, "www.all.test", "www.all.test"), Some(200));
    assert_eq!(status(None, "www.all.test", "admin.all.test"), Some(421));
    assert_eq!(status(Some(&known), "admin.all.test", "www.all.test"), Some(421));
    let listed = gateway.admin("/v1/certificates").json();
    assert_eq!(listed["certificates"][1]["names"], serde_json::json!(["admin.all.test"]));
}
