//! Precedence and shadowing of the router, route by route. Knows only the public side of the room.

use super::*;
use crate::config::{CidrEntry, PathConfig, Problems, RouteConfig, Source, ValueMatchConfig};
use crate::routing::ClientCertificateView;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

fn route(hosts: &[&str], path: Option<PathConfig>) -> RouteConfig {
    RouteConfig { hosts: hosts.iter().map(|host| (*host).into()).collect(), path, ..RouteConfig::default() }
}

fn prefix(path: &str) -> Option<PathConfig> {
    Some(PathConfig::Prefix(path.into()))
}

fn exactly(value: &str) -> ValueMatchConfig {
    ValueMatchConfig::Exact(value.into())
}

fn with(mut route: RouteConfig, change: impl FnOnce(&mut RouteConfig)) -> RouteConfig {
    change(&mut route);
    route
}

fn build(routes: &[RouteConfig]) -> (Router<usize>, Vec<(usize, usize)>) {
    let mut problems = Problems::default();
    let rules = routes.iter().enumerate().map(|(index, config)| {
        let client: Option<crate::routing::ClientPredicate> =
            if config.client.is_empty() { None } else { Some(Box::new(|client| client.is_loopback())) };
        Rule::compile(config, client, index, &Source::default(), &format!("routes[{index}]"), &mut problems)
    });
    let (router, shadowed) = Router::build(rules.collect());
    assert!(problems.is_empty(), "{problems}");
    (router, shadowed.into_iter().map(|shadowed| (shadowed.route, shadowed.by)).collect())
}

struct Request<'a> {
    method: Method,
    host: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    headers: HeaderMap,
    client: &'a str,
    certificate: Option<ClientCertificateView<'a>>,
}

fn get<'a>(host: &'a str, path: &'a str) -> Request<'a> {
    Request {
        method: Method::GET,
        host,
        path,
        query: None,
        headers: HeaderMap::new(),
        client: "198.51.100.1",
        certificate: None,
    }
}

impl<'a> Request<'a> {
    fn query(mut self, query: &'a str) -> Self {
        self.query = Some(query);
        self
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    fn find(&self, router: &Router<usize>) -> Option<usize> {
        let view = RequestView {
            host: self.host,
            path: self.path,
            query: self.query,
            method: &self.method,
            headers: &self.headers,
            client: self.client.parse().unwrap(),
            client_certificate: self.certificate,
        };
        router.find(&view).copied()
    }
}

#[test]
fn exact_host_comes_before_longest_wildcard_before_any() {
    let (router, _) = build(&[
        route(&[], None),
        route(&["*.example.com"], None),
        route(&["*.api.example.com"], None),
        route(&["a.api.example.com"], None),
    ]);
    for (host, expected) in [
        ("a.api.example.com", 3),
        ("b.api.example.com", 2),
        ("x.y.api.example.com", 2),
        ("api.example.com", 1),
        ("www.example.com", 1),
        ("example.com", 0),
        ("notexample.com", 0),
        ("[::1]", 0),
        ("10.0.0.1", 0),
    ] {
        assert_eq!(get(host, "/").find(&router), Some(expected), "{host}");
    }
}

#[test]
fn less_specific_host_is_tried_when_the_more_specific_one_takes_nothing() {
    let (router, _) = build(&[
        route(&["a.example.com"], prefix("/only")),
        with(route(&["*.example.com"], None), |route| route.methods = vec!["POST".into()]),
        route(&[], prefix("/")),
    ]);
    assert_eq!(get("a.example.com", "/only/x").find(&router), Some(0));
    assert_eq!(get("a.example.com", "/x").find(&router), Some(2));
    let post = Request { method: Method::POST, ..get("a.example.com", "/x") };
    assert_eq!(post.find(&router), Some(1));
}

#[test]
fn written_host_is_compared_in_canonical_form_in_small_and_large_lists() {
    let names: Vec<String> = (0..200).map(|n| format!("App{n}.Test.")).collect();
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(get("app.test", "/").find(&build(&[route(&["APP.Test"], None)]).0), Some(0));
    assert_eq!(get("app150.test", "/").find(&build(&[route(&hosts, None)]).0), Some(0));
}

#[test]
fn more_predicates_come_first_then_file_order() {
    let (router, shadowed) = build(&[
        route(&["a.test"], None),
        with(route(&["a.test"], None), |route| route.methods = vec!["GET".into()]),
        with(route(&["a.test"], prefix("/")), |route| {
            route.methods = vec!["GET".into(), "POST".into()];
            route.headers.insert("X-Env".into(), exactly("canary"));
        }),
        with(route(&["a.test"], None), |route| _ = route.query.insert("beta".into(), exactly("1"))),
    ]);
    assert_eq!(shadowed, []);
    assert_eq!(get("a.test", "/").header("x-env", "canary").find(&router), Some(2));
    assert_eq!(get("a.test", "/").query("beta=1").find(&router), Some(1));
    assert_eq!(Request { method: Method::PUT, ..get("a.test", "/") }.query("beta=1").find(&router), Some(3));
    assert_eq!(Request { method: Method::PUT, ..get("a.test", "/") }.find(&router), Some(0));
}

#[test]
fn header_holds_on_any_line_and_may_have_to_be_absent() {
    let (router, _) = build(&[
        with(route(&[], None), |route| _ = route.headers.insert("x-env".into(), exactly("canary"))),
        with(route(&[], None), |route| {
            _ = route.headers.insert("x-env".into(), ValueMatchConfig::Regex("^can".into()));
        }),
        with(route(&[], None), |route| {
            _ = route.headers.insert("x-env".into(), ValueMatchConfig::Present(true))
        }),
        with(route(&[], None), |route| {
            _ = route.headers.insert("x-env".into(), ValueMatchConfig::Present(false))
        }),
    ]);
    assert_eq!(get("a", "/").header("x-env", "prod").header("x-env", "canary").find(&router), Some(0));
    assert_eq!(get("a", "/").header("x-env", "prod").header("x-env", "canaries").find(&router), Some(1));
    assert_eq!(get("a", "/").header("x-env", "Canary").find(&router), Some(2));
    assert_eq!(get("a", "/").find(&router), Some(3));
}

#[test]
fn query_is_compared_decoded_on_any_occurrence() {
    let (router, _) = build(&[
        with(route(&[], None), |route| _ = route.query.insert("q".into(), exactly("a b"))),
        with(route(&[], None), |route| {
            _ = route.query.insert("q".into(), ValueMatchConfig::Regex("^x/y$".into()))
        }),
        with(route(&[], None), |route| {
            _ = route.query.insert("debug".into(), ValueMatchConfig::Present(true))
        }),
    ]);
    assert_eq!(get("a", "/").query("q=1&%71=a%20b").find(&router), Some(0));
    assert_eq!(get("a", "/").query("q=x%2Fy").find(&router), Some(1));
    assert_eq!(get("a", "/").query("debug").find(&router), Some(2));
    assert_eq!(get("a", "/").query("q=a").find(&router), None);
    assert_eq!(get("a", "/").find(&router), None);
}

#[test]
fn client_predicate_is_asked() {
    let (router, _) = build(&[with(route(&[], None), |route| {
        route.client = vec![CidrEntry::Inline("127.0.0.0/8".parse().unwrap())];
    })]);
    assert_eq!(get("a", "/").find(&router), None);
    assert_eq!(Request { client: "127.0.0.1", ..get("a", "/") }.find(&router), Some(0));
}

#[test]
fn routes_that_can_never_be_reached_are_named() {
    let post = |route| with(route, |route: &mut RouteConfig| route.methods = vec!["POST".into()]);
    let both =
        |route| with(route, |route: &mut RouteConfig| route.methods = vec!["GET".into(), "POST".into()]);
    let (_, shadowed) = build(&[
        route(&["a.test"], prefix("/x")),
        route(&["A.test."], prefix("/x")),
        both(route(&["a.test"], prefix("/x"))),
        post(route(&["a.test"], prefix("/x"))),
        route(&["a.test", "b.test"], prefix("/x")),
        route(&["*.test"], prefix("/x")),
        route(&[], None),
        route(&[], prefix("/")),
    ]);
    assert_eq!(shadowed, [(1, 0), (3, 2), (7, 6)]);
}

#[test]
fn route_is_shadowed_only_when_all_of_its_hosts_are() {
    let routes = [route(&["a.test"], None), route(&["b.test"], None), route(&["a.test", "b.test"], None)];
    assert_eq!(build(&routes).1, [(2, 0)]);
    assert_eq!(build(&[route(&["a.test"], None), route(&["a.test", "b.test"], None)]).1, []);
}

#[test]
fn one_regex_written_twice_is_one_path() {
    let regex = || Some(PathConfig::Regex("^/v[0-9]+/".into()));
    let (router, shadowed) = build(&[
        route(&[], regex()),
        route(&[], Some(PathConfig::Regex("^/v1/".into()))),
        with(route(&[], regex()), |route| _ = route.headers.insert("x-env".into(), exactly("canary"))),
        route(&[], regex()),
    ]);
    assert_eq!(get("a", "/v1/x").header("x-env", "canary").find(&router), Some(2));
    assert_eq!(get("a", "/v1/x").find(&router), Some(0));
    assert_eq!(shadowed, [(3, 0)]);
}

#[test]
fn router_without_routes_finds_nothing() {
    let (router, _) = build(&[]);
    assert!(router.is_empty() && router.iter().next().is_none());
    assert_eq!(get("a", "/").find(&router), None);
}

#[test]
fn values_come_back_in_file_order() {
    let (router, _) = build(&[route(&["b"], None), route(&["a"], None), route(&[], None)]);
    assert_eq!(router.iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn problems_of_all_parts_come_out_together() {
    let bad = with(route(&["a.test", "*"], prefix("x")), |route| {
        route.methods = vec!["get".into()];
        route.headers.insert("bad name".into(), exactly("1"));
        route.query.insert("q".into(), ValueMatchConfig::Regex("(".into()));
    });
    let mut problems = Problems::default();
    Rule::compile(&bad, None, (), &Source::default(), "routes[0]", &mut problems);
    let paths: Vec<_> = problems.0.iter().map(|problem| problem.path.as_str()).collect();
    let expected = ["hosts[1]", "path", "methods[0]", "headers.bad name", "query.q"];
    assert_eq!(paths, expected.map(|key| format!("routes[0].{key}")));
}

#[test]
fn certificates_are_matched_by_subject_names_and_fingerprint_and_counted() {
    let certificate = |subject: Option<&str>, san: Option<ValueMatchConfig>, fingerprint: Option<&str>| {
        with(route(&["a"], None), |route| {
            route.client_certificate.subject = subject.map(exactly);
            route.client_certificate.san = san;
            route.client_certificate.fingerprint = fingerprint.map(exactly);
        })
    };
    let regex = ValueMatchConfig::Regex("^URI:spiffe://mesh/".into());
    let print = "AB:".repeat(31) + "AB";
    let absent = ValueMatchConfig::Present(false);
    let (router, _) = build(&[
        certificate(None, Some(ValueMatchConfig::Present(true)), None),
        certificate(Some("CN=a"), Some(regex), None),
        certificate(None, None, Some(&print)),
        with(route(&["a"], Some(PathConfig::Exact("/open".into()))), |route| {
            route.client_certificate.subject = Some(absent)
        }),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (mesh, dns) = (names(&["DNS:x", "URI:spiffe://mesh/a"]), names(&["DNS:x"]));
    let print = "ab".repeat(32);
    let shown = |subject: &'static str, sans, fingerprint| {
        let certificate = ClientCertificateView { subject: subject.as_bytes(), sans, fingerprint };
        Request { certificate: Some(certificate), ..get("a", "/") }.find(&router)
    };
    assert_eq!(shown("CN=a", &mesh, b"00"), Some(1), "two predicates before one");
    assert_eq!(shown("CN=a", &dns, b"00"), Some(0));
    assert_eq!(shown("CN=b", &mesh, b"00"), Some(0));
    assert_eq!(shown("CN=b", &[], print.as_bytes()), Some(2));
    assert_eq!(shown("CN=b", &[], b"00"), None);
    assert_eq!(get("a", "/").find(&router), None, "without a certificate there is no value");
    assert_eq!(get("a", "/open").find(&router), Some(3));
}
