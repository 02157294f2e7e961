//! Repeats a timed round inside a task, and turns what it did into the figure of a run.
//!
//! Knows nothing of what a round does, except that it says how many operations it has done.

use std::future::Future;
use std::time::{Duration, Instant};

use super::error::BenchError;
use super::statistics::Summary;
use super::target::{Rt, Setup};

/// One figure per row of a benchmark, from one run on one target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures(pub(super) Vec<f64>);

/// Runs on one target, and what came of it.
pub(super) type Run = fn(&Setup) -> Result<Figures, BenchError>;

/// What a round did and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) took: Duration,
    pub(super) done: u64,
}

/// Times `round` inside a task of `rt`, so that waking the main thread at the end is nobody's cost.
///
/// Gives the nanoseconds per operation: the median of all rounds but the first, which warms up.
pub(super) fn inside<R, F>(
    rt: &R,
    setup: &Setup,
    expected: u64,
    round: impl Fn() -> F + Send + 'static,
) -> Result<f64, BenchError>
where
    R: Rt,
    F: Future<Output = Result<u64, R::Lost>> + Send + 'static,
{
    let count = setup.size.rounds;
    let timed = rt.spawn_outside(async move {
        let mut rounds = Vec::with_capacity(count as usize + 1);
        for _ in 0..=count {
            let start = Instant::now();
            let done = round().await?;
            rounds.push(Round { took: start.elapsed(), done });
        }
        Ok::<_, R::Lost>(rounds)
    });
    let rounds = rt.block_on(timed).and_then(|rounds| rounds).map_err(lost::<R>)?;
    nanos_per_operation(&rounds, expected)
}

/// The median time per operation, in nanoseconds, of all rounds but the first.
pub(super) fn nanos_per_operation(rounds: &[Round], expected: u64) -> Result<f64, BenchError> {
    for round in rounds {
        complete(round.done, expected)?;
    }
    let timed = rounds.get(1..).unwrap_or_default();
    let figures: Vec<f64> = timed.iter().map(|round| nanos(round.took) / expected as f64).collect();
    Summary::of(&figures).map(|summary| summary.median).ok_or(BenchError::Incomplete { done: 0, expected })
}

/// Refuses a run that did not do its work.
pub(super) fn complete(done: u64, expected: u64) -> Result<(), BenchError> {
    if done == expected { Ok(()) } else { Err(BenchError::Incomplete { done, expected }) }
}

/// Turns a target's reason for a missing result into ours.
pub(super) fn lost<R: Rt>(why: R::Lost) -> BenchError {
    BenchError::Task { on: R::NAME, why: why.to_string() }
}

pub(super) fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(nanos: u64, done: u64) -> Round {
        Round { took: Duration::from_nanos(nanos), done }
    }

    #[test]
    fn the_first_round_only_warms_up() {
        let rounds = [round(1_000_000, 10), round(100, 10), round(300, 10), round(200, 10)];
        let figure = nanos_per_operation(&rounds, 10).unwrap();
        assert!((figure - 20.0).abs() < 1e-6, "{figure}");
    }

    #[test]
    fn a_round_that_lost_a_task_is_refused() {
        let rounds = [round(100, 10), round(100, 9)];
        assert!(matches!(nanos_per_operation(&rounds, 10), Err(BenchError::Incomplete { done: 9, expected: 10 })));
    }

    #[test]
    fn warming_up_alone_is_no_run() {
        assert!(nanos_per_operation(&[round(100, 10)], 10).is_err());
    }
}
