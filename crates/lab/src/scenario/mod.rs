//! What a scenario is: groups, the tasks that arrive in them, and what is expected of a run.
//!
//! Built by [`read`] from a TOML file, checked whole, so that nothing after it has to doubt a
//! scenario. Knows nothing of runtimes, threads or the time of day.
//!
//! # Invariants
//! - S1: every [`GroupIndex`] in a scenario is an index into its `groups`.
//! - S2: programs of open and closed arrivals end.
//! - S3: a program never unlocks what it does not hold, and never locks twice what it holds.

mod check;
mod expect;
mod program;
mod raw;
mod source;
#[cfg(test)]
mod tests;
mod time;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use check::{SECONDS_RANGE, WARMUP_RANGE};
#[cfg(test)]
pub(crate) use expect::figure_names;
pub(crate) use expect::{Bound, Expectation, On};
pub(crate) use program::{NEST_MAX, Op, Program, SpawnOp};
pub(crate) use time::Time;

use crate::failure::Failure;

/// Index of a group in its scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupIndex(pub(crate) usize);

/// Which of two runtimes a group goes to where a target splits groups by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Somebody waits for the answer.
    #[default]
    Interactive,
    /// Only the amount of work done counts.
    Batch,
}

/// One group of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupDef {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) role: Role,
}

/// How open arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Spacing {
    /// Exponential gaps, as of many independent users.
    #[default]
    Poisson,
    /// Equal gaps.
    Even,
}

/// How the tasks of a [`TaskSet`] come to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arrival {
    /// All at once, at the start.
    Once { count: u32 },
    /// Clients: each spawns a request, awaits it, thinks, and goes on.
    Closed { clients: u32, think: Option<Time> },
    /// Requests at a rate, whether or not earlier ones are done.
    Open { per_second: f64, spacing: Spacing, count: u32 },
}

/// When a task that computes may lose its CPU, where the host can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Preempt {
    /// Between two polls: as in a runtime.
    #[default]
    Polls,
    /// At ticks too: as in a kernel.
    Ticks,
}

/// One `[[tasks]]` table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TaskSet {
    pub(crate) group: GroupIndex,
    pub(crate) arrival: Arrival,
    /// Since the start of the measurement; without it, from before the warmup.
    pub(crate) start: Option<Duration>,
    /// Since the start of the measurement; without it, the end of the run.
    pub(crate) stop: Option<Duration>,
    pub(crate) program: Arc<Program>,
}

/// A whole scenario.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scenario {
    /// The name of its file, without the extension.
    pub(crate) name: String,
    /// Measured time, after the warmup.
    pub(crate) seconds: Duration,
    pub(crate) warmup: Duration,
    pub(crate) preempt: Preempt,
    pub(crate) groups: Vec<GroupDef>,
    pub(crate) tasks: Vec<TaskSet>,
    /// How many names `wait` and `notify` use in all.
    pub(crate) signals: usize,
    /// How many names `lock` and `unlock` use in all.
    pub(crate) locks: usize,
    pub(crate) expect: Vec<Expectation>,
}

impl Scenario {
    /// The longest time that any task computes between two points where it gives way; `None` when
    /// one never does.
    pub(crate) fn longest_poll(&self) -> Option<Duration> {
        self.tasks.iter().map(|set| set.program.longest_poll()).try_fold(Duration::ZERO, |a, b| b.map(|b| a.max(b)))
    }

    /// The index of the group called `name`.
    #[cfg(test)]
    pub(crate) fn group(&self, name: &str) -> Option<GroupIndex> {
        self.groups.iter().position(|group| group.name == name).map(GroupIndex)
    }
}

/// Reads and checks the scenario in `path`.
pub(crate) fn read(path: &Path) -> Result<Scenario, Failure> {
    let source = source::Source::read(path)?;
    parse(&source)
}

/// The scenario that `text` describes, for tests.
#[cfg(test)]
pub(crate) fn of_text(text: &str) -> Result<Scenario, Failure> {
    parse(&source::Source::of_text("here.toml", text))
}

fn parse(source: &source::Source) -> Result<Scenario, Failure> {
    let raw: raw::Scenario = toml::from_str(source.text()).map_err(|error| source.toml_error(&error))?;
    check::scenario(source, raw).map_err(|wrong| source.at(&wrong.span, &wrong.message))
}
