//! Who is parked, who searches, and who is kicked: so that no wake is lost and few are made for nothing.
//!
//! One [`Domain`] for the CPUs of a last-level cache, one [`ParkWord`] per CPU, one [`Watch`]. The page beside this file (`idle.md`)
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
//! - P5: what another CPU could take is on a CPU that shows as loaded, or somebody who looks at all CPUs will see it
//!   before he parks, or its maker is about to claim a searcher.
//! - P6: while a CPU is parked, and a queue shows that something waits there which that CPU may run though not everybody
//!   may, another CPU has been kicked for such a reason, and will look at every such queue before it parks or runs.
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
    /// Something waits in another CPU's queue that this one may run and not everybody may. Whoever is kicked for that has to
    /// pass it on (P6). Not counted as searching.
    Masked,
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
/// | 4 | kicked for what few may run | one other |
#[derive(Debug)]
pub struct ParkWord<S: Shared>(S);

const RUNNING: u64 = 0;
const PARKED: u64 = 1;
const KICKED_INBOX: u64 = 2;
const KICKED_SEARCH: u64 = 3;
const KICKED_MASKED: u64 = 4;

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
            KICKED_MASKED => Roused::ByKick(KickReason::Masked),
            _ => Roused::ByTime,
        }
    }

    /// Anybody: claims the right to kick this CPU. One wins per park.
    pub fn claim(&self, at: At, why: KickReason) -> Claimed {
        let word = match why {
            KickReason::Inbox => KICKED_INBOX,
            KickReason::Search => KICKED_SEARCH,
            KickReason::Masked => KICKED_MASKED,
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

    /// Whether it was kicked for something that few may run, and has not noticed yet. After a fence: what was shown
    /// before is then seen by the look that it owes (P6).
    fn is_kicked_masked(&self, at: At) -> bool {
        self.0.load(at, Ordering::Relaxed) == KICKED_MASKED
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

/// Whether a CPU that parks has been counted as searching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// It has: it is uncounted as it parks.
    AsSearcher,
    /// Nobody relies on it.
    Not,
}

/// Which CPUs are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those that show that they may have something to take.
    Loaded,
    /// Those, and all that do not show that they park.
    Running,
}

/// Who will look for work in a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Searcher {
    /// This CPU, which was claimed and counted. Kick it: nobody else will.
    Kick(CpuId),
    /// One that is counted, or on its way, already.
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
    /// One bit per CPU, as in `parked`: it may have something that others could take. Set by whoever makes it so while
    /// anybody is parked, cleared by whoever finds its queue empty under its lock.
    loaded: Vec<CachePadded<S>>,
    searchers: S,
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
        let words = |class| (0..cpus.len().div_ceil(64)).map(|_| CachePadded::new(S::of(class, 0))).collect();
        let (parked, loaded) = (words(LineClass::ParkedBits), words(LineClass::LoadedBits));
        Domain { parked, loaded, cpus, searchers: S::of(LineClass::Searchers, 0) }
    }

    /// How many CPUs it has: one at least.
    #[expect(clippy::len_without_is_empty, reason = "a domain is never empty")]
    pub fn len(&self) -> usize {
        self.cpus.len()
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

    /// Whether any CPU but that at `except` does not show that it parks.
    pub fn has_running(&self, at: At, except: Option<usize>) -> bool {
        self.marked(0, |index| !self.parked[index].load(at, Ordering::Relaxed))
            .any(|cpu| except.is_none_or(|bit| self.cpus[bit] != cpu))
    }

    /// Up to `most` other CPUs, those after the CPU at `bit` first.
    pub fn neighbors(&self, bit: usize, most: usize) -> impl Iterator<Item = CpuId> + '_ {
        let count = self.cpus.len();
        (1..count.min(most + 1)).map(move |step| self.cpus[(bit + step) % count])
    }

    /// The CPUs that show that they park, those after `from` first: kicks are spread.
    pub fn parked(&self, at: At, from: usize) -> impl Iterator<Item = CpuId> + '_ {
        self.marked(from, move |index| self.parked[index].load(at, Ordering::Relaxed))
    }

    /// The CPUs in a scope, those after `from` first.
    pub fn in_scope(&self, at: At, scope: Scope, from: usize) -> impl Iterator<Item = CpuId> + '_ {
        let read = move |words: &[CachePadded<S>], index: usize| words[index].load(at, Ordering::Relaxed);
        self.marked(from, move |index| match scope {
            Scope::Loaded => read(&self.loaded, index),
            Scope::Running => !read(&self.parked, index) | read(&self.loaded, index),
        })
    }

    /// The CPUs whose bits are set in the words that `word` reads, those after `from` first.
    fn marked<'a>(&'a self, from: usize, word: impl Fn(usize) -> u64 + 'a) -> impl Iterator<Item = CpuId> + 'a {
        let words = self.parked.len();
        let first = (from / 64) % words.max(1);
        (0..words).flat_map(move |turn| {
            let index = (first + turn) % words;
            let cpus = &self.cpus[index * 64..];
            bits(word(index), if turn == 0 { from % 64 } else { 0 }).filter_map(|bit| cpus.get(bit).copied())
        })
    }

    /// Whether any CPU shows that it may have something to take.
    pub fn has_loaded(&self, at: At) -> bool {
        self.loaded.iter().any(|word| word.load(at, Ordering::Relaxed) != 0)
    }

    /// Whether the CPU at `place` shows that it may have something to take.
    pub fn is_loaded(&self, at: At, place: Place) -> bool {
        self.loaded[place.bit / 64].load(at, Ordering::Relaxed) & 1 << (place.bit % 64) != 0
    }

    /// Shows that the CPU at `place` has something to take. Call after what is there was made and a fence, and before a
    /// searcher is claimed.
    pub fn show_loaded(&self, at: At, place: Place, fence: impl FnOnce()) {
        if self.is_loaded(at, place) {
            return;
        }
        self.loaded[place.bit / 64].fetch_or(at, 1 << (place.bit % 64), Ordering::Relaxed);
        // ORDER P5: pairs with the fence of whoever parks or ends a search: either he sees the bit, or we see that he
        // parks, or does not search.
        fence();
    }

    /// Shows that the CPU at `place`, whose queue is empty, has nothing to take. Whether it showed otherwise: then who
    /// came meanwhile may have relied on the bit, so its inbox must be looked at once more.
    #[must_use]
    pub fn hide_loaded(&self, at: At, place: Place, fence: impl FnOnce()) -> bool {
        if !self.is_loaded(at, place) {
            return false;
        }
        self.loaded[place.bit / 64].fetch_and(at, !(1 << (place.bit % 64)), Ordering::Relaxed);
        // ORDER P5: pairs with the fence between a push and the look at the bit. Either the look that follows sees the
        // task, or its pusher sees the bit cleared, and sets it.
        fence();
        true
    }

    /// Counts one more searcher.
    pub fn begin_search(&self, at: At) {
        self.searchers.fetch_add(at, 1, Ordering::Relaxed);
    }

    /// Counts a searcher on behalf of a CPU that is about to be kicked, unless enough search already: half of those that
    /// make a crowd, at least one.
    pub fn begin_kicked_search(&self, at: At) -> Claimed {
        let most = (self.crowd() / 2).max(1);
        let mut held = self.searchers.load(at, Ordering::Relaxed);
        // Ends: a failed exchange means that another search began or ended.
        while held < most {
            match self.searchers.compare_exchange(at, held, held + 1, Ordering::Relaxed) {
                Ok(_) => return Claimed::Kick,
                Err(changed) => held = changed,
            }
        }
        Claimed::No
    }

    fn crowd(&self) -> u64 {
        (self.cpus.len().isqrt() + self.cpus.len() / 8) as u64
    }

    /// Uncounts a searcher. A fence and one more look at everything must follow (P3).
    pub fn end_search(&self, at: At) {
        let before = self.searchers.fetch_sub(at, 1, Ordering::Relaxed);
        assert!(before > 0, "P3: a search ended that was not counted");
    }

    /// Whether so many search that one more would be in their way: the root and an eighth of the number of CPUs. More of them mostly
    /// wait for the same few locks. A CPU that relies on them needs a fence before (P3).
    pub fn is_crowded(&self, at: At) -> bool {
        self.searchers.load(at, Ordering::Relaxed) >= self.crowd()
    }

    /// Whether a search is under way.
    pub fn is_searched(&self, at: At) -> bool {
        self.searchers.load(at, Ordering::Relaxed) != 0
    }

    /// Owner: parks. One more look must follow (P1, P3).
    pub fn enter_park(&self, at: At, place: Place, word: &ParkWord<S>, counted: Counted, fence: impl FnOnce()) {
        word.announce(at);
        self.show_parked(at, place);
        if counted == Counted::AsSearcher {
            self.end_search(at);
        }
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
            if self.begin_kicked_search(at) == Claimed::No {
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

    /// Claims one of the parked CPUs that may run something, those after `start` first, unless one of them has been kicked
    /// for such a reason already. After a fence. No search is relied on: who searches may not be among them.
    pub fn claim_allowed<'a>(
        &self,
        at: At,
        start: usize,
        is_allowed: impl Fn(CpuId) -> bool,
        word_of: impl Fn(CpuId) -> &'a ParkWord<S>,
    ) -> Searcher
    where
        S: 'a,
    {
        // A CPU shows that it parks until it has noticed its kick.
        let allowed = || self.parked(at, start).filter(|cpu| is_allowed(*cpu));
        if allowed().any(|cpu| word_of(cpu).is_kicked_masked(at)) {
            return Searcher::Underway;
        }
        let claimed = allowed().find(|cpu| word_of(*cpu).claim(at, KickReason::Masked) == Claimed::Kick);
        claimed.map_or(Searcher::Nobody, Searcher::Kick)
    }
}

/// Who keeps the watch. One for the machine: its keeper looks at every CPU that runs, and one of them is enough.
#[derive(Debug)]
pub struct Watch<S: Shared> {
    /// The CPU that keeps time for busy ones while it is parked, plus one; 0 if none does.
    keeper: S,
}

impl<S: Shared> Default for Watch<S> {
    fn default() -> Self {
        Watch { keeper: S::of(LineClass::Watch, 0) }
    }
}

impl<S: Shared> Watch<S> {
    /// A parking CPU takes over keeping time, if nobody does.
    pub fn take(&self, at: At, cpu: CpuId) -> Claimed {
        match self.keeper.compare_exchange(at, 0, u64::from(cpu.get()) + 1, Ordering::Relaxed) {
            Ok(_) => Claimed::Kick,
            Err(_) => Claimed::No,
        }
    }

    /// The keeper runs again. A fence and one more look at everything must follow before it runs a task (P4).
    pub fn leave(&self, at: At) {
        self.keeper.store(at, 0, Ordering::Relaxed);
    }

    /// Whether a parked CPU keeps time. Who puts off a kick on the strength of it needs a fence before (P4).
    pub fn is_kept(&self, at: At) -> bool {
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
