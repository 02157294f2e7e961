//! The machine's table of groups: for each its clock, weight, `waiting_cpus`, and what was counted for it.
//!
//! Grows in chunks that never move, so a group's place is found by its id without a lock. Ids are reused.
//!
//! Knows nothing of queues, nor of what the words mean to the sharing rule (`machine::clocks`).

use crate::group::{GroupNode, Limit};
use crate::host::{At, Host, LineClass, Shared};
use crate::words::Words;
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use evenkeel_core::histogram::{BUCKETS, Histogram};
use evenkeel_core::stats::GroupStats;
use evenkeel_core::{GroupId, MaskId, Span, Vtime, Weight};
#[expect(
    clippy::disallowed_types,
    reason = "set when a group is made or ends, read by statistics: no scheduling path takes it"
)]
use parking_lot::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};

/// Places in the first chunk; each further chunk is twice as large.
pub(crate) const FIRST_CHUNK: usize = 64;
/// Enough for about four million groups alive at a time.
const CHUNKS: usize = 16;

/// The words of one group that the sharing rule works on: one cache line of its own.
pub(crate) struct ClockLine<H: Host> {
    pub(crate) clock: H::Shared,
    pub(crate) weight: H::Shared,
    /// CPUs on which the group has a task queued.
    pub(crate) waiting_cpus: H::Shared,
    /// How long the group's turns last, in ns: an average that each settlement moves. What a pick reserves.
    pub(crate) turn: H::Shared,
    /// Counted at the end of a turn, so on the line that its settlement has just fetched.
    pub(crate) polls: H::Shared,
    pub(crate) run: H::Shared,
    /// For checks of I2 and I5, in debug builds: virtual time charged, settlements, what is reserved and not settled,
    /// and how often the group was raised.
    pub(crate) charged: H::Shared,
    pub(crate) settlements: H::Shared,
    pub(crate) reserved: H::Shared,
    pub(crate) raises: H::Shared,
    pub(crate) weight_changes: H::Shared,
}

#[expect(
    clippy::disallowed_types,
    reason = "set when a group is made or ends, read by statistics: no scheduling path takes it"
)]
pub(crate) struct GroupRow<H: Host> {
    pub(crate) line: CachePadded<ClockLine<H>>,
    /// Tasks alive, if the group has a limit.
    live: CachePadded<H::Shared>,
    wait: OnceLock<Words<H::Shared>>,
    /// The CPUs that it may use; set when it is made.
    mask: H::Shared,
    /// Only touched when a group is made or ends, and by statistics.
    node: Mutex<Weak<GroupNode>>,
}

pub(crate) struct Table<H: Host> {
    chunks: [OnceLock<Box<[GroupRow<H>]>>; CHUNKS],
    next: H::Shared,
    free: SegQueue<GroupId>,
}

/// The table has no place for another group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableFull;

impl<H: Host> Table<H> {
    pub(crate) fn new() -> Self {
        Table { chunks: [const { OnceLock::new() }; CHUNKS], next: H::Shared::new(0), free: SegQueue::new() }
    }

    pub(crate) fn row(&self, id: GroupId) -> &GroupRow<H> {
        let (chunk, place) = place_of(id.index());
        let rows = self.chunks[chunk].get().expect("the id of a group that was made");
        &rows[place]
    }

    /// A free place, with its clock set. `node` follows by `set_node`.
    pub(crate) fn allocate(&self, at: At, weight: Weight, mask: MaskId, clock: Vtime) -> Result<GroupId, TableFull> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => self.grow(at)?,
        };
        let row = self.row(id);
        let line = &row.line;
        line.clock.store(at, clock.bits(), Relaxed);
        line.weight.store(at, u64::from(weight.get()), Relaxed);
        row.mask.store(at, u64::from(mask.get()), Relaxed);
        let checked = [&line.charged, &line.settlements, &line.reserved, &line.raises, &line.weight_changes];
        let counters = checked.into_iter().chain([&line.polls, &line.run, &*row.live]);
        let buckets = row.wait.get().into_iter().flat_map(Words::iter);
        counters.chain(buckets).for_each(|word| word.store(at, 0, Relaxed));
        Ok(id)
    }

    fn grow(&self, at: At) -> Result<GroupId, TableFull> {
        let index = self.next.fetch_add(at, 1, Relaxed);
        let index = u32::try_from(index).map_err(|_| TableFull)?;
        let (chunk, _) = place_of(index as usize);
        let rows = self.chunks.get(chunk).ok_or(TableFull)?;
        rows.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| GroupRow::new()).collect());
        Ok(GroupId::new(index))
    }

    pub(crate) fn set_node(&self, id: GroupId, node: &Arc<GroupNode>) {
        *self.row(id).node.lock() = Arc::downgrade(node);
    }

    /// The group has ended: nothing refers to it.
    pub(crate) fn release(&self, id: GroupId) {
        *self.row(id).node.lock() = Weak::new();
        self.free.push(id);
    }

    /// Counts a task in, unless the group is full.
    pub(crate) fn admit(&self, at: At, id: GroupId, limit: Limit) -> Admission {
        let Limit::Tasks(most) = limit else { return Admission::Admitted };
        let live = &self.row(id).live;
        let mut held = live.load(at, Relaxed);
        // By exchange, so that one who is refused does not take up a place meanwhile. Ends: a failure means that somebody
        // else was counted in or out.
        while held < most {
            match live.compare_exchange(at, held, held + 1, Relaxed) {
                Ok(_) => return Admission::Admitted,
                Err(changed) => held = changed,
            }
        }
        Admission::Full
    }

    /// Counts a task out.
    pub(crate) fn retire(&self, at: At, id: GroupId) {
        self.row(id).live.fetch_sub(at, 1, Relaxed);
    }

    /// The groups that are alive, with what was counted for them.
    pub(crate) fn stats(&self, at: At) -> Vec<GroupStats> {
        self.rows(at)
            .filter_map(|row| row.node.lock().upgrade().map(|node| (row, node)))
            .map(|(row, node)| row.stats(at, &node))
            .collect()
    }

    fn rows(&self, at: At) -> impl Iterator<Item = &GroupRow<H>> {
        let made = usize::try_from(self.next.load(at, Relaxed)).unwrap_or(usize::MAX);
        self.chunks.iter().filter_map(OnceLock::get).flatten().take(made)
    }

    /// The ids of all groups that are alive, for checks.
    pub(crate) fn alive(&self, at: At) -> Vec<GroupId> {
        self.rows(at).filter_map(|row| row.node.lock().upgrade().map(|node| node.id())).collect()
    }
}

/// Whether a task may join its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Admission {
    Admitted,
    Full,
    /// The machine takes no more tasks.
    Stopping,
}

impl<H: Host> GroupRow<H> {
    fn new() -> Self {
        let word = || H::Shared::of(LineClass::GroupClock, 0);
        let count = || H::Shared::of(LineClass::GroupCounts, 0);
        let line = ClockLine {
            clock: word(),
            weight: word(),
            waiting_cpus: word(),
            turn: word(),
            polls: word(),
            run: word(),
            charged: word(),
            settlements: word(),
            reserved: word(),
            raises: word(),
            weight_changes: word(),
        };
        #[expect(
            clippy::disallowed_types,
            reason = "set when a group is made or ends, read by statistics: no scheduling path takes it"
        )]
        GroupRow {
            line: CachePadded::new(line),
            live: CachePadded::new(count()),
            wait: OnceLock::new(),
            mask: word(),
            node: Mutex::default(),
        }
    }

    pub(crate) fn clock(&self, at: At) -> Vtime {
        Vtime::from_bits(self.line.clock.load(at, Relaxed))
    }

    pub(crate) fn weight(&self, at: At) -> Weight {
        let weight = u32::try_from(self.line.weight.load(at, Relaxed)).ok();
        weight.and_then(|weight| Weight::new(weight).ok()).expect("only weights are stored")
    }

    /// Its mask. The id of one that a machine remembers, so it may be looked up even if the group has just ended.
    pub(crate) fn mask(&self, at: At) -> MaskId {
        MaskId::new(u32::try_from(self.mask.load(at, Relaxed)).expect("only ids are stored"))
    }

    pub(crate) fn add_waits(&self, at: At, waits: impl Iterator<Item = (usize, u64)>) {
        let buckets = self.wait.get_or_init(|| Words::new(LineClass::GroupCounts, BUCKETS));
        waits.for_each(|(bucket, count)| {
            buckets.word(bucket).fetch_add(at, count, Relaxed);
        });
    }

    fn stats(&self, at: At, node: &GroupNode) -> GroupStats {
        let mut wait = Histogram::default();
        for (bucket, word) in self.wait.get().into_iter().flat_map(Words::iter).enumerate() {
            wait.add(bucket, word.load(at, Relaxed));
        }
        GroupStats {
            id: node.id(),
            name: node.name().to_owned(),
            weight: self.weight(at),
            polls: self.line.polls.load(at, Relaxed),
            run: Span::from_nanos(self.line.run.load(at, Relaxed)),
            wait,
        }
    }
}

/// The chunk that an index is in, and its place there.
pub(crate) fn place_of(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_tile_the_chunks() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(place_of(index), expected);
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
