//! `portcullis` run to its end: exit code and outputs.

use super::commands;
use std::path::Path;

/// What a finished command left.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs `portcullis` with these arguments.
pub fn portcullis(arguments: &[&str]) -> Outcome {
    let output = commands::run(env!("CARGO_BIN_EXE_portcullis"), arguments, b"");
    Outcome {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// `portcullis check -c FILE` with further arguments.
pub fn check(file: &Path, further: &[&str]) -> Outcome {
    let file = file.to_str().expect("a path in UTF-8");
    portcullis(&[&["check", "-c", file], further].concat())
}

/// `portcullis check` on this text; gives both outputs joined. Panics when it is not refused.
pub fn refused(yaml: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("portcullis.yaml");
    std::fs::write(&file, yaml).expect("a configuration");
    let outcome = check(&file, &[]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    outcome.stdout + &outcome.stderr
}
