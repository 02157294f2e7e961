//! Sets of CPUs: where the tasks of a group, or one task, may run.
//!
//! Knows nothing of machines: whether a CPU exists is for whoever has one to say.

use crate::CpuId;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A set of CPUs, by number from 0. Written and printed as in `0-3,8`.
///
/// ```
/// use evenkeel_core::{CpuId, CpuMask};
///
/// let mask: CpuMask = "0-3,8".parse()?;
/// assert!(mask.contains(CpuId::new(2)) && !mask.contains(CpuId::new(4)));
/// assert_eq!(mask.intersection(&CpuMask::range(3, 9)).to_string(), "3,8");
/// # Ok::<(), evenkeel_core::CpuMaskError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuMask {
    /// In ascending order, with a gap between any two: so equal sets are equal.
    runs: Vec<Run>,
}

/// CPUs in a row, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Run {
    first: u32,
    last: u32,
}

impl CpuMask {
    /// No CPU.
    pub const fn empty() -> Self {
        CpuMask { runs: Vec::new() }
    }

    /// One CPU.
    pub fn single(cpu: CpuId) -> Self {
        CpuMask::range(cpu.get(), cpu.get())
    }

    /// The CPUs from `first` to `last`, both included; none if `last` is smaller.
    pub fn range(first: u32, last: u32) -> Self {
        CpuMask::from_runs([Run { first, last }].into())
    }

    /// Brings runs into order, and joins those that touch.
    fn from_runs(mut runs: Vec<Run>) -> Self {
        runs.retain(|run| run.first <= run.last);
        runs.sort_unstable();
        let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut() {
                Some(before) if run.first <= before.last.saturating_add(1) => before.last = before.last.max(run.last),
                _ => joined.push(run),
            }
        }
        CpuMask { runs: joined }
    }

    /// Whether no CPU is in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many CPUs are in it.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| (run.last - run.first) as usize + 1).sum()
    }

    /// Whether `cpu` is in it.
    pub fn contains(&self, cpu: CpuId) -> bool {
        let at_or_before = self.runs.partition_point(|run| run.first <= cpu.get());
        self.runs[..at_or_before].last().is_some_and(|run| cpu.get() <= run.last)
    }

    /// The CPUs in it, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.runs.iter().flat_map(|run| (run.first..=run.last).map(CpuId::new))
    }

    /// The CPU with the largest number in it.
    pub fn last(&self) -> Option<CpuId> {
        self.runs.last().map(|run| CpuId::new(run.last))
    }

    /// The CPUs that are in both.
    #[must_use]
    pub fn intersection(&self, other: &CpuMask) -> CpuMask {
        let (mut mine, mut theirs) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        let mut runs = Vec::new();
        // Ends: each turn leaves a run of one of the two behind.
        while let (Some(one), Some(two)) = (mine.peek(), theirs.peek()) {
            let (first, last) = (one.first.max(two.first), one.last.min(two.last));
            if first <= last {
                runs.push(Run { first, last });
            }
            let behind = if one.last <= two.last { &mut mine } else { &mut theirs };
            behind.next();
        }
        CpuMask::from_runs(runs)
    }

    /// The CPUs that are in one or the other.
    #[must_use]
    pub fn union(&self, other: &CpuMask) -> CpuMask {
        CpuMask::from_runs([self.runs.as_slice(), &other.runs].concat())
    }

    /// Whether every CPU of `other` is in it.
    pub fn includes(&self, other: &CpuMask) -> bool {
        self.intersection(other) == *other
    }
}

impl FromIterator<CpuId> for CpuMask {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let single = |cpu: CpuId| Run { first: cpu.get(), last: cpu.get() };
        CpuMask::from_runs(cpus.into_iter().map(single).collect())
    }
}

impl From<CpuId> for CpuMask {
    fn from(cpu: CpuId) -> Self {
        CpuMask::single(cpu)
    }
}

/// As in `0-3,8`; nothing for the empty set.
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.runs.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if run.first == run.last {
                write!(f, "{comma}{}", run.first)?;
            } else {
                write!(f, "{comma}{}-{}", run.first, run.last)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuMask({self})")
    }
}

/// Why a text is no set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CpuMaskError {
    /// It names no CPU.
    Empty,
    /// A part of it is neither a number nor two with a dash between them.
    Malformed,
    /// A range ends before it begins.
    Backwards {
        /// Where it begins.
        first: u32,
        /// Where it ends.
        last: u32,
    },
}

impl fmt::Display for CpuMaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuMaskError::Empty => f.write_str("no CPU named: expected numbers and ranges, as in `0-3,8`"),
            CpuMaskError::Malformed => f.write_str("not a set of CPUs: expected numbers and ranges, as in `0-3,8`"),
            CpuMaskError::Backwards { first, last } => {
                write!(f, "the range {first}-{last} ends before it begins: expected numbers and ranges, as in `0-3,8`")
            }
        }
    }
}

impl core::error::Error for CpuMaskError {}

impl FromStr for CpuMask {
    type Err = CpuMaskError;

    fn from_str(text: &str) -> Result<Self, CpuMaskError> {
        if text.trim().is_empty() {
            return Err(CpuMaskError::Empty);
        }
        let runs: Result<Vec<Run>, CpuMaskError> = text.split(',').map(|part| part.trim().parse()).collect();
        runs.map(CpuMask::from_runs)
    }
}

impl FromStr for Run {
    type Err = CpuMaskError;

    fn from_str(text: &str) -> Result<Self, CpuMaskError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| CpuMaskError::Malformed);
        let run = Run { first: number(first)?, last: number(last)? };
        // The last number stands for "no CPU" elsewhere.
        if run.last == u32::MAX || run.first == u32::MAX {
            return Err(CpuMaskError::Malformed);
        }
        if run.last < run.first {
            return Err(CpuMaskError::Backwards { first: run.first, last: run.last });
        }
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn mask(text: &str) -> CpuMask {
        text.parse().unwrap()
    }

    #[test]
    fn texts_come_back_in_their_shortest_form() {
        for (text, shortest) in [("0-3,8", "0-3,8"), (" 8 , 0 - 3", "0-3,8"), ("3,2,1,2", "1-3"), ("7-7", "7")] {
            assert_eq!(mask(text).to_string(), shortest);
        }
        assert_eq!(CpuMask::empty().to_string(), "");
    }

    #[test]
    fn texts_that_are_none_say_what_is_expected() {
        for text in ["", " ", "a", "1-", "-1", "1,,2", "3-1", "1-2-3", "4294967295", "99999999999"] {
            let error = text.parse::<CpuMask>().unwrap_err();
            assert!(error.to_string().contains("`0-3,8`"), "{text}: {error}");
        }
    }

    #[test]
    fn a_wide_mask_costs_no_more_than_a_narrow_one() {
        let wide = mask("0-4294967294");
        assert_eq!(wide.len(), 4_294_967_295);
        assert!(wide.contains(CpuId::new(1_023)) && wide.includes(&mask("5,900-1023")));
    }

    fn set() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0u32..140, 0..40)
    }

    fn of(cpus: &BTreeSet<u32>) -> CpuMask {
        cpus.iter().copied().map(CpuId::new).collect()
    }

    proptest! {
        #[test]
        fn masks_are_sets(one in set(), other in set()) {
            let (left, right) = (of(&one), of(&other));
            prop_assert_eq!(left.len(), one.len());
            prop_assert_eq!(left.iter().map(CpuId::get).collect::<BTreeSet<_>>(), one.clone());
            prop_assert_eq!(left.last().map(CpuId::get), one.last().copied());
            prop_assert_eq!(left.intersection(&right), of(&(&one & &other)));
            prop_assert_eq!(left.union(&right), of(&(&one | &other)));
            prop_assert_eq!(left.includes(&right), one.is_superset(&other));
            for cpu in 0..141 {
                prop_assert_eq!(left.contains(CpuId::new(cpu)), one.contains(&cpu));
            }
            if !one.is_empty() {
                prop_assert_eq!(mask(&left.to_string()), left);
            }
        }
    }
}
