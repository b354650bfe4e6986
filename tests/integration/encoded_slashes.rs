//! `%2F` in paths: what each policy makes of it, globally and for one route, and that it is no way
//! around a route's access rules.

use crate::support::certificates::Authority;
use crate::support::eventually::eventually;
use crate::support::http2::Http2;
use crate::support::{Gateway, Origin};

const ROUTES: &str = "routes:\n  \
    - { name: git, path: /api, encoded_slash: {ROUTE}, upstream: [\"{ORIGIN}\"] }\n  \
    - { name: admin, path: /api/admin, access: { deny: [0.0.0.0/0] }, upstream: [\"{ORIGIN}\"] }\n  \
    - { name: rest, path: /rest, upstream: [\"{ORIGIN}\"] }\n\
    paths: { encoded_slash: {GLOBAL} }\n";

fn gateway(global: &str, route: &str, origin: &Origin) -> Gateway {
    Gateway::with_origin(&ROUTES.replace("{GLOBAL}", global).replace("{ROUTE}", route), origin)
}

/// Asks for `path`; what the origin saw, or the status and what the record says of the refusal.
fn ask(gateway: &Gateway, origin: &Origin, path: &str) -> String {
    let before = origin.requests().len();
    let records = gateway.access_records().len();
    let status = gateway.get("app.test", path).status;
    let seen = origin.requests().get(before).map(|request| request.target().to_owned());
    let record = eventually("a record", || gateway.access_records().get(records).cloned());
    let text = |key: &str| record[key].as_str().unwrap_or("-").to_owned();
    match seen {
        Some(target) => {
            assert_eq!(text("path"), target, "what goes up is what is logged");
            target
        }
        None => format!("{status} {} {} {}", text("route"), text("rejection"), text("rejection_detail")),
    }
}

#[test]
fn a_routes_policy_takes_the_place_of_the_global_one() {
    let origin = Origin::fixed("hello");
    let rejected = |route: &str| format!("400 {route} target encoded_slash");
    for (global, route, of_route, of_rest) in [
        ("keep", "keep", "/api/a%2Fb".to_owned(), "/rest/a%2Fb".to_owned()),
        ("keep", "reject", rejected("git"), "/rest/a%2Fb".into()),
        ("keep", "decode", "/api/a/b".into(), "/rest/a%2Fb".into()),
        ("reject", "keep", "/api/a%2Fb".into(), rejected("rest")),
        ("reject", "reject", rejected("git"), rejected("rest")),
        ("reject", "decode", "/api/a/b".into(), rejected("rest")),
        ("decode", "reject", rejected("git"), "/rest/a/b".into()),
        ("decode", "decode", "/api/a/b".into(), "/rest/a/b".into()),
    ] {
        let gateway = gateway(global, route, &origin);
        for slash in ["%2F", "%2f"] {
            let path = |route: &str| format!("/{route}/a{slash}b");
            assert_eq!(ask(&gateway, &origin, &path("api")), of_route, "{global} {route} {slash}");
            assert_eq!(ask(&gateway, &origin, &path("rest")), of_rest, "{global} {route} {slash}");
        }
        assert_eq!(ask(&gateway, &origin, "/api/a/b%20c"), "/api/a/b%20c", "no slash, no difference");
        assert_eq!(ask(&gateway, &origin, "/api/a%252Fb"), "/api/a%252Fb", "escaped twice is no slash");
    }
}

#[test]
fn a_decoded_path_must_still_be_the_same_routes() {
    let origin = Origin::fixed("hello");
    let gateway = gateway("keep", "decode", &origin);
    for (path, expected) in [
        ("/api/x%2Fy%2F%2Fz/", "/api/x/y/z/"),
        ("/api/admin%2Fx", "400 git target other_route"),
        ("/api%2Fadmin", "404 none no_route -"),
        ("/api/x/%2Fadmin", "/api/x/admin"),
        ("/api/%2Fadmin", "400 git target other_route"),
        ("/api/x%2F..%2Fadmin", "400 rejected target hidden_dot_segment"),
        ("/api/x/..%2Fadmin", "400 rejected target hidden_dot_segment"),
        ("/api/admin/x%2Fy", "403 admin access_denied listed"),
    ] {
        assert_eq!(ask(&gateway, &origin, path), expected, "{path}");
    }
    let query = gateway.get("app.test", "/api/a%2Fb?c=d%2Fe");
    assert_eq!((query.status, origin.last_request().target()), (200, "/api/a/b?c=d%2Fe"), "queries stay");
    let absolute =
        gateway.connect().request("GET http://app.test/api/a%2Fb HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!((absolute.status, origin.last_request().target()), (200, "/api/a/b"));
}

#[test]
fn a_path_without_a_route_is_not_found_whatever_its_slashes() {
    let origin = Origin::fixed("hello");
    let gateway = gateway("reject", "keep", &origin);
    assert_eq!(ask(&gateway, &origin, "/other/a%2Fb"), "404 none no_route -");
    let sent = gateway.get("app.test", "/other%2F..%2Fapi");
    assert_eq!(sent.status, 400, "hidden dot segments are refused whatever the route");
}

#[test]
fn paths_of_registries_and_forges_pass_by_default() {
    let origin = Origin::fixed("hello");
    let gateway = Gateway::with_origin("routes: [{ upstream: [\"{ORIGIN}\"] }]", &origin);
    for path in [
        "/api/v4/projects/grp%2Frepo",
        "/api/v4/projects/grp%2Fsub%2Frepo/repository/files/src%2Fmain.rs/raw",
        "/@scope%2Fname",
        "/@scope%2Fname/-/name-1.0.0.tgz",
        "/api/v1/repositories/git%40github.com%3Aorg%2Fx",
        "/apps/files/?dir=%2Fa",
        "/index.php/apps/richdocuments/wopi/files/1%2F2%3Faccess",
        "/v2/group%2Fimage/manifests/latest",
    ] {
        assert_eq!(gateway.get("app.test", path).status, 200, "{path}");
        assert_eq!(origin.last_request().target(), path);
    }
}

#[test]
fn the_same_holds_over_http2() {
    let origin = Origin::fixed("hello");
    let yaml = ROUTES.replace("{GLOBAL}", "reject").replace("{ROUTE}", "decode");
    let builder = Gateway::builder(&format!("{yaml}certificates: [{{ cert: app.pem, key: app.key }}]\n"));
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.origin(&origin).start();
    let mut client = Http2::open(gateway.address(), "app.test");
    assert_eq!(client.get("https://app.test/api/a%2Fb?c=%2F").status, 200);
    assert_eq!(origin.only_request().target(), "/api/a/b?c=%2F");
    assert_eq!(client.get("https://app.test/api/admin%2Fx").status, 400);
    assert_eq!(client.get("https://app.test/rest/a%2Fb").status, 400);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn the_process_log_says_at_debug_why_a_request_was_refused() {
    let gateway = Gateway::start("routes: [{ respond: {} }]\nlog: { level: debug }\n");
    assert_eq!(gateway.get("app.test", "/a%00").status, 400);
    gateway.wait_log("target (nul)");
    assert_eq!(gateway.connect().request("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n").status, 400);
    gateway.wait_log("target (space)");
}
