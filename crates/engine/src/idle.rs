//! Who is parked, who searches, and who is kicked: so that no wake is lost and few are made for nothing.
//!
//! One [`Domain`] for the CPUs of a last-level cache, one [`ParkWord`] per CPU. The page beside this file (`idle.md`)
//! has the protocol with its argument; `tests/loom_idle.rs` and `tests/loom_park.rs` check it.
//!
//! Knows nothing of run queues: who parks must look at them again between `announce` and `Step::Park`.
//!
//! # Invariants
//! - P1: a task that was pushed before a fence is seen by the parking CPU after its own fence, or the pusher sees
//!   that CPU as parked.
//! - P2: a parked CPU is kicked by at most one other before it runs again.
//! - P3: while a search is counted, its searcher will look at every CPU once more after it has uncounted itself.
//! - P4: while a watch is kept, its keeper will look at every CPU once more after it has left it, and hand it on if
//!   anything there needs a watch.
//!
//! The steps that each protocol takes in order are methods here, so that what is run is what is tested. They ask for a
//! `fence`: the host's sequentially consistent one.

use crate::host::{At, LineClass, Shared};
use crossbeam_utils::CachePadded;
use evenkeel_core::CpuId;
use std::sync::atomic::Ordering;

/// Why a CPU was kicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KickReason {
    /// Something was put into its own inbox, or the machine stops.
    Inbox,
    /// Work waits somewhere; it is counted as searching already.
    Search,
}

/// What became of a park.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Roused {
    /// Nobody kicked it: its time was up.
    ByTime,
    /// It was kicked.
    ByKick(KickReason),
}

/// Whether a CPU is parked, and who has kicked it.
///
/// | value | phase | set by |
/// |-------|-------|--------|
/// | 0 | running | owner |
/// | 1 | parked | owner |
/// | 2 | kicked for its inbox | one other |
/// | 3 | kicked to search | one other |
#[derive(Debug)]
pub struct ParkWord<S: Shared>(S);

const RUNNING: u64 = 0;
const PARKED: u64 = 1;
const KICKED_INBOX: u64 = 2;
const KICKED_SEARCH: u64 = 3;

impl<S: Shared> Default for ParkWord<S> {
    fn default() -> Self {
        ParkWord(S::of(LineClass::ParkWord, RUNNING))
    }
}

impl<S: Shared> ParkWord<S> {
    /// Owner: from here on this CPU may be kicked. Follow with a fence and one more look at everything.
    pub fn announce(&self, at: At) {
        self.0.store(at, PARKED, Ordering::Relaxed);
    }

    /// Owner: runs again, whether after a park or instead of one.
    pub fn resume(&self, at: At) -> Roused {
        // ORDER P2: Acquire pairs with the Release of `claim`: what the kicker did before is seen.
        match self.0.swap(at, RUNNING, Ordering::Acquire) {
            KICKED_INBOX => Roused::ByKick(KickReason::Inbox),
            KICKED_SEARCH => Roused::ByKick(KickReason::Search),
            _ => Roused::ByTime,
        }
    }

    /// Anybody: claims the right to kick this CPU. One wins per park.
    pub fn claim(&self, at: At, why: KickReason) -> Claimed {
        let word = match why {
            KickReason::Inbox => KICKED_INBOX,
            KickReason::Search => KICKED_SEARCH,
        };
        // Look before the exchange: most CPUs are not parked.
        if self.0.load(at, Ordering::Relaxed) != PARKED {
            return Claimed::No;
        }
        // ORDER P2: Release, see `resume`.
        match self.0.compare_exchange(at, PARKED, word, Ordering::AcqRel) {
            Ok(_) => Claimed::Kick,
            Err(_) => Claimed::No,
        }
    }

    /// Whether it is parked and not kicked yet; a hint.
    pub fn is_parked(&self, at: At) -> bool {
        self.0.load(at, Ordering::Relaxed) == PARKED
    }
}

/// Whether the caller has to kick the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Claimed {
    /// Kick it: nobody else will.
    Kick,
    /// It is running, or somebody else kicks it.
    No,
}

/// Who will look for work in a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Searcher {
    /// This CPU, which was claimed and counted. Kick it: nobody else will.
    Kick(CpuId),
    /// One that is counted already.
    Underway,
    /// No CPU is parked here.
    Nobody,
}

/// The parked CPUs and the searchers of one last-level cache.
#[derive(Debug)]
pub struct Domain<S: Shared> {
    cpus: Vec<CpuId>,
    /// One bit per CPU of `cpus`, 64 to a word; set and cleared by that CPU alone: a hint where to look for one.
    parked: Vec<CachePadded<S>>,
    searchers: S,
    /// The CPU that keeps time for busy ones while it is parked, plus one; 0 if none does.
    keeper: S,
}

/// A CPU's place in its domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which domain.
    pub domain: usize,
    /// Which bit in it.
    pub bit: usize,
}

impl<S: Shared> Domain<S> {
    /// A domain of these CPUs, in the order of their [`Place::bit`].
    pub fn new(cpus: Vec<CpuId>) -> Self {
        let parked = (0..cpus.len().div_ceil(64)).map(|_| CachePadded::new(S::of(LineClass::ParkedBits, 0))).collect();
        Domain { cpus, parked, searchers: S::of(LineClass::Searchers, 0), keeper: S::of(LineClass::Searchers, 0) }
    }

    /// Owner: shows that it parks.
    pub fn show_parked(&self, at: At, place: Place) {
        self.parked[place.bit / 64].fetch_or(at, 1 << (place.bit % 64), Ordering::Relaxed);
    }

    /// Owner: shows that it runs.
    pub fn show_running(&self, at: At, place: Place) {
        self.parked[place.bit / 64].fetch_and(at, !(1 << (place.bit % 64)), Ordering::Relaxed);
    }

    /// Whether any CPU shows that it parks.
    pub fn has_parked(&self, at: At) -> bool {
        self.parked.iter().any(|word| word.load(at, Ordering::Relaxed) != 0)
    }

    /// Up to `most` other CPUs, those after the CPU at `bit` first.
    pub fn neighbors(&self, bit: usize, most: usize) -> impl Iterator<Item = CpuId> + '_ {
        let count = self.cpus.len();
        (1..count.min(most + 1)).map(move |step| self.cpus[(bit + step) % count])
    }

    /// The CPUs that show that they park, those after `from` first: kicks are spread.
    pub fn parked(&self, at: At, from: usize) -> impl Iterator<Item = CpuId> + '_ {
        let words = self.parked.len();
        let first = (from / 64) % words.max(1);
        (0..words).flat_map(move |turn| {
            let index = (first + turn) % words;
            let word = self.parked[index].load(at, Ordering::Relaxed);
            bits(word, if turn == 0 { from % 64 } else { 0 }).map(move |bit| self.cpus[index * 64 + bit])
        })
    }

    /// Counts one more searcher.
    pub fn begin_search(&self, at: At) {
        self.searchers.fetch_add(at, 1, Ordering::Relaxed);
    }

    /// Counts a searcher on behalf of a CPU that is about to be kicked, if there is none yet.
    pub fn begin_only_search(&self, at: At) -> Claimed {
        if self.searchers.load(at, Ordering::Relaxed) != 0 {
            return Claimed::No;
        }
        match self.searchers.compare_exchange(at, 0, 1, Ordering::Relaxed) {
            Ok(_) => Claimed::Kick,
            Err(_) => Claimed::No,
        }
    }

    /// Uncounts a searcher. A fence and one more look at everything must follow (P3).
    pub fn end_search(&self, at: At) {
        let before = self.searchers.fetch_sub(at, 1, Ordering::Relaxed);
        assert!(before > 0, "P3: a search ended that was not counted");
    }

    /// Whether a search is under way.
    pub fn is_searched(&self, at: At) -> bool {
        self.searchers.load(at, Ordering::Relaxed) != 0
    }

    /// Owner, counted as searching: parks. One more look at everything must follow (P1, P3).
    pub fn enter_park(&self, at: At, place: Place, word: &ParkWord<S>, fence: impl FnOnce()) {
        word.announce(at);
        self.show_parked(at, place);
        self.end_search(at);
        // ORDER P1, P3: pairs with the fence of whoever makes a task runnable. Either the look that follows sees the
        // task, or they see that this CPU parks, and that it does not search.
        fence();
    }

    /// Owner: runs again, whether after a park or instead of one.
    pub fn leave_park(&self, at: At, place: Place, word: &ParkWord<S>) -> Roused {
        let roused = word.resume(at);
        self.show_running(at, place);
        roused
    }

    /// Claims one of the parked CPUs, those after `start` first, unless somebody searches already. After a fence: what
    /// was made runnable before is then looked after.
    pub fn claim_searcher<'a>(
        &self,
        at: At,
        start: usize,
        word_of: impl Fn(CpuId) -> &'a ParkWord<S>,
        fence: impl Fn(),
    ) -> Searcher
    where
        S: 'a,
    {
        // Ends: each turn needs a CPU that shows that it parks; one that cannot be claimed was kicked by somebody else,
        // or is about to run and will look for work by itself.
        while self.has_parked(at) {
            if self.begin_only_search(at) == Claimed::No {
                return Searcher::Underway;
            }
            let claimed = |cpu: &CpuId| word_of(*cpu).claim(at, KickReason::Search) == Claimed::Kick;
            if let Some(cpu) = self.parked(at, start).find(claimed) {
                return Searcher::Kick(cpu);
            }
            self.end_search(at);
            // ORDER P3: a CPU that parked while we were counted, and whose pusher therefore did not kick it, is looked
            // for again.
            fence();
            if !self.parked(at, start).any(|cpu| word_of(cpu).is_parked(at)) {
                return Searcher::Nobody;
            }
        }
        Searcher::Nobody
    }

    /// A parking CPU takes over keeping time, if nobody does.
    pub fn take_watch(&self, at: At, cpu: CpuId) -> Claimed {
        match self.keeper.compare_exchange(at, 0, u64::from(cpu.get()) + 1, Ordering::Relaxed) {
            Ok(_) => Claimed::Kick,
            Err(_) => Claimed::No,
        }
    }

    /// The keeper runs again. A fence and one more look at everything must follow before it runs a task (P4).
    pub fn leave_watch(&self, at: At) {
        self.keeper.store(at, 0, Ordering::Relaxed);
    }

    /// Whether a parked CPU keeps time. Who puts off a kick on the strength of it needs a fence before (P4).
    pub fn is_watched(&self, at: At) -> bool {
        self.keeper.load(at, Ordering::Relaxed) != 0
    }
}

/// The set bits of `word`, those at `from` and above first.
fn bits(word: u64, from: usize) -> impl Iterator<Item = usize> {
    let high = word & (u64::MAX << from);
    [high, word & !high].into_iter().flat_map(|mut word| {
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros() as usize;
            (word != 0).then(|| {
                word &= word - 1;
                bit
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_begin_at_the_given_one() {
        assert_eq!(bits(0b1011, 1).collect::<Vec<_>>(), [1, 3, 0]);
        assert_eq!(bits(1 << 63, 63).collect::<Vec<_>>(), [63]);
        assert_eq!(bits(0, 5).count(), 0);
    }
}
