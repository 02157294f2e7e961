//! What a CPU counts of the run-queue locks that it takes, by place in the engine.
//!
//! One word per count and place, written by that CPU alone: an acquisition without waiting costs one store to a line that
//! it has.
//!
//! Knows nothing of locks.

use crate::host::{At, LineClass, Shared, Site};
use crate::words::Words;
use evenkeel_core::Span;
use evenkeel_core::stats::LockStats;
use std::sync::atomic::Ordering::Relaxed;

/// What is counted where a lock was not had at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rare {
    FailedTries,
    Waits,
    Waited,
    WaitMax,
    /// Plus one, so that zero says that there was none.
    WaitMin,
}

/// Places in a row of words: the counts of one kind are on lines of their own.
const ROW: usize = 16;
const ROWS: usize = Rare::WaitMin as usize + 1;
const _: () = assert!(Site::ALL.len() <= ROW, "a row has a place for each site");

/// The counts of one CPU.
pub(crate) struct LockCounters<S> {
    acquisitions: [S; ROW],
    rare: Words<S>,
}

impl<S: Shared> LockCounters<S> {
    pub(crate) fn new() -> Self {
        LockCounters {
            acquisitions: std::array::from_fn(|_| S::of(LineClass::Counters, 0)),
            rare: Words::new(LineClass::Counters, ROWS * ROW),
        }
    }

    fn word(&self, counter: Rare, site: Site) -> &S {
        self.rare.word(counter as usize * ROW + site as usize)
    }

    /// Counts a lock that was taken at the place `at`, on the CPU `at.cpu`, which must be the one that counts.
    #[inline]
    pub(crate) fn add_acquisition(&self, at: At) {
        self.acquisitions[at.site as usize].bump(at.within(Site::Count), 1);
    }

    /// Likewise a try that found it taken.
    pub(crate) fn add_failed_try(&self, at: At) {
        self.add(at, Rare::FailedTries, 1);
    }

    fn add(&self, at: At, counter: Rare, value: u64) {
        self.word(counter, at.site).bump(at.within(Site::Count), value);
    }

    /// Likewise a wait.
    pub(crate) fn add_wait(&self, at: At, span: Span) {
        let counts = at.within(Site::Count);
        self.add(at, Rare::Waits, 1);
        self.add(at, Rare::Waited, span.as_nanos());
        let (most, least) = (self.word(Rare::WaitMax, at.site), self.word(Rare::WaitMin, at.site));
        if span.as_nanos() > most.load(counts, Relaxed) {
            most.store(counts, span.as_nanos(), Relaxed);
        }
        let known = least.load(counts, Relaxed);
        if known == 0 || span.as_nanos() + 1 < known {
            least.store(counts, span.as_nanos() + 1, Relaxed);
        }
    }

    fn stats(&self, at: At, site: Site) -> LockStats {
        let read = |counter| self.word(counter, site).load(at, Relaxed);
        LockStats {
            site,
            acquisitions: self.acquisitions[site as usize].load(at, Relaxed),
            waits: read(Rare::Waits),
            wait: Span::from_nanos(read(Rare::Waited)),
            wait_min: Span::from_nanos(read(Rare::WaitMin).saturating_sub(1)),
            wait_max: Span::from_nanos(read(Rare::WaitMax)),
            failed_tries: read(Rare::FailedTries),
        }
    }
}

/// The sum over CPUs, by place: the places that took any lock, or tried to.
pub(crate) fn sum<'a, S: Shared>(at: At, cpus: impl Iterator<Item = &'a LockCounters<S>>) -> Vec<LockStats> {
    let mut sums: Vec<Option<LockStats>> = vec![None; Site::ALL.len()];
    for cpu in cpus {
        for (sum, site) in sums.iter_mut().zip(Site::ALL) {
            let more = cpu.stats(at, site);
            if more.acquisitions + more.failed_tries > 0 {
                *sum = Some(sum.map_or(more, |sum| plus(&sum, &more)));
            }
        }
    }
    sums.into_iter().flatten().collect()
}

fn plus(one: &LockStats, other: &LockStats) -> LockStats {
    LockStats {
        site: one.site,
        acquisitions: one.acquisitions + other.acquisitions,
        waits: one.waits + other.waits,
        wait: one.wait.plus(other.wait),
        wait_min: match (one.waits, other.waits) {
            (_, 0) => one.wait_min,
            (0, _) => other.wait_min,
            _ => one.wait_min.min(other.wait_min),
        },
        wait_max: one.wait_max.max(other.wait_max),
        failed_tries: one.failed_tries + other.failed_tries,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(waits: u64, least: u64, most: u64) -> LockStats {
        LockStats {
            site: Site::Search,
            acquisitions: waits + 1,
            waits,
            wait: Span::from_nanos(least + most),
            wait_min: Span::from_nanos(least),
            wait_max: Span::from_nanos(most),
            failed_tries: 1,
        }
    }

    #[test]
    fn who_did_not_wait_has_no_shortest_wait() {
        let nobody = waited(0, 0, 0);
        for (one, other) in [(nobody, waited(2, 20, 50)), (waited(2, 20, 50), nobody)] {
            let sum = plus(&one, &other);
            assert_eq!((sum.acquisitions, sum.waits, sum.failed_tries), (4, 2, 2));
            assert_eq!([sum.wait, sum.wait_min, sum.wait_max].map(Span::as_nanos), [70, 20, 50]);
        }
        let both = plus(&waited(2, 20, 50), &waited(2, 10, 30));
        assert_eq!([both.wait, both.wait_min, both.wait_max].map(Span::as_nanos), [110, 10, 50]);
    }
}
