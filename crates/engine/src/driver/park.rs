//! A CPU with nothing to do: search, park, and what is done on waking.
//!
//! The order of steps in `park` is the protocol of [`crate::idle`].
//!
//! Knows nothing of how a host parks.

use super::{Driver, Step};
use crate::cpu::Counter;
use crate::host::{Host, Site};
use crate::idle::{Claimed, Domain, KickReason, Roused};
use crate::machine::MachinePhase;
use evenkeel_core::balance::InboxHint;
use evenkeel_core::{Span, Time};

/// How often a parked CPU looks at busy ones: what a kick that was put off may cost if a poll turns out to be long
/// after many short ones. A slice by default: others would not be served sooner if all CPUs were busy.
const WATCH_PERIOD: Span = Span::from_millis(1);

impl<H: Host> Driver<H> {
    fn domain(&self) -> &Domain<H::Shared> {
        self.machine.domain_of(self.cpu)
    }

    pub(super) fn go_idle(&mut self, now: Time) -> Step {
        self.own().poll.set_began(self.at(Site::Park), None);
        self.seat().set_running(None);
        self.seat().prune_ports();
        self.seat().is_kick_owed.set(false);
        if !self.is_searching {
            self.is_searching = true;
            self.domain().begin_search(self.at(Site::Search));
        }
        if self.search(now) {
            return Step::Again;
        }
        self.park(now)
    }

    /// The search is over, with work: if there is more, another CPU is kicked.
    pub(super) fn end_search_with_work(&mut self) {
        let at = self.at(Site::Search);
        self.is_searching = false;
        self.domain().end_search(at);
        // ORDER P3: a pusher that saw the search did not kick. Either this look sees what it pushed, or it saw no search.
        H::fence(at);
        let waits_here = self.seat().left_waiting.get() > 0 || self.own().inbox.hint(at) != InboxHint::Empty;
        let now = self.machine.host.now(self.cpu);
        if waits_here || self.survey(now).has_work {
            self.machine.kick_searcher(at, self.cpu);
        }
    }

    fn park(&mut self, now: Time) -> Step {
        let at = self.at(Site::Park);
        let place = self.own().place;
        self.own().park.announce(at);
        self.domain().show_parked(at, place);
        self.is_searching = false;
        self.domain().end_search(at);
        // ORDER P1, P3: pairs with the fence of whoever makes a task runnable. Either this last look sees the task, or
        // they see that this CPU parks, and that it does not search.
        H::fence(at);
        let survey = self.survey(now);
        let own = self.own();
        let is_stopping = self.machine.machine_phase(at) != MachinePhase::Running;
        let has_own = own.inbox.hint(at) != InboxHint::Empty || !own.timer_inbox.is_empty();
        if survey.has_work || has_own || is_stopping {
            self.wake_up();
            return Step::Again;
        }
        if self.woke_for_nothing {
            self.woke_for_nothing = false;
            self.count(Counter::EmptyWakes, 1);
        }
        let mut until = self.own().prospect(at).timer;
        if survey.has_busy && self.domain().take_watch(at, self.cpu) == Claimed::Kick {
            self.keeps_watch = true;
            until = until.min(survey.later).min(now.after(WATCH_PERIOD));
        }
        self.count(Counter::Parks, 1);
        self.charged.clear();
        self.is_parked = true;
        Step::Park { until }
    }

    /// After a park.
    pub(super) fn resume(&mut self) {
        self.is_parked = false;
        self.wake_up();
    }

    fn wake_up(&mut self) {
        let at = self.at(Site::Park);
        let place = self.own().place;
        let roused = self.own().park.resume(at);
        self.domain().show_running(at, place);
        if self.keeps_watch {
            self.keeps_watch = false;
            self.domain().leave_watch(at);
        }
        match roused {
            Roused::ByTime => {}
            Roused::ByKick(why) => {
                self.count(Counter::Wakes, 1);
                self.woke_for_nothing = true;
                // Whoever kicked has counted the search.
                self.is_searching = why == KickReason::Search;
            }
        }
    }
}
