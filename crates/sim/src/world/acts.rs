//! What the engine does that costs time, step by step: the acting CPU waits for its turn, acts, and pays.
//!
//! These are called on a fiber, with no borrow of the world: between two steps other CPUs act.
//!
//! Knows nothing of what an act costs.

use super::account::Function;
use super::events::RecordKind;
use super::locks::{LockId, Take};
use super::place::{Tag, with, with_mine};
use super::{Access, Order, Phase, World};
use crate::fiber;
use evenkeel_core::{CpuId, Span, Time};
use evenkeel_engine::host::{At, Site, Sites};

/// What the last driver of a machine that stops waits between two looks.
const STOPPING_LOOK: Span = Span::from_micros(1);

/// Suspends the acting fiber if others come first.
fn settle(order: Option<Order>) {
    if order == Some(Order::Later) {
        fiber::suspend();
    }
}

/// Waits, in virtual time, until it is the acting CPU's turn.
pub(crate) fn sync() {
    settle(with(World::order));
}

/// The acting CPU begins a step: it is nowhere in the engine yet.
pub(crate) fn begin_step() {
    let _ = with(|world| world.come_into(Sites::NONE));
}

/// Access to a shared word.
pub(crate) fn access(tag: &Tag, block: usize, at: At, access: Access) {
    if at.site == Site::Check {
        return;
    }
    let is_private = with(|world| {
        let line = tag.line(world, block)?;
        let is_private = world.is_private(line, access);
        if is_private {
            world.access(line, at, access);
        }
        Some(is_private)
    });
    if is_private.flatten() == Some(false) {
        sync();
        let _ = with(|world| tag.line(world, block).map(|line| world.access(line, at, access)));
    }
}

/// Takes a lock, waiting for it if it must. Whether it waited; `None` if this is not a lock of the world that runs.
pub(crate) fn lock(tag: &Tag, at: At) -> Option<Take> {
    sync();
    let first = with(|world| {
        let lock = tag.lock(world)?;
        let is_in_user = world.acting.is_some_and(|cpu| cpu != CpuId::OUTSIDE) && world.suspendable().is_none();
        assert!(!is_in_user, "C2: a lock was taken inside user code, at {at:?}");
        world.cost_points += 1;
        let take = world.take(lock, at);
        if take == Take::Held {
            world.begin_wait(lock, at);
        }
        Some(take)
    })
    .flatten()?;
    if first == Take::Taken {
        return Some(Take::Taken);
    }
    // Ends: each turn is a call by a release; a lock that is always taken by others is handed over after a while.
    loop {
        fiber::suspend();
        let take = with(|world| tag.lock(world).map(|lock| world.answer_call(lock, at))).flatten()?;
        if take == Take::Taken {
            return Some(Take::Held);
        }
    }
}

/// How long the acting CPU waited for the lock that it waited for last.
pub(crate) fn last_wait() -> Span {
    with(|world| world.last_wait()).unwrap_or_default()
}

/// Takes a lock if it is free. `None` if this is not a lock of the world that runs.
pub(crate) fn try_lock(tag: &Tag, at: At) -> Option<Take> {
    sync();
    with(|world| {
        let lock = tag.lock(world)?;
        world.cost_points += 1;
        let take = world.take(lock, at);
        if take == Take::Held {
            world.fail_try(lock, at);
        }
        Some(take)
    })
    .flatten()
}

/// What is done before a lock is let go: the look at the queue that it was taken for, in its time.
pub(crate) fn before_release(tag: &Tag, at: At) {
    let _ = with(|world| {
        tag.lock(world)?;
        world.queue_operations(at, 1);
        Some(())
    });
    sync();
}

/// Lets a lock go.
pub(crate) fn release(tag: &Tag) {
    let _ = with(|world| {
        let lock: LockId = tag.lock(world)?;
        world.release(lock);
        Some(())
    });
}

/// User code begins on a CPU of the world with this id.
pub(crate) fn begin_user(id: u32, cpu: CpuId) {
    if with_mine(id, |_| ()).is_some() {
        sync();
        let _ = with(|world| world.begin_user(cpu));
    }
}

/// User code has ended: the work that it declared is done now.
pub(crate) fn end_user(id: u32, cpu: CpuId) {
    if with_mine(id, |world| world.cpus[cpu.index()].is_in_user = false).is_none() {
        return;
    }
    // Ends: each turn does a piece of the work, or handles a tick, which takes less than its period.
    while with(World::work_piece) == Some(true) {
        sync();
    }
    let _ = with(|world| world.record_user_end(cpu));
}

/// Parks the acting CPU until it is kicked, or until a time.
pub(crate) fn park(cpu: CpuId, until: Time) {
    let _ = with(|world| {
        world.cost_points += 1;
        let within = Sites::NONE.with(Site::Park);
        world.spend_on(Function::Park, within, world.machine.costs.park);
        if until < Time::NEVER {
            world.spend_on(Function::Timer, within, world.machine.costs.timer_set);
        }
    });
    sync();
    let is_parked = with(|world| {
        let state = &mut world.cpus[cpu.index()];
        let is_kicked = std::mem::take(&mut state.is_kicked);
        if is_kicked || state.late_kick <= state.local {
            state.late_kick = Time::NEVER;
            return false;
        }
        state.parks += 1;
        let (since, late_kick) = (state.local, std::mem::replace(&mut state.late_kick, Time::NEVER));
        world.record(RecordKind::Park, 0, 0);
        world.leave(cpu, Phase::Idle { since }, until.max(since));
        if late_kick < Time::NEVER {
            world.call(cpu, since, late_kick.since(since));
        }
        true
    });
    if is_parked == Some(true) {
        let since = with(|world| world.now);
        fiber::suspend();
        let _ = with(|world| {
            let idle = world.now.since(since.unwrap_or_default());
            let deep = world.machine.deep_idle.filter(|deep| idle >= deep.after);
            world.record(RecordKind::Unpark, 0, 0);
            if let Some(tick) = world.machine.tick {
                world.cpus[cpu.index()].skip_ticks(tick.period, &mut world.faults);
            }
            let within = Sites::NONE.with(Site::Park);
            if world.now >= until {
                world.spend_on(Function::Timer, within, world.machine.costs.timer_fire);
            }
            let exit = deep.map_or(world.machine.costs.idle_exit, |deep| deep.exit);
            world.spend_on(Function::IdleExit, within, exit);
        });
    }
}

/// The machine stops, and the acting CPU looks again a little later.
pub(crate) fn wait_for_others() {
    let _ = with(|world| world.spend_on(Function::Engine(Site::Stop), Sites::NONE, STOPPING_LOOK));
    sync();
}
