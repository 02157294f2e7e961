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
        self.seat().prune_ports();
        self.seat().is_kick_owed.set(false);
        if !self.is_searching {
            self.is_searching = true;
            self.domain(machine).begin_search(self.at(Site::Search));
        }
        if self.search(machine, now) {
            return Step::Again;
        }
        self.park(machine, now)
    }

    /// The search is over, with work: if there is more, another CPU is kicked.
    pub(super) fn end_search_with_work(&mut self, machine: &Machine<H>) {
        let at = self.at(Site::Search);
        self.is_searching = false;
        self.domain(machine).end_search(at);
        // ORDER P3: a pusher that saw the search did not kick. Either this look sees what it pushed, or it saw no search.
        H::fence(at);
        let waits_here = self.seat().left_waiting.get() > 0 || machine.cpu(self.cpu).inbox.hint(at) != InboxHint::Empty;
        let now = machine.host.now(self.cpu);
        if waits_here || self.survey(machine, now).has_work {
            machine.kick_searcher(at, self.cpu);
        }
    }

    fn park(&mut self, machine: &Machine<H>, now: Time) -> Step {
        let at = self.at(Site::Park);
        let place = machine.cpu(self.cpu).place;
        machine.cpu(self.cpu).park.announce(at);
        self.domain(machine).show_parked(at, place);
        self.is_searching = false;
        self.domain(machine).end_search(at);
        // ORDER P1, P3: pairs with the fence of whoever makes a task runnable. Either this last look sees the task, or
        // they see that this CPU parks, and that it does not search.
        H::fence(at);
        let survey = self.survey(machine, now);
        let own = machine.cpu(self.cpu);
        let is_stopping = machine.machine_phase(at) != MachinePhase::Running;
        let has_own = own.inbox.hint(at) != InboxHint::Empty || !own.timer_inbox.is_empty();
        if survey.has_work || has_own || is_stopping {
            self.wake_up(machine);
            return Step::Again;
        }
        if self.woke_for_nothing {
            self.woke_for_nothing = false;
            self.count(machine, Counter::EmptyWakes, 1);
        }
        let mut until = machine.cpu(self.cpu).poll.timer.read(at);
        if survey.has_busy && self.domain(machine).take_watch(at, self.cpu) == Claimed::Kick {
            self.keeps_watch = true;
            until = until.min(survey.later).min(now.after(WATCH_PERIOD));
        }
        self.count(machine, Counter::Parks, 1);
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
        let roused = machine.cpu(self.cpu).park.resume(at);
        self.domain(machine).show_running(at, place);
        if self.keeps_watch {
            self.keeps_watch = false;
            self.domain(machine).leave_watch(at);
        }
        match roused {
            Roused::ByTime => {}
            Roused::ByKick(why) => {
                self.count(machine, Counter::Wakes, 1);
                self.woke_for_nothing = true;
                // Whoever kicked has counted the search.
                self.is_searching = why == KickReason::Search;
            }
        }
    }
}
