//! How much each benchmark does.

use std::time::Duration;

/// The counts behind the benchmarks, the same for every target.
#[derive(Clone, Debug)]
pub(super) struct Size {
    /// Timed rounds within a run; the run's figure is their median.
    pub(super) rounds: u32,
    pub(super) spawns: u32,
    pub(super) yielders: u32,
    pub(super) yields_each: u32,
    pub(super) pairs: u32,
    pub(super) links: u32,
    pub(super) round_trips: u32,
    pub(super) wakes: u32,
    pub(super) wake_interval: Duration,
    /// How long the process is watched while nothing happens.
    pub(super) idle: Duration,
    pub(super) groups: u32,
    pub(super) polls_each: u32,
}

impl Size {
    /// What the command measures. Counts are those of the definitions in docs/benchmarks.md; rounds and lengths
    /// are chosen so that a run takes a few tenths of a second, or a second where the figure is one per second.
    pub(super) fn full() -> Self {
        Self {
            rounds: 15,
            spawns: 10_000,
            yielders: 200,
            yields_each: 1_000,
            pairs: 1_000,
            links: 1_000,
            round_trips: 20_000,
            wakes: 1_000,
            wake_interval: Duration::from_millis(1),
            idle: Duration::from_secs(1),
            groups: 1_000,
            polls_each: 100,
        }
    }

    /// Just enough to see that everything is done, for tests.
    #[cfg(test)]
    pub(super) fn tiny() -> Self {
        Self {
            rounds: 2,
            spawns: 50,
            yielders: 5,
            yields_each: 7,
            pairs: 10,
            links: 20,
            round_trips: 30,
            wakes: 5,
            wake_interval: Duration::from_micros(200),
            idle: Duration::from_millis(5),
            groups: 10,
            polls_each: 5,
        }
    }
}
