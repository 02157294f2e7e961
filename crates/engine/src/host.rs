//! The seam: what a host lends the engine. The engine decides; the host carries out.
//!
//! Three hosts exist: threads in real time (the crate `evenkeel`), the simulated machine (`evenkeel-sim`), and the
//! single-threaded one of `test_host`, in virtual time without costs. All run the same engine code; no `cfg` names any.
//!
//! Knows nothing of what the engine decides. Parking is not here: [`crate::Driver::step`] returns [`crate::Step::Park`], and the host parks that CPU.

use evenkeel_core::{CpuId, GroupId, Span, Time, Vtime};
use std::ops::DerefMut;
use std::sync::atomic::Ordering;

/// Where in the engine an access to shared memory or a lock comes from: what a `lock_stat` of it would list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Site {
    /// The pick of the next task, and what ends a poll.
    Dispatch,
    /// A task becomes runnable.
    Wake,
    /// The charge of a group's clock, before and after a slice.
    Charge,
    /// A group that becomes runnable is brought up to the level.
    Raise,
    /// Publishing what waits on a CPU.
    Publish,
    /// An idle CPU looks for work.
    Search,
    /// A CPU looks, at the end of a slice, for a group that is behind.
    LookAround,
    /// Tasks are moved from one CPU to another.
    Pull,
    /// A CPU parks or is kicked.
    Park,
    /// Timers are armed or fired.
    Timer,
    /// A call from inside a poll asks who owns the CPU.
    Owner,
    /// Groups are made, ended, or changed.
    Group,
    /// Counting.
    Count,
    /// The machine stops.
    Stop,
    /// Checks of debug builds, which a host that models costs lets pass for nothing: so that debug and release agree.
    Check,
}

/// What a host may want to record. A task is named by an address that is its own from its spawn to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A task was spawned, and is runnable.
    Spawned(TaskKey),
    /// A task became runnable.
    Woken(TaskKey),
    /// The poll of a task of this group begins.
    Dispatched(TaskKey, GroupId),
    /// The task that was dispatched last leaves the CPU: its poll has ended.
    Left,
    /// A task came here from another CPU's queue.
    Moved(TaskKey),
    /// So many tasks wait in a CPU's queue, as it is published from here on.
    Queued(CpuId, usize),
    /// A group's clock was settled or raised, and shows this.
    Clock(GroupId, Vtime),
}

/// The address of a task's cell. Two runs of the same differ in it: never to be put into anything that must repeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskKey(pub usize);

/// Who accesses, and where in the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The CPU, or [`CpuId::OUTSIDE`].
    pub cpu: CpuId,
    /// The place in the engine.
    pub site: Site,
}

impl At {
    /// An access by `cpu` at `site`.
    pub const fn new(cpu: CpuId, site: Site) -> At {
        At { cpu, site }
    }

    /// An access from a thread that drives no CPU.
    pub const fn outside(site: Site) -> At {
        At { cpu: CpuId::OUTSIDE, site }
    }
}

/// A word that CPUs share. On threads an `AtomicU64`; elsewhere whatever models one.
pub trait Shared: Send + Sync + 'static {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads it.
    fn load(&self, at: At, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, at: At, value: u64, order: Ordering);
    /// Writes it and returns what it held.
    fn swap(&self, at: At, value: u64, order: Ordering) -> u64;
    /// Adds, wrapping around, and returns what it held.
    fn fetch_add(&self, at: At, value: u64, order: Ordering) -> u64;
    /// Sets bits and returns what it held.
    fn fetch_or(&self, at: At, bits: u64, order: Ordering) -> u64;
    /// Keeps only these bits and returns what it held.
    fn fetch_and(&self, at: At, bits: u64, order: Ordering) -> u64;
    /// Writes `new` if it holds `current`; may fail without a reason. The `Err` is what it held.
    ///
    /// # Errors
    /// What it held, if nothing was written.
    fn compare_exchange(&self, at: At, current: u64, new: u64, order: Ordering) -> Result<u64, u64>;

    /// Subtracts, wrapping around, and returns what it held.
    fn fetch_sub(&self, at: At, value: u64, order: Ordering) -> u64 {
        self.fetch_add(at, value.wrapping_neg(), order)
    }

    /// Adds to a word that only one CPU writes: a plain load and store.
    fn bump(&self, at: At, value: u64) {
        self.store(at, self.load(at, Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

/// Whether taking a lock meant waiting for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Waited {
    /// It was free.
    No,
    /// Somebody held it.
    Yes,
}

/// A lock over data of one CPU.
pub trait Lock<T>: Send + Sync {
    /// Holds the lock until dropped.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// A lock over `value`, which belongs to `owner`.
    fn new(owner: CpuId, value: T) -> Self;
    /// Takes it, waiting if it must.
    fn lock(&self, at: At) -> (Self::Guard<'_>, Waited);
    /// Takes it if it is free.
    fn try_lock(&self, at: At) -> Option<Self::Guard<'_>>;
}

/// What a CPU really got of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// Time that its thread ran.
    pub ran: Span,
    /// Times that its thread gave up the processor by itself (blocked): the time off the processor is then its own
    /// doing, not a preemption.
    pub blocked: u64,
}

/// What a machine runs on.
pub trait Host: Sized + Send + Sync + 'static {
    /// The shared words of this host.
    type Shared: Shared;
    /// The locks of this host.
    type Lock<T: Send + 'static>: Lock<T> + 'static;

    /// The time on this CPU, or outside. Clocks of different CPUs may differ a little.
    fn now(&self, cpu: CpuId) -> Time;
    /// Makes the next or current park of this CPU end.
    fn kick(&self, cpu: CpuId);
    /// The CPU that takes the wakes and spawns of the calling thread, which drives none. Sticky.
    fn home(&self) -> CpuId;
    /// Occupies this CPU, or the calling thread, with this much computing.
    fn compute(&self, cpu: CpuId, work: Span);
    /// What the calling CPU really got, if the host can tell.
    fn cpu_time(&self, cpu: CpuId) -> Option<CpuTime>;
    /// A sequentially consistent fence between two accesses of this CPU.
    fn fence(at: At);

    /// Whether a poll that declares work goes on once that has been done, in a call of its own: so on a host in virtual
    /// time, where time passes only when a poll has returned.
    const DEFERS: bool = false;

    /// Occupies this CPU with some of this computing, and says with how much: all of it on a host that does it at once;
    /// otherwise what can be done before the task may have to give way.
    fn compute_piece(&self, cpu: CpuId, work: Span) -> Span {
        self.compute(cpu, work);
        work
    }
    /// Whether a task that has computed is to give way now if something else deserves it: after a tick, if ticks preempt.
    fn takes_tick(&self, _: CpuId) -> bool {
        false
    }

    /// Whether [`Host::observe`] is to be called at all.
    const OBSERVES: bool = false;

    /// Something happened, for the record.
    fn observe(&self, _: At, _: Event) {}
    /// User code (a poll, wakers, destructors) begins on this CPU. Until it ends nobody else may act in its stead: it may
    /// hold locks that the host knows nothing of.
    #[inline]
    fn user_begins(&self, _: CpuId) {}
    /// User code has ended.
    #[inline]
    fn user_ends(&self, _: CpuId) {}
}
