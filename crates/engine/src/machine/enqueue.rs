//! What is done to a run queue while its lock is held, by its owner or on its behalf.
//!
//! Knows nothing of which CPU holds the lock, or why.

use super::{Credit, Machine};
use crate::cpu::{RunQueue, Share, Tally};
use crate::host::{At, Event, Host, Shared, Site};
use crate::idle::{Claimed, KickReason};
use crate::task::Runnable;
use evenkeel_core::balance::Smallest;
use evenkeel_core::fair_queue::{Edge, Slot};
use evenkeel_core::{CpuId, GroupId, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

/// Wakers of timers that were due. Call them without a lock: they may be user code.
pub(crate) type Woken = Vec<Waker>;

impl<H: Host> Machine<H> {
    /// The node of a task's group in this queue.
    pub(crate) fn slot_for(queue: &mut RunQueue, task: &Runnable) -> Slot {
        let port = task.metadata().port();
        queue.fair.ensure(port.id(), Slot::ROOT, || Share { port: Arc::clone(port), tally: Tally::default() })
    }

    /// Enqueues a task that became runnable: raise, enqueue, cut.
    pub(crate) fn enqueue(&self, at: At, queue: &mut RunQueue, task: Runnable, now: Time, credit: Credit) {
        let group = task.metadata().port().id();
        let slot = Self::slot_for(queue, &task);
        if !queue.fair.has_claim(slot) {
            self.raise(at, group, now, credit);
        }
        queue.fair.push(slot, task);
        if let Some(running) = queue.running {
            // What a task of the group that runs elsewhere has reserved is not yet received: it is not held against it. One
            // usual turn is forgiven without asking whether any runs.
            let clock = self.table.row(group).clock(at).minus(self.usual_turn(at, group));
            queue.is_cut |= running.group != group && !running.clock.is_before(clock);
        }
    }

    /// Takes the inbox of a CPU into its queue.
    pub(crate) fn intake(&self, at: At, of: CpuId, queue: &mut RunQueue, now: Time) {
        for task in self.cpu(of).inbox.take_all(at) {
            self.enqueue(at, queue, task, now, Credit::Wake);
        }
    }

    /// Takes the timer inbox of a CPU into its heap, and takes out what is due.
    pub(crate) fn serve_timers(&self, at: At, of: CpuId, queue: &mut RunQueue, now: Time, woken: &mut Woken) {
        let at = At { site: Site::Timer, ..at };
        let cpu = self.cpu(of);
        loop {
            while let Some(timer) = cpu.timer_inbox.pop() {
                queue.timers.add(timer);
            }
            queue.timers.fire(now, woken);
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
        let at = At { site: Site::Dispatch, ..at };
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

    /// Publishes how many tasks wait in a CPU's queue, if that has changed.
    pub(crate) fn publish_length(&self, at: At, of: CpuId, queue: &RunQueue) {
        let waiting = &self.cpu(of).waiting;
        if waiting.length(at) != queue.fair.len() {
            waiting.set_length(at, queue.fair.len());
            if H::OBSERVES {
                self.host.observe(at, Event::Queued(of, queue.fair.len()));
            }
        }
    }

    /// Publishes what waits in a CPU's queue.
    pub(crate) fn publish(&self, at: At, of: CpuId, queue: &mut RunQueue) -> Option<Smallest> {
        let at = At { site: Site::Publish, ..at };
        let smallest = self.smallest(at, queue);
        self.cpu(of).waiting.set_smallest(at, smallest);
        self.publish_length(at, of, queue);
        smallest
    }
}
