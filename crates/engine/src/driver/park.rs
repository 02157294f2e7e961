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

/// What a CPU has to do with keeping time: a parked CPU looks now and then at whether busy ones are stuck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Watch {
    /// Nothing so far, since it was last idle.
    #[default]
    None,
    /// It is parked and keeps time.
    Kept,
    /// It kept time and was roused. If it runs a task, somebody else must take over.
    Abandoned,
    /// It is busy and has seen to it that somebody keeps time.
    Provided,
}

impl<H: Host> Turns<H> {
    fn domain<'a>(&self, machine: &'a Machine<H>) -> &'a Domain<H::Shared> {
        machine.domain_of(self.cpu)
    }

    pub(super) fn go_idle(&mut self, machine: &Machine<H>, now: Time) -> Step {
        machine.cpu(self.cpu).poll.set_began(self.at(Site::Park), None);
        self.seat().set_running(None);
        self.seat().prune_ports();
        self.seat().is_kick_owed.set(false);
        self.watch = Watch::None;
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
        let survey = self.survey(machine, now);
        if waits_here || survey.has_work {
            machine.kick_searcher(at, self.cpu);
        } else if survey.later != Time::NEVER {
            // What may be stuck there was left to the search; somebody else must keep time for it.
            self.provide_watch(machine);
        }
    }

    /// Before a poll, which may be a long one: sees to it that a parked CPU keeps time, if there is a parked one, and
    /// anything here that would be late behind the poll. Once is enough while this CPU is busy: who keeps time passes
    /// that on when it finds work, and who parks takes it up if nobody does.
    pub(super) fn need_watch(&mut self, machine: &Machine<H>) {
        let has_timer = || machine.cpu(self.cpu).poll.timer(self.at(Site::Park)) != Time::NEVER;
        if self.watch == Watch::Abandoned || (self.watch == Watch::None && has_timer()) {
            self.provide_watch(machine);
        }
    }

    fn provide_watch(&mut self, machine: &Machine<H>) {
        let at = self.at(Site::Park);
        self.watch = Watch::Provided;
        // ORDER P4: pairs with the fence in `park`. Either a CPU that parks sees that this one is busy, and keeps time, or
        // we see that it parks.
        H::fence(at);
        if !self.domain(machine).is_watched(at) {
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
        let mut until = machine.cpu(self.cpu).poll.timer(at);
        if survey.has_busy && self.domain(machine).take_watch(at, self.cpu) == Claimed::Kick {
            self.watch = Watch::Kept;
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
        if self.watch == Watch::Kept {
            self.watch = Watch::Abandoned;
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
