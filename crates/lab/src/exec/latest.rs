//! Two numbers that one thread writes together and others read together, where nobody ever waits.
//!
//! The reader here has real-time priority and may have preempted the writer in the middle of a write, on its own CPU: a
//! lock, or a sequence lock, would then spin for ever. So there are two slots: the writer fills the one that isn't
//! current, then makes it so.
//!
//! Knows nothing of what the numbers mean.
//!
//! # Invariants
//! - L1: the slot that `turn` names is complete.
//! - L2: a slot is written only after a turn that names the other one was published.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A pair of numbers with one writer.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    slots: [Slot; 2],
    /// The parity names the current slot.
    turn: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    first: AtomicU64,
    second: AtomicU64,
}

impl Latest {
    /// Replaces the pair. Only ever called by one thread.
    pub(crate) fn write(&self, first: u64, second: u64) {
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        // ORDER L2: pairs with the fence in `read`. A reader that sees a number stored below also sees the turn that was
        // published before, and so knows that its slot was no longer current.
        fence(Ordering::Release);
        let slot = self.slot(turn);
        slot.first.store(first, Ordering::Relaxed);
        slot.second.store(second, Ordering::Relaxed);
        // ORDER L1: pairs with the first load in `read`: who sees the turn sees the numbers.
        self.turn.store(turn, Ordering::Release);
    }

    /// The pair as it was at some moment during the call.
    pub(crate) fn read(&self) -> (u64, u64) {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let slot = self.slot(turn);
            let pair = (slot.first.load(Ordering::Relaxed), slot.second.load(Ordering::Relaxed));
            // ORDER L2: pairs with the fence in `write`.
            fence(Ordering::Acquire);
            // Ends: to make it go round once more, the writer must publish between two loads, every time. A writer that
            // stands still, wherever it stands, makes it end at once.
            if self.turn.load(Ordering::Relaxed) == turn {
                return pair;
            }
        }
    }

    fn slot(&self, turn: u64) -> &Slot {
        &self.slots[usize::from(turn % 2 == 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_never_torn() {
        let latest = Latest::default();
        let last = 300_000u64;
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=last).for_each(|number| latest.write(number, number.wrapping_mul(3))));
            let mut seen = 0;
            while seen < last {
                let (first, second) = latest.read();
                assert_eq!(second, first.wrapping_mul(3), "L1");
                assert!(first >= seen, "what was seen is not unseen");
                seen = first;
            }
        });
    }

    #[test]
    fn a_writer_that_stands_still_is_not_waited_for() {
        let latest = Latest::default();
        latest.write(1, 2);
        // In the middle of the next write: the other slot is half full.
        latest.slot(0).first.store(7, Ordering::Relaxed);
        assert_eq!(latest.read(), (1, 2));
    }
}
