//! What scenarios are run on, one file per runtime.
//!
//! A target only builds its runtime, spawns, and tells what the runtime counted. Knows nothing of
//! programs, arrivals or reports.

#[cfg(feature = "threads")]
mod threads;
mod tokio;

use crate::exec::Spawner;
use crate::failure::Failure;
use crate::scenario::{GroupDef, On};

#[cfg(feature = "threads")]
pub(crate) use threads::{check_switches, Threads};
pub(crate) use tokio::Tokio;

/// What a target is built from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) on: On,
    pub(crate) groups: &'a [GroupDef],
    pub(crate) workers: usize,
    pub(crate) seed: u64,
    /// Names and values, as given on the command line.
    pub(crate) switches: &'a [(String, String)],
}

/// A runtime that is ready to run a scenario.
pub(crate) trait Target: Sync + Sized {
    /// How tasks are spawned on it.
    type Spawner: Spawner;

    /// Starts the runtime.
    fn build(setup: Setup<'_>) -> Result<Self, Failure>;

    /// How tasks are spawned on it.
    fn spawner(&self) -> Self::Spawner;

    /// What the runtime has counted so far.
    fn counters(&self) -> Counters;

    /// How many CPUs are parked right now although a task waits; `None` where that isn't known.
    fn idle_while_waiting(&self) -> Option<usize>;

    /// How long tasks of each group waited for a CPU, over the whole run.
    fn waits(&self) -> Vec<Option<Times>>;

    /// The switches and their values.
    fn switches(&self) -> Vec<(String, String)>;

    /// Things the reader of a report should know about this run.
    fn notes(&self) -> Vec<String>;

    /// Ends the runtime without waiting for tasks, only for polls that are under way.
    fn stop(self);
}

/// Sums over the life of a runtime; `None` for what it doesn't count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) wakes: Option<u64>,
    pub(crate) empty_wakes: Option<u64>,
    pub(crate) steals: Option<u64>,
    pub(crate) contended: Option<u64>,
    pub(crate) failed_tries: Option<u64>,
}

impl Counters {
    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Counters) -> Counters {
        let less = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Counters {
            wakes: less(self.wakes, before.wakes),
            empty_wakes: less(self.empty_wakes, before.empty_wakes),
            steals: less(self.steals, before.steals),
            contended: less(self.contended, before.contended),
            failed_tries: less(self.failed_tries, before.failed_tries),
        }
    }
}

/// A distribution of times in microseconds; percentiles are absent without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) p50: Option<f64>,
    pub(crate) p90: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) max: Option<f64>,
}
