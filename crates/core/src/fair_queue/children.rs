//! The waiting children of one node, ordered by clock.
//!
//! All clocks move all the time. Few children are scanned at each look, which is exact and reads each clock once.
//! Many are kept in a heap by the clock that each had when it was last looked at; a stale key is renewed when it
//! comes up. A clock that fell meanwhile (a settlement) is found late, by at most what I4 states.
//!
//! Knows nothing of tasks or of the tree.

use super::Slot;
use crate::{GroupId, Vtime};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Up to so many children a scan reads about as many clocks as a heap would renew (clocks.md counted 24 to 41
/// renewals per pick with 100 groups), and is exact.
const SCAN_MAX: usize = 64;

/// A heap goes back to scanning below this, so that a group that comes and goes at the limit rebuilds nothing.
const HEAP_MIN: usize = SCAN_MAX / 2;

#[derive(Debug, Default)]
pub(super) struct Children {
    /// The children that wait. A child's place here is found by search: the list is short, or removal is rare
    /// beside the pick that precedes it.
    members: Vec<Member>,
    /// Where in `members` a slot is, by slot index; `NOWHERE` if it is not.
    places: Vec<u32>,
    heap: Option<BinaryHeap<Entry>>,
    /// Came since the last look at the heap; their clocks are read at the next one.
    fresh: Vec<Member>,
    stamps: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    slot: Slot,
    group: GroupId,
    /// The entry of the heap that stands for this member; older ones are void.
    stamp: u32,
}

impl Member {
    fn entry(self, key: Vtime) -> Entry {
        Entry { key, group: self.group, slot: self.slot, stamp: self.stamp }
    }
}

const NOWHERE: u32 = u32::MAX;

/// A place in the heap: smallest key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: Vtime,
    group: GroupId,
    slot: Slot,
    stamp: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed, since the standard heap keeps its largest on top.
        other.key.ahead_of(self.key).cmp(&0).then_with(|| other.group.cmp(&self.group))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Children {
    pub(super) fn insert(&mut self, slot: Slot, group: GroupId) {
        self.stamps = self.stamps.wrapping_add(1);
        let index = slot.index();
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        debug_assert_eq!(self.places[index], NOWHERE, "Q1: a child waits once");
        self.places[index] = Slot::at(self.members.len()).0;
        self.members.push(Member { slot, group, stamp: self.stamps });
        if self.heap.is_some() {
            // Its clock is not known here, and any guess could be past it, which I4 forbids: the next look reads it.
            self.fresh.push(Member { slot, group, stamp: self.stamps });
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let place = core::mem::replace(&mut self.places[slot.index()], NOWHERE);
        self.members.swap_remove(place as usize);
        if let Some(moved) = self.members.get(place as usize) {
            self.places[moved.slot.index()] = place;
        }
        if self.members.len() < HEAP_MIN {
            self.heap = None;
            self.fresh.clear();
        }
    }

    /// The child with the smallest clock.
    pub(super) fn smallest(
        &mut self,
        group: impl Fn(Slot) -> GroupId,
        clock: impl Fn(GroupId) -> Vtime,
    ) -> Option<Slot> {
        if self.heap.is_none() {
            if self.members.len() <= SCAN_MAX {
                return self.scan(clock);
            }
            self.build(&clock);
        }
        self.renew(group, clock)
    }

    /// The child with the smallest clock of the first [`SCAN_MAX`] that can be used.
    pub(super) fn smallest_usable(
        &self,
        clock: impl Fn(GroupId) -> Vtime,
        is_usable: impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        least_of(self.members.iter().filter(|member| is_usable(member.slot)).take(SCAN_MAX), clock)
    }

    fn scan(&self, clock: impl Fn(GroupId) -> Vtime) -> Option<Slot> {
        least_of(self.members.iter(), clock)
    }

    fn build(&mut self, clock: impl Fn(GroupId) -> Vtime) {
        self.fresh.clear();
        self.heap = Some(self.members.iter().map(|member| member.entry(clock(member.group))).collect());
    }

    /// The keys as they are stored, for checks of I4. Empty while the children are scanned.
    pub(super) fn keys(&self) -> impl Iterator<Item = (GroupId, Vtime)> + '_ {
        let is_current = |entry: &&Entry| self.members.iter().any(|member| member.stamp == entry.stamp);
        self.heap.iter().flatten().filter(is_current).map(|entry| (entry.group, entry.key))
    }

    /// Renews stale keys until the top is current. Ends: each turn drops a void entry or renews one, and after as many
    /// renewals as there are children (their clocks move meanwhile) the least of them is taken.
    fn renew(&mut self, group: impl Fn(Slot) -> GroupId, clock: impl Fn(GroupId) -> Vtime) -> Option<Slot> {
        let heap = self.heap.as_mut()?;
        heap.extend(self.fresh.drain(..).map(|member| member.entry(clock(member.group))));
        let (mut renewals, mut least) = (0, None::<Entry>);
        while let Some(top) = heap.peek().copied() {
            let place = self.places.get(top.slot.index()).copied().unwrap_or(NOWHERE);
            let is_current = self.members.get(place as usize).is_some_and(|member| member.stamp == top.stamp);
            if !is_current {
                heap.pop();
                continue;
            }
            debug_assert_eq!(group(top.slot), top.group, "Q1: a stamp names one stay of one group");
            let now = clock(top.group);
            if !top.key.is_before(now) {
                return Some(top.slot);
            }
            heap.pop();
            let renewed = Entry { key: now, ..top };
            heap.push(renewed);
            least = Some(least.map_or(renewed, |least| least.max(renewed)));
            renewals += 1;
            if renewals > self.members.len() {
                break;
            }
        }
        least.map(|entry| entry.slot)
    }
}

/// The member with the smallest clock, ties by group.
fn least_of<'a>(members: impl Iterator<Item = &'a Member>, clock: impl Fn(GroupId) -> Vtime) -> Option<Slot> {
    let mut best = None::<(Vtime, Member)>;
    for member in members {
        let key = clock(member.group);
        let is_better = best.is_none_or(|(least, held)| match key.ahead_of(least) {
            0 => member.group < held.group,
            ahead => ahead < 0,
        });
        if is_better {
            best = Some((key, *member));
        }
    }
    best.map(|(_, member)| member.slot)
}
