//! What is done to a run queue while its lock is held, by its owner or on its behalf.
//!
//! Knows nothing of which CPU holds the lock, or why.

use super::{Credit, Machine};
use crate::cpu::{Cut, RunQueue, Share, Tally};
use crate::host::{At, Event, Host, Shared, Site};
use crate::idle::{Claimed, KickReason};
use crate::masks::CpuBits;
use crate::task::Runnable;
use evenkeel_core::balance::Smallest;
use evenkeel_core::fair_queue::{Admits, Edge, Slot};
use evenkeel_core::{CpuId, GroupId, MaskId, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

/// Wakers of timers that were due. Call them without a lock: they may be user code.
pub(crate) type Woken = Vec<Waker>;

impl<H: Host> Machine<H> {
    /// The node of a task's group in this queue.
    pub(crate) fn slot_for(queue: &mut RunQueue, task: &Runnable) -> Slot {
        let port = task.metadata().port();
        let share = || Share { port: Arc::clone(port), mask: port.node().mask(), tally: Tally::default() };
        queue.fair.ensure(port.id(), Slot::ROOT, share)
    }

    /// Enqueues a task that became runnable: raise, enqueue, cut.
    pub(crate) fn enqueue(&self, at: At, queue: &mut RunQueue, task: Runnable, now: Time, credit: Credit) {
        let group = task.metadata().port().id();
        let slot = Self::slot_for(queue, &task);
        if !queue.fair.has_claim(slot) {
            self.raise(at, group, queue.fair.payload(slot).mask, now, credit);
        }
        queue.push(slot, task);
        H::queue_operations(at, 1);
        if let Some(running) = queue.running.filter(|running| *running != group) {
            // What a task of the group that runs elsewhere has reserved is not yet received: it is not held against it. One
            // usual turn is forgiven without asking whether any runs. The group that runs is taken as it will be at the end of
            // its slice: its clock at the pick says nothing of what it received on other CPUs meanwhile.
            let clock = self.table.row(group).clock(at).minus(self.usual_turn(at, group).0);
            if !self.table.row(running).clock(at).is_before(clock) {
                queue.cut.get_or_insert(Cut { of: running, by: group });
            }
        }
    }

    /// Takes the inbox of a CPU into its queue.
    pub(crate) fn intake(&self, at: At, of: CpuId, queue: &mut RunQueue, now: Time) {
        let mut has_masked = false;
        for task in self.cpu(of).inbox.take_all(at) {
            has_masked |= task.metadata().mask() != MaskId::ALL;
            self.enqueue(at, queue, task, now, Credit::Wake);
        }
        if has_masked {
            self.cpu(of).clear_inbox_note(at);
        }
    }

    /// Takes the timer inbox of a CPU into its heap, and takes out what is due.
    pub(crate) fn serve_timers(&self, at: At, of: CpuId, queue: &mut RunQueue, now: Time, woken: &mut Woken) {
        let at = at.within(Site::Timer);
        let cpu = self.cpu(of);
        loop {
            while let Some(timer) = cpu.timer_inbox.pop() {
                queue.timers.add(timer);
                H::queue_operations(at, 1);
            }
            let before = woken.len();
            queue.timers.fire(now, woken);
            H::queue_operations(at, woken.len() - before);
            self.clean_timers(at, of, |cancelled| queue.timers.clean(cancelled));
            cpu.poll.timer.set(at, queue.timers.next());
            // ORDER M: pairs with the fence in `arm_timer`. One that came after the drain may have lowered the deadline
            // that was just overwritten: either this look sees it, or it sees what was published, and lowers that.
            H::fence(at);
            if cpu.timer_inbox.is_empty() {
                break;
            }
        }
        // ORDER P1: the owner may have found its inbox drained and the deadline not published yet, and parked. After
        // the fence above, either its last look sees the deadline, or we see that it is parked.
        if at.cpu != of && cpu.park.claim(at, KickReason::Inbox) == Claimed::Kick {
            self.host.kick(of);
        }
    }

    /// Counts the groups that came or went, and drops what was kept for those that left. Last before unlocking.
    pub(crate) fn settle_counts(&self, at: At, queue: &mut RunQueue) {
        let at = at.within(Site::Dispatch);
        let edge = |group: GroupId, edge| {
            let waiting = &self.table.row(group).line.waiting_cpus;
            match edge {
                Edge::Up => drop(waiting.fetch_add(at, 1, Relaxed)),
                Edge::Down => {
                    let before = waiting.fetch_sub(at, 1, Relaxed);
                    debug_assert!(before > 0, "I1: waiting_cpus of group {group} fell below zero");
                }
            }
        };
        let gone = |group, mut share: Share| share.tally.publish(at, &self.table, group);
        queue.fair.settle_counts(edge, gone);
    }

    /// The group with the smallest clock that waits in this queue.
    pub(crate) fn smallest(&self, at: At, queue: &mut RunQueue) -> Option<Smallest> {
        let slot = queue.fair.smallest_child(Slot::ROOT, |group| self.table.row(group).clock(at))?;
        let group = queue.fair.group(slot);
        Some(Smallest { group, clock: self.table.row(group).clock(at) })
    }

    /// The group with the smallest clock that waits in this queue with a task that `cpu` may run.
    pub(crate) fn smallest_for(&self, at: At, queue: &mut RunQueue, cpu: CpuId) -> Option<Smallest> {
        if queue.masked.total() == 0 {
            return self.smallest(at, queue);
        }
        self.smallest_with(at, queue, |mask| self.masks.allows(mask, cpu))
    }

    /// The group with the smallest clock that waits in this queue with a task of a mask that `is_usable`.
    fn smallest_with(&self, at: At, queue: &mut RunQueue, is_usable: impl Fn(MaskId) -> bool) -> Option<Smallest> {
        let clock = |group| self.table.row(group).clock(at);
        let slot = queue.fair.smallest_usable(Slot::ROOT, clock, |fair, slot| {
            fair.has_admitted(slot, &Admits { common: is_usable(fair.payload(slot).mask), masked: &is_usable })
        })?;
        let group = queue.fair.group(slot);
        Some(Smallest { group, clock: clock(group) })
    }

    /// Publishes how many tasks wait in a CPU's queue, if that has changed, and whom they are for.
    pub(crate) fn publish_length(&self, at: At, of: CpuId, queue: &mut RunQueue) {
        let waiting = &self.cpu(of).waiting;
        if waiting.length(at) != queue.fair.len() {
            waiting.set_length(at, queue.fair.len());
            if H::OBSERVES {
                self.host.observe(at, Event::Queued(of, queue.fair.len()));
            }
        }
        if queue.masked.is_used() {
            self.publish_masked(at, of, queue);
        }
    }

    fn publish_masked(&self, at: At, of: CpuId, queue: &mut RunQueue) {
        let cpu = self.cpu(of);
        if let Some(total) = queue.masked.changed_total() {
            cpu.waiting.set_masked(at, total);
        }
        for changed in queue.masked.update(of, &self.masks) {
            cpu.masked_for.word(changed.index).store(at, changed.bits, Relaxed);
        }
    }

    /// Tells one of the CPUs that a queue has something for, if it had nothing for them before: who shows that something
    /// waits is as good as who pushes it. `news` was taken from the queue after the last time that it was published.
    pub(crate) fn spread_news(&self, at: At, of: CpuId, news: Option<CpuBits>) {
        if let Some(news) = news {
            // ORDER P1, P6: pairs with the fence of a CPU that parks. Either its last look sees what is shown, or we see
            // that it is parked.
            H::fence(at);
            // Also while nobody is parked: who parks first may not be among those for whom it is.
            self.show_loaded(at, of);
            let _ = self.kick_allowed(at, &news, of);
        }
    }

    /// Rouses a CPU whose inbox was taken in for it. It may have parked meanwhile, and seen the tasks neither in the inbox nor
    /// in the queue; and of those that only it may run nobody else is told. After the queue was published.
    pub(crate) fn rouse(&self, at: At, of: CpuId) {
        // ORDER P1, P6: pairs with the fence of a CPU that parks. Either its last look sees the length, or we see that it is
        // parked.
        H::fence(at);
        if self.cpu(of).park.claim(at, KickReason::Inbox) == Claimed::Kick {
            self.host.kick(of);
        }
    }

    /// Publishes what waits in a CPU's queue.
    pub(crate) fn publish(&self, at: At, of: CpuId, queue: &mut RunQueue) -> Option<Smallest> {
        let at = at.within(Site::Publish);
        let smallest = self.smallest(at, queue);
        let waiting = &self.cpu(of).waiting;
        waiting.set_smallest(at, smallest);
        if queue.masked.total() > 0 {
            let open = self.smallest_with(at, queue, |mask| mask == MaskId::ALL);
            waiting.set_smallest_open(at, open);
        }
        self.publish_length(at, of, queue);
        smallest
    }
}
