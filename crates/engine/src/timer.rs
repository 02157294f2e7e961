//! Timers: what `sleep` waits for.
//!
//! A timer is armed on one CPU, first in that CPU's timer inbox, then in the heap that whoever holds the queue lock
//! keeps. It is fired by who finds it overdue. Dropping a sleep cancels its timer; cancelled ones leave the heap when
//! they may be half of it.
//!
//! Knows nothing of who fires, or of CPUs.

use crate::context;
use crate::task::contain;
use atomic_waker::AtomicWaker;
use evenkeel_core::Time;
use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a timer exists without a host: its sleep may be polled anywhere")]
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;
use std::task::Waker;

/// One armed timer, shared by its sleep and its CPU.
#[expect(clippy::disallowed_types, reason = "a timer exists without a host: its sleep may be polled anywhere")]
#[derive(Debug)]
pub(crate) struct Timer {
    deadline: Time,
    state: AtomicU8,
    waker: AtomicWaker,
}

/// Where a timer is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Armed,
    Fired,
    /// The sleep is gone.
    Cancelled,
    /// Its machine has stopped; the sleep may go on elsewhere.
    Orphaned,
}

impl Phase {
    const fn from_bits(bits: u8) -> Phase {
        match bits {
            0 => Phase::Armed,
            1 => Phase::Fired,
            2 => Phase::Cancelled,
            _ => Phase::Orphaned,
        }
    }
}

impl Timer {
    #[expect(clippy::disallowed_types, reason = "a timer exists without a host: its sleep may be polled anywhere")]
    pub(crate) fn new(deadline: Time) -> Arc<Self> {
        Arc::new(Timer { deadline, state: AtomicU8::new(Phase::Armed as u8), waker: AtomicWaker::new() })
    }

    pub(crate) fn phase(&self) -> Phase {
        // ORDER T: Acquire pairs with the Release of `finish`.
        Phase::from_bits(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn deadline(&self) -> Time {
        self.deadline
    }

    /// Who is to be woken. Look at the phase again afterwards: it may have fired in between.
    pub(crate) fn register(&self, waker: &Waker) {
        if !context::is_trusted(waker) {
            // The one before may be user code too: its destructor must not hurt who polls now, nor the cell.
            let before = self.waker.take();
            contain(|| drop(before));
        }
        self.waker.register(waker);
    }

    pub(crate) fn cancel(&self) {
        self.state.store(Phase::Cancelled as u8, Ordering::Relaxed);
        self.waker.take();
    }

    /// Ends the timer, and gives the waker to call. Call it without a lock: it may be user code.
    fn finish(&self, phase: Phase) -> Option<Waker> {
        // ORDER T: Release, see `phase`. A cancelled one stays cancelled: nobody looks at it any more.
        self.state.store(phase as u8, Ordering::Release);
        self.waker.take()
    }
}

/// The last one to let go of a timer may hold a queue lock.
impl Drop for Timer {
    fn drop(&mut self) {
        let waker = self.waker.take();
        contain(|| drop(waker));
    }
}

/// The timers of one CPU, by deadline.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

/// A timer in the heap: smallest deadline first, then in the order of arming.
#[derive(Debug)]
struct Entry {
    deadline: Time,
    sequence: u64,
    timer: Arc<Timer>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Order {
        (other.deadline, other.sequence).cmp(&(self.deadline, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

/// A heap with fewer timers is not worth cleaning.
const CLEAN_MIN: u64 = 256;

impl Timers {
    pub(crate) fn add(&mut self, timer: Arc<Timer>) {
        self.sequence += 1;
        self.heap.push(Entry { deadline: timer.deadline, sequence: self.sequence, timer });
    }

    /// The earliest deadline. [`Time::NEVER`] if there is none.
    pub(crate) fn next(&mut self) -> Time {
        while self.heap.peek().is_some_and(|entry| entry.timer.phase() == Phase::Cancelled) {
            self.heap.pop();
        }
        self.heap.peek().map_or(Time::NEVER, |entry| entry.deadline)
    }

    /// Takes out the timers that are due, and adds the wakers to call to `wakers`.
    pub(crate) fn fire(&mut self, now: Time, wakers: &mut Vec<Waker>) {
        while self.next() <= now {
            if let Some(entry) = self.heap.pop() {
                wakers.extend(entry.timer.finish(Phase::Fired));
            }
        }
    }

    /// Forgets cancelled timers, if so many were cancelled that it may pay. Whether it did.
    pub(crate) fn clean(&mut self, cancelled: u64) -> bool {
        let is_due = cancelled > CLEAN_MIN.max(self.heap.len() as u64 / 2);
        if is_due {
            self.heap.retain(|entry| entry.timer.phase() != Phase::Cancelled);
        }
        is_due
    }

    /// Takes all timers out: the machine has stopped.
    pub(crate) fn orphan(&mut self, wakers: &mut Vec<Waker>) {
        wakers.extend(self.heap.drain().filter_map(|entry| entry.timer.finish(Phase::Orphaned)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers(deadlines: &[u64]) -> (Timers, Vec<Arc<Timer>>) {
        let mut timers = Timers::default();
        let all: Vec<_> = deadlines.iter().map(|nanos| Timer::new(Time::from_nanos(*nanos))).collect();
        all.iter().for_each(|timer| timers.add(Arc::clone(timer)));
        (timers, all)
    }

    #[test]
    fn only_what_is_due_fires() {
        let (mut timers, all) = timers(&[30, 10, 20]);
        timers.fire(Time::from_nanos(20), &mut Vec::new());
        let phases: Vec<_> = all.iter().map(|timer| timer.phase()).collect();
        assert_eq!(phases, [Phase::Armed, Phase::Fired, Phase::Fired]);
        assert_eq!(timers.next(), Time::from_nanos(30));
    }

    #[test]
    fn cancelled_timers_do_not_pile_up() {
        let (mut timers, all) = timers(&[1_000; 1_000]);
        all.iter().skip(1).for_each(|timer| timer.cancel());
        assert!(timers.clean(999));
        assert_eq!(timers.heap.len(), 1);
    }

    #[test]
    fn never_is_never_due() {
        let (mut timers, all) = timers(&[u64::MAX - 1]);
        timers.fire(Time::from_nanos(u64::MAX - 2), &mut Vec::new());
        assert_eq!(all[0].phase(), Phase::Armed);
    }
}
