//! Snapshots of what the scheduler has counted. Plain values; the engine keeps the counters.
//!
//! Knows nothing of when or by whom something is counted.

use crate::histogram::Histogram;
use crate::site::Site;
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
    /// What was done with the locks of the run queues, by place in the scheduler: the places that took any.
    pub locks: Vec<LockStats>,
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
    /// Times that it found nothing to run in its queue.
    pub idles: u64,
    /// Polls after which the task was runnable still: it had yielded, or was woken in its own poll.
    pub yields: u64,
    /// Tasks, new ones too, that became runnable by what ran on this CPU: they are queued here.
    pub woken_here: u64,
    /// Tasks, new ones too, that others made runnable, and queued here: threads outside, and CPUs that may not run them.
    pub woken_outside: u64,
    /// Slices that it ended early for a group that was more deserving.
    pub cuts: u64,
    /// Polls that lasted longer than a slice.
    pub long_polls: u64,
    /// Time from the moment a task became runnable to its poll (run-queue latency).
    pub wait: Histogram,
    /// The sum of those times.
    pub wait_total: Span,
}

/// What one place in the scheduler did with the locks of the run queues, on all CPUs.
///
/// A try that fails takes no time here, yet it is not free: what it was for is put off. How long locks were held is not
/// counted: that would take two looks at the clock for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockStats {
    /// Which place.
    pub site: Site,
    /// Times that it took one, with or without waiting.
    pub acquisitions: u64,
    /// Times that it had to wait.
    pub waits: u64,
    /// How long it waited, all in all.
    pub wait: Span,
    /// The shortest wait; zero if there was none.
    pub wait_min: Span,
    /// The longest wait.
    pub wait_max: Span,
    /// Times that it found one taken and went on without.
    pub failed_tries: u64,
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
