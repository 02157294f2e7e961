//! One CPU's state, and which lock or owner protects each part of it.
//!
//! Knows nothing of decisions: it is what they work on.

use crate::deadline::Deadline;
use crate::group::GroupPort;
use crate::host::{At, Host, LineClass, Lock, Shared, Site};
use crate::idle::{ParkWord, Place};
use crate::inbox::Inbox;
use crate::lock_count::LockCounters;
use crate::masked::MaskedWaiting;
use crate::masks::CpuBits;
use crate::ownership::Ownership;
use crate::table::Table;
use crate::task::{Registry, Runnable};
use crate::timer::{Timer, Timers};
use crate::words::Words;
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use evenkeel_core::balance::{Prospect, Smallest, Waiting};
use evenkeel_core::fair_queue::{Admits, FairQueue, Slot};
use evenkeel_core::histogram::{BUCKETS, Histogram, bucket_of};
use evenkeel_core::stats::{CpuStats, Load};
use evenkeel_core::{CpuId, GroupId, MaskId, Span, Time, Vtime};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Field key: (c) set once · (q) under the queue lock · (q/r) stored under the lock, read racily as a hint ·
/// (o/r) stored by the owner, read racily · (a) its own protocol, see there
pub(crate) struct Cpu<H: Host> {
    pub(crate) id: CpuId,                                      // (c)
    pub(crate) place: Place,                                   // (c)
    queue: CachePadded<H::Lock<RunQueue>>,                     // (q)
    pub(crate) inbox: CachePadded<Inbox<H::Shared, Runnable>>, // (a)
    pub(crate) timer_inbox: SegQueue<Arc<Timer>>,              // (a)
    pub(crate) park: CachePadded<ParkWord<H::Shared>>,         // (a)
    pub(crate) owner: Ownership<H::Shared>,                    // (a)
    pub(crate) waiting: CachePadded<PublishedWaiting<H>>,      // (q/r)
    /// A bit for each other CPU for which a task with a mask waits here.
    pub(crate) masked_for: Words<H::Shared>, // (q/r)
    /// A bit for each CPU that may run a task with a mask that came into the inbox since that was last taken: for
    /// statistics, and as rough as they are.
    inbox_for: Words<H::Shared>,
    pub(crate) poll: CachePadded<PublishedPoll<H>>, // (o/r)
    pub(crate) counters: CachePadded<Counters<H>>,  // (o/r)
}

/// A slice that is to end early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// The group whose slice it is.
    pub(crate) of: GroupId,
    /// The group that came.
    pub(crate) by: GroupId,
}

/// What waits on a CPU.
pub(crate) struct RunQueue {
    pub(crate) fair: FairQueue<Share, Runnable>,
    /// The group whose slice it is.
    pub(crate) running: Option<GroupId>,
    /// A more deserving group came meanwhile: the slice is to end at the next poll boundary.
    pub(crate) cut: Option<Cut>,
    pub(crate) timers: Timers,
    pub(crate) registry: Registry,
    pub(crate) masked: MaskedWaiting,
}

impl RunQueue {
    /// Enqueues a task at the end of its group's queue.
    pub(crate) fn push(&mut self, slot: Slot, task: Runnable) {
        let mask = task.metadata().mask();
        if mask == MaskId::ALL {
            return self.fair.push(slot, task);
        }
        self.masked.add(mask);
        if mask == self.fair.payload(slot).mask {
            self.fair.push(slot, task);
        } else {
            self.fair.push_masked(slot, mask, task);
        }
    }

    /// Dequeues the task of a group that has waited longest.
    pub(crate) fn pop(&mut self, slot: Slot) -> Option<Runnable> {
        let task = self.fair.pop(slot);
        self.forget_mask(task)
    }

    /// Dequeues the task of a group that has waited longest of those that the caller admits.
    pub(crate) fn pop_admitted(&mut self, slot: Slot, admits: &Admits<impl Fn(MaskId) -> bool>) -> Option<Runnable> {
        let task = self.fair.pop_admitted(slot, admits);
        self.forget_mask(task)
    }

    /// Takes out every task.
    pub(crate) fn drain(&mut self) -> Vec<Runnable> {
        let tasks = self.fair.drain();
        tasks.into_iter().filter_map(|task| self.forget_mask(Some(task))).collect()
    }

    fn forget_mask(&mut self, task: Option<Runnable>) -> Option<Runnable> {
        if let Some(mask) = task.as_ref().map(|task| task.metadata().mask()).filter(|mask| *mask != MaskId::ALL) {
            self.masked.remove(mask);
        }
        task
    }

    /// Tasks that wait here and may run everywhere.
    pub(crate) fn open_len(&self) -> usize {
        self.fair.len() - self.masked.total()
    }
}

/// What a CPU keeps for a group while it has tasks here.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) port: Arc<GroupPort>,
    /// The group's.
    pub(crate) mask: MaskId,
    pub(crate) tally: Tally,
}

/// Counted here, published at the end of a slice.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) polls: u64,
    pub(crate) run: Span,
    waits: [(u16, u16); TALLY_BUCKETS],
    used: usize,
}

/// Waits of one slice mostly fall into a few buckets of the histogram.
const TALLY_BUCKETS: usize = 8;

impl Tally {
    /// Counts a poll with the time that its task waited for it. False if the tally must be published first.
    pub(crate) fn try_count(&mut self, wait: Span) -> bool {
        let bucket = u16::try_from(bucket_of(wait)).expect("a histogram has fewer than 2^16 buckets");
        let place = self.waits[..self.used].iter().position(|(known, count)| *known == bucket && *count < u16::MAX);
        match place {
            Some(place) => self.waits[place].1 += 1,
            None if self.used < TALLY_BUCKETS => {
                self.waits[self.used] = (bucket, 1);
                self.used += 1;
            }
            None => return false,
        }
        self.polls += 1;
        true
    }

    /// Adds what was counted to the group's row.
    pub(crate) fn publish<H: Host>(&mut self, at: At, table: &Table<H>, group: GroupId) {
        if self.polls == 0 && self.run == Span::ZERO {
            return;
        }
        let row = table.row(group);
        row.line.polls.fetch_add(at, self.polls, Relaxed);
        row.line.run.fetch_add(at, self.run.as_nanos(), Relaxed);
        let waits = self.waits[..self.used].iter();
        row.add_waits(at, waits.map(|(bucket, count)| (usize::from(*bucket), u64::from(*count))));
        *self = Tally::default();
    }
}

/// What a CPU publishes of its queue: the group with the smallest clock that waits, and how many tasks do.
pub(crate) struct PublishedWaiting<H: Host> {
    /// Its id plus one; 0 if nothing waits. Read apart from the clock: who acts on it reads the clock again.
    group: H::Shared,
    clock: H::Shared,
    length: H::Shared,
    /// How many of them have masks.
    masked: H::Shared,
    /// The same as `group` and `clock`, of those groups that may run everywhere; kept while tasks with masks wait.
    open_group: H::Shared,
    open_clock: H::Shared,
    /// The group whose slice it is, plus one; 0 if there is none.
    running: H::Shared,
}

/// What a CPU publishes of its poll, its timers, and its picks.
pub(crate) struct PublishedPoll<H: Host> {
    /// When its current poll began, in ns; 0 if it is not in a poll.
    began: H::Shared,
    /// The earliest deadline of its timers.
    pub(crate) timer: Deadline<H::Shared>,
    /// The largest clock that it has picked.
    pub(crate) picked_max: H::Shared,
    /// Timers of this CPU that were cancelled since the last cleaning.
    pub(crate) cancelled: H::Shared,
}

impl<H: Host> PublishedWaiting<H> {
    fn new() -> Self {
        PublishedWaiting {
            group: H::Shared::of(LineClass::Waiting, 0),
            clock: H::Shared::of(LineClass::Waiting, 0),
            length: H::Shared::of(LineClass::Waiting, 0),
            masked: H::Shared::of(LineClass::Waiting, 0),
            open_group: H::Shared::of(LineClass::Waiting, 0),
            open_clock: H::Shared::of(LineClass::Waiting, 0),
            running: H::Shared::of(LineClass::Waiting, 0),
        }
    }

    pub(crate) fn set_length(&self, at: At, length: usize) {
        self.length.store(at, length as u64, Relaxed);
    }

    pub(crate) fn length(&self, at: At) -> usize {
        usize::try_from(self.length.load(at, Relaxed)).unwrap_or(usize::MAX)
    }

    pub(crate) fn set_masked(&self, at: At, count: usize) {
        self.masked.store(at, count as u64, Relaxed);
    }

    /// How many tasks with masks wait.
    pub(crate) fn masked(&self, at: At) -> usize {
        usize::try_from(self.masked.load(at, Relaxed)).unwrap_or(usize::MAX)
    }

    /// How many tasks wait that may run everywhere.
    pub(crate) fn open(&self, at: At) -> usize {
        let length = self.length(at);
        if length == 0 { 0 } else { length.saturating_sub(self.masked(at)) }
    }

    pub(crate) fn set_running(&self, at: At, group: Option<GroupId>) {
        self.running.store(at, group.map_or(0, |group| u64::from(group.get()) + 1), Relaxed);
    }

    pub(crate) fn running(&self, at: At) -> Option<GroupId> {
        let group = u32::try_from(self.running.load(at, Relaxed)).ok();
        group.and_then(|group| group.checked_sub(1)).map(GroupId::new)
    }

    pub(crate) fn set_smallest(&self, at: At, smallest: Option<Smallest>) {
        Self::set(at, &self.group, &self.clock, smallest);
    }

    /// The same of those groups that may run everywhere.
    pub(crate) fn set_smallest_open(&self, at: At, smallest: Option<Smallest>) {
        Self::set(at, &self.open_group, &self.open_clock, smallest);
    }

    fn set(at: At, group: &H::Shared, clock: &H::Shared, smallest: Option<Smallest>) {
        if let Some(smallest) = smallest {
            clock.store(at, smallest.clock.bits(), Relaxed);
        }
        group.store(at, smallest.map_or(0, |smallest| u64::from(smallest.group.get()) + 1), Relaxed);
    }

    fn get(at: At, group: &H::Shared, clock: &H::Shared) -> Option<Smallest> {
        let group = u32::try_from(group.load(at, Relaxed)).ok().and_then(|group| group.checked_sub(1));
        group.map(|group| Smallest { group: GroupId::new(group), clock: Vtime::from_bits(clock.load(at, Relaxed)) })
    }

    pub(crate) fn read(&self, at: At) -> Waiting {
        Waiting { smallest: Self::get(at, &self.group, &self.clock), length: self.length(at) }
    }

    /// The same of those groups that may run everywhere. Call if tasks with masks wait.
    pub(crate) fn read_open(&self, at: At) -> Waiting {
        Waiting { smallest: Self::get(at, &self.open_group, &self.open_clock), length: self.length(at) }
    }
}

impl<H: Host> PublishedPoll<H> {
    fn new() -> Self {
        PublishedPoll {
            began: H::Shared::of(LineClass::Poll, 0),
            timer: Deadline::default(),
            picked_max: H::Shared::of(LineClass::Poll, 0),
            cancelled: H::Shared::of(LineClass::Poll, 0),
        }
    }

    pub(crate) fn set_began(&self, at: At, began: Option<Time>) {
        self.began.store(at, began.map_or(0, |time| time.as_nanos().max(1)), Relaxed);
    }
}

impl<H: Host> Cpu<H> {
    pub(crate) fn new(id: CpuId, place: Place, cpus: usize) -> Self {
        let queue = RunQueue {
            fair: FairQueue::default(),
            running: None,
            cut: None,
            timers: Timers::default(),
            registry: Registry::default(),
            masked: MaskedWaiting::default(),
        };
        Cpu {
            id,
            place,
            queue: CachePadded::new(H::Lock::new(id, queue)),
            inbox: CachePadded::default(),
            timer_inbox: SegQueue::new(),
            park: CachePadded::default(),
            owner: Ownership::default(),
            waiting: CachePadded::new(PublishedWaiting::new()),
            masked_for: Words::new(LineClass::Waiting, cpus.div_ceil(64)),
            inbox_for: Words::new(LineClass::Waiting, cpus.div_ceil(64)),
            poll: CachePadded::new(PublishedPoll::new()),
            counters: CachePadded::new(Counters::new()),
        }
    }

    pub(crate) fn queue(&self) -> &H::Lock<RunQueue> {
        &self.queue
    }

    /// Whether a task waits here that the CPU `at.cpu` may run, though not everybody may.
    pub(crate) fn has_masked_for_me(&self, at: At) -> bool {
        self.waiting.masked(at) > 0 && {
            let word = self.masked_for.word(at.cpu.index() / 64).load(at, Relaxed);
            word >> (at.cpu.index() % 64) & 1 == 1
        }
    }

    /// Adds the CPUs for which tasks with masks wait here.
    pub(crate) fn add_masked_for(&self, at: At, cpus: &mut CpuBits) {
        if self.waiting.masked(at) > 0 {
            self.masked_for.iter().enumerate().for_each(|(index, word)| cpus.add_word(index, word.load(at, Relaxed)));
        }
    }

    /// A task of this mask is about to be put into the inbox.
    pub(crate) fn note_inbox(&self, at: At, mask: &CpuBits) {
        for (index, word) in self.inbox_for.iter().enumerate() {
            if mask.word(index) & !word.load(at, Relaxed) != 0 {
                word.fetch_or(at, mask.word(index), Relaxed);
            }
        }
    }

    /// Tasks with masks were taken out of the inbox.
    pub(crate) fn clear_inbox_note(&self, at: At) {
        self.inbox_for.iter().for_each(|word| word.store(at, 0, Relaxed));
    }

    /// Adds what waits here to the load of the machine, for statistics: what is for everybody to the count, whom the rest
    /// is for to the set. What is in an inbox beside a task with a mask counts as being for those who may run that one.
    pub(crate) fn add_load(&self, at: At, load: &mut Load, for_all: &mut usize, masked: &mut CpuBits) {
        let inbox = self.inbox.hint(at).at_least();
        load.parked += usize::from(self.park.is_parked(at));
        load.waiting += self.waiting.length(at) + inbox;
        *for_all += self.waiting.open(at);
        self.add_masked_for(at, masked);
        if inbox > 0 && self.inbox_for.iter().all(|word| word.load(at, Relaxed) == 0) {
            *for_all += inbox;
        } else if inbox > 0 {
            self.inbox_for.iter().enumerate().for_each(|(index, word)| masked.add_word(index, word.load(at, Relaxed)));
        }
    }

    /// What was counted on this CPU, and for it.
    pub(crate) fn stats(&self, at: At) -> CpuStats {
        self.counters.stats(at, self.id, self.inbox.outside(at))
    }

    /// What another CPU sees of this one. What waits in the queue and is not for everybody is not part of it.
    pub(crate) fn prospect(&self, at: At) -> Prospect {
        let began = self.poll.began.load(at, Relaxed);
        Prospect {
            queued: self.waiting.open(at),
            inbox: self.inbox.hint(at),
            timer: self.poll.timer.read(at),
            poll_began: (began != 0).then(|| Time::from_nanos(began)),
            is_parked: self.park.is_parked(at),
        }
    }
}

/// What a CPU counts. Each word is written by its owner alone.
pub(crate) struct Counters<H: Host> {
    words: [H::Shared; Counter::COUNT],
    wait: Words<H::Shared>,
    pub(crate) locks: LockCounters<H::Shared>,
}

/// A counter of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counter {
    Polls,
    Run,
    StealsTried,
    Steals,
    Migrations,
    Contended,
    FailedTries,
    Wakes,
    EmptyWakes,
    Parks,
    Cuts,
    LongPolls,
    Idles,
    Yields,
    WokenHere,
    Waited,
}

impl Counter {
    const COUNT: usize = Counter::Waited as usize + 1;
}

impl<H: Host> Counters<H> {
    fn new() -> Self {
        Counters {
            words: std::array::from_fn(|_| H::Shared::of(LineClass::Counters, 0)),
            wait: Words::new(LineClass::Counters, BUCKETS),
            locks: LockCounters::new(),
        }
    }

    /// Adds to a counter of the CPU `at.cpu`, which must be the one that counts.
    pub(crate) fn add(&self, at: At, counter: Counter, value: u64) {
        self.words[counter as usize].bump(at.within(Site::Count), value);
    }

    pub(crate) fn add_wait(&self, at: At, wait: Span) {
        self.wait.word(bucket_of(wait)).bump(at.within(Site::Count), 1);
        self.add(at, Counter::Waited, wait.as_nanos());
    }

    fn stats(&self, at: At, cpu: CpuId, woken_outside: u64) -> CpuStats {
        let read = |counter: Counter| self.words[counter as usize].load(at, Relaxed);
        let mut wait = Histogram::default();
        for (bucket, word) in self.wait.iter().enumerate() {
            wait.add(bucket, word.load(at, Relaxed));
        }
        CpuStats {
            cpu,
            polls: read(Counter::Polls),
            run: Span::from_nanos(read(Counter::Run)),
            steals_tried: read(Counter::StealsTried),
            steals: read(Counter::Steals),
            migrations: read(Counter::Migrations),
            contended: read(Counter::Contended),
            failed_tries: read(Counter::FailedTries),
            wakes: read(Counter::Wakes),
            empty_wakes: read(Counter::EmptyWakes),
            parks: read(Counter::Parks),
            idles: read(Counter::Idles),
            yields: read(Counter::Yields),
            woken_here: read(Counter::WokenHere),
            woken_outside,
            cuts: read(Counter::Cuts),
            long_polls: read(Counter::LongPolls),
            wait,
            wait_total: Span::from_nanos(read(Counter::Waited)),
        }
    }
}
