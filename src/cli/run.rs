//! `portcullis run`: serve.

use super::{ConfigArgument, REFUSED, cannot_start};
use crate::background::signals::CaughtSignals;
use crate::server::{self, StartError};
use crate::telemetry::logging;
use std::process::ExitCode;

/// `run [-c FILE] [--upgrade]`.
#[derive(Debug, clap::Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) config: ConfigArgument,
    /// Take the listening sockets over from the gateway that runs with the same admin address; QUIT then
    /// makes that one leave
    #[arg(long)]
    pub(super) upgrade: bool,
}

/// Serves until the process is asked to leave; then 0.
pub(super) fn run(arguments: RunArguments, signals: CaughtSignals) -> ExitCode {
    let signals = match signals.listen() {
        Ok(signals) => signals,
        Err(error) => return cannot_start(&format!("cannot wait for signals: {error}")),
    };
    let ended = server::run(arguments.config.file, signals, arguments.upgrade);
    // What is said here stands behind what was logged.
    logging::flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Refused(problems)) => {
            eprintln!("{problems}");
            ExitCode::from(REFUSED)
        }
        Err(error) => cannot_start(&error.to_string()),
    }
}
