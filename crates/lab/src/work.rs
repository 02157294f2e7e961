//! Computing in measured portions: a fixed number of iterations, calibrated once per process.
//!
//! Work is counted in iterations, not by the clock, so that time which a thread spends preempted
//! is not work. Knows nothing of tasks.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Iterations of one timed run. At about a nanosecond each it is far longer than reading the
/// clock, and short enough that some runs are not interrupted.
const ITERATIONS: u64 = 200_000;

/// How many runs are timed; the fastest counts, as the others were disturbed.
const RUNS: u32 = 200;

/// How many iterations this machine does in a nanosecond, undisturbed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calibration {
    per_nano: f64,
}

/// Measures the machine, once per process.
pub(crate) fn calibrate() -> &'static Calibration {
    static CALIBRATION: OnceLock<Calibration> = OnceLock::new();
    CALIBRATION.get_or_init(|| {
        let timed = |_| {
            let start = Instant::now();
            iterate(ITERATIONS);
            start.elapsed().as_secs_f64() * 1e9
        };
        let fastest = (0..RUNS).map(timed).fold(f64::INFINITY, f64::min);
        Calibration { per_nano: ITERATIONS as f64 / fastest.max(1.0) }
    })
}

impl Calibration {
    /// Computes as much as this machine does in `span` when nothing disturbs it.
    pub(crate) fn run(&self, span: Duration) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the product is positive, the cast saturates")]
        let iterations = (span.as_secs_f64() * 1e9 * self.per_nano) as u64;
        iterate(iterations.max(1));
    }
}

/// A chain of dependent multiplications: no iteration can start before the one before it is done.
#[inline(never)]
fn iterate(iterations: u64) {
    let mut value = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..iterations {
        value = value.wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(17);
    }
    black_box(value);
}
