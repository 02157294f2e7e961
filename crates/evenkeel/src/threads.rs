//! The host that runs a machine on threads, in real time.
//!
//! Knows nothing of scheduling: it lends the engine words, locks, the time, and threads that park.

use crate::clock::MonotonicClock;
use crate::work;
use crossbeam_utils::sync::{Parker, Unparker};
use evenkeel_core::{CpuId, Span, Time};
use evenkeel_engine::host::{At, CpuTime, Host, Lock, Shared, Waited};
use evenkeel_engine::{Driver, Step};
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Instant;

/// Threads in real time.
#[derive(Debug)]
pub(crate) struct Threads {
    clock: MonotonicClock,
    unparkers: Box<[Unparker]>,
}

impl Threads {
    /// A host for `cpus` workers, and the parker of each.
    pub(crate) fn new(cpus: usize) -> (Self, Vec<Parker>) {
        let parkers: Vec<_> = (0..cpus).map(|_| Parker::new()).collect();
        let unparkers = parkers.iter().map(|parker| parker.unparker().clone()).collect();
        (Threads { clock: MonotonicClock::start(), unparkers }, parkers)
    }
}

impl Host for Threads {
    type Shared = Word;
    type Lock<T: Send + 'static> = QueueLock<T>;

    #[inline]
    fn now(&self, _: CpuId) -> Time {
        Time::from_nanos(self.clock.now())
    }

    fn kick(&self, cpu: CpuId) {
        self.unparkers[cpu.index()].unpark();
    }

    fn home(&self) -> CpuId {
        let turn = HOME.with(|home| match home.get() {
            Some(turn) => turn,
            None => {
                let turn = NEXT_HOME.fetch_add(1, Ordering::Relaxed);
                home.set(Some(turn));
                turn
            }
        });
        let cpus = u32::try_from(self.unparkers.len()).unwrap_or(u32::MAX);
        CpuId::new(turn % cpus)
    }

    fn compute(&self, _: CpuId, work: Span) {
        work::calibrate().run(work.into());
    }

    fn cpu_time(&self, _: CpuId) -> Option<CpuTime> {
        cpu_time_of_thread()
    }

    #[inline]
    fn fence(_: At) {
        fence(Ordering::SeqCst);
    }
}

/// Threads outside take turns in choosing a CPU, and stay with it.
static NEXT_HOME: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // Without a destructor, so that wakes from destructors of thread-local values work.
    static HOME: Cell<Option<u32>> = const { Cell::new(None) };
}

/// What the calling thread got, and how often it blocked. `None` where the system can't tell.
///
/// Two system calls: the times of getrusage advance with the tick on some kernels, several milliseconds at a time, so
/// they are no measure of a slice; the thread's CPU clock is exact.
fn cpu_time_of_thread() -> Option<CpuTime> {
    #[cfg(target_os = "linux")]
    {
        let mut ran = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `ran` is a timespec, which is all that clock_gettime asks for.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ran) };
        if status != 0 {
            return None;
        }
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: `usage` has room for an rusage, which is all that getrusage asks for.
        let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        if status != 0 {
            return None;
        }
        // SAFETY: getrusage has succeeded, and so has filled it in.
        let usage = unsafe { usage.assume_init() };
        let seconds = Span::from_millis(u64::try_from(ran.tv_sec).unwrap_or(0).saturating_mul(1_000));
        let ran = seconds.plus(Span::from_nanos(u64::try_from(ran.tv_nsec).unwrap_or(0)));
        Some(CpuTime { ran, blocked: u64::try_from(usage.ru_nvcsw).unwrap_or(0) })
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// A shared word.
#[derive(Debug)]
pub(crate) struct Word(AtomicU64);

impl Shared for Word {
    fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    #[inline]
    fn load(&self, _: At, order: Ordering) -> u64 {
        self.0.load(order)
    }

    #[inline]
    fn store(&self, _: At, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    #[inline]
    fn swap(&self, _: At, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }

    #[inline]
    fn fetch_add(&self, _: At, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    #[inline]
    fn fetch_or(&self, _: At, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }

    #[inline]
    fn fetch_and(&self, _: At, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, order)
    }

    #[inline]
    fn compare_exchange(&self, _: At, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, order, Ordering::Relaxed)
    }
}

/// The lock of a run queue.
#[derive(Debug)]
pub(crate) struct QueueLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for QueueLock<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn new(_: CpuId, value: T) -> Self {
        QueueLock(Mutex::new(value))
    }

    #[inline]
    fn lock(&self, _: At) -> (MutexGuard<'_, T>, Waited) {
        match self.0.try_lock() {
            Some(guard) => (guard, Waited::No),
            // Only who waits anyway looks at the clock.
            None => {
                let began = Instant::now();
                let guard = self.0.lock();
                (guard, Waited::Yes(began.elapsed().into()))
            }
        }
    }

    #[inline]
    fn try_lock(&self, _: At) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}

/// Drives one CPU on the calling thread until its machine stops.
pub(crate) fn drive(driver: &mut Driver<Threads>, host: &Threads, parker: &Parker) {
    loop {
        match driver.step() {
            Step::Polled | Step::Again => {}
            Step::Stopping => std::thread::yield_now(),
            Step::Stopped => return,
            Step::Park { until: Time::NEVER } => parker.park(),
            Step::Park { until } => {
                let now = host.now(driver.cpu());
                if now < until {
                    parker.park_timeout(until.since(now).into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_home() {
        let (host, _parkers) = Threads::new(3);
        let home = host.home();
        assert_eq!(host.home(), home);
        let other = std::thread::scope(|scope| scope.spawn(|| (host.home(), host.home())).join().unwrap());
        assert_eq!(other.0, other.1);
        assert!(home.index() < 3 && other.0.index() < 3);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_what_a_thread_got_within_a_slice() {
        work::calibrate();
        for _ in 0..100 {
            let before = cpu_time_of_thread().unwrap();
            work::calibrate().run(std::time::Duration::from_micros(200));
            let after = cpu_time_of_thread().unwrap();
            // Not a bound on speed: a clock that moves with the tick would not have moved, most times.
            assert!(after.ran > before.ran);
        }
    }

    #[test]
    fn who_waits_for_a_lock_is_told_for_how_long() {
        let lock = QueueLock::new(CpuId::new(0), ());
        let at = At::new(CpuId::new(1), evenkeel_engine::host::Site::Search);
        let (guard, waited) = lock.lock(at);
        assert_eq!(waited, Waited::No);
        drop(guard);
        // Ends: sooner or later the other thread comes while the lock is held.
        loop {
            let guard = lock.lock(at);
            let waited = std::thread::scope(|scope| {
                let other = scope.spawn(|| lock.lock(at).1);
                std::thread::sleep(std::time::Duration::from_millis(1));
                drop(guard);
                other.join().unwrap()
            });
            if let Waited::Yes(span) = waited {
                assert!(span > Span::ZERO);
                break;
            }
        }
    }
}
