//! Work of a known size: a fixed amount of computing, for scenarios, benchmarks and tests.
//!
//! "Compute for 50 µs" means here: as many steps as this machine does in 50 µs when nothing disturbs it. It doesn't mean
//! "spin until the clock says so": a thread that is preempted in between must still do all of its steps afterwards, so
//! time that it spent preempted doesn't count as work.
//!
//! Knows nothing of tasks, groups or the engine, and reads the time only while it calibrates.
//!
//! # Invariants
//! - W1: work for twice the time is twice the steps, to one step.
//! - W2: all the work of a process is measured with one calibration.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How many steps of computing this machine does in a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The best of the calibration's runs took this long …
    took: Duration,
    /// … for this many steps.
    steps: u64,
}

/// The calibration of this process. The first call makes it, which takes about 30 ms; do that before anything is
/// measured.
pub fn calibrate() -> &'static Calibration {
    static OF_PROCESS: OnceLock<Calibration> = OnceLock::new();
    OF_PROCESS.get_or_init(Calibration::measure)
}

/// Steps in one run of the calibration. A fraction of a millisecond on a processor of this century: short enough that
/// most runs are not interrupted, and thousands of times the cost of reading the time.
const RUN_STEPS: u64 = 1 << 17;

/// Runs go on for this long: many times the turns of a busy machine's other threads (3 to 4 ms on Linux), so that some
/// runs are undisturbed, and little enough for the start of a program.
const RUNS_FOR: Duration = Duration::from_millis(30);

impl Calibration {
    fn measure() -> Self {
        let began = Instant::now();
        let mut best = Self::timed_run();
        // Ends by the clock, after one run if that is how long one takes.
        while began.elapsed() < RUNS_FOR {
            best = best.faster(Self::timed_run());
        }
        best
    }

    fn timed_run() -> Self {
        let began = Instant::now();
        compute_steps(RUN_STEPS);
        // A clock that doesn't move within a run would make every later division one by zero.
        let took = began.elapsed().max(Duration::from_nanos(1));
        Self { took, steps: RUN_STEPS }
    }

    /// Being disturbed only ever makes a run slower, so the faster one is nearer to the truth.
    #[must_use]
    fn faster(self, other: Self) -> Self {
        if other.took < self.took { other } else { self }
    }

    /// How many steps make work for this long.
    pub fn iterations(&self, time: Duration) -> u64 {
        let steps = time.as_nanos().saturating_mul(u128::from(self.steps)) / self.took.as_nanos();
        u64::try_from(steps).unwrap_or(u64::MAX)
    }

    /// How many steps this machine does in a microsecond, for reports.
    pub fn iterations_per_microsecond(&self) -> u64 {
        self.iterations(Duration::from_micros(1))
    }

    /// Computes for `time`, as long as nothing disturbs the thread; the same number of steps in any case.
    pub fn run(&self, time: Duration) {
        compute_steps(self.iterations(time));
    }
}

/// Does this many steps, each of which needs the result of the one before it, so that neither the compiler nor the
/// processor can do two at a time.
#[inline(never)]
fn compute_steps(count: u64) {
    black_box(mixed(black_box(count)));
}

fn mixed(count: u64) -> u64 {
    // Any odd constant with bits all over: the golden ratio's.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (0..count).fold(FACTOR, |value, step| (value ^ (value >> 29) ^ step).wrapping_mul(FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that does 600 steps in a microsecond.
    const KNOWN: Calibration = Calibration { took: Duration::from_micros(100), steps: 60_000 };

    #[test]
    fn steps_are_linear_in_time() {
        assert_eq!(KNOWN.iterations_per_microsecond(), 600);
        assert_eq!(KNOWN.iterations(Duration::ZERO), 0);
        assert_eq!(KNOWN.iterations(Duration::from_micros(50)), 30_000);
        for micros in [1, 7, 100, 12_345] {
            let once = KNOWN.iterations(Duration::from_micros(micros));
            let twice = KNOWN.iterations(Duration::from_micros(2 * micros));
            assert!(twice.abs_diff(2 * once) <= 1, "W1: {once} and {twice}");
        }
    }

    #[test]
    fn steps_grow_with_time_to_the_end_of_the_range() {
        let times = [0, 1, 2, 999, 1_000, 1_001, 1 << 40].map(Duration::from_nanos);
        assert!(times.map(|time| KNOWN.iterations(time)).is_sorted());
        assert_eq!(KNOWN.iterations(Duration::MAX), u64::MAX, "saturates");
    }

    #[test]
    fn disturbed_run_is_not_taken() {
        let disturbed = Calibration { took: Duration::from_millis(4), ..KNOWN };
        assert_eq!(disturbed.faster(KNOWN), KNOWN);
        assert_eq!(KNOWN.faster(disturbed), KNOWN);
    }

    #[test]
    fn one_calibration_serves_the_process() {
        let first: *const Calibration = calibrate();
        let other = std::thread::spawn(|| std::ptr::from_ref(calibrate()).addr());
        assert_eq!(other.join().unwrap(), first.addr(), "W2");
        assert!(calibrate().iterations(Duration::from_millis(1)) > 0);
    }

    #[test]
    fn every_step_changes_the_result() {
        let results: std::collections::BTreeSet<_> = (0..1_000).map(mixed).collect();
        assert_eq!(results.len(), 1_000, "no step is left out");
    }
}
