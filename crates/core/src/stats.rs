//! Snapshots of what the scheduler has counted. Plain values; the engine keeps the counters.
//!
//! Knows nothing of when or by whom something is counted.

use crate::histogram::Histogram;
use crate::{CpuId, GroupId, Span, Weight};
use alloc::string::String;
use alloc::vec::Vec;

/// What a machine has counted since it started.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// One entry per CPU, by index.
    pub cpus: Vec<CpuStats>,
    /// One entry per group that is alive, by id.
    pub groups: Vec<GroupStats>,
}

impl Stats {
    /// The sum over all CPUs of one of their counters.
    pub fn total(&self, counter: impl Fn(&CpuStats) -> u64) -> u64 {
        self.cpus.iter().map(counter).sum()
    }
}

/// What one CPU has counted.
#[derive(Clone, Debug)]
pub struct CpuStats {
    /// Which CPU.
    pub cpu: CpuId,
    /// Polls of tasks.
    pub polls: u64,
    /// Time from picks to the ends of slices: polls, dispatch and bookkeeping.
    pub run: Span,
    /// Passes in which it looked for work on other CPUs.
    pub steals_tried: u64,
    /// Passes that brought work.
    pub steals: u64,
    /// Tasks that it took from other CPUs, for whatever reason.
    pub migrations: u64,
    /// Times that it had to wait for a run-queue lock.
    pub contended: u64,
    /// Times that it found a run-queue lock taken and went on without.
    pub failed_tries: u64,
    /// Times that it was kicked out of park.
    pub wakes: u64,
    /// Times that it was kicked and found nothing to do.
    pub empty_wakes: u64,
    /// Times that it parked.
    pub parks: u64,
    /// Slices that it ended early for a group that was more deserving.
    pub cuts: u64,
    /// Polls that lasted longer than a slice.
    pub long_polls: u64,
    /// Time from the moment a task became runnable to its poll (run-queue latency).
    pub wait: Histogram,
}

/// What was counted for one group, on all CPUs. Published at the end of slices, so it trails by up to one.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// Which group.
    pub id: GroupId,
    /// Its name; names may repeat.
    pub name: String,
    /// Its weight now.
    pub weight: Weight,
    /// Polls of its tasks.
    pub polls: u64,
    /// Time charged to it.
    pub run: Span,
    /// Run-queue latency of its tasks.
    pub wait: Histogram,
}

/// What a machine is doing at this moment, read without locks: a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// CPUs that are parked.
    pub parked: usize,
    /// Tasks that wait in run queues; an inbox counts as at most two.
    pub waiting: usize,
    /// CPUs that are parked although something waits that they may run. What is still in an inbox
    /// is told apart roughly.
    pub idle_while_waiting: usize,
}
