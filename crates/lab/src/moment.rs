//! Points in time of one run.
//!
//! Knows nothing of the time of day: a [`Moment`] counts from the epoch of its run, in real or in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel::Time;

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

    /// The moment at a time of a simulated machine, whose epoch is time zero.
    pub(crate) fn of(time: Time) -> Moment {
        Moment(time.as_nanos())
    }

    /// The time of a simulated machine at this moment.
    pub(crate) fn time(self) -> Time {
        Time::from_nanos(self.0)
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
#[derive(Debug, Clone)]
pub(crate) struct RunClock(Source);

#[derive(Debug, Clone)]
enum Source {
    Real {
        epoch: Instant,
    },
    /// Tells what the simulation that runs on the thread says; while none does, what it was last set to.
    Virtual {
        stopped_at: Arc<AtomicU64>,
    },
}

impl RunClock {
    /// The clock of a run in real time, which begins now.
    pub(crate) fn start() -> RunClock {
        RunClock(Source::Real { epoch: Instant::now() })
    }

    /// The clock of a run on a simulated machine. A look at it costs no virtual time.
    pub(crate) fn start_virtual() -> RunClock {
        RunClock(Source::Virtual { stopped_at: Arc::default() })
    }

    pub(crate) fn now(&self) -> Moment {
        match &self.0 {
            Source::Real { epoch } => Moment(nanos(epoch.elapsed())),
            Source::Virtual { stopped_at } => evenkeel_sim::here()
                .map_or_else(|| Moment(stopped_at.load(Ordering::Relaxed)), |here| Moment::of(here.at)),
        }
    }

    /// The simulation stands still at `moment`. Real time is not to be told.
    pub(crate) fn stand_at(&self, moment: Moment) {
        if let Source::Virtual { stopped_at } = &self.0 {
            stopped_at.store(moment.nanos(), Ordering::Relaxed);
        }
    }

    /// Blocks the calling thread until `moment` of a clock of real time.
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
