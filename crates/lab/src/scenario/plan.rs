//! What can be said of the work of a task before it is done: all of it, or up to the next sleep.
//!
//! Knows nothing of how a task is carried out, but that it draws its times in the order of its steps.

use std::time::Duration;

use super::Time;
use super::program::{NEST_MAX, Op, Program};

/// How many steps [`Program::planned_work`] follows; beyond them it answers `None`.
const PLAN_STEPS_MAX: usize = 10_000;

impl Program {
    /// Whether the task is runnable from start to end: nothing in it sleeps, waits or spawns.
    pub(crate) fn only_computes(&self) -> bool {
        let computes = |op: &Op| {
            matches!(op, Op::Run(_) | Op::Polls { .. } | Op::Yield | Op::Begin { .. } | Op::End { .. } | Op::Exit)
        };
        self.ops().iter().all(computes)
    }

    /// The work that a task with this generator will do itself; `None` for long programs.
    pub(crate) fn planned_work(&self, mut rng: fastrand::Rng) -> Option<Duration> {
        let mut work = Duration::ZERO;
        let mut left = [0u32; NEST_MAX];
        let mut at = 0;
        for _ in 0..PLAN_STEPS_MAX {
            let Some(op) = self.ops().get(at) else { return Some(work) };
            at += 1;
            match op {
                Op::Run(time) | Op::Polls { run: time, .. } => work += time.draw(&mut rng),
                Op::Sleep(time) => drop(time.draw(&mut rng)),
                Op::Begin { slot, times } => left[*slot] = times.unwrap_or(u32::MAX),
                Op::End { slot, body } => {
                    left[*slot] -= 1;
                    if left[*slot] > 0 {
                        at = *body;
                    }
                }
                Op::Pace { body, .. } => at = *body,
                Op::Exit => return Some(work),
                Op::Yield | Op::Wait(_) | Op::Notify(_) | Op::Lock(_) | Op::Unlock(_) | Op::Spawn(_) => {}
            }
        }
        None
    }

    /// The work from step `from` to the next sleep or the end, for a task with this generator. `None` if the program has no
    /// [`Program::mean_burst`].
    pub(crate) fn planned_burst(&self, from: usize, mut rng: fastrand::Rng) -> Option<Duration> {
        self.mean_burst().and_then(|_| burst(self.ops(), from, |time| time.draw(&mut rng)))
    }
}

/// See [`Program::mean_burst`].
pub(crate) fn mean_burst(ops: &[Op]) -> Option<Duration> {
    let sleeps = ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Sleep(_)));
    let starts: Vec<usize> = sleeps.map(|(index, _)| index + 1).collect();
    if starts.is_empty() {
        return None;
    }
    let bursts = std::iter::once(0).chain(starts).map(|from| burst(ops, from, Time::mean));
    bursts.collect::<Option<Vec<Duration>>>()?.into_iter().max()
}

fn burst(ops: &[Op], from: usize, mut length: impl FnMut(&Time) -> Duration) -> Option<Duration> {
    let mut work = Duration::ZERO;
    let mut at = from;
    // Loops that are gone through are endless, so a step that comes twice without a sleep comes for ever.
    for _ in 0..=ops.len() {
        let Some(op) = ops.get(at) else { return Some(work) };
        at += 1;
        match op {
            Op::Run(time) | Op::Polls { run: time, .. } => work += length(time),
            Op::Yield | Op::Begin { times: None, .. } => {}
            Op::End { body, .. } => at = *body,
            Op::Sleep(_) | Op::Exit => return Some(work),
            Op::Begin { times: Some(_), .. }
            | Op::Pace { .. }
            | Op::Wait(_)
            | Op::Notify(_)
            | Op::Lock(_)
            | Op::Unlock(_)
            | Op::Spawn(_) => return None,
        }
    }
    None
}
