//! The seam: what a host lends the engine. The engine decides; the host carries out.
//!
//! Three hosts exist: threads in real time (the crate `evenkeel`), the simulated machine (`evenkeel-sim`), and the
//! single-threaded one of `test_host`, in virtual time without costs. All run the same engine code; no `cfg` names any.
//!
//! Knows nothing of what the engine decides. Parking is not here: [`crate::Driver::step`] returns [`crate::Step::Park`], and the host parks that CPU.

pub use evenkeel_core::site::{Site, Sites};
use evenkeel_core::{CpuId, GroupId, Span, Time, Vtime};
use std::ops::DerefMut;
use std::sync::atomic::Ordering;

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
    /// A group's clock was settled or raised, or more was reserved of it, and it shows this.
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
    /// The places from which that one was reached. Of use to a host that accounts for time; others never look.
    pub outer: Sites,
}

impl At {
    /// An access by `cpu` at `site`.
    pub const fn new(cpu: CpuId, site: Site) -> At {
        At { cpu, site, outer: Sites::NONE }
    }

    /// An access from a thread that drives no CPU.
    pub const fn outside(site: Site) -> At {
        At { cpu: CpuId::OUTSIDE, site, outer: Sites::NONE }
    }

    /// An access at `site`, which is part of what is done here.
    #[must_use]
    pub fn within(self, site: Site) -> At {
        let outer = if site == self.site { self.outer } else { self.outer.with(self.site) };
        At { site, outer, ..self }
    }
}

/// What a shared word is of. The words of one line are of one class: what a report of lines that cost time would list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum LineClass {
    /// Something else.
    #[default]
    Other,
    /// The lock of a run queue.
    QueueLock,
    /// The head of an inbox.
    Inbox,
    /// Whether one CPU is parked, and who kicked it.
    ParkWord,
    /// The bits of the CPUs of a cache that are parked.
    ParkedBits,
    /// The bits of the CPUs of a cache that may have something to take.
    LoadedBits,
    /// Who searches in a cache.
    Searchers,
    /// Who keeps the watch.
    Watch,
    /// Who owns a CPU.
    Owner,
    /// What a CPU publishes of its queue.
    Waiting,
    /// What a CPU publishes of its poll and its timers.
    Poll,
    /// What a CPU counts.
    Counters,
    /// A group's clock and weight.
    GroupClock,
    /// What was counted for a group, and its live tasks.
    GroupCounts,
    /// The level.
    Level,
    /// The switches.
    Switches,
    /// Whether the machine runs.
    Phase,
}

impl LineClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [LineClass; LineClass::Phase as usize + 1] = [
        LineClass::Other,
        LineClass::QueueLock,
        LineClass::Inbox,
        LineClass::ParkWord,
        LineClass::ParkedBits,
        LineClass::LoadedBits,
        LineClass::Searchers,
        LineClass::Watch,
        LineClass::Owner,
        LineClass::Waiting,
        LineClass::Poll,
        LineClass::Counters,
        LineClass::GroupClock,
        LineClass::GroupCounts,
        LineClass::Level,
        LineClass::Switches,
        LineClass::Phase,
    ];

    /// What reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            LineClass::Other => "other",
            LineClass::QueueLock => "rq->lock",
            LineClass::Inbox => "inbox->head",
            LineClass::ParkWord => "cpu->park",
            LineClass::ParkedBits => "cache->parked",
            LineClass::LoadedBits => "cache->loaded",
            LineClass::Searchers => "cache->searchers",
            LineClass::Watch => "machine->watch",
            LineClass::Owner => "cpu->owner",
            LineClass::Waiting => "cpu->waiting",
            LineClass::Poll => "cpu->poll",
            LineClass::Counters => "cpu->counters",
            LineClass::GroupClock => "group->clock",
            LineClass::GroupCounts => "group->counts",
            LineClass::Level => "machine->level",
            LineClass::Switches => "machine->switches",
            LineClass::Phase => "machine->phase",
        }
    }
}

/// A word that CPUs share. On threads an `AtomicU64`; elsewhere whatever models one.
pub trait Shared: Sized + Send + Sync + 'static {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// A word of this class that holds `value`.
    fn of(class: LineClass, value: u64) -> Self {
        let _unused_here = class;
        Self::new(value)
    }
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
    /// Somebody held it: for how long this had to wait.
    Yes(Span),
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

    /// This many tasks or timers are put into a queue whose lock is held, or taken out of it.
    #[inline]
    fn queue_operations(_: At, _: usize) {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_places_and_names_of_their_own() {
        for (index, class) in LineClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
            assert_eq!(LineClass::ALL.iter().filter(|other| other.name() == class.name()).count(), 1, "{class:?}");
        }
    }

    #[test]
    fn an_access_remembers_what_it_is_part_of() {
        let at = At::new(CpuId::new(3), Site::Dispatch).within(Site::LookAround).within(Site::LookAround);
        let at = at.within(Site::Publish);
        assert_eq!((at.cpu, at.site), (CpuId::new(3), Site::Publish));
        let outer: Vec<_> = Site::ALL.into_iter().filter(|site| at.outer.contains(*site)).collect();
        assert_eq!(outer, [Site::Dispatch, Site::LookAround]);
    }
}
