//! What the load harness needs beside the gateways, built in the same way: `floor proxy`, which does nothing but what
//! the engine makes everybody do; `floor origin`, the server behind all of them; `floor client`, which measures without
//! handshakes.
//!
//! It is a tool of the benchmarks and knows nothing of Portcullis; it is in no package and no image.

mod client;
mod door;
mod histogram;
mod origin;
mod proxy;
mod stream;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's settings of the gateway.
#[used]
#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: &[u8; 60] = b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer everything with one page, or forward everything.
    Proxy(ProxyArguments),
    /// Serve bodies, delays, echoes.
    Origin {
        /// Where.
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Ask a server, again and again.
    Client(client::ClientArguments),
}

/// What a floor proxy does.
#[derive(clap::Args)]
struct ProxyArguments {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// Engine services, each with one thread.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// PEM file of the chain: TLS instead of plain HTTP.
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long)]
    key: Option<PathBuf>,
    /// Forward everything there.
    #[arg(long, conflicts_with = "page")]
    origin: Option<SocketAddr>,
    /// Answer everything with this file.
    #[arg(long)]
    page: Option<PathBuf>,
    /// And this status.
    #[arg(long, default_value_t = 200)]
    status: u16,
}

fn main() -> ExitCode {
    let done: Result<(), Box<dyn Error>> = match Arguments::parse().command {
        Command::Proxy(arguments) => door::run(&arguments),
        Command::Origin { listen } => origin::run(listen).map_err(Into::into),
        Command::Client(arguments) => client::run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}
