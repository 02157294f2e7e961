//! What scenarios are run on, one file per runtime.
//!
//! A target only builds its runtime, spawns, and tells what the runtime counted. Knows nothing of
//! programs, arrivals or reports.

mod sim;
mod threads;
mod tokio;

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::time::Duration;

use crate::exec::{Computing, Spawner};
use crate::failure::Failure;
use crate::os;
use crate::scenario::{GroupDef, On};

pub(crate) use sim::{Sim, SimSeen, SimSpawner, Snapshot};
pub(crate) use threads::{Threads, check_switches};
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

/// A runtime in real time that is ready to run a scenario.
pub(crate) trait Target: Counts + Sync + Sized {
    /// How tasks are spawned on it.
    type Spawner: Spawner;

    /// Starts the runtime.
    fn build(setup: Setup<'_>) -> Result<Self, Failure>;

    /// How tasks are spawned on it.
    fn spawner(&self) -> Self::Spawner;

    /// Ends the runtime without waiting for tasks, only for polls that are under way.
    fn stop(self);
}

/// What a runtime tells of itself.
pub(crate) trait Counts {
    /// What the runtime has counted so far.
    fn counters(&self) -> Counters;

    /// How many CPUs are parked right now although a task waits; `None` where that isn't known.
    fn idle_while_waiting(&self) -> Option<usize>;

    /// What the runtime has counted for each group so far.
    fn group_counters(&self) -> Vec<GroupCounters>;

    /// The switches and their values.
    fn switches(&self) -> Vec<(String, String)>;

    /// Things the reader of a report should know about this run.
    fn notes(&self) -> Vec<String>;

    /// The CPU time that it, and all that belongs to it, has had so far.
    fn cpu_time(&self) -> Duration {
        os::cpu_time()
    }
}

/// Computes on the calling thread, by the calibration of the process.
fn compute_here(computing: Computing<'_>) -> Ready<()> {
    evenkeel::work::calibrate().run(computing.span);
    computing.done(computing.span);
    ready(())
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

/// Sums over the life of one group; `None` for what a runtime doesn't count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupCounters {
    /// How long its tasks waited for a CPU.
    pub(crate) waits: Option<Waits>,
    /// The CPU time that it was charged with.
    pub(crate) charged: Option<Duration>,
}

impl GroupCounters {
    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &GroupCounters) -> GroupCounters {
        let waits = self.waits.as_ref().zip(before.waits.as_ref());
        let charged = self.charged.zip(before.charged);
        GroupCounters {
            waits: waits.map(|(now, then)| now.since(then)),
            charged: charged.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// How often tasks waited how long: upper edges of histogram buckets, and counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waits(BTreeMap<Duration, u64>);

impl FromIterator<(Duration, u64)> for Waits {
    fn from_iter<I: IntoIterator<Item = (Duration, u64)>>(buckets: I) -> Waits {
        Waits(buckets.into_iter().collect())
    }
}

impl Waits {
    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Waits) -> Waits {
        let less =
            |(&edge, &count): (&Duration, &u64)| (edge, count - before.0.get(&edge).copied().unwrap_or(0).min(count));
        self.0.iter().map(less).filter(|&(_, count)| count > 0).collect()
    }

    /// Percentiles, as the upper edges of the buckets they fall into.
    pub(crate) fn times(&self) -> Times {
        let count: u64 = self.0.values().sum();
        let at = |per_mille: u64| {
            let rank = (count * per_mille).div_ceil(1000).max(1);
            let mut seen = 0;
            let bucket = self.0.iter().find(|(_, bucket)| {
                seen += **bucket;
                seen >= rank
            });
            bucket.map(|(edge, _)| edge.as_secs_f64() * 1e6)
        };
        Times { count, p50: at(500), p90: at(900), p99: at(990), p999: at(999), max: at(1000) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(buckets: &[(u64, u64)]) -> Waits {
        buckets.iter().map(|&(micros, count)| (Duration::from_micros(micros), count)).collect()
    }

    #[test]
    fn percentiles_are_of_what_came_since() {
        let before = waits(&[(10, 5), (1000, 5)]);
        let after = waits(&[(10, 105), (20, 1), (1000, 5)]);
        let times = after.since(&before).times();
        assert_eq!((times.count, times.p50, times.p99, times.p999), (101, Some(10.0), Some(10.0), Some(20.0)));
        assert_eq!(times.max, Some(20.0));
        assert_eq!(after.since(&after).times(), Times::default());
    }

    #[test]
    fn what_is_not_counted_stays_unknown() {
        let before = Counters { wakes: Some(3), ..Counters::default() };
        let after = Counters { wakes: Some(10), ..Counters::default() };
        assert_eq!(after.since(&before), Counters { wakes: Some(7), ..Counters::default() });
    }
}
