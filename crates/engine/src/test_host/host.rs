//! What the single-threaded host lends the engine: words, locks that nobody can be waiting for, and a clock per CPU that
//! only moves when it is told to.
//!
//! Knows nothing of events or of when a CPU acts.

use crate::host::{At, CpuTime, Host, Lock, Shared, Waited};
use evenkeel_core::{CpuId, Span, Time};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One thread that acts for every CPU in turn, in virtual time.
#[derive(Debug)]
pub struct Virtual {
    clocks: Box<[AtomicU64]>,
    outside: AtomicU64,
    /// Who acts now: a CPU, or [`CpuId::OUTSIDE`].
    acting: AtomicU32,
    home: AtomicU32,
    kicks: Mutex<Vec<Kick>>,
}

/// A kick that its CPU has not seen yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kick {
    pub(super) cpu: CpuId,
    pub(super) at: Time,
}

impl Virtual {
    pub(super) fn new(cpus: usize) -> Self {
        Virtual {
            clocks: (0..cpus).map(|_| AtomicU64::new(0)).collect(),
            outside: AtomicU64::new(0),
            acting: AtomicU32::new(CpuId::OUTSIDE.get()),
            home: AtomicU32::new(0),
            kicks: Mutex::default(),
        }
    }

    fn clock(&self, cpu: CpuId) -> &AtomicU64 {
        if cpu == CpuId::OUTSIDE { &self.outside } else { &self.clocks[cpu.index()] }
    }

    /// From here on `cpu` acts; its clock is at `now`, or past it.
    pub(super) fn act(&self, cpu: CpuId, now: Time) {
        self.acting.store(cpu.get(), Ordering::Relaxed);
        self.clock(cpu).fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn set_home(&self, cpu: CpuId) {
        self.home.store(cpu.get(), Ordering::Relaxed);
    }

    pub(super) fn take_kicks(&self) -> Vec<Kick> {
        std::mem::take(&mut *self.kicks.lock())
    }
}

impl Host for Virtual {
    type Shared = Word;
    type Lock<T: Send + 'static> = FreeLock<T>;

    fn now(&self, cpu: CpuId) -> Time {
        Time::from_nanos(self.clock(cpu).load(Ordering::Relaxed))
    }

    fn kick(&self, cpu: CpuId) {
        let at = self.now(CpuId::new(self.acting.load(Ordering::Relaxed)));
        self.kicks.lock().push(Kick { cpu, at });
    }

    fn home(&self) -> CpuId {
        CpuId::new(self.home.load(Ordering::Relaxed))
    }

    fn compute(&self, cpu: CpuId, work: Span) {
        let clock = self.clock(cpu);
        let now = Time::from_nanos(clock.load(Ordering::Relaxed));
        clock.store(now.after(work).as_nanos(), Ordering::Relaxed);
    }

    fn cpu_time(&self, _: CpuId) -> Option<CpuTime> {
        None
    }

    fn fence(_: At) {}
}

/// A shared word. Atomic only because the engine's types must be `Sync`.
#[derive(Debug)]
pub struct Word(AtomicU64);

impl Shared for Word {
    fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    fn load(&self, _: At, _: Ordering) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn store(&self, _: At, value: u64, _: Ordering) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn swap(&self, _: At, value: u64, _: Ordering) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }

    fn fetch_add(&self, _: At, value: u64, _: Ordering) -> u64 {
        self.0.fetch_add(value, Ordering::Relaxed)
    }

    fn fetch_or(&self, _: At, bits: u64, _: Ordering) -> u64 {
        self.0.fetch_or(bits, Ordering::Relaxed)
    }

    fn fetch_and(&self, _: At, bits: u64, _: Ordering) -> u64 {
        self.0.fetch_and(bits, Ordering::Relaxed)
    }

    fn compare_exchange(&self, _: At, current: u64, new: u64, _: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// A lock that is always free: on one thread, a second take would wait for ever.
#[derive(Debug)]
pub struct FreeLock<T> {
    owner: CpuId,
    value: Mutex<T>,
    holder: Mutex<Option<At>>,
}

/// Holds a [`FreeLock`].
#[derive(Debug)]
pub struct FreeGuard<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a Mutex<Option<At>>,
}

impl<T: Send> FreeLock<T> {
    fn take(&self, at: At) -> FreeGuard<'_, T> {
        let Some(value) = self.value.try_lock() else {
            panic!("the lock of CPU {} is taken by {at:?} while held by {:?}", self.owner, *self.holder.lock());
        };
        *self.holder.lock() = Some(at);
        FreeGuard { value, holder: &self.holder }
    }
}

impl<T: Send> Lock<T> for FreeLock<T> {
    type Guard<'a>
        = FreeGuard<'a, T>
    where
        T: 'a;

    fn new(owner: CpuId, value: T) -> Self {
        FreeLock { owner, value: Mutex::new(value), holder: Mutex::new(None) }
    }

    fn lock(&self, at: At) -> (FreeGuard<'_, T>, Waited) {
        (self.take(at), Waited::No)
    }

    fn try_lock(&self, at: At) -> Option<FreeGuard<'_, T>> {
        Some(self.take(at))
    }
}

impl<T> Deref for FreeGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for FreeGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for FreeGuard<'_, T> {
    fn drop(&mut self) {
        *self.holder.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Site;

    #[test]
    #[should_panic(expected = "site: Pull, outer: Sites(0) } while held by Some(At { cpu: CpuId(1), site: Wake,")]
    fn a_second_take_names_both_sites() {
        let lock = FreeLock::new(CpuId::new(0), ());
        let (_held, _) = lock.lock(At::new(CpuId::new(1), Site::Wake));
        drop(lock.try_lock(At::new(CpuId::new(2), Site::Pull)));
    }

    #[test]
    fn computing_moves_one_clock_only() {
        let host = Virtual::new(2);
        host.compute(CpuId::new(1), Span::from_micros(5));
        assert_eq!(host.now(CpuId::new(1)), Time::from_nanos(5_000));
        assert_eq!(host.now(CpuId::new(0)), Time::ZERO);
        assert_eq!(host.now(CpuId::OUTSIDE), Time::ZERO);
    }
}
