//! What a simulated machine lends the engine.
//!
//! Knows nothing of time or costs: the world has those.

mod lock;
mod word;

pub(crate) use lock::QueueLock;
pub(crate) use word::Word;

use crate::world;
use evenkeel_core::{CpuId, Span, Time};
use evenkeel_engine::host::{At, CpuTime, Event, Host};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The side of a simulated machine that the engine sees.
#[derive(Debug)]
pub(crate) struct Simulated {
    /// Of its world.
    id: u32,
    home: AtomicU32,
    /// The time when its world last stopped running.
    left_at: AtomicU64,
    /// Kicks that came while it did not run: from another machine, or another thread.
    kicks: Mutex<Vec<CpuId>>,
    /// Whether there are any: set and cleared under the lock.
    has_kicks: AtomicBool,
}

impl Simulated {
    pub(crate) fn new(id: u32) -> Simulated {
        Simulated {
            id,
            home: AtomicU32::new(0),
            left_at: AtomicU64::new(0),
            kicks: Mutex::default(),
            has_kicks: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_home(&self, cpu: CpuId) {
        self.home.store(cpu.get(), Ordering::Relaxed);
    }

    pub(crate) fn leave_at(&self, now: Time) {
        self.left_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn has_kicks(&self) -> bool {
        self.has_kicks.load(Ordering::Relaxed)
    }

    pub(crate) fn take_kicks(&self) -> Vec<CpuId> {
        let mut kicks = self.kicks.lock();
        self.has_kicks.store(false, Ordering::Relaxed);
        std::mem::take(&mut *kicks)
    }
}

impl Host for Simulated {
    type Shared = Word;
    type Lock<T: Send + 'static> = QueueLock<T>;

    fn now(&self, _: CpuId) -> Time {
        let left_at = || Time::from_nanos(self.left_at.load(Ordering::Relaxed));
        world::with_mine(self.id, world::World::read_clock).unwrap_or_else(left_at)
    }

    fn kick(&self, cpu: CpuId) {
        if world::with_mine(self.id, |world| world.kick(cpu)).is_none() {
            let mut kicks = self.kicks.lock();
            kicks.push(cpu);
            self.has_kicks.store(true, Ordering::Relaxed);
        }
    }

    fn home(&self) -> CpuId {
        CpuId::new(self.home.load(Ordering::Relaxed))
    }

    fn compute(&self, _: CpuId, work: Span) {
        let _ = world::with_mine(self.id, |world| world.declare_work(work));
    }

    fn cpu_time(&self, _: CpuId) -> Option<CpuTime> {
        let got = world::with_mine(self.id, world::World::cpu_time).flatten();
        got.map(|(ran, blocked)| CpuTime { ran, blocked })
    }

    fn fence(at: At) {
        let _ = world::with(|world| world.fence(at));
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    const DEFERS: bool = true;

    fn compute_piece(&self, _: CpuId, work: Span) -> Span {
        world::with_mine(self.id, |world| world.declare_piece(work)).unwrap_or(work)
    }

    fn takes_tick(&self, cpu: CpuId) -> bool {
        world::with_mine(self.id, |world| world.takes_tick(cpu)) == Some(true)
    }

    fn queue_operations(at: At, count: usize) {
        let _ = world::with(|world| world.queue_operations(at, count as u64));
    }

    const OBSERVES: bool = true;

    fn observe(&self, at: At, event: Event) {
        let _ = world::with_mine(self.id, |world| {
            world.come_into(at.outer.with(at.site));
            match event {
                Event::Spawned(task) => world.observe_spawn(task),
                Event::Woken(task) => world.observe_wake(task),
                Event::Dispatched(task, group) => world.observe_dispatch(task, group.get()),
                Event::Left => world.observe_leave(),
                Event::Moved(task) => world.observe_move(task),
                Event::Queued(cpu, count) => world.observe_queue(cpu, count),
                Event::Clock(group, clock) => world.observe_clock(group, clock),
            }
        });
    }

    fn user_begins(&self, cpu: CpuId) {
        world::begin_user(self.id, cpu);
    }

    fn user_ends(&self, cpu: CpuId) {
        world::end_user(self.id, cpu);
    }
}
