//! From the end of one poll to the task of the next: charging, the end of slices, the pick.
//!
//! One lock of the own queue per poll while a slice lasts; at its end a second one, if the CPU looked around in between.
//!
//! Knows nothing of other CPUs but through `pull`.

use super::Turns;
use crate::cpu::{Counter, RunQueue};
use crate::host::{CpuTime, Host, Site};
use crate::machine::{Credit, Machine, Reservation};
use crate::task::Runnable;
use evenkeel_core::balance::Waiting;
use evenkeel_core::fair_queue::Slot;
use evenkeel_core::switches::LookAround;
use evenkeel_core::{GroupId, MaskId, Span, Time};

/// A group's turn on this CPU.
#[derive(Debug)]
pub(super) struct Slice {
    slot: Slot,
    began: Time,
    /// One per node from the group to the top.
    reservations: Vec<Reservation>,
    /// How long the shortest of them lasts.
    reserved: Span,
}

/// The CPU time that was last compared with the time that passed.
#[derive(Debug, Default)]
pub(super) struct CpuTimeMark(Option<(Time, CpuTime)>);

/// How often time that passed is compared with time that the thread ran: asking the kernel costs about as much as
/// polling a small task.
const CPU_TIME_PERIOD: Span = Span::from_millis(1);

/// Whether the running group goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
enum Turn {
    GoesOn,
    Ends(TurnEnd),
}

/// Why a group's turn ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TurnEnd {
    SliceUsed,
    Cut,
    NothingLeft,
}

impl<H: Host> Turns<H> {
    /// Ends the poll before, and dequeues the next task to poll.
    pub(super) fn dispatch(&mut self, machine: &Machine<H>, now: Time) -> Option<Runnable> {
        let at = self.at(Site::Dispatch);
        self.is_news = false;
        let mut queue = machine.lock(at, self.cpu);
        self.take_in(machine, &mut queue, now);
        while let Some(task) = self.seat().take_suspended() {
            queue.registry.add(task);
        }
        let requeued = self.seat().take_requeue();
        if let Some(task) = &requeued {
            task.metadata().set_runnable_since(now);
            machine.count(at, Counter::Yields, 1);
        }
        if let Some(slice) = self.slice.take() {
            match self.turn(machine, &queue, &slice, requeued.is_some(), now) {
                Turn::GoesOn => {
                    // Its group keeps what it reserved.
                    if let Some(task) = requeued {
                        queue.push(slice.slot, task);
                        H::queue_operations(at, 1);
                    }
                    let slot = slice.slot;
                    self.slice = Some(self.stretch(machine, slice, now));
                    return self.take(machine, &mut queue, slot, now);
                }
                Turn::Ends(why) => self.end_slice(machine, &mut queue, &slice, why, now),
            }
        }
        if let Some(task) = requeued {
            machine.enqueue(at, &mut queue, task, now, Credit::Requeue);
        }
        if self.is_to_look(machine, &queue) {
            let mine = machine.publish(at, self.cpu, &mut queue);
            let length = queue.fair.len();
            machine.settle_counts(at, &mut queue);
            drop(queue);
            self.look_around(machine, Waiting { smallest: mine, length }, now);
            queue = machine.lock(at, self.cpu);
            self.take_in(machine, &mut queue, now);
        }
        self.pick(machine, &mut queue, now)
    }

    /// Whether to look around for a group that is behind: at each end of a turn with something waiting here.
    fn is_to_look(&self, machine: &Machine<H>, queue: &RunQueue) -> bool {
        let is_on = || machine.look_around_switch(self.at(Site::LookAround)) == LookAround::On;
        !queue.fair.is_empty() && machine.cpu_count() > 1 && is_on()
    }

    /// Takes the own inbox in. From here until the length is published, others may see neither inbox nor queue hold
    /// what was in it: so if no length was shown, who looked in between may have gone to sleep.
    fn take_in(&mut self, machine: &Machine<H>, queue: &mut RunQueue, now: Time) {
        let at = self.at(Site::Dispatch);
        // What has a mask tells by itself whom it is for.
        self.is_news |= machine.cpu(self.cpu).waiting.length(at) == queue.masked.shown_total();
        machine.intake(at, self.cpu, queue, now);
    }

    fn turn(&self, machine: &Machine<H>, queue: &RunQueue, slice: &Slice, is_requeued: bool, now: Time) -> Turn {
        if now.since(slice.began) >= machine.config.slice {
            Turn::Ends(TurnEnd::SliceUsed)
        } else if queue.cut.is_some() {
            Turn::Ends(TurnEnd::Cut)
        } else if !is_requeued && queue.fair.waiting(slice.slot) == 0 {
            Turn::Ends(TurnEnd::NothingLeft)
        } else {
            Turn::GoesOn
        }
    }

    /// Reserves the rest of the slice for a turn that goes on for longer than was reserved.
    fn stretch(&self, machine: &Machine<H>, mut slice: Slice, now: Time) -> Slice {
        let used = now.since(slice.began);
        if used >= slice.reserved {
            let at = self.at(Site::Dispatch);
            for reservation in slice.reservations.iter_mut().filter(|reservation| reservation.lasts <= used) {
                machine.reserve_slice(at, reservation, used.times(2));
            }
            slice.reserved = slice.reservations.iter().map(|reservation| reservation.lasts).min().unwrap_or_default();
        }
        slice
    }

    /// Settles what the turn used: all the time since the pick, less what the thread did not get.
    fn end_slice(&mut self, machine: &Machine<H>, queue: &mut RunQueue, slice: &Slice, why: TurnEnd, now: Time) {
        let at = self.at(Site::Dispatch).within(Site::Charge);
        if why == TurnEnd::Cut {
            machine.count(at, Counter::Cuts, 1);
        }
        let used = self.charged.charge(now.since(slice.began), now, || machine.host.cpu_time(self.cpu));
        for reservation in &slice.reservations {
            machine.settle(at, reservation, used);
        }
        let group = queue.fair.group(slice.slot);
        let tally = &mut queue.fair.payload_mut(slice.slot).tally;
        tally.run = tally.run.plus(used);
        tally.publish(at, &machine.table, group);
        queue.fair.unpin(slice.slot);
        queue.running = None;
        machine.count(at, Counter::Run, used.as_nanos());
    }

    /// Ends the slice without picking another: nothing waits here, or the machine stops.
    pub(super) fn abandon_slice(&mut self, machine: &Machine<H>, now: Time) {
        let Some(slice) = self.slice.take() else { return };
        let at = self.at(Site::Dispatch);
        let mut queue = machine.lock(at, self.cpu);
        self.end_slice(machine, &mut queue, &slice, TurnEnd::NothingLeft, now);
        machine.settle_counts(at, &mut queue);
    }

    /// Picks the group with the smallest clock and reserves what its turn usually takes.
    fn pick(&mut self, machine: &Machine<H>, queue: &mut RunQueue, now: Time) -> Option<Runnable> {
        let at = self.at(Site::Dispatch);
        let Some(slot) = queue.fair.pick(|group| machine.table.row(group).clock(at)) else {
            machine.publish(at, self.cpu, queue);
            machine.settle_counts(at, queue);
            machine.note_empty(at, self.cpu, queue);
            machine.count(at, Counter::Idles, 1);
            return None;
        };
        let path = queue.fair.path(slot).map(|slot| machine.reserve(at, queue.fair.group(slot)));
        let reservations: Vec<_> = path.collect();
        let top = reservations.last().expect("a path has a node");
        queue.running = Some(top.group);
        queue.cut = queue.cut.filter(|cut| cut.of == top.group && queue.has_waiting(cut.by));
        queue.fair.pin(slot);
        machine.cpu(self.cpu).waiting.set_running(at, Some(top.group));
        let port = self.seat().port_of(queue.fair.payload(slot).port.node());
        self.seat().set_running(Some(port));
        self.seat().slice_end.set(now.after(machine.config.slice));
        let reserved = reservations.iter().map(|reservation| reservation.lasts).min().unwrap_or_default();
        self.slice = Some(Slice { slot, began: now, reservations, reserved });
        self.seat().prune_ports();
        let task = self.take(machine, queue, slot, now);
        // After the task has left: what is published is what waits.
        machine.publish(at, self.cpu, queue);
        machine.note_empty(at, self.cpu, queue);
        task
    }

    /// Dequeues a task of the running group, and ends the hold of the lock: counts, figures, and a kick that is owed.
    fn take(&mut self, machine: &Machine<H>, queue: &mut RunQueue, slot: Slot, now: Time) -> Option<Runnable> {
        let at = self.at(Site::Dispatch);
        let task = queue.pop(slot)?;
        H::queue_operations(at, 1);
        if task.metadata().mask() != MaskId::ALL {
            debug_assert!(machine.masks.allows(task.metadata().mask(), self.cpu), "I6: dispatched on CPU {}", self.cpu);
            task.metadata().set_last_cpu(self.cpu);
        }
        let wait = now.since(task.metadata().runnable_since());
        let group = queue.fair.group(slot);
        let tally = &mut queue.fair.payload_mut(slot).tally;
        if !tally.try_count(wait) {
            tally.publish(at, &machine.table, group);
            let counted = tally.try_count(wait);
            debug_assert!(counted, "an empty tally has room");
        }
        machine.cpu(self.cpu).counters.add_wait(at, wait);
        machine.settle_counts(at, queue);
        machine.publish_length(at, self.cpu, queue);
        self.seat().left_waiting.set(queue.fair.len());
        self.woke_for_nothing = false;
        if self.is_searching || self.has_left_watch || self.owes_look {
            self.end_idling(machine, queue.open_len());
        } else if self.is_news && queue.open_len() > 0 {
            // ORDER P1, P3: as for a push.
            H::fence(at);
            machine.kick_searcher(at, self.cpu);
        }
        if queue.masked.is_used() {
            machine.spread_news(at, self.cpu, queue.masked.take_news());
        }
        self.settle_watch(machine);
        Some(task)
    }
}

impl RunQueue {
    /// Whether tasks of the group wait here.
    fn has_waiting(&self, group: GroupId) -> bool {
        self.fair.find(group).is_some_and(|slot| self.fair.waiting(slot) > 0)
    }
}

impl CpuTimeMark {
    /// What to charge for `passed`: less the time that the thread was kept off the processor, which is asked for at most
    /// once per period. A thread that blocked is charged what passed: the CPU was not available to others.
    fn charge(&mut self, passed: Span, now: Time, ask: impl FnOnce() -> Option<CpuTime>) -> Span {
        let Some((since, before)) = self.0 else {
            self.0 = ask().map(|cpu_time| (now, cpu_time));
            return passed;
        };
        if now.since(since) < CPU_TIME_PERIOD {
            return passed;
        }
        let Some(cpu_time) = ask() else { return passed };
        self.0 = Some((now, cpu_time));
        if cpu_time.blocked != before.blocked {
            return passed;
        }
        let lost = now.since(since).minus(cpu_time.ran.minus(before.ran));
        passed.minus(lost)
    }

    /// Forgets the mark: time spent parked is nobody's.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::ZERO.after(Span::from_millis(millis))
    }

    fn ran(millis: u64, blocked: u64) -> Option<CpuTime> {
        Some(CpuTime { ran: Span::from_millis(millis), blocked })
    }

    #[test]
    fn a_preempted_worker_is_charged_what_it_ran() {
        let mut mark = CpuTimeMark::default();
        assert_eq!(mark.charge(Span::from_millis(1), ms(1), || ran(1, 0)), Span::from_millis(1));
        assert_eq!(mark.charge(Span::from_millis(4), ms(5), || ran(2, 0)), Span::from_millis(1));
    }

    #[test]
    fn a_blocked_worker_is_charged_what_passed() {
        let mut mark = CpuTimeMark::default();
        let _ = mark.charge(Span::from_millis(1), ms(1), || ran(1, 0));
        assert_eq!(mark.charge(Span::from_millis(4), ms(5), || ran(2, 1)), Span::from_millis(4));
    }

    #[test]
    fn a_host_that_cannot_tell_charges_what_passed() {
        let mut mark = CpuTimeMark::default();
        for millis in [1, 5] {
            assert_eq!(mark.charge(Span::from_millis(1), ms(millis), || None), Span::from_millis(1));
        }
    }
}
