//! A CPU with nothing to do: search, park, and what is done on waking.
//!
//! The order of steps in `park` is the protocol of [`crate::idle`].
//!
//! Knows nothing of how a host parks.

use super::{Step, Turns};
use crate::cpu::Counter;
use crate::host::{Host, Site};
use crate::idle::{Claimed, Domain, KickReason, Roused};
use crate::machine::{Machine, MachinePhase};
use evenkeel_core::balance::InboxHint;
use evenkeel_core::{Span, Time};

/// How often a parked CPU looks at busy ones: what a kick that was put off may cost if a poll turns out to be long
/// after many short ones. A slice by default: others would not be served sooner if all CPUs were busy.
const WATCH_PERIOD: Span = Span::from_millis(1);

impl<H: Host> Turns<H> {
    fn domain<'a>(&self, machine: &'a Machine<H>) -> &'a Domain<H::Shared> {
        machine.domain_of(self.cpu)
    }

    pub(super) fn go_idle(&mut self, machine: &Machine<H>, now: Time) -> Step {
        machine.cpu(self.cpu).poll.set_began(self.at(Site::Park), None);
        self.seat().set_running(None);
        machine.cpu(self.cpu).waiting.set_running(self.at(Site::Park), None);
        self.seat().clear_ports();
        self.is_watch_settled = false;
        if !self.is_searching {
            self.is_searching = true;
            self.domain(machine).begin_search(self.at(Site::Search));
        }
        if !self.search(machine, now) {
            return self.park(machine, now);
        }
        // In the same step: two idle CPUs could otherwise take one task from each other for ever, each before the other
        // has dispatched it.
        match self.dispatch(machine, now) {
            Some(task) => self.poll(machine, task, now),
            None => Step::Again,
        }
    }

    /// There is work for this CPU, which has searched or kept the watch: if there is more to do or to watch, another CPU
    /// is kicked.
    pub(super) fn end_idling(&mut self, machine: &Machine<H>) {
        let at = self.at(Site::Dispatch).within(Site::Search);
        if std::mem::take(&mut self.is_searching) {
            self.domain(machine).end_search(at);
        }
        self.has_left_watch = false;
        // ORDER P3, P4: a pusher that saw the search, or the watch, did not kick. Either this look sees what it pushed,
        // or it saw neither.
        H::fence(at);
        let waits_here = self.seat().left_waiting.get() > 0 || machine.cpu(self.cpu).inbox.hint(at) != InboxHint::Empty;
        let now = machine.host.now(self.cpu);
        let survey = self.survey(machine, at, now);
        let is_unwatched = survey.later < Time::NEVER && !self.domain(machine).is_watched(at);
        if waits_here || survey.has_work || is_unwatched {
            machine.kick_searcher(at, self.cpu);
        }
    }

    /// Before a poll, which may outlast a deadline here: if all CPUs were parked, nobody keeps the watch. Once is enough
    /// while this CPU is busy: who parks meanwhile takes up the watch, and who leaves it looks for another.
    pub(super) fn settle_watch(&mut self, machine: &Machine<H>) {
        let at = self.at(Site::Dispatch).within(Site::Park);
        if self.is_watch_settled || machine.cpu(self.cpu).poll.timer.read(at) == Time::NEVER {
            return;
        }
        self.is_watch_settled = true;
        // ORDER P4: pairs with the fence in `park`. Either a CPU that parks sees that this one is busy, and keeps the
        // watch, or we see that it is parked.
        H::fence(at);
        if !self.domain(machine).is_watched(at) {
            machine.kick_searcher(at, self.cpu);
        }
    }

    fn park(&mut self, machine: &Machine<H>, now: Time) -> Step {
        let at = self.at(Site::Park);
        let place = machine.cpu(self.cpu).place;
        self.is_searching = false;
        self.domain(machine).enter_park(at, place, &machine.cpu(self.cpu).park, || H::fence(at));
        let survey = self.survey(machine, at.within(Site::Search), now);
        let own = machine.cpu(self.cpu);
        let is_stopping = machine.machine_phase(at) != MachinePhase::Running;
        // Its queue too: another CPU may have taken the inbox in since this one last held the lock.
        let has_own =
            own.inbox.hint(at) != InboxHint::Empty || own.waiting.length(at) > 0 || !own.timer_inbox.is_empty();
        if survey.has_work || has_own || is_stopping {
            self.wake_up(machine);
            return Step::Again;
        }
        if self.woke_for_nothing {
            self.woke_for_nothing = false;
            machine.count(at, Counter::EmptyWakes, 1);
        }
        self.has_left_watch = false;
        let mut until = machine.cpu(self.cpu).poll.timer.read(at);
        if survey.has_busy && self.domain(machine).take_watch(at, self.cpu) == Claimed::Kick {
            self.keeps_watch = true;
            until = until.min(survey.later).min(now.after(WATCH_PERIOD));
        }
        machine.count(at, Counter::Parks, 1);
        self.charged.clear();
        self.is_parked = true;
        Step::Park { until }
    }

    /// After a park.
    pub(super) fn resume(&mut self, machine: &Machine<H>) {
        self.is_parked = false;
        self.wake_up(machine);
    }

    fn wake_up(&mut self, machine: &Machine<H>) {
        let at = self.at(Site::Park);
        let place = machine.cpu(self.cpu).place;
        let roused = self.domain(machine).leave_park(at, place, &machine.cpu(self.cpu).park);
        if self.keeps_watch {
            (self.keeps_watch, self.has_left_watch) = (false, true);
            self.domain(machine).leave_watch(at);
        }
        match roused {
            Roused::ByTime => {}
            Roused::ByKick(why) => {
                machine.count(at, Counter::Wakes, 1);
                self.woke_for_nothing = true;
                // Whoever kicked has counted the search.
                self.is_searching = why == KickReason::Search;
            }
        }
    }
}
