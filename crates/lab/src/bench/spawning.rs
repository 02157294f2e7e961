//! Benchmarks of spawning: many at once, from inside and outside, and one after another.

use std::time::Instant;

use tokio::sync::oneshot;

use super::error::BenchError;
use super::round::{self, Figures, Round};
use super::target::{Rt, Setup};

/// One task spawns trivial tasks and awaits them all.
pub(super) fn many_inside<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let spawns = setup.size.spawns;
    let rt = R::build(setup)?;
    let figure = round::inside(&rt, setup, spawns.into(), move || async move {
        let tasks: Vec<_> = (0..spawns).map(|_| R::spawn(trivial())).collect();
        sum::<R>(tasks).await
    })?;
    Ok(Figures(vec![figure]))
}

/// The main thread does the same in `block_on`.
pub(super) fn many_outside<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let spawns = setup.size.spawns;
    let rt = R::build(setup)?;
    let mut rounds = Vec::new();
    for _ in 0..=setup.size.rounds {
        let start = Instant::now();
        let done = rt.block_on(async {
            let tasks: Vec<_> = (0..spawns).map(|_| rt.spawn_outside(trivial())).collect();
            sum::<R>(tasks).await
        });
        rounds.push(Round { took: start.elapsed(), done: done.map_err(round::lost::<R>)? });
    }
    Ok(Figures(vec![round::nanos_per_operation(&rounds, spawns.into())?]))
}

/// Each task spawns the next; the last one tells the first.
pub(super) fn chained<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let links = setup.size.links;
    let rt = R::build(setup)?;
    let figure = round::inside(&rt, setup, links.into(), move || async move {
        let (done, last) = oneshot::channel();
        link::<R>(Chain { spawned: 0, links, done });
        // A chain that breaks drops its sender: that shows as a count of none.
        Ok(last.await.unwrap_or(0))
    })?;
    Ok(Figures(vec![figure]))
}

/// Counts itself, so that a task which never ran is missed.
async fn trivial() -> u64 {
    1
}

async fn sum<R: Rt>(tasks: Vec<R::Join<u64>>) -> Result<u64, R::Lost> {
    let mut done = 0;
    for task in tasks {
        done += task.await?;
    }
    Ok(done)
}

struct Chain {
    spawned: u32,
    links: u32,
    done: oneshot::Sender<u64>,
}

/// Not an async function: its future would have to contain itself.
fn link<R: Rt>(chain: Chain) {
    if chain.spawned == chain.links {
        // Nobody waits any longer only if the whole run has ended in an error.
        let _ = chain.done.send(chain.spawned.into());
        return;
    }
    let next = Chain { spawned: chain.spawned + 1, ..chain };
    drop(R::spawn(async move { link::<R>(next) }));
}
