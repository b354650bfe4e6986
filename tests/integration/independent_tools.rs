//! Judges nobody here wrote: sslyze with Mozilla's guidelines, and the Autobahn cases for websockets.
//!
//! They need Python packages, which the gate (`tests/run.sh`) installs into a folder it names by
//! `PORTCULLIS_TEST_TOOLS`. Without that variable nothing is tested here, and standard error says so; with it
//! everything must be there.

use crate::support::certificates::Authority;
use crate::support::commands::run;
use crate::support::{Gateway, eventually};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SITES: &str =
    "routes: [{ respond: { body: hello } }]\ncertificates: [{ cert: app.pem, key: app.key }]\n";

/// A program of the gate's tools; `None` where they are not installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("PORTCULLIS_TEST_TOOLS") else {
        eprintln!("NOT TESTED: {name} is not there; tests/run.sh installs it");
        return None;
    };
    let path = Path::new(&folder).join("bin").join(name);
    assert!(path.exists(), "{} is missing", path.display());
    Some(path)
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// Scans; gives the objections sslyze has against `policy`, and everything it has found.
fn scan(python: &Path, gateway: &Gateway, policy: &str) -> (String, Value) {
    let out = gateway.dir().join("sslyze.json");
    let target = format!("app.test:{}{{127.0.0.1}}", gateway.address().port());
    let (policy, out_option) =
        (format!("--mozilla_config={policy}"), format!("--json_out={}", out.display()));
    let scans = ["--certinfo", "--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3"];
    let more = ["--compression", "--early_data", "--openssl_ccs", "--fallback", "--heartbleed", "--robot"];
    let rest = ["--reneg", "--elliptic_curves", "--ems", "--resum"];
    let base = ["-m", "sslyze", &policy, &out_option];
    let arguments = [&base[..], &scans, &more, &rest, &[&target]].concat();
    let output = run(python.to_str().unwrap(), &arguments, b"");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = json(&out)["server_scan_results"][0]["scan_result"].clone();
    assert!(found.is_object(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let (_, judgement) =
        text.split_once("COMPLIANCE AGAINST").unwrap_or_else(|| panic!("no judgement: {text}"));
    (judgement.to_owned(), found)
}

/// The lines `* subject: what is wrong`.
fn objections(judgement: &str) -> Vec<&str> {
    let lines = judgement.lines().filter_map(|line| line.trim().strip_prefix("* "));
    lines.filter_map(|line| line.split_once(':').map(|(subject, _)| subject)).collect()
}

#[test]
fn sslyze_objects_to_nothing_but_the_trust_in_the_test_certificate() {
    let Some(python) = tool("python") else { return };
    let builder = Gateway::builder(SITES);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    let gateway = builder.start();
    let (judgement, found) = scan(&python, &gateway, "intermediate");
    assert_eq!(objections(&judgement), ["certificate_path_validation"], "{judgement}");
    for (scan, field, expected) in [
        ("tls_compression", "supports_compression", false),
        ("tls_1_3_early_data", "supports_early_data", false),
        ("openssl_ccs_injection", "is_vulnerable_to_ccs_injection", false),
        ("tls_fallback_scsv", "supports_fallback_scsv", true),
        ("heartbleed", "is_vulnerable_to_heartbleed", false),
        ("session_renegotiation", "is_vulnerable_to_client_renegotiation_dos", false),
        ("session_renegotiation", "supports_secure_renegotiation", true),
        ("tls_extended_master_secret", "supports_ems_extension", true),
        ("tls_1_1_cipher_suites", "is_tls_version_supported", false),
        ("tls_1_2_cipher_suites", "is_tls_version_supported", true),
        ("tls_1_3_cipher_suites", "is_tls_version_supported", true),
    ] {
        assert_eq!(found[scan]["result"][field], expected, "{scan}.{field}: {}", found[scan]);
    }
    assert_eq!(found["session_resumption"]["result"]["tls_ticket_resumption_result"], "FULLY_SUPPORTED");
}

#[test]
fn sslyze_sees_when_a_policy_is_not_kept() {
    let Some(python) = tool("python") else { return };
    let builder = Gateway::builder(SITES);
    Authority::new("root").issue(&["app.test"]).write(builder.dir(), "app");
    // TLS 1.2 is served, which "modern" forbids: the test above could fail.
    let (judgement, _) = scan(&python, &builder.start(), "modern");
    assert!(objections(&judgement).contains(&"tls_versions"), "{judgement}");
}

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An echoing websocket server with compression; its address.
pub fn echo_server(python: &Path) -> (Running, String) {
    serving(python, "websocket_echo.py")
}

/// A server of `tests/gate`, which says its port first; its address.
pub fn serving(python: &Path, script: &str) -> (Running, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gate").join(script);
    let mut command = Command::new(python);
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Running(command.spawn().expect("a server"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a port");
    (server, format!("127.0.0.1:{}", line.trim()))
}

/// Runs the Autobahn cases against a server; how it behaved in each.
fn autobahn(kosoku: &Path, server: &str, selection: &[&str], out: &Path) -> BTreeMap<String, String> {
    let common = ["-p", "8", "-o", out.to_str().unwrap()];
    let output = run(kosoku.to_str().unwrap(), &[&common[..], selection, &[server]].concat(), b"");
    let index = out.join("index.json");
    assert!(index.exists(), "no report: {}", String::from_utf8_lossy(&output.stdout));
    let report = json(&index);
    let (_, cases) = report.as_object().and_then(|agents| agents.iter().next()).expect("a server");
    let behaviour = |case: &Value| format!("{} / {}", case["behavior"], case["behaviorClose"]);
    cases.as_object().expect("cases").iter().map(|(name, case)| (name.clone(), behaviour(case))).collect()
}

fn the_gateway_changes_no_case(selection: &[&str], at_least: usize) {
    let (Some(python), Some(kosoku)) = (tool("python"), tool("kosoku")) else { return };
    let (_server, origin) = echo_server(&python);
    let mut gateway =
        Gateway::builder("routes: [{ upstream: [\"{ORIGIN}\"] }]\n").set("ORIGIN", &origin).start();
    let (direct_out, out) = (gateway.dir().join("direct"), gateway.dir().join("gateway"));
    let through = autobahn(&kosoku, &gateway.address().to_string(), selection, &out);
    let direct = autobahn(&kosoku, &origin, selection, &direct_out);
    assert!(direct.len() >= at_least, "only {} cases", direct.len());
    assert_eq!(through, direct);
    let failed = direct.values().filter(|behaviour| behaviour.contains("FAILED")).count();
    assert!(failed <= 1, "the origin itself fails {failed} cases: {direct:?}");
    assert!(gateway.is_running());
    eventually::until("closed connections", || {
        gateway.metrics().sum("portcullis_connections_open", &[]) == 0.0
    });
}

#[test]
fn autobahn_sees_no_difference_in_the_protocol_cases() {
    // 1 to 7 and 10: framing, pings, reserved bits, opcodes, fragments, UTF-8, closing.
    the_gateway_changes_no_case(&["-x", "9.*", "-x", "12.*", "-x", "13.*"], 247);
}

#[test]
fn autobahn_sees_no_difference_in_large_and_compressed_messages() {
    // A slice of 9 (up to 4 MiB), 12 and 13: all of them take minutes, and only repeat at other sizes.
    let cases = [
        "9.1.3", "9.1.4", "9.2.3", "9.3.5", "9.4.5", "9.5.4", "9.6.4", "12.1.1", "12.2.9", "13.1.1", "13.7.1",
    ];
    let selection: Vec<&str> = cases.iter().flat_map(|case| ["-i", case]).collect();
    the_gateway_changes_no_case(&selection, cases.len());
}
