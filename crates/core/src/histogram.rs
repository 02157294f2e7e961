//! Log-linear histogram of spans: four buckets to each power of two, so a bucket's edge is within a quarter of
//! every value in it. Small enough to keep one per CPU and group, cheap enough to count every poll.
//!
//! Knows nothing of who counts: the engine keeps the counters, this is their layout and their snapshot.

use crate::Span;
use alloc::vec::Vec;

/// Sub-buckets to a power of two, as a power of two.
const SUB_BITS: u32 = 2;

/// Values from about 137 s on share the last bucket.
const TOP_EXPONENT: u32 = 37;

/// How many buckets a histogram has.
pub const BUCKETS: usize = ((TOP_EXPONENT - SUB_BITS + 1) as usize) << SUB_BITS;

/// The bucket that `span` is counted in.
pub const fn bucket_of(span: Span) -> usize {
    let nanos = span.as_nanos();
    if nanos < 1 << SUB_BITS {
        return to_index(nanos);
    }
    let exponent = 63 - nanos.leading_zeros();
    if exponent >= TOP_EXPONENT {
        return BUCKETS - 1;
    }
    let sub = (nanos >> (exponent - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    to_index((((exponent - SUB_BITS + 1) as u64) << SUB_BITS) + sub)
}

/// The largest span that is counted in this bucket; the last bucket has no upper edge.
pub const fn upper_edge(bucket: usize) -> Span {
    if bucket >= BUCKETS - 1 {
        return Span::MAX;
    }
    let bucket = bucket as u64;
    let group = bucket >> SUB_BITS;
    if group == 0 {
        return Span::from_nanos(bucket);
    }
    let sub = bucket & ((1 << SUB_BITS) - 1);
    Span::from_nanos((((1 << SUB_BITS) + sub + 1) << (group - 1)) - 1)
}

#[expect(clippy::cast_possible_truncation, reason = "bucket numbers are small")]
const fn to_index(value: u64) -> usize {
    value as usize
}

/// A snapshot: how many spans fell into each bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: alloc::vec![0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts one span.
    pub fn record(&mut self, span: Span) {
        self.counts[bucket_of(span)] += 1;
    }

    /// Adds `count` spans to a bucket.
    ///
    /// # Panics
    /// If there is no such bucket: see [`BUCKETS`].
    pub fn add(&mut self, bucket: usize, count: u64) {
        self.counts[bucket] += count;
    }

    /// Adds all that `other` has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// How many spans were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An upper bound of the given quantile, `per_mille` of 1,000, to within a quarter; zero if nothing was counted.
    pub fn quantile_upper(&self, per_mille: u32) -> Span {
        let total = self.count();
        let rank = (u128::from(total) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0u128;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank && total > 0 {
                return upper_edge(bucket);
            }
        }
        Span::ZERO
    }

    /// The buckets that are not empty: upper edge and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, count)| (upper_edge(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_grow_and_bound_their_buckets() {
        for bucket in 1..BUCKETS {
            assert!(upper_edge(bucket) > upper_edge(bucket - 1), "bucket {bucket}");
            let first = Span::from_nanos(upper_edge(bucket - 1).as_nanos() + 1);
            assert_eq!(bucket_of(first), bucket);
        }
    }

    #[test]
    fn quantiles_of_nothing_are_zero() {
        assert_eq!(Histogram::default().quantile_upper(990), Span::ZERO);
    }

    proptest! {
        #[test]
        fn a_value_lies_below_its_edge_by_at_most_a_quarter(nanos in 0u64..(1 << 36)) {
            let edge = upper_edge(bucket_of(Span::from_nanos(nanos))).as_nanos();
            prop_assert!(edge >= nanos);
            prop_assert!(edge - nanos <= nanos / 4 + 1);
        }

        #[test]
        fn a_quantile_bounds_that_part_of_the_values(mut values in proptest::collection::vec(0u64..1_000_000, 1..200), per_mille in 1u32..=1000) {
            let mut histogram = Histogram::default();
            for value in &values { histogram.record(Span::from_nanos(*value)); }
            values.sort_unstable();
            let rank = (values.len() * per_mille as usize).div_ceil(1000).max(1);
            let exact = values[rank - 1];
            let upper = histogram.quantile_upper(per_mille).as_nanos();
            prop_assert!(upper >= exact && upper - exact <= exact / 4 + 1);
        }
    }
}
