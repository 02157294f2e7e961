//! What a trace holds: per CPU what it did when, which wake led to which run, and counters.
//!
//! Knows nothing of file formats.
//!
//! # Invariants
//! - R1: the slices of a CPU don't overlap, and are in the order of time.
//! - R2: a flow begins at one wake, and ends at one slice or nowhere.

mod build;
#[cfg(test)]
mod tests;

use evenkeel_core::{CpuId, GroupId, Span, Time};
use evenkeel_sim::Record;
use evenkeel_sim::machine::Machine;

/// What a trace is made from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What ran: the heading of the trace.
    pub title: &'a str,
    /// The record, in the order in which it was kept.
    pub records: &'a [Record],
    /// How many events were not kept, after those.
    pub left_out: u64,
    /// The machine that it was recorded on.
    pub machine: &'a Machine,
    /// The names of groups; others are called by their ids.
    pub groups: &'a [(GroupId, String)],
    /// From when on it was recorded.
    pub begin: Time,
    /// When the run ended, or was looked at.
    pub end: Time,
}

/// What a machine did.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// What ran.
    pub title: String,
    /// The name of the machine.
    pub machine: String,
    /// When the trace begins.
    pub begin: Time,
    /// When it ends; slices that are open then have no end of their own.
    pub end: Time,
    /// How many events came after the end, and are not in it.
    pub left_out: u64,
    /// One per CPU, by index.
    pub cpus: Vec<Row>,
    /// What was done from outside the machine.
    pub outside: Row,
    /// The groups that ran, or whose clocks moved, by id.
    pub groups: Vec<Group>,
    /// Wakes, in the order in which they happened.
    pub flows: Vec<Flow>,
}

/// What one CPU did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Row {
    /// Its number and its place in the machine.
    pub name: String,
    /// What took time. What is between two slices went to the scheduler.
    pub slices: Vec<Slice>,
    /// What took none, in the order of time.
    pub instants: Vec<Instant>,
    /// How many tasks waited in its queue, from when on.
    pub queue: Vec<(Time, u64)>,
}

/// A group, and how its clock went.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// Its name.
    pub name: String,
    /// What its clock showed from when on: virtual milliseconds of service at weight 1, from the first reading of any clock
    /// in the trace.
    pub clock: Vec<(Time, f64)>,
}

/// Something that took a CPU's time.
#[derive(Clone, PartialEq, Debug)]
pub struct Slice {
    /// From when on.
    pub begin: Time,
    /// It had begun before the trace does.
    pub is_begun_before: bool,
    /// Until when; `None` if it goes on at the end of the trace.
    pub end: Option<Time>,
    /// What it was.
    pub what: What,
    /// Where its begin and its end are in the record, for events of one time.
    pub(crate) order: (usize, usize),
}

impl Slice {
    /// Its end, or that of a trace which ends at `trace_end`.
    pub fn end_in(&self, trace_end: Time) -> Time {
        self.end.unwrap_or(trace_end).max(self.begin)
    }

    /// How long it is in a trace that ends at `trace_end`.
    pub fn length(&self, trace_end: Time) -> Span {
        self.end_in(trace_end).since(self.begin)
    }
}

/// What takes a CPU's time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// A task runs.
    Task(Run),
    /// Wakers or destructors run, outside of any task: so much work they did, as of [`Run::work`].
    User(Option<Span>),
    /// It is parked; who kicked it out of that, unless a timer did.
    Idle {
        /// The CPU that kicked, or the outside.
        kicked_by: Option<CpuId>,
    },
    /// It waits for a lock.
    LockWait {
        /// The number of the lock.
        lock: u32,
    },
}

/// A task on a CPU, from its dispatch until it leaves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// The number of the task, from 0 in the order of spawns.
    pub task: u32,
    /// Its group.
    pub group: GroupId,
    /// Work that it did; what else the slice lasted went to the scheduler, to ticks and to other programs. `None` if the
    /// slice is not whole: begun before the trace, or open at its end.
    pub work: Option<Span>,
    /// Since when the task could have run, if that is in the trace.
    pub runnable_since: Option<Time>,
    /// The wake that made it runnable, by its place in [`Trace::flows`]. `None` if it gave way and was requeued.
    pub flow: Option<usize>,
    /// The CPU that it was on before, if it came here while it waited.
    pub moved_from: Option<CpuId>,
}

/// Something that takes no time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Instant {
    /// When.
    pub at: Time,
    /// What.
    pub what: Mark,
    pub(crate) order: usize,
}

/// What takes no time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mark {
    /// A task is spawned or woken: see [`Trace::flows`].
    Wake(usize),
    /// A CPU is kicked.
    Kick(CpuId),
    /// A lock was found taken, and not waited for.
    FailedTry(u32),
    /// A task came from another CPU.
    Moved(u32),
    /// The outside begins to act; scripts have numbers.
    Script(u32),
    /// A fault: the CPU stalls, for whole microseconds.
    Stall(Span),
    /// A fault: the CPU, which holds a lock, loses its processor, for whole microseconds.
    HolderOff(Span),
}

/// A task becomes runnable, and then runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// The task that becomes runnable.
    pub task: u32,
    /// Whether it was spawned: it has not run before.
    pub is_spawn: bool,
    /// When.
    pub at: Time,
    /// Where: a CPU, or the outside.
    pub from: CpuId,
    /// The task that did it, if it was one.
    pub waker: Option<u32>,
    /// The CPU where it ran then, and the place of the slice in its row. `None` if it was still waiting at the end.
    pub to: Option<(CpuId, usize)>,
}

impl Trace {
    /// Reads a trace off a record.
    pub fn new(source: &Source<'_>) -> Trace {
        build::trace(source)
    }

    /// The place of a group in [`Trace::groups`].
    pub fn group_index(&self, id: GroupId) -> Option<usize> {
        self.groups.binary_search_by_key(&id, |group| group.id).ok()
    }

    /// How many slices there are.
    pub fn slices(&self) -> usize {
        self.cpus.iter().map(|row| row.slices.len()).sum()
    }
}
