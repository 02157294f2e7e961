//! The table that a person reads: one column a target, medians with their spread.
//!
//! Knows nothing of what the figures mean.

use std::fmt::Write;

use super::rows::{Row, rows};
use super::statistics::{Summary, figure};
use crate::os::Urgency;
use crate::run::Outcome;
use crate::scenario::Scenario;

/// The target that others are compared with.
const BASELINE: &str = "tokio";

/// The whole report as text.
pub(crate) fn text(scenario: &Scenario, outcomes: &[Outcome]) -> String {
    let targets = targets(outcomes);
    let mut lines: Vec<Vec<String>> = vec![heads(&targets)];
    let mut subject = String::new();
    for row in rows(scenario) {
        let cells: Vec<Option<String>> = targets.iter().map(|on| cell(&row, outcomes, on)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        if row.subject != subject {
            subject.clone_from(&row.subject);
            lines.push(vec![row.subject.clone()]);
        }
        let mut line = vec![format!("  {}", row.label)];
        line.extend(cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
        lines.push(line);
    }
    let mut text = head(outcomes);
    text.push_str(&aligned(&lines));
    text.push_str(&foot(outcomes));
    text
}

/// In order of their first appearance in the first repetition.
fn targets(outcomes: &[Outcome]) -> Vec<&'static str> {
    let mut targets = Vec::new();
    for outcome in outcomes {
        if !targets.contains(&outcome.on) {
            targets.push(outcome.on);
        }
    }
    targets
}

fn heads(targets: &[&'static str]) -> Vec<String> {
    std::iter::once(String::new()).chain(targets.iter().map(|on| (*on).to_owned())).collect()
}

fn cell(row: &Row, outcomes: &[Outcome], on: &str) -> Option<String> {
    let figures = outcomes.iter().filter(|run| run.on == on).filter_map(|run| {
        let baseline = outcomes.iter().find(|other| other.on == BASELINE && other.repeat == run.repeat);
        (row.figure)(run, baseline)
    });
    let summary = Summary::of(figures)?;
    let [median, low, high] = [summary.median, summary.low, summary.high].map(figure);
    Some(if low == high { median } else { format!("{median} ({low} - {high})") })
}

fn head(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else { return String::new() };
    let repeats = outcomes.iter().map(|run| run.repeat).max().unwrap_or(1);
    let runs =
        if repeats == 1 { "1 run each".to_owned() } else { format!("{repeats} runs each, median (lowest - highest)") };
    format!(
        "{}: {} s measured, {runs}, {}, seed {}\n\n",
        first.scenario,
        length(first.seconds),
        places(outcomes),
        outcomes.iter().map(|run| run.seed).min().unwrap_or(first.seed),
    )
}

/// With a digit after the point, and with two if it would be zero otherwise.
fn length(seconds: f64) -> String {
    if seconds < 0.095 { format!("{seconds:.2}") } else { format!("{seconds:.1}") }
}

/// What the targets ran on.
fn places(outcomes: &[Outcome]) -> String {
    let workers = outcomes.iter().find(|run| run.sim.is_none()).map(|run| format!("{} workers", run.workers));
    let machine = outcomes.iter().find(|run| run.sim.is_some());
    let machine = machine.map(|run| format!("sim on {} with {} CPUs", run.machine, run.workers));
    workers.into_iter().chain(machine).collect::<Vec<_>>().join(", ")
}

fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        // A subject stands alone in its line and may be as long as it likes.
        let cells = lines.iter().filter(|line| line.len() > 1).filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut written = String::new();
        for (column, cell) in line.iter().enumerate() {
            // Writing to a string can't fail.
            let _infallible = match column {
                0 => write!(written, "{cell:<width$}", width = widths[0]),
                _ => write!(written, "  {cell:>width$}", width = widths[column]),
            };
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}

/// Switches, and what a reader should know about how it was measured.
fn foot(outcomes: &[Outcome]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for run in outcomes {
        if let Some(sim) = &run.sim {
            lines.push(format!("sim, seed {}: {} events, hash {}", run.seed, sim.events, sim.hash));
        }
        if !run.switches.is_empty() {
            let switches: Vec<String> = run.switches.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            lines.push(format!("{}: {}", run.on, switches.join(", ")));
        }
        if run.generator_late_us.is_some() {
            let generator = match run.generator {
                Urgency::RealTime => "arrivals came from a thread with real-time priority",
                Urgency::Virtual => "sim: arrivals came from a device outside the machine",
                Urgency::Ordinary => "arrivals came from an ordinary thread: real-time priority is not allowed here",
            };
            lines.push(generator.to_owned());
        }
        if run.refused > 0 {
            lines.push(format!("{}: arrivals were refused, as too many tasks were there", run.on));
        }
        lines.extend(run.notes.iter().map(|note| format!("{}: {note}", run.on)));
    }
    let mut text = String::from("\n");
    let mut said: Vec<String> = Vec::new();
    for line in lines {
        if !said.contains(&line) {
            text.push_str(&line);
            text.push('\n');
            said.push(line);
        }
    }
    text
}
