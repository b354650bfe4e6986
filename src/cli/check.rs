//! `portcullis check`: is this configuration right?
//!
//! Loads, validates and compiles exactly what `run` would, files it names included, and stops
//! before anything is opened. All problems come out in one run, on stderr; so does what a start would only
//! warn of.

use super::{ConfigArgument, REFUSED, cannot_start};
use crate::config::load;
use crate::snapshot::{self, Shared, Snapshot};
use crate::telemetry::metrics::Metrics;
use crate::tls::tickets::TicketKeys;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// `check [FILE] [--effective]`.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    pub(super) config: ConfigArgument,
    /// The same as `-c FILE`
    #[arg(value_name = "FILE", conflicts_with = "file")]
    pub(super) named: Option<PathBuf>,
    /// Print the whole configuration with every default filled in
    #[arg(long)]
    pub(super) effective: bool,
}

/// 0 and a summary (or the effective file) on stdout, or 1 and every problem on stderr.
pub(super) fn check(arguments: &CheckArguments) -> ExitCode {
    let file = arguments.named.as_deref().or(arguments.config.file.as_deref());
    let tickets = match TicketKeys::generate() {
        Ok(tickets) => tickets,
        Err(error) => return cannot_start(&format!("cannot make session ticket keys: {error}")),
    };
    let shared = Shared { metrics: Metrics::new(), tickets };
    let snapshot = match snapshot::prepare(file, &shared, None) {
        Ok(snapshot) => snapshot,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(REFUSED);
        }
    };
    for overdue in snapshot.certificates.overdue() {
        eprintln!("warning: {}", overdue.what);
    }
    let text = if arguments.effective {
        load::effective(&snapshot.config)
    } else {
        let summary = summary(&snapshot);
        match file {
            Some(file) => format!("{}: ok ({summary})\n", file.display()),
            None => {
                format!("embedded configuration: ok ({summary}); `portcullis check FILE` checks a file\n")
            }
        }
    };
    // A reader that went away (`| head`) is not a problem of the configuration.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn summary(snapshot: &Snapshot) -> String {
    let certificates = snapshot.config.certificates.len();
    [
        counted(snapshot.routes.len(), "route"),
        counted(snapshot.pools.len(), "upstream"),
        counted(snapshot.config.listeners.len(), "listener"),
        if certificates == 0 {
            "self-signed certificate".to_owned()
        } else {
            counted(certificates, "certificate")
        },
    ]
    .join(", ")
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "route"), "1 route");
        assert_eq!(counted(0, "route"), "0 routes");
    }
}
