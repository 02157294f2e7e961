//! What many groups cost: the same tasks, each in a group of its own, or all in one.

use std::sync::Arc;

use super::error::BenchError;
use super::passing::yielder;
use super::round::{self, Figures};
use super::target::{Grouped, Setup};

/// Nanoseconds per poll in one-task groups, in one group, and the former divided by the latter.
pub(super) fn one_task_each<R: Grouped>(setup: &Setup) -> Result<Figures, BenchError> {
    let flat = polls::<R>(setup, setup.size.groups)?;
    let single = polls::<R>(setup, 1)?;
    Ok(Figures(vec![flat, single, flat / single]))
}

/// As many tasks as the size has groups, dealt out to `groups` groups; all yield as often.
fn polls<R: Grouped>(setup: &Setup, groups: u32) -> Result<f64, BenchError> {
    let (tasks, polls_each) = (setup.size.groups, setup.size.polls_each);
    let rt = R::build(setup)?;
    let made: Result<Vec<_>, _> = (0..groups).map(|nth| rt.group(format!("g{nth}"))).collect();
    let made = Arc::new(made?);
    let expected = u64::from(tasks) * u64::from(polls_each);
    round::inside(&rt, setup, expected, move || {
        let made = Arc::clone(&made);
        async move {
            let spawned: Vec<_> = made
                .iter()
                .cycle()
                .zip(0..tasks)
                .map(|(group, _)| R::spawn_in(group, yielder::<R>(polls_each)))
                .collect();
            let mut done = 0;
            for task in spawned {
                done += task.await?;
            }
            Ok(done)
        }
    })
}
