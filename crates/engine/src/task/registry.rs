//! The suspended tasks that a CPU knows of: a machine that stops must reach them.
//!
//! A task is registered where it first suspends and is not taken out when it ends, which may be on any CPU; ended ones
//! are swept out when they may be half of all. So a task that never suspends costs nothing, and what is kept of ended
//! ones is bounded by what is alive.
//!
//! Knows nothing of CPUs or queues.

use super::TaskRef;

/// Below this many entries a sweep is not worth its while.
const SWEEP_MIN: usize = 64;

#[derive(Debug)]
pub(crate) struct Registry {
    tasks: Vec<TaskRef>,
    sweep_at: usize,
}

impl Default for Registry {
    fn default() -> Self {
        Registry { tasks: Vec::new(), sweep_at: SWEEP_MIN }
    }
}

impl Registry {
    pub(crate) fn add(&mut self, task: TaskRef) {
        if self.tasks.len() >= self.sweep_at {
            self.sweep();
        }
        self.tasks.push(task);
    }

    /// Forgets the tasks that have ended.
    pub(crate) fn sweep(&mut self) {
        self.tasks.retain(|task| !task.is_done());
        self.sweep_at = (self.tasks.len() * 2).max(SWEEP_MIN);
    }

    /// Whether no registered task is alive.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.sweep();
        self.tasks.is_empty()
    }

    /// The wakers of all that are registered. Call them without a lock: they enter the engine.
    pub(crate) fn wakers(&self) -> Vec<std::task::Waker> {
        self.tasks.iter().map(|task| task.waker.clone()).collect()
    }
}
