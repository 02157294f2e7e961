//! What can go wrong with a benchmark, and whose fault it is.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why `bench` could not do what it was asked to do.
#[derive(Debug)]
pub(super) enum BenchError {
    /// A name on the command line is not that of a benchmark.
    UnknownName { name: String, known: Vec<&'static str> },
    /// A switch was refused.
    Switch { switch: String, why: String },
    /// The environment asks for a number of workers that is none.
    Workers(evenkeel::available::WorkersVariableError),
    /// The JSON file cannot be written where it was asked for.
    Path { path: PathBuf, why: io::Error },
    /// The JSON file could not be written after the runs.
    Write { path: PathBuf, why: io::Error },
    /// A runtime could not be built.
    Build { on: &'static str, why: String },
    /// A task of a benchmark was lost, cancelled or panicked.
    Task { on: &'static str, why: String },
    /// A benchmark finished, but did not do the work that it is a measure of.
    Incomplete { done: u64, expected: u64 },
    /// The table could not be printed.
    Print(io::Error),
    /// The kernel does not say what the process has used.
    Usage(io::Error),
}

impl BenchError {
    /// The exit code of the command: 2 for a bad input, 1 for everything else.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::UnknownName { .. } | Self::Switch { .. } | Self::Workers(_) | Self::Path { .. } => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name, known } => {
                write!(out, "no benchmark is called `{name}`; there are: {}", known.join(", "))
            }
            Self::Switch { switch, why } => write!(out, "--set {switch}: {why}"),
            Self::Workers(why) => why.fmt(out),
            Self::Path { path, why } => {
                write!(out, "--json {}: cannot write there: {why}", path.display())
            }
            Self::Write { path, why } => write!(out, "writing {}: {why}", path.display()),
            Self::Build { on, why } => write!(out, "building the {on} runtime: {why}"),
            Self::Task { on, why } => write!(out, "a task on {on} did not finish: {why}"),
            Self::Incomplete { done, expected } => {
                write!(out, "only {done} of {expected} operations were done: the figures would mean nothing")
            }
            Self::Print(why) => write!(out, "printing the table: {why}"),
            Self::Usage(why) => write!(out, "reading the CPU time of this process: {why}"),
        }
    }
}

impl Error for BenchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Path { why, .. } | Self::Write { why, .. } | Self::Print(why) | Self::Usage(why) => Some(why),
            _ => None,
        }
    }
}
