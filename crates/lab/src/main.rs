//! The `evenkeel` command.
#![forbid(unsafe_code)]

mod bench;

use std::process::ExitCode;

use clap::Parser;

/// Runs scenarios and benchmarks side by side.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version)]
enum Cli {
    /// Run the micro-benchmarks on Evenkeel and tokio, in turn
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    match Cli::parse() {
        Cli::Bench(args) => bench::command(args),
    }
}
