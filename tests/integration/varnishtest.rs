//! Varnish's own test language as an independent client and origin: `tests/fixtures/varnishtest/*.vtc`, one rule
//! a script, with our binary between the two.
//!
//! The scripts know the macros `${gateway}` and `${origin}` and nothing of the configuration.

use crate::support::Gateway;
use crate::support::commands::run;
use crate::support::ports::Port;
use std::path::{Path, PathBuf};

const YAML: &str = "routes: [{ name: app, upstream: [\"{ORIGIN}\"] }]\naccess_log: { output: off }\n\
                    limits: { body: 1MiB }\n";

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/varnishtest");
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path());
    let mut scripts: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "vtc")).collect();
    scripts.sort();
    scripts
}

/// Runs a script with a gateway of its own; what varnishtest says when it fails.
fn outcome(script: &Path) -> Result<(), String> {
    let port = Port::free();
    let origin = format!("127.0.0.1:{port}");
    let gateway = Gateway::builder(YAML).set("ORIGIN", &origin).start();
    let macros = [format!("gateway={}", gateway.address()), format!("origin={origin}")];
    let path = script.to_str().expect("a path");
    let output = run("varnishtest", &["-t", "60", "-D", &macros[0], "-D", &macros[1], path], b"");
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last: Vec<&str> = text.lines().rev().take(60).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(format!("{path}: {}\n{}", output.status, last.join("\n")))
}

#[test]
fn every_script_passes() {
    let scripts = scripts();
    assert!(scripts.len() >= 15, "only {} scripts", scripts.len());
    let failures: Vec<String> = scripts.iter().filter_map(|script| outcome(script).err()).collect();
    assert!(failures.is_empty(), "{} of {} failed\n{}", failures.len(), scripts.len(), failures.join("\n\n"));
}

#[test]
fn a_script_that_does_not_hold_fails() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("wrong.vtc");
    let text = "vtest \"wrong\"\nserver s1 -listen ${origin} { rxreq\n txresp } -start\n\
                client c1 -connect ${gateway} { txreq -hdr \"Host: a\"\n rxresp\n expect resp.status == 201 } -run\n";
    std::fs::write(&script, text).unwrap();
    assert!(outcome(&script).is_err());
}
