//! The run queue of one CPU: a tree of the groups that have tasks waiting here, ordered by their clocks.
//!
//! A leaf keeps its tasks first come, first served. An inner node orders its children by clock; a clock lives
//! elsewhere and moves on its own, so it is read, by a function that the caller passes, at each look.
//!
//! Knows nothing of locks, of other CPUs, or of how a clock is kept. State exists only for groups that have
//! tasks waiting here, are pinned (the running group), or have descendants for which that holds.
//!
//! # Invariants
//! - Q1: a node is among its parent's waiting children exactly if tasks wait in its subtree.
//! - Q2: the order is total: clock, then group id.
//! - Q3: `pick` returns a leaf with the smallest clock at every level, up to the staleness that I4 allows.
//! - Q4: `len` equals the number of tasks in all leaves.
//! - Q5: tasks leave a leaf in the order in which they came, among those that the caller admits.
//!
//! Deferred counting: whether a group waits on a CPU is counted elsewhere (`waiting_cpus`), at a cost. A task that is
//! requeued and picked again at once would change the count twice for nothing, so edges are collected and reported by
//! [`FairQueue::settle_counts`], after the pick.

mod children;
mod lanes;

pub use lanes::Admits;

use crate::{GroupId, MaskId, Vtime};
use alloc::vec::Vec;
use children::Children;
use hashbrown::HashMap;
use lanes::Lanes;
use rustc_hash::FxBuildHasher;

/// The place of a node in its queue; valid until the node is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot(u32);

impl Slot {
    /// The root of the tree: its children are the groups at the top.
    pub const ROOT: Slot = Slot(0);

    fn index(self) -> usize {
        self.0 as usize
    }

    fn at(index: usize) -> Slot {
        Slot(u32::try_from(index).expect("one queue has fewer than 2^32 groups"))
    }
}

/// A change of "this group has tasks waiting on this CPU" that has to be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// It has now.
    Up,
    /// It has no longer.
    Down,
}

/// One CPU's part in a group's `waiting_cpus`, on its way from one queue to another. Whoever ends up with it must
/// give it to a queue or count it down.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub struct Count(());

/// The run queue of one CPU. `G` is what the owner keeps per group here, `T` a task.
#[derive(Debug)]
pub struct FairQueue<G, T> {
    nodes: Vec<Node<G, T>>,
    free: Vec<Slot>,
    by_group: HashMap<GroupId, Slot, FxBuildHasher>,
    dirty: Vec<Slot>,
}

#[derive(Debug)]
struct Node<G, T> {
    group: GroupId,
    parent: Slot,
    /// `None` for the root and for free places.
    payload: Option<G>,
    tasks: Lanes<T>,
    children: Children,
    /// Tasks that wait in this subtree.
    waiting: usize,
    /// Nodes that name this one as their parent.
    kids: u32,
    /// Whether the last edge reported was `Up`.
    is_counted: bool,
    is_dirty: bool,
    is_pinned: bool,
}

/// Room that the queue of a group keeps when the group leaves, for the next one in its place.
const KEPT_CAPACITY: usize = 64;

impl<G, T> Node<G, T> {
    fn new(group: GroupId, parent: Slot, payload: Option<G>) -> Self {
        Node {
            group,
            parent,
            payload,
            tasks: Lanes::default(),
            children: Children::default(),
            waiting: 0,
            kids: 0,
            is_counted: false,
            is_dirty: false,
            is_pinned: false,
        }
    }

    fn is_needed(&self) -> bool {
        self.waiting > 0 || self.is_pinned || self.kids > 0
    }
}

impl<G, T> Default for FairQueue<G, T> {
    fn default() -> Self {
        FairQueue {
            nodes: alloc::vec![Node::new(GroupId::new(u32::MAX), Slot::ROOT, None)],
            free: Vec::new(),
            by_group: HashMap::default(),
            dirty: Vec::new(),
        }
    }
}

impl<G, T> FairQueue<G, T> {
    /// Tasks that wait.
    pub fn len(&self) -> usize {
        self.nodes[Slot::ROOT.index()].waiting
    }

    /// Whether no task waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The node of `group`, if it has one here.
    pub fn find(&self, group: GroupId) -> Option<Slot> {
        self.by_group.get(&group).copied()
    }

    /// The node of `group` below `parent`; made with `payload` if there is none.
    pub fn ensure(&mut self, group: GroupId, parent: Slot, payload: impl FnOnce() -> G) -> Slot {
        if let Some(slot) = self.find(group) {
            return slot;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                let node = &mut self.nodes[slot.index()];
                (node.group, node.parent, node.payload) = (group, parent, Some(payload()));
                slot
            }
            None => {
                let slot = Slot::at(self.nodes.len());
                self.nodes.push(Node::new(group, parent, Some(payload())));
                slot
            }
        };
        self.nodes[parent.index()].kids += 1;
        self.by_group.insert(group, slot);
        // Removed by the next `settle_counts`, unless something is queued here by then.
        self.mark_dirty(slot);
        slot
    }

    /// What the owner keeps for this node.
    ///
    /// # Panics
    /// If `slot` is the root or was removed.
    pub fn payload(&self, slot: Slot) -> &G {
        self.nodes[slot.index()].payload.as_ref().expect("the slot of a live node")
    }

    /// What the owner keeps for this node.
    ///
    /// # Panics
    /// If `slot` is the root or was removed.
    pub fn payload_mut(&mut self, slot: Slot) -> &mut G {
        self.nodes[slot.index()].payload.as_mut().expect("the slot of a live node")
    }

    /// The group of this node.
    pub fn group(&self, slot: Slot) -> GroupId {
        self.nodes[slot.index()].group
    }

    /// The nodes from `slot` up to the root, which is left out.
    pub fn path(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        core::iter::successors(Some(slot), |slot| Some(self.nodes[slot.index()].parent))
            .take_while(|slot| *slot != Slot::ROOT)
    }

    /// Whether tasks wait in this node's subtree, or are still counted as doing so.
    pub fn has_claim(&self, slot: Slot) -> bool {
        let node = &self.nodes[slot.index()];
        node.waiting > 0 || node.is_counted
    }

    /// Tasks that wait in this node's subtree.
    pub fn waiting(&self, slot: Slot) -> usize {
        self.nodes[slot.index()].waiting
    }

    /// Keeps the node while its group runs here, though nothing of it may be waiting.
    pub fn pin(&mut self, slot: Slot) {
        self.nodes[slot.index()].is_pinned = true;
    }

    /// Undoes [`FairQueue::pin`].
    pub fn unpin(&mut self, slot: Slot) {
        self.nodes[slot.index()].is_pinned = false;
        self.mark_dirty(slot);
    }

    /// Enqueues a task at the end of the group's queue.
    pub fn push(&mut self, slot: Slot, task: T) {
        self.nodes[slot.index()].tasks.push(task);
        self.grow(slot);
    }

    /// Enqueues a task with a mask of its own at the end of the group's queue.
    pub fn push_masked(&mut self, slot: Slot, mask: MaskId, task: T) {
        self.nodes[slot.index()].tasks.push_masked(mask, task);
        self.grow(slot);
    }

    /// Dequeues the task of this leaf that has waited longest.
    pub fn pop(&mut self, slot: Slot) -> Option<T> {
        let task = self.nodes[slot.index()].tasks.pop()?;
        self.shrink(slot);
        Some(task)
    }

    /// Dequeues the task of this leaf that has waited longest of those that the caller admits.
    pub fn pop_admitted(&mut self, slot: Slot, admits: &Admits<impl Fn(MaskId) -> bool>) -> Option<T> {
        let task = self.nodes[slot.index()].tasks.pop_admitted(admits)?;
        self.shrink(slot);
        Some(task)
    }

    /// Whether any task waits in this leaf that the caller admits.
    pub fn has_admitted(&self, slot: Slot, admits: &Admits<impl Fn(MaskId) -> bool>) -> bool {
        self.nodes[slot.index()].tasks.has_admitted(admits)
    }

    /// The leaf to run next: at each level the waiting child with the smallest clock.
    pub fn pick(&mut self, clock: impl Fn(GroupId) -> Vtime) -> Option<Slot> {
        let mut at = Slot::ROOT;
        while self.nodes[at.index()].tasks.is_empty() {
            at = self.smallest_child(at, &clock)?;
        }
        Some(at)
    }

    /// The waiting child of `parent` with the smallest clock.
    pub fn smallest_child(&mut self, parent: Slot, clock: impl Fn(GroupId) -> Vtime) -> Option<Slot> {
        let mut children = core::mem::take(&mut self.nodes[parent.index()].children);
        let smallest = children.smallest(|slot| self.nodes[slot.index()].group, clock);
        self.nodes[parent.index()].children = children;
        smallest
    }

    /// The waiting child of `parent` with the smallest clock of those that the caller can use. Among many children it
    /// is the smallest of the first few that it can.
    pub fn smallest_usable(
        &mut self,
        parent: Slot,
        clock: impl Fn(GroupId) -> Vtime,
        is_usable: impl Fn(&Self, Slot) -> bool,
    ) -> Option<Slot> {
        if let Some(smallest) = self.smallest_child(parent, &clock).filter(|slot| is_usable(self, *slot)) {
            return Some(smallest);
        }
        self.nodes[parent.index()].children.smallest_usable(clock, |slot| is_usable(self, slot))
    }

    /// Reports the edges since the last call, and hands back what was kept for groups that have left the queue.
    pub fn settle_counts(&mut self, mut edge: impl FnMut(GroupId, Edge), mut gone: impl FnMut(GroupId, G)) {
        while let Some(slot) = self.dirty.pop() {
            let node = &mut self.nodes[slot.index()];
            node.is_dirty = false;
            match (node.waiting > 0, node.is_counted) {
                (true, false) => edge(node.group, Edge::Up),
                (false, true) => edge(node.group, Edge::Down),
                (true, true) | (false, false) => {}
            }
            node.is_counted = node.waiting > 0;
            if !node.is_needed() {
                let (group, payload) = self.remove(slot);
                gone(group, payload);
            }
        }
    }

    /// Takes over the count of a group that nothing waits for here any more: a pull moves it along with the tasks, so
    /// that the group is counted all the while.
    pub fn take_count(&mut self, slot: Slot) -> Option<Count> {
        let node = &mut self.nodes[slot.index()];
        let had = node.waiting == 0 && node.is_counted;
        if had {
            node.is_counted = false;
        }
        had.then_some(Count(()))
    }

    /// Gives the node a count that was taken elsewhere. Returns it if the group is counted here already.
    pub fn give_count(&mut self, slot: Slot, count: Count) -> Option<Count> {
        let node = &mut self.nodes[slot.index()];
        if node.is_counted {
            return Some(count);
        }
        node.is_counted = true;
        self.mark_dirty(slot);
        None
    }

    /// The groups that are counted as waiting here, for checks.
    pub fn counted(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.nodes.iter().filter(|node| node.is_counted).map(|node| node.group)
    }

    /// The groups that have tasks waiting here, for checks.
    pub fn queued(&self) -> impl Iterator<Item = GroupId> + '_ {
        let is_group = |(index, node): &(usize, &Node<G, T>)| *index != Slot::ROOT.index() && node.waiting > 0;
        self.nodes.iter().enumerate().filter(is_group).map(|(_, node)| node.group)
    }

    /// The tasks that wait in each group's leaf: how many without a mask of their own, and how many of each mask. For
    /// checks.
    pub fn contents(&self) -> impl Iterator<Item = (&G, usize, Vec<(MaskId, usize)>)> + '_ {
        let leaves = self.nodes.iter().filter_map(|node| node.payload.as_ref().map(|payload| (payload, &node.tasks)));
        leaves.map(|(payload, tasks)| (payload, tasks.common_len(), tasks.masks().collect()))
    }

    /// The keys that the order of the groups at the top has stored, for checks of I4.
    pub fn stored_keys(&self) -> impl Iterator<Item = (GroupId, Vtime)> + '_ {
        self.nodes[Slot::ROOT.index()].children.keys()
    }

    /// Takes out every task, in no particular order of groups. The nodes stay until the next `settle_counts`.
    pub fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len());
        for index in 0..self.nodes.len() {
            while let Some(task) = self.pop(Slot::at(index)) {
                all.push(task);
            }
        }
        all
    }

    fn grow(&mut self, leaf: Slot) {
        let mut at = leaf;
        while at != Slot::ROOT {
            let node = &mut self.nodes[at.index()];
            node.waiting += 1;
            let (is_first, parent, group) = (node.waiting == 1, node.parent, node.group);
            if is_first {
                self.mark_dirty(at);
                self.nodes[parent.index()].children.insert(at, group);
            }
            at = parent;
        }
        self.nodes[Slot::ROOT.index()].waiting += 1;
    }

    fn shrink(&mut self, leaf: Slot) {
        let mut at = leaf;
        while at != Slot::ROOT {
            let node = &mut self.nodes[at.index()];
            node.waiting -= 1;
            let (is_last, parent) = (node.waiting == 0, node.parent);
            if is_last {
                self.mark_dirty(at);
                self.nodes[parent.index()].children.remove(at);
            }
            at = parent;
        }
        self.nodes[Slot::ROOT.index()].waiting -= 1;
    }

    fn mark_dirty(&mut self, slot: Slot) {
        let node = &mut self.nodes[slot.index()];
        if !node.is_dirty {
            node.is_dirty = true;
            self.dirty.push(slot);
        }
    }

    fn remove(&mut self, slot: Slot) -> (GroupId, G) {
        let node = &mut self.nodes[slot.index()];
        let (group, parent) = (node.group, node.parent);
        let payload = node.payload.take().expect("Q1: a node is removed once");
        node.tasks.shrink_to(KEPT_CAPACITY);
        self.by_group.remove(&group);
        self.free.push(slot);
        let above = &mut self.nodes[parent.index()];
        above.kids -= 1;
        if parent != Slot::ROOT && !above.is_needed() {
            self.mark_dirty(parent);
        }
        (group, payload)
    }
}

#[cfg(test)]
mod tests;
