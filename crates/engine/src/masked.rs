//! What waits in one queue and may not run everywhere: which other CPUs it is for, and which of them have to be told.
//!
//! Under the queue's lock. What others may read of it is published by `machine::enqueue`; `idle.md` has the protocol.
//!
//! Knows nothing of groups, or of the order in which anything runs.
//!
//! # Invariants
//! - K1: `total` is the number of tasks with a mask that wait in the queue.
//! - K2: what is shown of a CPU is whether any of them may run there; nothing is shown of the queue's own CPU.

use crate::host::Host;
use crate::masks::{CpuBits, Masks};
use evenkeel_core::{CpuId, MaskId};

/// The tasks with masks that wait in one queue.
#[derive(Debug, Default)]
pub(crate) struct MaskedWaiting {
    /// How many there are of each mask; few, mostly none.
    counts: Vec<(MaskId, usize)>,
    total: usize,
    /// A task with a mask has waited here, ever: until then there is nothing to do or to show.
    is_used: bool,
    /// A mask came or went since the CPUs were shown.
    is_stale: bool,
    /// What is shown to others.
    shown: CpuBits,
    shown_total: usize,
    /// CPUs that came into `shown`, and whom nobody has told yet.
    news: CpuBits,
}

/// A word of what is shown, which has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChangedWord {
    pub(crate) index: usize,
    pub(crate) bits: u64,
}

impl MaskedWaiting {
    /// A task of this mask waits from here on.
    pub(crate) fn add(&mut self, mask: MaskId) {
        self.total += 1;
        self.is_used = true;
        match self.counts.iter_mut().find(|(known, _)| *known == mask) {
            Some((_, count)) => *count += 1,
            None => {
                self.counts.push((mask, 1));
                self.is_stale = true;
            }
        }
    }

    /// A task of this mask waits no longer.
    pub(crate) fn remove(&mut self, mask: MaskId) {
        self.total -= 1;
        let place = self.counts.iter().position(|(known, _)| *known == mask).expect("K1: it was added");
        self.counts[place].1 -= 1;
        if self.counts[place].1 == 0 {
            self.counts.swap_remove(place);
            self.is_stale = true;
        }
    }

    /// Whether there is, or ever was, anything to show.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// How many of them others see.
    pub(crate) fn shown_total(&self) -> usize {
        self.shown_total
    }

    /// How many there are.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// How many there are, if that has to be shown anew.
    pub(crate) fn changed_total(&mut self) -> Option<usize> {
        let is_changed = self.total != self.shown_total;
        self.shown_total = self.total;
        is_changed.then_some(self.total)
    }

    /// Brings what is to be shown of a queue of `own` up to date, and gives the words that have changed.
    pub(crate) fn update<H: Host>(&mut self, own: CpuId, masks: &Masks<H>) -> Vec<ChangedWord> {
        if !std::mem::take(&mut self.is_stale) {
            return Vec::new();
        }
        let union = self.union(own, masks);
        let mut changed = Vec::new();
        for index in 0..self.shown.words().max(union.words()) {
            let bits = union.word(index);
            let before = self.shown.set_word(index, bits);
            if before != bits {
                changed.push(ChangedWord { index, bits });
            }
            // Who has nothing to find here any more need not be told.
            let news = (self.news.word(index) & bits) | (bits & !before);
            self.news.set_word(index, news);
        }
        changed
    }

    fn union<H: Host>(&self, own: CpuId, masks: &Masks<H>) -> CpuBits {
        let mut union = CpuBits::default();
        self.counts.iter().for_each(|(mask, _)| union.add(masks.row(*mask).bits()));
        union.remove(own);
        union
    }

    /// Whether any of them may run on the queue's own CPU, of which nothing is shown.
    pub(crate) fn is_for<H: Host>(&self, own: CpuId, masks: &Masks<H>) -> bool {
        self.counts.iter().any(|(mask, _)| masks.row(*mask).bits().contains(own))
    }

    /// Whether it shows that there is something for anybody.
    pub(crate) fn shows_any(&self) -> bool {
        !self.shown.is_empty()
    }

    /// The CPUs that have to be told, once: whoever asks tells one of them.
    pub(crate) fn take_news(&mut self) -> Option<CpuBits> {
        (!self.news.is_empty()).then(|| std::mem::take(&mut self.news))
    }

    /// Recomputes K2, for checks: what is shown, and what should be.
    pub(crate) fn check<H: Host>(&self, own: CpuId, masks: &Masks<H>) {
        let count = self.counts.iter().map(|(_, count)| count).sum::<usize>();
        assert_eq!(count, self.total, "K1: tasks with masks on CPU {own}");
        assert_eq!(self.shown_total, self.total, "K1: what CPU {own} shows");
        let union = self.union(own, masks);
        assert!(self.shown.iter().eq(union.iter()), "K2: CPU {own} shows {:?}, not {union:?}", self.shown);
    }

    /// How many tasks of each mask wait, for checks.
    pub(crate) fn counts(&self) -> &[(MaskId, usize)] {
        &self.counts
    }
}
