//! What the origin is told, and what is stripped both ways.

use crate::support::origin::Received;
use crate::support::{Gateway, Origin, Reply};

const ROUTES: &str = "routes: [{ upstream: [\"{ORIGIN}\"] }]\n";
const TRUSTED: &str = "access: { trusted_proxies: [127.0.0.1/32] }\n";

/// What the origin receives for a request with these header lines.
fn received(access: &str, headers: &str) -> Received {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(&format!("{ROUTES}{access}"), &origin);
    let response = gateway.connect().get("App.Test:7999", "/x", headers);
    assert_eq!(response.status, 200, "{headers}");
    origin.only_request()
}

#[test]
fn the_origin_learns_who_asked_for_what() {
    let request = received("", "");
    assert_eq!(request.line(), "GET /x HTTP/1.1");
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.header("x-forwarded-proto"), Some("http"));
    assert!(
        request.header("x-forwarded-host").unwrap().eq_ignore_ascii_case("app.test:7999"),
        "{}",
        request.head
    );
    let forwarded = request.header("forwarded").unwrap().to_ascii_lowercase();
    for part in ["for=127.0.0.1", "proto=http", "host=\"app.test:7999\""] {
        assert!(forwarded.contains(part), "{part} in {forwarded}");
    }
    assert!(request.header("host").unwrap().eq_ignore_ascii_case("app.test:7999"));
}

#[test]
fn the_origin_learns_that_the_client_used_tls() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(ROUTES, &origin);
    assert_eq!(gateway.connect_tls("app.test").get("app.test", "/", "").status, 200);
    assert_eq!(origin.only_request().header("x-forwarded-proto"), Some("https"));
}

#[test]
fn what_an_untrusted_peer_claims_is_replaced() {
    let request = received(
        "",
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Host: evil.test\r\nForwarded: for=6.6.6.6;host=evil.test\r\nX-Request-Id: mine\r\n\
         X-Forwarded-Port: 1\r\nX-Real-IP: 6.6.6.6\r\n",
    );
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    for trace in ["6.6.6.6", "7.7.7.7", "evil.test", "mine"] {
        assert!(!request.head.contains(trace), "{trace} in {}", request.head);
    }
}

#[test]
fn aliases_of_forwarding_headers_do_not_pass() {
    let request = received(
        "",
        "X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_For: 6.6.6.6\r\nX.Forwarded.For: 6.6.6.6\r\nX_Request_Id: 6.6.6.6\r\n",
    );
    assert!(!request.head.contains("6.6.6.6"), "{}", request.head);
}

#[test]
fn names_that_applications_take_for_others_pass_only_when_allowed() {
    let origin = Origin::fixed("hello");
    let headers =
        "X_User: 1\r\nX-User_Id: 2\r\n_a: 3\r\nProxy: http://evil.test\r\nX.Dot: 4\r\nX-Plain: 5\r\n";
    let names = |request: &Received, of: &[&str]| {
        let there = of.iter().filter(|name| request.header(name).is_some());
        there.map(ToString::to_string).collect::<Vec<_>>()
    };
    let all = ["x_user", "x-user_id", "_a", "proxy", "x.dot", "x-plain", "x_forwarded_for"];
    for lane in ["on", "off"] {
        let yaml = format!("{ROUTES}proxy: {{ lane: {lane} }}\n");
        let gateway = Gateway::with_origin(&yaml, &origin);
        let headers = format!("{headers}X_Forwarded_For: 6.6.6.6\r\n");
        assert_eq!(gateway.connect().get("a", "/", &headers).status, 200);
        assert_eq!(names(&origin.last_request(), &all), ["x.dot", "x-plain"], "lane: {lane}");
        gateway.reload(&format!("{yaml}limits: {{ header_aliases: pass }}\n"));
        assert_eq!(gateway.connect().get("a", "/", &headers).status, 200);
        assert_eq!(names(&origin.last_request(), &all), all[..6], "lane: {lane}");
    }
}

#[test]
fn what_a_trusted_peer_claims_is_extended() {
    let request = received(
        TRUSTED,
        "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: public.test\r\n\
         X-Request-Id: abc-123\r\n",
    );
    assert_eq!(request.header("x-forwarded-for"), Some("203.0.113.7, 127.0.0.1"));
    assert_eq!(request.header("x-forwarded-proto"), Some("https"));
    assert_eq!(request.header("x-forwarded-host"), Some("public.test"));
    assert_eq!(request.header("x-request-id"), Some("abc-123"));
}

#[test]
fn a_request_id_is_made_when_none_may_be_kept() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(&format!("{ROUTES}{TRUSTED}"), &origin);
    let long = "x".repeat(4000);
    for sent in ["", "X-Request-Id: a b\r\n", &format!("X-Request-Id: {long}\r\n")] {
        gateway.connect().get("a", "/", sent);
    }
    let requests = origin.requests();
    let mut ids: Vec<_> = requests.iter().map(|r| r.header("x-request-id").unwrap()).collect();
    assert!(ids.iter().all(|id| id.len() >= 16 && id.len() <= 128 && !id.contains(' ')), "{ids:?}");
    let first = ids[0].to_owned();
    gateway.wait_record(|record| record["request_id"] == first.as_str());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each is its own");
}

#[test]
fn hop_by_hop_fields_of_the_request_stop_here() {
    let request = received(
        "",
        "Connection: close, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=9\r\nTE: gzip\r\nTrailer: X-T\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nUpgrade: foo\r\nX-Stays: 1\r\n",
    );
    for name in
        ["x-secret", "keep-alive", "te", "trailer", "proxy-connection", "proxy-authorization", "upgrade"]
    {
        assert_eq!(request.header(name), None, "{name} in {}", request.head);
    }
    assert_eq!(request.header("x-stays"), Some("1"));
    assert_ne!(request.header("connection"), Some("close"));
}

#[test]
fn connection_cannot_nominate_the_gateways_own_fields() {
    let nominated = "Connection: close, X-Real-Ip, x-forwarded-proto, X-FORWARDED-FOR, forwarded, x-request-id, host\r\n\
                     X-Forwarded-Proto: https\r\n";
    let request = received("", nominated);
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.header("x-forwarded-proto"), Some("http"));
    assert!(request.header("x-request-id").is_some() && request.header("forwarded").is_some());
    assert!(request.header("host").is_some());
}

#[test]
fn hop_by_hop_fields_of_the_response_stop_here_and_the_upstream_connection_is_kept() {
    let origin = Origin::script(|_| {
        let hop = "Connection: keep-alive, X-Internal\r\nX-Internal: 1\r\nKeep-Alive: timeout=5\r\n\
                   Proxy-Authenticate: Basic\r\nX-Stays: 1\r\nServer: origin\r\n";
        Reply::status(200, hop, "hello")
    });
    let gateway = Gateway::with_origin(&format!("workers: 1\n{ROUTES}"), &origin);
    for _ in 0..2 {
        let response = gateway.get("a", "/");
        for name in ["x-internal", "keep-alive", "proxy-authenticate"] {
            assert_eq!(response.header(name), None, "{name}");
        }
        assert_eq!((response.header("x-stays"), response.header("server")), (Some("1"), Some("origin")));
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_client_that_closes_does_not_cost_the_upstream_connection() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin(&format!("workers: 1\n{ROUTES}"), &origin);
    for _ in 0..3 {
        let mut connection = gateway.connect();
        assert_eq!(connection.get("a", "/", "Connection: close\r\n").header("connection"), Some("close"));
        connection.rest();
    }
    assert_eq!(origin.connections(), 1);
}
