//! Clients that stay with the endpoint that served them first, by a cookie.

use crate::support::certificates::Authority;
use crate::support::response::Response;
use crate::support::{Connection, Gateway, Origin};

fn named() -> [Origin; 3] {
    [Origin::fixed("a"), Origin::fixed("b"), Origin::fixed("c")]
}

fn upstream(settings: &str) -> String {
    format!(
        "workers: 2\nroutes: [{{ upstream: app }}]\naccess_log: {{ output: off }}\n\
         upstreams: {{ app: {{ endpoints: [\"{{A}}\", \"{{B}}\", \"{{C}}\"], sticky: {{ cookie: sid{settings} }} }} }}\n"
    )
}

fn builder(yaml: &str, origins: &[Origin; 3]) -> crate::support::gateway::Builder {
    let [a, b, c] = origins;
    Gateway::builder(yaml).set("A", a.address()).set("B", b.address()).set("C", c.address())
}

/// `name=value` of the cookie an answer sets.
fn cookie(answer: &Response) -> String {
    let line = answer.header("set-cookie").unwrap_or_else(|| panic!("no cookie in {:?}", answer.headers));
    line.split(';').next().unwrap().to_owned()
}

fn with(gateway: &Gateway, cookie: &str) -> Response {
    gateway.connect().get("a", "/", &format!("Cookie: theme=dark; {cookie}\r\n"))
}

/// The origin a client with this cookie always gets, without being given another one.
fn always(gateway: &Gateway, cookie: &str) -> String {
    let first = with(gateway, cookie);
    for _ in 0..12 {
        let answer = with(gateway, cookie);
        assert_eq!((answer.text(), answer.header("set-cookie")), (first.text(), None));
    }
    first.text().to_owned()
}

#[test]
fn a_client_stays_with_its_endpoint_over_reloads_and_changes_of_the_upstream() {
    let origins = named();
    let yaml = upstream("");
    let gateway = builder(&yaml, &origins).start();
    let mut ties = Vec::new();
    for _ in 0..3 {
        let answer = gateway.get("a", "/");
        let line = answer.header("set-cookie").unwrap();
        assert!(line.ends_with("; Path=/; HttpOnly; SameSite=Lax") && line.len() < 80, "{line}");
        assert!(!line.contains("127.0.0.1"), "no address in {line}");
        ties.push((cookie(&answer), answer.text().to_owned()));
    }
    for changed in [yaml.clone(), yaml.replace("sticky", "balance: p2c, keepalive: 7, sticky")] {
        gateway.reload(&changed);
        for (cookie, name) in &ties {
            assert_eq!(always(&gateway, cookie), *name);
        }
    }
}

#[test]
fn with_a_secret_the_cookie_holds_over_restarts_and_for_other_gateways() {
    let origins = named();
    let secret = "0123456789abcdef0123456789abcdef\n";
    let start = |yaml: &str, secret: &str| builder(yaml, &origins).file("secret", secret).start();
    let yaml = upstream(", secret_file: secret, ttl: 8h");
    let first = start(&yaml, secret);
    let answer = first.get("a", "/");
    assert!(answer.header("set-cookie").unwrap().contains("; Max-Age=28800"), "{:?}", answer.headers);
    let (cookie, name) = (cookie(&answer), answer.text().to_owned());
    drop(first);
    assert_eq!(always(&start(&yaml, secret), &cookie), name);
    for other in [start(&yaml, "another secret that is long enough"), start(&upstream(""), secret)] {
        assert!(with(&other, &cookie).header("set-cookie").is_some(), "a value of another secret");
    }
}

#[test]
fn a_value_that_was_made_up_ties_to_nothing() {
    let origins = named();
    let gateway = builder(&upstream(""), &origins).start();
    let honest = cookie(&gateway.get("a", "/"));
    let (value, last) = honest.split_at(honest.len() - 1);
    let forged = format!("{value}{}", if last == "0" { "1" } else { "0" });
    for bad in [forged.as_str(), "sid=", "sid=0", "sid=127.0.0.1:80", "xsid=1", "sid"] {
        let answers: Vec<_> = (0..6).map(|_| with(&gateway, bad)).collect();
        assert!(answers.iter().all(|answer| answer.header("set-cookie").is_some()), "{bad}");
        assert!(answers.iter().any(|answer| answer.text() != answers[0].text()), "{bad}");
    }
}

#[test]
fn when_its_endpoint_is_out_the_client_is_tied_to_another_one() {
    let origins = named();
    let gateway = builder(&upstream(""), &origins).start();
    let first = gateway.get("a", "/");
    let index = ["a", "b", "c"].iter().position(|name| *name == first.text()).unwrap();
    let host = gateway.admin_address();
    let path = format!("/v1/upstreams/app/endpoints/{}/drain", origins[index].address());
    let drained = Connection::open(host).request(&format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(drained.status, 200);
    let second = with(&gateway, &cookie(&first));
    assert_ne!(second.text(), first.text());
    assert_eq!(always(&gateway, &cookie(&second)), second.text());
}

#[test]
fn over_tls_the_cookie_is_secure() {
    let origins = named();
    let builder = builder(&(upstream("") + "certificates: [{ cert: app.pem, key: app.key }]\n"), &origins);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    let answer = gateway.connect_tls("app.test").get("app.test", "/", "");
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"), "{:?}", answer.headers);
}

#[test]
fn a_client_stays_with_its_side_of_a_split() {
    let origins = named();
    let yaml = "workers: 2\naccess_log: { output: off }\nroutes: [{ upstream: [{ app: 50 }, { next: 50 }] }]\n\
                upstreams:\n  app: { endpoints: [\"{A}\", \"{B}\"], sticky: { cookie: sid } }\n  \
                next: { endpoints: [\"{C}\"], sticky: { cookie: sid } }\n";
    let gateway = builder(yaml, &origins).start();
    for _ in 0..6 {
        let answer = gateway.get("a", "/");
        assert_eq!(always(&gateway, &cookie(&answer)), answer.text());
    }
}
