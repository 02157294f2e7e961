//! Points in time of one run.
//!
//! Knows nothing of the time of day: a [`Moment`] counts from the epoch of its run.

use std::time::{Duration, Instant};

/// Nanoseconds since the epoch of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(u64);

impl Moment {
    /// The latest moment: never reached.
    pub(crate) const NEVER: Moment = Moment(u64::MAX);

    #[cfg(test)]
    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn plus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }

    /// The time from `earlier` to this moment; zero if it lies after it.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The clock of one run: starts at zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunClock {
    epoch: Instant,
}

impl RunClock {
    pub(crate) fn start() -> RunClock {
        RunClock { epoch: Instant::now() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(nanos(self.epoch.elapsed()))
    }

    /// Blocks the calling thread until `moment`.
    pub(crate) fn sleep_until(&self, moment: Moment) {
        let left = moment.since(self.now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }
}

/// `span` in whole nanoseconds; spans beyond 584 years saturate.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
