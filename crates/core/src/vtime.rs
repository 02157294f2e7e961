//! Group clocks: service received, divided by weight, in fixed point.
//!
//! A clock wraps around. Two clocks are compared by their distance, so a comparison is right as long as the two
//! are less than half the range apart: 104 CPU-days of service at weight 1, 28 CPU-years at the default weight.
//! A group that sleeps while the others run that far ahead is dealt with where it wakes (the engine's `clocks`).
//!
//! Knows nothing of who holds a clock or of how it is shared between CPUs.

use crate::{Span, Weight};

/// Fraction bits of a clock. With 10, one unit at weight 10,000 is about 10 ns of service: short polls of the
/// heaviest group are still charged to within a hundredth of a microsecond.
const FRACTION_BITS: u32 = 10;

/// A length of virtual time: service divided by weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Vspan(u64);

impl Vspan {
    /// No virtual time.
    pub const ZERO: Vspan = Vspan(0);

    /// What `service` costs a group of this weight; rounded down by less than one unit.
    pub const fn of(service: Span, weight: Weight) -> Vspan {
        let wide = (service.as_nanos() as u128) << FRACTION_BITS;
        let divided = wide / weight.get() as u128;
        // A single charge of more than a quarter of the range would make comparisons meaningless.
        if divided > (u64::MAX >> 2) as u128 { Vspan(u64::MAX >> 2) } else { Vspan(low_bits(divided)) }
    }

    /// In units of the fixed point.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// A span of `units` units of the fixed point.
    pub const fn from_units(units: u64) -> Vspan {
        Vspan(units)
    }

    /// `factor` times as long; saturates.
    #[must_use]
    pub const fn times(self, factor: u64) -> Vspan {
        Vspan(self.0.saturating_mul(factor))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the caller has checked that it fits")]
const fn low_bits(value: u128) -> u64 {
    value as u64
}

/// The reading of a group's clock. Meaningful only beside a sibling's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vtime(u64);

impl Vtime {
    /// Where clocks start.
    pub const ZERO: Vtime = Vtime(0);

    /// From the bits of a shared word.
    pub const fn from_bits(bits: u64) -> Vtime {
        Vtime(bits)
    }

    /// As the bits of a shared word.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Later by `span`.
    #[must_use]
    pub const fn plus(self, span: Vspan) -> Vtime {
        Vtime(self.0.wrapping_add(span.0))
    }

    /// Earlier by `span`.
    #[must_use]
    pub const fn minus(self, span: Vspan) -> Vtime {
        Vtime(self.0.wrapping_sub(span.0))
    }

    /// How far this reading is past `other`, in units: negative if it is before it.
    pub const fn ahead_of(self, other: Vtime) -> i64 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether this reading is before `other`: its group is more deserving.
    pub const fn is_before(self, other: Vtime) -> bool {
        self.ahead_of(other) < 0
    }

    /// The later of two readings.
    #[must_use]
    pub const fn max(self, other: Vtime) -> Vtime {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of two readings.
    #[must_use]
    pub const fn min(self, other: Vtime) -> Vtime {
        if other.is_before(self) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_survives_the_wrap() {
        let before = Vtime::from_bits(u64::MAX - 5);
        let after = before.plus(Vspan::from_units(10));
        assert!(before.is_before(after));
        assert!(!after.is_before(before));
        assert_eq!(after.ahead_of(before), 10);
        assert_eq!(before.max(after), after);
        assert_eq!(before.min(after), before);
    }

    #[test]
    fn heavier_groups_pay_less() {
        let light = Vspan::of(Span::from_millis(1), Weight::MIN);
        let heavy = Vspan::of(Span::from_millis(1), Weight::MAX);
        assert_eq!(light.units() / heavy.units(), 10_000);
    }

    #[test]
    fn even_a_short_poll_of_the_heaviest_group_costs_something() {
        assert!(Vspan::of(Span::from_nanos(100), Weight::MAX).units() >= 10);
    }

    #[test]
    fn an_absurd_charge_stays_comparable() {
        let charge = Vspan::of(Span::MAX, Weight::MIN);
        assert!(Vtime::ZERO.is_before(Vtime::ZERO.plus(charge)));
    }
}
