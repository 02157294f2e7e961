//! Benchmarks of a runtime that has nothing to do: idle, and woken from outside.
//!
//! The outside thread is the main thread, which is not in `block_on` meanwhile. What it uses itself (the sleep
//! between two wakes, the call that wakes) is part of the figures: it is the same for every target.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::error::BenchError;
use super::round::{self, Figures};
use super::statistics::quantile;
use super::target::{Rt, Setup};
use super::usage::Usage;

/// Time to come to rest before a reading: workers may search or spin before they park.
const SETTLE: Duration = Duration::from_millis(20);

/// From the outside thread's signal to the task's next poll, in microseconds: median and 99th percentile.
pub(super) fn wake<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let sleeper = Sleeper::<R>::start(setup)?;
    for _ in 0..setup.size.wakes {
        thread::sleep(setup.size.wake_interval);
        sleeper.wake();
    }
    let late = sleeper.finish(setup.size.wakes)?;
    let figures = [0.5, 0.99].iter().filter_map(|&share| quantile(&late, share)).collect();
    Ok(Figures(figures))
}

/// CPU time in microseconds and context switches per wake, at a fixed rate that does not wait for answers.
pub(super) fn wakes<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let sleeper = Sleeper::<R>::start(setup)?;
    let (before, start) = (Usage::now()?, Instant::now());
    for nth in 1..=setup.size.wakes {
        let due = start + setup.size.wake_interval * nth;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        sleeper.wake();
    }
    // The last wake is answered, and what it woke comes to rest, within the reading.
    thread::sleep(setup.size.wake_interval);
    let used = Usage::since(before)?;
    sleeper.finish(setup.size.wakes)?;
    let count = f64::from(setup.size.wakes);
    Ok(Figures(vec![round::micros(used.cpu) / count, used.switches as f64 / count]))
}

/// CPU time in microseconds per second while nothing happens.
pub(super) fn idle<R: Rt>(setup: &Setup) -> Result<Figures, BenchError> {
    let rt = R::build(setup)?;
    rest(&rt)?;
    let (before, start) = (Usage::now()?, Instant::now());
    thread::sleep(setup.size.idle);
    let used = Usage::since(before)?;
    Ok(Figures(vec![round::micros(used.cpu) / start.elapsed().as_secs_f64()]))
}

/// A runtime whose only task waits for the outside thread, and notes how late it runs.
struct Sleeper<R: Rt> {
    rt: R,
    signal: mpsc::UnboundedSender<Instant>,
    task: R::Join<Vec<f64>>,
}

impl<R: Rt> Sleeper<R> {
    fn start(setup: &Setup) -> Result<Self, BenchError> {
        let rt = R::build(setup)?;
        // Every signal carries its time and is received for itself, so that none can merge with the next unseen.
        let (signal, mut signals) = mpsc::unbounded_channel::<Instant>();
        let mut late = Vec::with_capacity(setup.size.wakes as usize);
        let task = rt.spawn_outside(async move {
            while let Some(sent) = signals.recv().await {
                late.push(round::micros(sent.elapsed()));
            }
            late
        });
        rest(&rt)?;
        Ok(Self { rt, signal, task })
    }

    fn wake(&self) {
        // The task is gone only if it panicked; `finish` reports that.
        let _ = self.signal.send(Instant::now());
    }

    fn finish(self, wakes: u32) -> Result<Vec<f64>, BenchError> {
        drop(self.signal);
        let late = self.rt.block_on(self.task).map_err(round::lost::<R>)?;
        round::complete(late.len() as u64, wakes.into())?;
        Ok(late)
    }
}

/// Uses the workers once, and lets them come to rest.
fn rest<R: Rt>(rt: &R) -> Result<(), BenchError> {
    let used = rt.spawn_outside(async { R::spawn(R::yield_now()).await });
    rt.block_on(used).and_then(|inner| inner).map_err(round::lost::<R>)?;
    thread::sleep(SETTLE);
    Ok(())
}
