//! Other people's programs, run to their end: curl, promtool.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs a program with `input` on its standard input; panics when it is not installed.
pub fn run(program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("an end");
    let _ = writer.join();
    output
}

/// Runs curl silently with a time limit; gives its standard output. Panics when it fails.
pub fn curl(arguments: &[&str]) -> String {
    let output = run("curl", &[&["-sS", "--max-time", "60", "--noproxy", "*"], arguments].concat(), b"");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
