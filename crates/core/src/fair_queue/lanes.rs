//! The tasks of one leaf: first come, first served, also among those that may not run everywhere.
//!
//! Tasks that may run wherever their group may wait in one queue. One that has a mask of its own waits in a *lane* of that
//! mask, with its place among the others noted. So who takes tasks for a certain CPU finds the first that is allowed there
//! at the head of some queue, however many wait before it that are not.
//!
//! Knows nothing of CPUs, of what a mask means, or of the tree.
//!
//! # Invariants
//! - Q5: tasks leave in the order in which they came, among those that the caller admits.

use crate::MaskId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Lanes<T> {
    common: VecDeque<T>,
    /// Tasks that ever joined `common`; wraps around.
    came: u64,
    /// One for each mask that tasks here have; few, mostly none.
    masked: Vec<Lane<T>>,
    /// Tasks that ever joined a lane; wraps around.
    masked_came: u64,
}

/// Tasks of one mask.
#[derive(Debug)]
struct Lane<T> {
    mask: MaskId,
    tasks: VecDeque<Placed<T>>,
}

/// A task, and its place among those of the other queues.
#[derive(Debug)]
struct Placed<T> {
    place: Place,
    task: T,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// So many had joined the common queue before it.
    after: u64,
    /// So many had joined a lane before it.
    turn: u64,
}

/// Which tasks of a leaf the caller may take.
pub struct Admits<F> {
    /// Those that may run wherever their group may.
    pub common: bool,
    /// Those with this mask of their own.
    pub masked: F,
}

impl<F> core::fmt::Debug for Admits<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Admits").field("common", &self.common).finish_non_exhaustive()
    }
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Lanes { common: VecDeque::new(), came: 0, masked: Vec::new(), masked_came: 0 }
    }
}

impl<T> Lanes<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.common.is_empty() && self.masked.is_empty()
    }

    pub(super) fn push(&mut self, task: T) {
        self.came = self.came.wrapping_add(1);
        self.common.push_back(task);
    }

    pub(super) fn push_masked(&mut self, mask: MaskId, task: T) {
        let place = Place { after: self.came, turn: self.masked_came };
        self.masked_came = self.masked_came.wrapping_add(1);
        let placed = Placed { place, task };
        match self.masked.iter_mut().find(|lane| lane.mask == mask) {
            Some(lane) => lane.tasks.push_back(placed),
            None => self.masked.push(Lane { mask, tasks: VecDeque::from([placed]) }),
        }
    }

    /// The task that has waited longest.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.masked.is_empty() {
            return self.common.pop_front();
        }
        self.pop_admitted(&Admits { common: true, masked: |_| true })
    }

    /// The task that has waited longest of those that the caller may take.
    pub(super) fn pop_admitted(&mut self, admits: &Admits<impl Fn(MaskId) -> bool>) -> Option<T> {
        let left = self.came.wrapping_sub(self.common.len() as u64);
        let admitted = self.masked.iter().enumerate().filter(|(_, lane)| (admits.masked)(lane.mask));
        let heads = admitted.filter_map(|(index, lane)| lane.tasks.front().map(|head| (index, head.place)));
        // Who is in a lane came no longer ago than the oldest number still in use; so distances survive the wrap.
        let first = heads.min_by_key(|(_, place)| self.masked_came.wrapping_sub(place.turn).wrapping_neg());
        match first {
            Some((_, place)) if admits.common && !self.common.is_empty() && is_before(left, place.after) => {
                self.common.pop_front()
            }
            Some((index, _)) => {
                let lane = &mut self.masked[index];
                let placed = lane.tasks.pop_front();
                if lane.tasks.is_empty() {
                    self.masked.swap_remove(index);
                }
                placed.map(|placed| placed.task)
            }
            None if admits.common => self.common.pop_front(),
            None => None,
        }
    }

    /// Whether any task waits that the caller may take.
    pub(super) fn has_admitted(&self, admits: &Admits<impl Fn(MaskId) -> bool>) -> bool {
        (admits.common && !self.common.is_empty()) || self.masked.iter().any(|lane| (admits.masked)(lane.mask))
    }

    /// The masks that tasks have here, for checks.
    pub(super) fn masks(&self) -> impl Iterator<Item = (MaskId, usize)> + '_ {
        self.masked.iter().map(|lane| (lane.mask, lane.tasks.len()))
    }

    pub(super) fn common_len(&self) -> usize {
        self.common.len()
    }

    pub(super) fn shrink_to(&mut self, capacity: usize) {
        self.common.shrink_to(capacity);
    }
}

/// Whether the task of the common queue that `left` others preceded came before one that came after `after` of them.
fn is_before(left: u64, after: u64) -> bool {
    after.wrapping_sub(left).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A task of the plain model: its mask, 0 if none.
    fn take(model: &mut Vec<(u32, u32)>, may: impl Fn(u32) -> bool) -> Option<u32> {
        let first = model.iter().position(|(mask, _)| may(*mask))?;
        Some(model.remove(first).1)
    }

    proptest! {
        #[test]
        fn tasks_leave_in_the_order_they_came_among_those_admitted(
            start in prop_oneof![Just(0u64), Just(u64::MAX - 3)],
            ops in proptest::collection::vec((0u32..4, prop::option::of(0u32..8)), 0..200),
        ) {
            let mut lanes = Lanes { came: start, masked_came: start, ..Lanes::default() };
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (task, (mask, taken)) in ops.into_iter().enumerate() {
                let task = u32::try_from(task).unwrap();
                match taken {
                    None => {
                        if mask == 0 { lanes.push(task) } else { lanes.push_masked(MaskId::new(mask), task) }
                        model.push((mask, task));
                    }
                    // Bit 0 admits the common ones, bits 1 and 2 two of the three masks.
                    Some(bits) => {
                        let may = |mask: u32| bits >> mask & 1 == 1;
                        let admits = Admits { common: may(0), masked: |mask: MaskId| may(mask.get()) };
                        prop_assert_eq!(lanes.has_admitted(&admits), model.iter().any(|(mask, _)| may(*mask)));
                        prop_assert_eq!(lanes.pop_admitted(&admits), take(&mut model, may));
                    }
                }
                prop_assert_eq!(lanes.is_empty(), model.is_empty());
            }
            while let Some(expected) = take(&mut model, |_| true) {
                prop_assert_eq!(lanes.pop(), Some(expected));
            }
            prop_assert_eq!(lanes.pop(), None);
        }
    }
}
