//! Carries out the tasks of a scenario as futures, on whatever runtime a [`Spawner`] stands for.
//!
//! The same code runs on every target, so that a difference between two targets is theirs. Knows
//! nothing of any particular runtime, nor of what its counts are used for.
//!
//! # Invariants
//! - X1: a task counts as runnable from its spawn or wake to its next sleep or wait, or its end.
//! - X2: only computing that was completed counts as work.

mod arrivals;
mod latest;
mod meter;
mod readiness;
mod task;

use std::future::Future;
use std::time::Duration;

pub(crate) use arrivals::{Arrivals, Deed, Generated, Generator, Timeline};
pub(crate) use meter::{Change, Measured, Meter, Responses, TASKS_MAX, Totals, Watcher};
pub(crate) use task::Common;

use crate::moment::Moment;
use crate::scenario::GroupIndex;

/// A span of computing that a task of a group does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Computing<'a> {
    pub(crate) span: Duration,
    pub(crate) group: GroupIndex,
    pub(crate) meter: &'a Meter,
}

impl Computing<'_> {
    /// A piece of it begins at `at`.
    pub(crate) fn begins(&self, at: Moment, piece: Duration) {
        self.meter.begins(self.group, at, piece);
    }

    /// A piece of it, of this length, has been completed.
    pub(crate) fn done(&self, piece: Duration) {
        self.meter.worked(self.group, piece);
    }
}

/// The few things that a scenario's tasks need of a runtime.
pub(crate) trait Spawner: Clone + Send + Sync + 'static {
    /// Resolves when the task is over; `None` if it was cancelled.
    type Join: Future<Output = Option<Moment>> + Send + 'static;

    /// Starts a task in `group`, from inside the runtime or outside.
    fn spawn<F>(&self, group: GroupIndex, task: F) -> Self::Join
    where
        F: Future<Output = Moment> + Send + 'static;

    /// Computes, and counts the pieces that this is done in.
    fn compute(computing: Computing<'_>) -> impl Future<Output = ()> + Send;

    /// Rounds of a loop in which nothing is waited for, after which time has to pass by [`Spawner::pass`]: where time is
    /// virtual, none does by itself.
    const TIMELESS_ROUNDS: Option<u32> = None;

    /// Lets a little time pass, in which the task occupies its CPU.
    fn pass() -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Gives way once.
    fn yield_now() -> impl Future<Output = ()> + Send;

    /// Waits for `span`.
    fn sleep(span: Duration) -> impl Future<Output = ()> + Send;
}
