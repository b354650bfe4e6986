//! What did the operator type? One file a command; this one knows them all and the exit codes.

pub mod check;
pub mod run;
pub mod version;

use crate::background::signals::CaughtSignals;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The configuration was refused.
const REFUSED: u8 = 1;
/// The process could not start. (2, wrong usage, is clap's.)
const CANNOT_START: u8 = 3;

/// A programmable edge gateway: access, routing and proxying from one YAML file.
#[derive(Debug, Parser)]
#[command(
    name = "portcullis",
    bin_name = "portcullis",
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until TERM or INT; HUP reloads the file, USR1 reopens log files, QUIT leaves to a successor
    Run(run::RunArguments),
    /// Say whether a configuration is right, with every problem in it; opens no port
    Check(check::CheckArguments),
    /// Say which build this is
    Version,
}

/// Which configuration a command is about.
#[derive(Debug, clap::Args)]
struct ConfigArgument {
    /// The configuration; left out: the embedded quickstart configuration
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Parses the arguments, carries out the command and says how the process ends: 0 fine, 1 the
/// configuration was refused, 2 wrong usage, 3 could not start.
pub fn main(signals: CaughtSignals) -> ExitCode {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(arguments, signals),
        Command::Check(arguments) => with_usual_signals(signals, || check::check(&arguments)),
        Command::Version => with_usual_signals(signals, version::version),
    }
}

/// Commands that do not serve end on INT and the like as any program does.
fn with_usual_signals(signals: CaughtSignals, command: impl FnOnce() -> ExitCode) -> ExitCode {
    match signals.release() {
        Ok(()) => command(),
        Err(error) => cannot_start(&format!("cannot wait for signals: {error}")),
    }
}

fn cannot_start(reason: &str) -> ExitCode {
    eprintln!("portcullis: {reason}");
    ExitCode::from(CANNOT_START)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Command, ErrorKind> {
        let words = line.split_whitespace();
        Arguments::try_parse_from(words).map(|arguments| arguments.command).map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_file_is_optional_everywhere() {
        assert!(matches!(parse("portcullis run"), Ok(Command::Run(run)) if run.config.file.is_none()));
        let Ok(Command::Check(check)) = parse("portcullis check -c a.yaml --effective") else {
            panic!("not a check");
        };
        assert!(check.effective);
        assert_eq!(check.config.file, Some(PathBuf::from("a.yaml")));
        let Ok(Command::Check(check)) = parse("portcullis check a.yaml") else { panic!("not a check") };
        assert_eq!(check.named, Some(PathBuf::from("a.yaml")));
        assert!(parse("portcullis check a.yaml -c b.yaml").is_err());
    }

    #[test]
    fn unknown_words_are_wrong_usage() {
        assert!(matches!(parse("portcullis rum"), Err(ErrorKind::InvalidSubcommand)));
        assert!(matches!(parse("portcullis run --fast"), Err(ErrorKind::UnknownArgument)));
        assert!(parse("portcullis").is_err());
        let error = Arguments::try_parse_from(["portcullis", "check", "--efective"]).expect_err("a typo");
        assert_eq!(error.exit_code(), 2);
    }
}
