//! A trace as bytes: what the page's script reads.
//!
//! All numbers are variable-length: seven bits a byte, low ones first, the highest bit set but in the last byte. For each
//! CPU: the number of slices; each slice (below); the number of changes of its queue's length; each change: time since the
//! change before, length. Times are in ns, the first ones since the begin of the run.
//!
//! | part of a slice | if |
//! |---|---|
//! | kind (0 task, 1 user code, 2 idle, 3 lock wait) plus flags: 4 open, 8 since, 16 flow, 32 moved, 64 begun before | |
//! | time since the end of the slice before; length | |
//! | group; task; work + 1, or 0 if unknown | a task |
//! | time from when it was runnable to its begin | since |
//! | CPU of the wake + 1, 0 outside; 2 × (waker + 1, or 0) + 1 if it was a spawn | flow |
//! | CPU where it was before | moved |
//! | work + 1, or 0 if unknown | user code |
//! | who kicked: 0 nobody, 1 the outside, CPU + 2 | idle |
//! | lock | a lock wait |
//!
//! Knows nothing of HTML.

use crate::model::{Run, Slice, Trace, What};
use evenkeel_core::{CpuId, Span, Time};
use prost::encoding::encode_varint;

/// A trace, encoded.
pub(super) struct Data {
    pub(super) bytes: Vec<u8>,
    pub(super) end: Time,
    /// How many events did not fit.
    pub(super) dropped: usize,
}

const OPEN: u64 = 4;
const SINCE: u64 = 8;
const FLOW: u64 = 16;
const MOVED: u64 = 32;
const BEFORE: u64 = 64;

pub(super) fn encode(trace: &Trace, max: usize) -> Data {
    let mut times = times(trace);
    let total = times.len();
    let end = match total.checked_sub(max) {
        Some(0) | None => trace.end,
        // The first event that does not fit: nothing from there on is told.
        Some(_) => *times.select_nth_unstable(max).1,
    };
    let is_told = |at: Time| total <= max || at < end;
    let mut bytes = Vec::new();
    let mut told = 0;
    for row in &trace.cpus {
        let slices: Vec<_> = row.slices.iter().filter(|slice| is_told(slice.begin)).collect();
        encode_varint(slices.len() as u64, &mut bytes);
        let mut last = Time::ZERO;
        for slice in &slices {
            last = encode_slice(trace, slice, last, end, &mut bytes);
        }
        let queue: Vec<_> = row.queue.iter().filter(|(at, _)| is_told(*at)).collect();
        encode_varint(queue.len() as u64, &mut bytes);
        let mut last = Time::ZERO;
        for (at, length) in &queue {
            encode_varint(at.since(last).as_nanos(), &mut bytes);
            encode_varint(*length, &mut bytes);
            last = *at;
        }
        told += slices.len() + queue.len();
    }
    Data { bytes, end, dropped: total - told }
}

/// When the events are that a page tells.
fn times(trace: &Trace) -> Vec<Time> {
    let of_row = |row: &crate::model::Row| row.slices.len() + row.queue.len();
    let mut times = Vec::with_capacity(trace.cpus.iter().map(of_row).sum());
    for row in &trace.cpus {
        times.extend(row.slices.iter().map(|slice| slice.begin));
        times.extend(row.queue.iter().map(|(at, _)| *at));
    }
    times
}

/// Returns where it ends.
fn encode_slice(trace: &Trace, slice: &Slice, last: Time, end: Time, bytes: &mut Vec<u8>) -> Time {
    let closed = slice.end.filter(|closed| *closed <= end);
    let ends = closed.unwrap_or(end).max(slice.begin);
    let mut put = |value: u64| encode_varint(value, bytes);
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    let cut = flag(closed.is_none(), OPEN) | flag(slice.is_begun_before, BEFORE);
    let work = |work: Option<Span>| work.filter(|_| closed.is_some()).map_or(0, |work| work.as_nanos() + 1);
    let (kind, flags) = match slice.what {
        What::Task(run) => (0, flags(&run)),
        What::User(_) => (1, 0),
        What::Idle { .. } => (2, 0),
        What::LockWait { .. } => (3, 0),
    };
    put(kind | cut | flags);
    put(slice.begin.since(last).as_nanos());
    put(ends.since(slice.begin).as_nanos());
    match slice.what {
        What::Task(run) => {
            put(trace.group_index(run.group).unwrap_or(0) as u64);
            put(run.task.into());
            put(work(run.work));
            if let Some(since) = run.runnable_since {
                put(slice.begin.since(since).as_nanos());
            }
            if let Some(flow) = run.flow.map(|flow| &trace.flows[flow]) {
                put(cpu_number(flow.from));
                put(2 * flow.waker.map_or(0, |waker| u64::from(waker) + 1) + u64::from(flow.is_spawn));
            }
            if let Some(from) = run.moved_from {
                put(from.get().into());
            }
        }
        What::User(worked) => put(work(worked)),
        What::Idle { kicked_by } => put(kicked_by.map_or(0, |by| cpu_number(by) + 1)),
        What::LockWait { lock } => put(lock.into()),
    }
    ends
}

fn flags(run: &Run) -> u64 {
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    flag(run.runnable_since.is_some(), SINCE) | flag(run.flow.is_some(), FLOW) | flag(run.moved_from.is_some(), MOVED)
}

/// A CPU plus one, or 0 for the outside.
fn cpu_number(cpu: CpuId) -> u64 {
    if cpu == CpuId::OUTSIDE { 0 } else { u64::from(cpu.get()) + 1 }
}
