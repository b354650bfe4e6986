//! curl as a client nobody here wrote.

use crate::support::certificates::Authority;
use crate::support::commands::curl;
use crate::support::{Gateway, Origin, Reply};

#[test]
fn curl_speaks_every_protocol_on_one_port() {
    let authority = Authority::new("root");
    let origin = Origin::script(|request| Reply::ok(std::str::from_utf8(&request.body).unwrap()));
    let builder = Gateway::builder(
        "routes: [{ hosts: [app.test], upstream: [\"{ORIGIN}\"] }]\ncertificates: [{ cert: app.pem, key: app.key }]\n",
    );
    authority.issue(&["app.test"]).write(builder.dir(), "app");
    let ca = authority.write(builder.dir(), "ca.pem");
    let gateway = builder.origin(&origin).start();
    let port = gateway.address().port();
    let resolve = format!("app.test:{port}:127.0.0.1");
    let common =
        ["--resolve", &resolve, "--cacert", ca.to_str().unwrap(), "-w", " %{http_version} %{http_code}"];
    let upload = "x".repeat(200_000);
    std::fs::write(gateway.dir().join("upload"), &upload).unwrap();
    let data = format!("@{}", gateway.dir().join("upload").display());
    for (scheme, version, expected) in
        [("http", "--http1.1", "1.1"), ("https", "--http1.1", "1.1"), ("https", "--http2", "2")]
    {
        let url = format!("{scheme}://app.test:{port}/x");
        let small = curl(&[&common[..], &[version, "-d", "hello", &url]].concat());
        assert_eq!(small, format!("hello {expected} 200"), "{scheme} {version}");
        let large = curl(&[&common[..], &[version, "--data-binary", &data, &url]].concat());
        assert_eq!(large, format!("{upload} {expected} 200"), "{scheme} {version}");
    }
    let old = curl(&[&common[..], &["--http1.0", &format!("http://app.test:{port}/")]].concat());
    assert!(old.ends_with(" 200"), "{old}");
}
