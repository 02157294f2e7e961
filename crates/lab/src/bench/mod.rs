//! `evenkeel bench`: micro-benchmarks of Evenkeel and tokio, side by side in one process.
//!
//! A run is one benchmark on one freshly built runtime; the targets take turns run by run, so that what else goes
//! on in the machine hits both. What each benchmark does is described in docs/benchmarks.md.
//!
//! Knows nothing of scenarios and of how to compute honestly for a while: nothing here computes.

mod error;
mod groups;
mod json;
mod on_evenkeel;
mod outside;
mod passing;
mod registry;
mod round;
mod size;
mod spawning;
mod statistics;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod usage;

use std::io::{self, IsTerminal, Write};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;

use error::BenchError;
use on_evenkeel::Evenkeel;
use registry::{Bench, Row};
use size::Size;
use target::Rt;
use target::{Setup, Switch};

/// What `evenkeel bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Benchmarks to run: full names, or the first words of several (spawn_many). All if none is given
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Also write every figure to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Workers of each runtime. By default as many as there are CPUs that this process may use
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Runs of each benchmark on each runtime
    #[arg(long, value_name = "N", default_value = "5")]
    repeat: NonZeroU32,

    /// Set a feature switch of Evenkeel, for example claim=try-victim. May be repeated
    #[arg(long = "set", value_name = "SWITCH=VALUE")]
    switches: Vec<Switch>,
}

/// Runs the benchmarks and prints their table.
pub(crate) fn command(args: BenchArgs) -> ExitCode {
    match run(args, Size::full(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            crate::os::complain(format_args!("error: {why}"));
            ExitCode::from(why.exit_code())
        }
    }
}

/// All runs of one row on every target that has it.
#[derive(Debug)]
struct Measured {
    row: Row,
    series: Vec<Series>,
}

/// The figures of one row on one target, in the order of the runs.
#[derive(Debug)]
struct Series {
    target: &'static str,
    values: Vec<f64>,
}

impl Measured {
    fn on(&self, target: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.target == target)
    }
}

fn run(args: BenchArgs, size: Size, out: &mut impl Write) -> Result<(), BenchError> {
    let benches = registry::select(&args.names)?;
    let file = args.json.map(json::File::check).transpose()?;
    let workers = args.workers.map_or_else(default_workers, Ok)?;
    let setup = Setup { workers, switches: args.switches, size };
    try_switches(&setup)?;
    let mut measured = Vec::new();
    table::header(out, &setup, args.repeat).map_err(BenchError::Print)?;
    for bench in benches {
        let rows = repeat(bench, &setup, args.repeat)?;
        table::rows(out, &rows).map_err(BenchError::Print)?;
        measured.extend(rows);
    }
    table::footer(out).map_err(BenchError::Print)?;
    file.map_or(Ok(()), |file| file.write(&measured, &setup, args.repeat))
}

/// Runs a benchmark on all its targets in turn, as often as asked; each time another target begins.
fn repeat(bench: &Bench, setup: &Setup, times: NonZeroU32) -> Result<Vec<Measured>, BenchError> {
    let series = || bench.runs.iter().map(|on| Series { target: on.target, values: Vec::new() }).collect();
    let mut measured: Vec<_> = bench.rows.iter().map(|&row| Measured { row, series: series() }).collect();
    for time in 0..times.get() {
        for turn in 0..bench.runs.len() {
            let which = (turn + time as usize) % bench.runs.len();
            let on = &bench.runs[which];
            let progress = Progress::show(format_args!("{} on {}, run {} of {times}", bench.name, on.target, time + 1));
            let figures = (on.run)(setup)?;
            drop(progress);
            assert_eq!(figures.0.len(), bench.rows.len(), "{} fills every row", bench.name);
            for (row, figure) in measured.iter_mut().zip(figures.0) {
                row.series[which].values.push(figure);
            }
        }
    }
    Ok(measured)
}

/// Finds out before the runs whether Evenkeel takes the switches.
fn try_switches(setup: &Setup) -> Result<(), BenchError> {
    if setup.switches.is_empty() {
        return Ok(());
    }
    Evenkeel::build(setup).map(drop)
}

/// As many as `run` takes: what the environment says, or one for each CPU that this process may use.
fn default_workers() -> Result<NonZeroUsize, BenchError> {
    let asked = evenkeel::available::workers_from_environment().map_err(BenchError::Workers)?;
    Ok(NonZeroUsize::new(asked.unwrap_or_else(|| evenkeel::available::cpus().workers())).unwrap_or(NonZeroUsize::MIN))
}

/// A line that says what is running, while it runs; only where a person looks on.
struct Progress;

impl Progress {
    fn show(what: std::fmt::Arguments<'_>) -> Self {
        if io::stderr().is_terminal() {
            crate::os::show(format_args!("\r\x1b[K{what}"));
        }
        Self
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if io::stderr().is_terminal() {
            crate::os::show(format_args!("\r\x1b[K"));
        }
    }
}
