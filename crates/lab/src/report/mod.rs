//! What becomes of outcomes: a table for people, a JSON file for programs, a check of bounds.
//!
//! Knows nothing of how a run is made.

mod check;
mod json;
mod rows;
mod statistics;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use check::check_expectations;
pub(crate) use json::JsonFile;

use crate::run::Outcome;
use crate::scenario::Scenario;

/// Prints the table of all `outcomes`, side by side.
pub(crate) fn print(scenario: &Scenario, outcomes: &[Outcome]) {
    println!("{}", table::text(scenario, outcomes));
}
