//! What becomes of outcomes: a table for people, a JSON file for programs, a check of bounds.
//!
//! Knows nothing of how a run is made.

mod check;
mod file;
mod json;
mod rows;
mod statistics;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use check::check_expectations;
pub(crate) use file::OutputFile;
pub(crate) use json::JsonFile;

use crate::failure::Failure;
use crate::run::Outcome;
use crate::scenario::Scenario;
use std::io::Write;

/// Prints the table of all `outcomes`, side by side.
pub(crate) fn print(scenario: &Scenario, outcomes: &[Outcome]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let printed = writeln!(out, "{}", table::text(scenario, outcomes)).and_then(|()| out.flush());
    printed.map_err(|error| Failure::Internal(format!("can't print the table: {error}")))
}
