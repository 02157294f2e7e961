//! Locks in virtual time: who holds which, and who waits.
//!
//! A free lock costs the transfer of its line and what taking it costs. A held one is waited for: `fifo` hands it over to
//! who has waited longest; `barging` sets it free, and whoever comes first takes it, so that the waiter which was woken may
//! find it taken and wait on. As in parking_lot, one that has waited for half a millisecond gets it handed over.
//!
//! Knows nothing of what a lock protects, nor how a CPU that waits is suspended.

use super::events::RecordKind;
use super::line::{Access, LineId};
use super::{Phase, World};
use crate::machine::LockKind;
use evenkeel_core::{CpuId, Span, Time};
use evenkeel_engine::host::{At, Site};
use std::collections::VecDeque;

/// A lock of this world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockId(pub(super) u32);

#[derive(Debug)]
pub(super) struct LockState {
    line: LineId,
    holder: Option<Holder>,
    last: Option<CpuId>,
    waiters: VecDeque<Waiter>,
    /// The first waiter was woken and is on its way.
    is_called: bool,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    cpu: CpuId,
    site: Site,
    since: Time,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    cpu: CpuId,
    site: Site,
    since: Time,
}

/// How a try to take a lock went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Take {
    Taken,
    Held,
}

/// A waiter gets a barging lock handed over after this long: parking_lot's bound on unfairness.
const FAIR_AFTER: Span = Span::from_micros(500);

impl LockState {
    pub(super) fn new(line: LineId) -> LockState {
        LockState { line, holder: None, last: None, waiters: VecDeque::new(), is_called: false }
    }
}

impl World {
    /// Takes a lock if it is free. The time of the CPU must be that of the world.
    pub(super) fn take(&mut self, lock: LockId, at: At) -> Take {
        self.come(at);
        let state = &self.locks[lock.0 as usize];
        if state.holder.is_some() {
            return Take::Held;
        }
        let line = state.line;
        self.stop_reading();
        let asked = self.acting_time();
        self.get_line(line, at, Access::Modify);
        self.spend_at(at, self.machine.costs.lock);
        let transferred = self.acting_time().since(asked);
        debug_assert!(transferred >= self.machine.costs.lock);
        self.hold(lock, at.site, self.acting_time());
        Take::Taken
    }

    fn end_wait(&mut self, waiter: Waiter, now: Time) {
        let waited = now.since(waiter.since);
        self.lock_stat.site(waiter.site).waits.add(waited);
        self.cpus[waiter.cpu.index()].waited = waited;
    }

    fn hold(&mut self, lock: LockId, site: Site, since: Time) {
        let cpu = self.acting.unwrap_or(CpuId::OUTSIDE);
        let state = &mut self.locks[lock.0 as usize];
        state.holder = Some(Holder { cpu, site, since });
        let before = state.last.replace(cpu);
        let stat = self.lock_stat.site(site);
        stat.acquisitions += 1;
        if before.is_some_and(|before| before != cpu) {
            stat.bounces += 1;
            let before = before.map_or(u32::MAX, CpuId::get);
            self.record(RecordKind::LockTransfer, lock.0, before.into());
        }
        self.may_lose_holder();
    }

    /// A try that found the lock held: the look at its line, which its holder then has to get back.
    pub(super) fn fail_try(&mut self, lock: LockId, at: At) {
        let before = self.acting_time();
        let state = &self.locks[lock.0 as usize];
        let (line, holder) = (state.line, state.holder.map(|holder| holder.site));
        self.get_line(line, at, Access::Read);
        self.spend_at(at, self.machine.costs.hit);
        let cost = self.acting_time().since(before);
        self.lock_stat.site(at.site).failed_tries.add(cost);
        if let Some(holder) = holder {
            self.lock_stat.failed_for(at.site, holder);
        }
        self.record(RecordKind::FailedTry, lock.0, 0);
    }

    /// The acting CPU begins to wait for a lock, and is to be suspended.
    pub(super) fn begin_wait(&mut self, lock: LockId, at: At) {
        let cpu = self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE).expect("only a CPU can wait for a lock");
        let since = self.acting_time();
        self.record(RecordKind::LockWait, lock.0, 0);
        let state = &mut self.locks[lock.0 as usize];
        state.waiters.push_back(Waiter { cpu, site: at.site, since });
        let holder = state.holder.expect("what is waited for is held").site;
        let is_bounce = state.last != Some(cpu);
        self.lock_stat.waited_for(at.site, holder);
        self.lock_stat.site(at.site).contention_bounces += u64::from(is_bounce);
        self.leave(cpu, Phase::WaitsForLock { since }, Time::NEVER);
    }

    /// A waiter was called: takes the lock, or waits on.
    pub(super) fn answer_call(&mut self, lock: LockId, at: At) -> Take {
        let cpu = self.acting.expect("a waiter acts");
        let now = self.acting_time();
        let state = &mut self.locks[lock.0 as usize];
        state.is_called = false;
        if state.holder.is_some_and(|holder| holder.cpu == cpu) {
            self.record(RecordKind::LockGot, lock.0, 0);
            self.may_lose_holder();
            return Take::Taken;
        }
        if state.holder.is_some() {
            self.leave(cpu, Phase::WaitsForLock { since: now }, Time::NEVER);
            return Take::Held;
        }
        let waiter = state.waiters.pop_front().expect("the first waiter is called");
        assert_eq!(waiter.cpu, cpu, "the first waiter is called");
        let line = state.line;
        self.lines.give(line, cpu, Access::Modify);
        self.end_wait(waiter, now);
        self.record(RecordKind::LockGot, lock.0, 0);
        self.hold(lock, at.site, now);
        Take::Taken
    }

    /// The holder lets go.
    pub(super) fn release(&mut self, lock: LockId) {
        let now = self.acting_time();
        let (kind, handover) = (self.machine.lock, self.machine.costs.handover);
        let state = &mut self.locks[lock.0 as usize];
        let Some(holder) = state.holder.take() else { return };
        self.lock_stat.site(holder.site).holds.add(now.since(holder.since));
        let Some(first) = state.waiters.front().copied() else { return };
        let distance = self.machine.topology.distance(holder.cpu, first.cpu);
        let arrives = now.after(handover).after(self.machine.transfer[distance as usize]);
        let is_handed_over = kind == LockKind::Fifo || now.since(first.since) >= FAIR_AFTER;
        // A waiter that is on its way already finds the lock its own.
        if is_handed_over {
            state.waiters.pop_front();
            state.holder = Some(Holder { cpu: first.cpu, site: first.site, since: arrives });
            let before = state.last.replace(first.cpu);
            let line = state.line;
            let is_under_way = std::mem::replace(&mut state.is_called, true);
            self.lines.give(line, first.cpu, Access::Modify);
            let stat = self.lock_stat.site(first.site);
            stat.acquisitions += 1;
            stat.bounces += u64::from(before != Some(first.cpu));
            self.end_wait(first, arrives);
            self.record(RecordKind::LockTransfer, lock.0, holder.cpu.get().into());
            if !is_under_way {
                self.call(first.cpu, arrives, Span::ZERO);
            }
        } else if !std::mem::replace(&mut state.is_called, true) {
            self.call(first.cpu, arrives, Span::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;
    use crate::machine::Machine;
    use crate::world::Preemption;
    use evenkeel_core::Seed;

    const SITE: Site = Site::Pull;

    fn world(kind: LockKind) -> (World, LockId) {
        let mut machine = Machine::named("flat-4").unwrap();
        machine.lock = kind;
        let mut world = World::new(1, machine, Preemption::default(), Faults::NONE, Seed::new(1));
        world.run_to(Time::NEVER);
        (0..4).for_each(|cpu| world.agenda.set(cpu, Time::NEVER));
        let line = world.lines.add(evenkeel_engine::host::LineClass::QueueLock);
        world.locks.push(LockState::new(line));
        (world, LockId(0))
    }

    fn cpu(index: u32) -> CpuId {
        CpuId::new(index)
    }

    fn at(index: u32) -> At {
        At::new(cpu(index), SITE)
    }

    fn time(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// A CPU tries to take the lock, and waits if it is held.
    fn ask(world: &mut World, lock: LockId, who: u32, when: u64) -> Take {
        world.begin_turn(cpu(who), time(when));
        let take = world.take(lock, at(who));
        if take == Take::Held {
            world.begin_wait(lock, at(who));
        }
        take
    }

    fn let_go(world: &mut World, lock: LockId, who: u32, when: u64) {
        world.begin_turn(cpu(who), time(when));
        world.release(lock);
        world.leave(cpu(who), Phase::Runs, Time::NEVER);
    }

    /// The time until a waiter that was called can take the lock.
    fn handover(world: &World) -> u64 {
        let moved = world.machine.transfer[crate::machine::Distance::Cache as usize];
        world.machine.costs.handover.plus(moved).as_nanos()
    }

    #[test]
    fn a_fifo_lock_is_handed_over_in_the_order_of_asking() {
        let (mut world, lock) = world(LockKind::Fifo);
        assert_eq!(ask(&mut world, lock, 0, 10), Take::Taken);
        assert_eq!(ask(&mut world, lock, 1, 20), Take::Held);
        assert_eq!(ask(&mut world, lock, 2, 30), Take::Held);
        let_go(&mut world, lock, 0, 1_000);
        // Who comes now, before the waiter has arrived, waits behind the others.
        assert_eq!(ask(&mut world, lock, 3, 1_001), Take::Held);
        let mut now = 1_000;
        for next in [1, 2, 3] {
            now += handover(&world);
            assert_eq!(world.next(), Some((cpu(next), time(now))));
            world.begin_turn(cpu(next), time(now));
            assert_eq!(world.answer_call(lock, at(next)), Take::Taken);
            now += 500;
            let_go(&mut world, lock, next, now);
        }
        let waits = world.lock_stat.site(SITE).waits;
        assert_eq!((waits.count, waits.min.as_nanos()), (3, 1_000 + handover(&world) - 20));
        assert_eq!(world.lock_stat.site(SITE).acquisitions, 4);
    }

    #[test]
    fn a_barging_lock_goes_to_who_comes_first() {
        let (mut world, lock) = world(LockKind::Barging);
        assert_eq!(ask(&mut world, lock, 0, 10), Take::Taken);
        assert_eq!(ask(&mut world, lock, 1, 20), Take::Held);
        let_go(&mut world, lock, 0, 1_000);
        assert_eq!(ask(&mut world, lock, 2, 1_001), Take::Taken);
        let arrives = 1_000 + handover(&world);
        assert_eq!(world.next(), Some((cpu(1), time(arrives))));
        world.begin_turn(cpu(1), time(arrives));
        assert_eq!(world.answer_call(lock, at(1)), Take::Held);
        assert_eq!(world.agenda.time(1), Time::NEVER);
        // The next release calls it again.
        let_go(&mut world, lock, 2, 2_000);
        let arrives = 2_000 + handover(&world);
        world.begin_turn(cpu(1), time(arrives));
        assert_eq!(world.answer_call(lock, at(1)), Take::Taken);
    }

    #[test]
    fn a_barging_lock_is_handed_over_to_who_has_waited_for_long() {
        let (mut world, lock) = world(LockKind::Barging);
        assert_eq!(ask(&mut world, lock, 0, 10), Take::Taken);
        assert_eq!(ask(&mut world, lock, 1, 20), Take::Held);
        let_go(&mut world, lock, 0, 600_000);
        assert_eq!(ask(&mut world, lock, 2, 600_001), Take::Held);
        world.begin_turn(cpu(1), time(600_000 + handover(&world)));
        assert_eq!(world.answer_call(lock, at(1)), Take::Taken);
    }

    #[test]
    fn a_free_lock_costs_the_way_from_its_last_owner() {
        let (mut world, lock) = world(LockKind::Fifo);
        let cost = |world: &mut World, who: u32, when: u64| {
            assert_eq!(ask(world, lock, who, when), Take::Taken);
            let cost = world.acting_time().as_nanos() - when;
            let_go(world, lock, who, when + 1_000);
            cost
        };
        let _ = cost(&mut world, 0, 10);
        let near = cost(&mut world, 0, 10_000);
        assert_eq!(near, world.machine.costs.lock.as_nanos());
        assert_eq!(cost(&mut world, 1, 20_000), near + 45);
    }

    #[test]
    fn a_failed_try_costs_a_look_at_the_line() {
        let (mut world, lock) = world(LockKind::Fifo);
        assert_eq!(ask(&mut world, lock, 0, 10), Take::Taken);
        world.begin_turn(cpu(1), time(100));
        assert_eq!(world.take(lock, at(1)), Take::Held);
        world.fail_try(lock, at(1));
        let failed = world.lock_stat.site(SITE).failed_tries;
        assert_eq!((failed.count, failed.total.as_nanos()), (1, 46));
    }
}
