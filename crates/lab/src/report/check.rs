//! Whether runs were as their scenario expects.
//!
//! A figure is looked up in a run's JSON by its name, so a name in `[expect]` is the name in the
//! report. Judged is the median over the repetitions.

use serde_json::Value;

use super::statistics::{Summary, figure};
use crate::failure::Failure;
use crate::run::Outcome;
use crate::scenario::{Bound, Expectation, On};

/// Fails with one line for each bound that was not met.
pub(crate) fn check_expectations(expect: &[Expectation], outcomes: &[Outcome]) -> Result<(), Failure> {
    if expect.is_empty() {
        return Ok(());
    }
    let runs = outcomes
        .iter()
        .map(|run| serde_json::to_value(run).map(|value| (run.on, value)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::Internal(format!("a result can't be written as JSON: {error}")))?;
    let broken: Vec<String> = expect.iter().filter_map(|bound| broken(bound, &runs)).collect();
    if broken.is_empty() { Ok(()) } else { Err(Failure::Expect(broken)) }
}

/// What is wrong, if anything. Not judged are bounds on and relative to targets that did not run, and percentages of
/// shares that were too small to tell.
fn broken(expectation: &Expectation, runs: &[(&'static str, Value)]) -> Option<String> {
    let Expectation { on, metric, bound, times } = expectation;
    let ran = |on: On| runs.iter().any(|(name, _)| *name == on.name());
    if !ran(*on) || times.is_some_and(|other| !ran(other)) {
        return None;
    }
    let name = format!("{on}: {}", metric.written());
    let median = |on: On| {
        let of_target = runs.iter().filter(|(name, _)| *name == on.name());
        let figures = of_target.filter_map(|(_, run)| run.pointer(metric.pointer())?.as_f64());
        Summary::of(figures).map(|summary| summary.median)
    };
    let Some(value) = median(*on) else {
        // Absent only where a run was too short to tell.
        let too_short = metric.pointer().ends_with("/share_error") || metric.pointer().starts_with("/all/error_");
        return (!too_short).then(|| format!("{name} was not measured"));
    };
    let (unit, of) = match times {
        None => (1.0, String::new()),
        Some(other) => match median(*other) {
            None => return Some(format!("{name} was not measured on {other}")),
            Some(unit) => (unit, format!(" x {other}'s {}", figure(unit))),
        },
    };
    let (met, relation, limit) = match bound {
        Bound::Min(min) => (value >= min * unit, "at least", min),
        Bound::Max(max) => (value <= max * unit, "at most", max),
    };
    (!met).then(|| format!("{name} = {}, expected {relation} {limit}{of}", figure(value)))
}
