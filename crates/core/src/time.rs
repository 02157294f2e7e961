//! Points in time and lengths of time, in nanoseconds.
//!
//! Knows nothing of any clock: a time is what a host says it is.

use core::fmt;
use core::time::Duration;

/// A length of time in nanoseconds. Arithmetic saturates: the longest span stands for "for ever".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any run: about 584 years.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Span(nanos)
    }

    /// A span of `micros` microseconds; saturates.
    pub const fn from_micros(micros: u64) -> Self {
        Span(micros.saturating_mul(1_000))
    }

    /// A span of `millis` milliseconds; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Span(millis.saturating_mul(1_000_000))
    }

    /// Its length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Its length in seconds.
    #[expect(clippy::cast_precision_loss, reason = "for people to read, never for decisions")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, or [`Span::MAX`].
    #[must_use]
    pub const fn plus(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn minus(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    /// `factor` times as long; saturates.
    #[must_use]
    pub const fn times(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Duration::from_nanos(span.0)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from(*self), f)
    }
}

/// A point in a machine's time: nanoseconds since its host began to count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// When the host began to count.
    pub const ZERO: Time = Time(0);
    /// After the end of every run. A timer with this deadline never fires.
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `nanos` nanoseconds after the host began to count.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the host began to count.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `span` later, or [`Time::NEVER`].
    #[must_use]
    pub const fn after(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` to here, or zero if `earlier` is later: clocks of different CPUs may differ a little.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { write!(f, "+{:?}", Span(self.0)) }
    }
}
