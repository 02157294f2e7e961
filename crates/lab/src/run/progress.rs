//! Says on stderr what is running.
//!
//! Knows nothing of results.

use std::io::IsTerminal;
use std::time::Duration;

use super::options::Plan;
use crate::os;
use crate::scenario::On;

/// How a run's progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Silent,
    /// A line for each run.
    Lines,
    /// One line, rewritten.
    Live,
}

/// The progress of a whole command.
#[derive(Debug)]
pub(crate) struct Progress {
    style: Style,
    runs: u32,
    begun: u32,
    run: Duration,
    label: String,
}

impl Progress {
    /// Shows progress to a terminal; elsewhere only if `asked`.
    pub(crate) fn new(asked: bool, plan: &Plan) -> Progress {
        let style = match (std::io::stderr().is_terminal(), asked) {
            (true, _) => Style::Live,
            (false, true) => Style::Lines,
            (false, false) => Style::Silent,
        };
        let targets = u32::try_from(plan.on.len()).unwrap_or(u32::MAX);
        let run = plan.scenario.warmup + plan.scenario.seconds;
        Progress { style, runs: plan.repeat.saturating_mul(targets), begun: 0, run, label: String::new() }
    }

    /// A run on `on` begins.
    pub(crate) fn begin(&mut self, scenario: &str, on: On) {
        self.begun += 1;
        let left = self.run * (self.runs - self.begun + 1);
        self.label = format!("{scenario}: run {} of {}, {on}; {:.0} s left", self.begun, self.runs, left.as_secs_f64());
        match self.style {
            Style::Silent => {}
            Style::Lines => os::complain(format_args!("{}", self.label)),
            Style::Live => self.at(Duration::ZERO),
        }
    }

    /// The current run is `elapsed` old.
    pub(crate) fn at(&self, elapsed: Duration) {
        if self.style == Style::Live {
            let (elapsed, run) = (elapsed.as_secs_f64(), self.run.as_secs_f64());
            os::show(format_args!("\r\x1b[K{} ({elapsed:.1} of {run:.1} s)", self.label));
        }
    }

    /// All runs are over.
    pub(crate) fn finish(&self) {
        if self.style == Style::Live {
            os::show(format_args!("\r\x1b[K"));
        }
    }
}
