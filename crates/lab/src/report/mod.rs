//! What becomes of outcomes: a table for people, a JSON file for programs, a check of bounds.
//!
//! Knows nothing of how a run is made.

mod check;
mod file;
mod json;
mod kinds;
mod lock_stat;
mod profile;
mod rows;
mod runqlat;
mod schedstat;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_reports;

pub(crate) use check::check_expectations;
pub(crate) use file::OutputFile;
pub(crate) use json::JsonFile;
pub(crate) use kinds::{Counted, MachineCounted, ReportKind, Reports, check};

use crate::failure::Failure;
use crate::run::Outcome;
use crate::scenario::Scenario;
use std::io::Write;

/// Prints the table of all `outcomes`, side by side, and their reports below.
pub(crate) fn print(scenario: &Scenario, outcomes: &[Outcome]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let printed = writeln!(out, "{}", table::text(scenario, outcomes));
    let printed = printed.and_then(|()| write!(out, "{}", kinds::text(outcomes))).and_then(|()| out.flush());
    printed.map_err(|error| Failure::Internal(format!("can't print the table: {error}")))
}

/// As reports of kernels show times.
fn micros(span: evenkeel::Span) -> f64 {
    span.as_nanos() as f64 / 1e3
}
