//! The weight of a group: its share relative to its siblings.
//!
//! Knows nothing of who the siblings are.

use core::fmt;

/// A proportional share among siblings, from 1 to 10,000 as in Linux control groups. The default is 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Weight(u32);

impl Weight {
    /// The smallest weight.
    pub const MIN: Weight = Weight(1);
    /// The largest weight.
    pub const MAX: Weight = Weight(10_000);
    /// What a group has that was given none.
    pub const DEFAULT: Weight = Weight(100);

    /// A weight of `value`.
    ///
    /// # Errors
    /// If `value` is 0 or above 10,000.
    pub const fn new(value: u32) -> Result<Self, WeightOutOfRange> {
        if value >= Self::MIN.0 && value <= Self::MAX.0 { Ok(Weight(value)) } else { Err(WeightOutOfRange(value)) }
    }

    /// Its value, 1 to 10,000.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight::DEFAULT
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A number that is no weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WeightOutOfRange(pub u32);

impl fmt::Display for WeightOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weight {} is out of range: expected {} to {}", self.0, Weight::MIN, Weight::MAX)
    }
}

impl core::error::Error for WeightOutOfRange {}
