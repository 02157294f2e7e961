//! The `evenkeel` command: runs scenarios and benchmarks, side by side with other runtimes.
//!
//! Reads the command line and turns failures into exit codes: 0 well, 1 an internal error, 2 bad input, 10 a bound of
//! `[expect]` that was not met, 11 a simulated run that does not repeat, 12 a simulated run that can't go on. Knows nothing of how scenarios are run.

#![forbid(unsafe_code)]

mod bench;
mod bench_sim;
mod exec;
mod failure;
mod judge;
mod machines;
mod moment;
mod os;
mod report;
mod run;
mod scenario;
mod target;

use std::process::ExitCode;

use clap::Parser;

/// Shares CPUs between groups of tasks; runs scenarios to show how well
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, subcommand_required = true, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(run::RunArgs),
    /// Run the micro-benchmarks on Evenkeel and tokio, in turn
    Bench(bench::BenchArgs),
    BenchSim(bench_sim::BenchSimArgs),
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Run(args) => exit(run::command(&args)),
        Command::Bench(args) => bench::command(args),
        Command::BenchSim(args) => exit(bench_sim::command(&args)),
    }
}

fn exit(went: Result<(), failure::Failure>) -> ExitCode {
    let Err(failure) = went else { return ExitCode::SUCCESS };
    os::complain(format_args!("evenkeel: {failure}"));
    failure.exit_code()
}
