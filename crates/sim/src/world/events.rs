//! The stream of what happens: hashed whole, counted, and kept if asked for.
//!
//! Knows nothing of what the records mean to whoever reads them.

use evenkeel_core::{CpuId, Time};
use evenkeel_engine::host::TaskKey;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// A task (`a`) was spawned.
    Spawn = 1,
    /// A task (`a`) became runnable.
    Wake = 2,
    /// A task (`a`) of a group (`b`) begins to run.
    Dispatch = 3,
    /// User code ends (a poll, wakers, destructors), and with it the work that it declared: so many ns of work (`b`).
    UserEnd = 4,
    /// A task (`a`) came here from another CPU.
    Migrate = 5,
    /// A lock (`a`) was taken by a CPU that did not have it last (`b`; one past the last CPU for outside).
    LockTransfer = 6,
    /// A CPU waits for a lock (`a`).
    LockWait = 7,
    /// A lock (`a`) was taken by another CPU: a try has failed.
    FailedTry = 8,
    /// A CPU is idle.
    Park = 9,
    /// It is no longer.
    Unpark = 10,
    /// A CPU (`a`) was kicked.
    Kick = 11,
    /// A script of the outside (`a`) runs.
    Script = 12,
    /// User code begins. Several polls may follow one dispatch.
    UserBegin = 13,
    /// A task (`a`) of a group (`b`), which was dispatched, leaves the CPU.
    Leave = 14,
    /// A CPU that waited for a lock (`a`) has it.
    LockGot = 15,
    /// It is published that some tasks (`b`) wait in the queue of a CPU (`a`).
    Queue = 16,
    /// The clock of a group (`a`) was settled or raised, or more was reserved of it, and it shows `b`.
    Clock = 17,
    /// A CPU has ended: its machine stops.
    End = 18,
    /// A CPU stalls, for this many microseconds (`a`).
    Stall = 64,
    /// A CPU that holds a lock loses its processor, for this many microseconds (`a`).
    HolderOff = 65,
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When.
    pub at: Time,
    /// Where, or [`CpuId::OUTSIDE`].
    pub cpu: CpuId,
    /// What.
    pub kind: RecordKind,
    /// See [`RecordKind`].
    pub a: u32,
    /// See [`RecordKind`].
    pub b: u64,
}

#[derive(Debug)]
pub(super) struct Stream {
    hash: u64,
    count: u64,
    kept: Vec<Record>,
    /// How many more are to be kept. Those that were taken away count: what is left out is at the end.
    room: usize,
    /// Records that came after those.
    left_out: u64,
    tasks: HashMap<TaskKey, u32, FxBuildHasher>,
    next_task: u32,
}

/// Of the multiplicative hashing family; any odd number of many bits does. Ours is the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR)
}

impl Stream {
    pub(super) fn new() -> Stream {
        Stream {
            hash: FACTOR,
            count: 0,
            kept: Vec::new(),
            room: 0,
            left_out: 0,
            tasks: HashMap::default(),
            next_task: 0,
        }
    }

    /// From here on records are kept, until there are `max`.
    pub(super) fn keep(&mut self, max: usize) {
        (self.room, self.left_out) = (max.saturating_sub(self.kept.len()), 0);
    }

    pub(super) fn add(&mut self, record: Record) {
        self.count += 1;
        let who = u64::from(record.cpu.get()) | (record.kind as u64) << 32;
        let hash = mix(mix(self.hash, record.at.as_nanos()), who);
        self.hash = mix(mix(hash, record.a.into()), record.b);
        self.keep_only(record);
    }

    /// Keeps what is no event.
    pub(super) fn keep_only(&mut self, record: Record) {
        if self.room > 0 {
            self.room -= 1;
            self.kept.push(record);
        } else {
            self.left_out += 1;
        }
    }

    /// Of all records so far, and how many there were.
    pub(super) fn digest(&self) -> (u64, u64) {
        // The last words must reach all bits.
        (mix(self.hash ^ self.hash >> 32, self.count), self.count)
    }

    pub(super) fn kept(&self) -> &[Record] {
        &self.kept
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn take_kept(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.kept)
    }

    /// A number for a task that was just spawned; its address may have been another's.
    pub(super) fn new_task(&mut self, key: TaskKey) -> u32 {
        let task = self.next_task;
        self.next_task = self.next_task.wrapping_add(1);
        self.tasks.insert(key, task);
        task
    }

    /// The number of a task.
    pub(super) fn task(&mut self, key: TaskKey) -> u32 {
        match self.tasks.get(&key) {
            Some(task) => *task,
            None => self.new_task(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: u64, a: u32) -> Record {
        Record { at: Time::from_nanos(at), cpu: CpuId::new(3), kind: RecordKind::Wake, a, b: 0 }
    }

    #[test]
    fn every_field_and_the_order_count() {
        let digest = |records: &[Record]| {
            let mut stream = Stream::new();
            records.iter().for_each(|record| stream.add(*record));
            stream.digest()
        };
        let base = digest(&[record(1, 2), record(2, 3)]);
        assert_eq!(base, digest(&[record(1, 2), record(2, 3)]));
        assert_ne!(base, digest(&[record(2, 3), record(1, 2)]));
        assert_ne!(base, digest(&[record(1, 2), record(2, 4)]));
        assert_ne!(base, digest(&[record(1, 2), Record { cpu: CpuId::new(4), ..record(2, 3) }]));
        assert_ne!(base, digest(&[record(1, 2), Record { kind: RecordKind::Kick, ..record(2, 3) }]));
        assert_ne!(base, digest(&[record(1, 2), Record { b: 1, ..record(2, 3) }]));
    }

    #[test]
    fn taking_records_makes_no_room_for_more() {
        let mut stream = Stream::new();
        let add = |stream: &mut Stream, count: u32| (0..count).for_each(|a| stream.add(record(1, a)));
        add(&mut stream, 2);
        stream.keep(5);
        add(&mut stream, 3);
        assert_eq!((stream.take_kept().len(), stream.left_out()), (3, 0));
        add(&mut stream, 4);
        assert_eq!((stream.take_kept().len(), stream.left_out()), (2, 2));
        add(&mut stream, 1);
        assert_eq!((stream.take_kept().len(), stream.left_out()), (0, 3));
        // What is still there counts too.
        stream.keep(2);
        add(&mut stream, 1);
        stream.keep(2);
        add(&mut stream, 2);
        assert_eq!((stream.kept().len(), stream.left_out()), (2, 1));
    }

    #[test]
    fn an_address_that_is_used_again_is_another_task() {
        let mut stream = Stream::new();
        assert_eq!((stream.new_task(TaskKey(8)), stream.task(TaskKey(8))), (0, 0));
        assert_eq!((stream.new_task(TaskKey(8)), stream.task(TaskKey(8))), (1, 1));
    }
}
