//! `portcullis version`: which build is this?

use std::process::ExitCode;

/// The engine below; `Cargo.toml` pins it exactly.
const PINGORA: &str = "0.9.1";

/// One line on stdout.
pub(super) fn version() -> ExitCode {
    println!("{}", line());
    ExitCode::SUCCESS
}

fn line() -> String {
    let revision = option_env!("PORTCULLIS_REVISION").unwrap_or("unknown");
    format!("portcullis {} ({revision}) pingora {PINGORA} boringssl", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_the_one_that_is_pinned() {
        let pinned = format!("pingora-core = {{ version = \"={PINGORA}\"");
        assert!(include_str!("../../Cargo.toml").contains(&pinned));
        assert!(line().starts_with("portcullis 0."));
    }
}
