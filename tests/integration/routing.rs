//! Routing over the wire: which route takes a request, and what is refused before.

use crate::support::{Gateway, Origin};

/// Starts a gateway whose routes answer with their own names: `(name, predicates)`.
fn named_routes(rows: &[(&str, &str)]) -> Gateway {
    let routes: String = rows
        .iter()
        .map(|(name, predicates)| {
            format!("  - {{ name: {name}, {predicates}, respond: {{ body: {name} }} }}\n")
        })
        .collect();
    Gateway::start(&format!("routes:\n{routes}"))
}

/// Asserts which route takes each `(host, path, header lines)`; an empty name is 404.
fn assert_taken(gateway: &Gateway, rows: &[(&str, &str, &str, &str)]) {
    let mut connection = gateway.connect();
    for (host, path, headers, expected) in rows {
        let response = connection.get(host, path, headers);
        let taken = if response.status == 404 { "" } else { response.text() };
        assert_eq!(taken, *expected, "{host} {path} {headers}");
    }
}

#[test]
fn hosts_match_whatever_their_case_port_and_trailing_dot() {
    let gateway = named_routes(&[("app", "hosts: [App.Test]"), ("six", "hosts: [\"[::1]\"]")]);
    assert_taken(
        &gateway,
        &[
            ("app.test", "/", "", "app"),
            ("APP.TEST", "/", "", "app"),
            ("app.test:7999", "/", "", "app"),
            ("app.test:80", "/", "", "app"),
            ("app.test:1234", "/", "", "app"),
            ("app.test.", "/", "", "app"),
            ("app.test.:443", "/", "", "app"),
            ("[::1]", "/", "", "six"),
            ("[::1]:7999", "/", "", "six"),
            ("other.test", "/", "", ""),
        ],
    );
}

#[test]
fn long_host_lists_match_like_short_ones() {
    let hosts: Vec<String> = (0..300).map(|index| format!("Host{index}.Test")).collect();
    let gateway = named_routes(&[("many", &format!("hosts: [{}]", hosts.join(", ")))]);
    assert_taken(&gateway, &[("host0.test", "/", "", "many"), ("HOST299.TEST:1", "/", "", "many")]);
}

#[test]
fn an_exact_host_goes_before_the_longest_wildcard_before_any() {
    let gateway = named_routes(&[
        ("any", "path: /"),
        ("wide", "hosts: [\"*.test\"]"),
        ("narrow", "hosts: [\"*.app.test\"]"),
        ("exact", "hosts: [www.app.test]"),
    ]);
    assert_taken(
        &gateway,
        &[
            ("www.app.test", "/", "", "exact"),
            ("x.app.test", "/", "", "narrow"),
            ("x.y.app.test", "/", "", "narrow"),
            ("app.test", "/", "", "wide"),
            ("test", "/", "", "any"),
            ("elsewhere", "/", "", "any"),
        ],
    );
}

#[test]
fn an_exact_path_goes_before_a_regex_before_the_longest_prefix() {
    let gateway = named_routes(&[
        ("short", "path: /v1"),
        ("long", "path: /v1/items"),
        ("regex", "path: { regex: \"^/v[0-9]+/items/[0-9]+$\" }"),
        ("exact", "path: { exact: /v1/items/7 }"),
    ]);
    assert_taken(
        &gateway,
        &[
            ("a", "/v1", "", "short"),
            ("a", "/v1/", "", "short"),
            ("a", "/v1/other?q=/v1/items", "", "short"),
            ("a", "/v1/items/x", "", "long"),
            ("a", "/v1/items/8", "", "regex"),
            ("a", "/v1/items/7", "", "exact"),
            ("a", "/v1/items/7?x=y", "", "exact"),
            ("a", "/v10", "", ""),
            ("a", "/v1items", "", ""),
            ("a", "/V1", "", ""),
        ],
    );
}

#[test]
fn further_predicates_narrow_a_route_and_more_of_them_go_first() {
    let gateway = named_routes(&[
        ("plain", "path: /"),
        ("header", "path: /, headers: { x-env: canary }"),
        ("both", "path: /, headers: { x-env: canary }, query: { beta: \"1\" }"),
        ("present", "path: /, headers: { x-debug: { present: true } }"),
        ("pattern", "path: /, headers: { user-agent: { regex: \"^bot/[0-9]\" } }"),
    ]);
    assert_taken(
        &gateway,
        &[
            ("a", "/", "", "plain"),
            ("a", "/", "X-Env: canary\r\n", "header"),
            ("a", "/", "x-env: Canary\r\n", "plain"),
            ("a", "/?beta=1", "x-env: canary\r\n", "both"),
            ("a", "/?x=y&beta=1", "x-env: canary\r\n", "both"),
            ("a", "/?beta=12", "x-env: canary\r\n", "header"),
            ("a", "/?beta=1", "", "plain"),
            ("a", "/", "X-Debug:\r\n", "present"),
            ("a", "/", "User-Agent: bot/1\r\n", "pattern"),
        ],
    );
}

#[test]
fn methods_and_clients_are_predicates() {
    let gateway = named_routes(&[
        ("post", "path: /, methods: [POST, PUT]"),
        ("elsewhere", "path: /, client: [10.0.0.0/8]"),
        ("here", "path: /, client: [127.0.0.0/8]"),
    ]);
    let mut connection = gateway.connect();
    assert_eq!(connection.get("a", "/", "").text(), "here");
    for method in ["POST", "PUT"] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(connection.request(&request).text(), "post", "{method}");
    }
}

#[test]
fn paths_are_made_canonical_before_routing_and_go_upstream_like_that() {
    let origin = Origin::fixed("public");
    let yaml = "routes:\n  - { path: /admin, respond: { status: 403, body: admin } }\n  \
                - { upstream: [\"{ORIGIN}\"] }\n";
    let gateway = Gateway::with_origin(yaml, &origin);
    for path in [
        "/public/../admin",
        "//admin",
        "/./admin",
        "/admin//x",
        "/public/%2e%2e/admin",
        "/%61dmin",
        "/x/..//admin",
    ] {
        assert_eq!(gateway.get("a", path).text(), "admin", "{path}");
    }
    for (path, upstream) in [
        ("/administrator", "/administrator"),
        ("/a//b/./c?x=//..", "/a/b/c?x=//.."),
        ("/api/v4/projects/grp%2Frepo", "/api/v4/projects/grp%2Frepo"),
        ("/r/git%40github.com%3Aorg%2Fx", "/r/git%40github.com%3Aorg%2Fx"),
    ] {
        assert_eq!(gateway.get("a", path).status, 200, "{path}");
        let target = origin.last_request().target().to_owned();
        assert!(
            target == upstream || target == upstream.replace("%40", "@").replace("%3A", ":"),
            "{path}: {target}"
        );
    }
}

#[test]
fn the_authority_of_an_absolute_target_must_agree_with_host() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin("routes: [{ hosts: [app.test], upstream: [\"{ORIGIN}\"] }]", &origin);
    let response = gateway.connect().request("GET http://app.test/x?y=1 HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(response.status, 200);
    assert_eq!(origin.only_request().line(), "GET /x?y=1 HTTP/1.1", "origin-form goes upstream");
    let disagreeing = gateway.connect().request("GET http://evil.test/x HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(disagreeing.status, 400);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_host_that_is_missing_doubled_or_malformed_is_refused() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    for hosts in [
        "",
        "Host: app.test\r\nHost: app.test\r\n",
        "Host: app.test\r\nHost: other.test\r\n",
        "Host: u@app.test\r\n",
        "Host: app.test:99999\r\n",
        "Host: app.test:x\r\n",
        "Host: app test\r\n",
        "Host: a/b\r\n",
        "Host: [::1\r\n",
    ] {
        let response = gateway.connect().request(&format!("GET / HTTP/1.1\r\n{hosts}\r\n"));
        assert_eq!(response.status, 400, "{hosts:?}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn methods_that_are_not_for_a_gateway_are_refused() {
    let gateway = Gateway::start("routes: [{ respond: { body: hello } }]");
    for line in ["TRACE / HTTP/1.1", "CONNECT app.test:80 HTTP/1.1"] {
        let mut connection = gateway.connect();
        connection.send(format!("{line}\r\nHost: app.test\r\n\r\n"));
        assert_eq!(connection.response().status, 405, "{line}");
    }
}

#[test]
fn two_pipelined_requests_are_answered_in_order_or_the_connection_closes() {
    let gateway = named_routes(&[("one", "path: /one"), ("two", "path: /two")]);
    let mut connection = gateway.connect();
    connection.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.response().text(), "one");
    assert_eq!(connection.response().text(), "two");
}
