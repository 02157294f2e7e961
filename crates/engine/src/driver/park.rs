//! A CPU with nothing to do: search, park, and what is done on waking.
//!
//! The order of steps in `park` is the protocol of [`crate::idle`].
//!
//! Knows nothing of how a host parks.

use super::pull::Depth;
use super::{Step, Turns};
use crate::cpu::Counter;
use crate::host::{At, Host, Site};
use crate::idle::{Claimed, Counted, Domain, KickReason, Roused, Scope, Searcher};
use crate::machine::{Machine, MachinePhase};
use crate::masks::CpuBits;
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
        // Nobody else may be able to take what a look has seen for this CPU and not for everybody: so no crowd is relied on.
        let has_mine = std::mem::take(&mut self.has_seen_mine);
        let scope = self.search_scope(machine);
        // What shows nowhere is found by the look of who takes the watch.
        let at = self.at(Site::Search);
        let is_worth_it = || scope == Scope::Running || machine.has_loaded(at);
        if !self.is_searching && !has_mine && (self.domain(machine).is_crowded(at) || !is_worth_it()) {
            return self.park(machine, now);
        }
        if !self.is_searching {
            self.is_searching = true;
            self.domain(machine).begin_search(self.at(Site::Search));
        }
        if !self.search(machine, scope, now) {
            return self.park(machine, now);
        }
        // In the same step: two idle CPUs could otherwise take one task from each other for ever, each before the other
        // has dispatched it.
        match self.dispatch(machine, now) {
            Some(task) => self.poll(machine, task, now),
            None => Step::Again,
        }
    }

    /// Which CPUs to search. While nobody is parked, what waits need not show; the same if a look has just seen work.
    fn search_scope(&mut self, machine: &Machine<H>) -> Scope {
        let has_seen_work = std::mem::take(&mut self.has_seen_work);
        let is_all = has_seen_work || self.has_left_watch || !machine.has_parked(self.at(Site::Search));
        if is_all { Scope::Running } else { Scope::Loaded }
    }

    /// There is work for this CPU, which has searched or kept the watch: if there is more to do or to watch, another CPU
    /// is kicked.
    /// `open` tasks wait here that may run everywhere.
    pub(super) fn end_idling(&mut self, machine: &Machine<H>, open: usize) {
        let at = self.at(Site::Dispatch).within(Site::Search);
        if std::mem::take(&mut self.is_searching) {
            self.domain(machine).end_search(at);
        }
        // ORDER P3, P4: a pusher that saw the search, or the watch, did not kick. Either this look sees what it pushed,
        // or it saw neither.
        H::fence(at);
        let is_covered = !std::mem::take(&mut self.has_left_watch) && machine.watch.is_kept(at);
        let scope = if is_covered { Scope::Loaded } else { Scope::Running };
        // Who parks later looks for himself.
        if !machine.has_parked(at) {
            self.owes_look = false;
            return;
        }
        let waits_here = open > 0 || machine.cpu(self.cpu).inbox.hint(at) != InboxHint::Empty;
        let survey = self.survey(machine, at, scope, Depth::FirstWork, machine.host.now(self.cpu));
        let is_unwatched = survey.later < Time::NEVER && !machine.watch.is_kept(at);
        if let Some(of) = survey.work_at {
            machine.kick_searcher(at, of);
        } else if waits_here || is_unwatched {
            machine.kick_searcher(at, self.cpu);
        }
        self.pass_on(machine, at);
    }

    /// After a fence: if this CPU was kicked for something that few may run, kicks another of those for whom there is any,
    /// here or elsewhere. That may be what it was kicked for, or what has come meanwhile and kicked nobody (P6).
    fn pass_on(&mut self, machine: &Machine<H>, at: At) {
        if !std::mem::take(&mut self.owes_look) {
            return;
        }
        // What shows is on CPUs that show as loaded: `spread_news` sees to that.
        for cpu in machine.others(at, Scope::Loaded, 0).chain([machine.cpu(self.cpu)]) {
            let mut allowed = CpuBits::default();
            cpu.add_masked_for(at, &mut allowed);
            allowed.remove(self.cpu);
            if !allowed.is_empty() && machine.kick_allowed(at, &allowed, cpu.id) != Searcher::Nobody {
                return;
            }
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
        if !machine.watch.is_kept(at) {
            machine.kick_searcher(at, self.cpu);
        }
    }

    fn park(&mut self, machine: &Machine<H>, now: Time) -> Step {
        let at = self.at(Site::Park);
        let place = machine.cpu(self.cpu).place;
        let counted = if std::mem::take(&mut self.is_searching) { Counted::AsSearcher } else { Counted::Not };
        self.domain(machine).enter_park(at, place, &machine.cpu(self.cpu).park, counted, || H::fence(at));
        self.keeps_watch = self.takes_watch(machine);
        // P5: what does not show is seen by who takes the watch.
        let scope = if self.keeps_watch || self.has_left_watch { Scope::Running } else { Scope::Loaded };
        let mut survey = self.survey(machine, at.within(Site::Search), scope, Depth::FirstWork, now);
        let leaves_work = survey.work_at.is_some() && self.leaves_work(machine);
        if leaves_work && (scope == Scope::Running || machine.masks.has_any()) {
            // All that shows nowhere is to be shown, or those who search would not see it; and what they may not run is not
            // left to them.
            survey = self.survey(machine, at.within(Site::Search), scope, Depth::All, now);
        }
        let own = machine.cpu(self.cpu);
        let is_stopping = machine.machine_phase(at) != MachinePhase::Running;
        // Its queue too: another CPU may have taken the inbox in since this one last held the lock.
        let has_own =
            own.inbox.hint(at) != InboxHint::Empty || own.waiting.length(at) > 0 || !own.timer_inbox.is_empty();
        let has_work = survey.has_mine || survey.work_at.is_some() && !(leaves_work && self.leaves_work(machine));
        if has_work || has_own || is_stopping {
            (self.has_seen_work, self.has_seen_mine) = (has_work, survey.has_mine);
            self.wake_up(machine);
            return Step::Again;
        }
        self.pass_on(machine, at.within(Site::Search));
        if self.woke_for_nothing {
            self.woke_for_nothing = false;
            machine.count(at, Counter::EmptyWakes, 1);
        }
        self.has_left_watch = false;
        let mut until = machine.cpu(self.cpu).poll.timer.read(at);
        if self.keeps_watch {
            until = until.min(survey.later).min(now.after(WATCH_PERIOD));
        }
        machine.count(at, Counter::Parks, 1);
        self.charged.clear();
        self.is_parked = true;
        Step::Park { until }
    }

    /// Whether a CPU that has announced that it parks leaves what it has seen to those who search already.
    fn leaves_work(&self, machine: &Machine<H>) -> bool {
        // ORDER P3: they see it, and that it is shown, in their last look: we have seen them counted after our fence, so
        // theirs comes later.
        self.domain(machine).is_crowded(self.at(Site::Park))
    }

    /// Takes the watch, if any other CPU runs and nobody keeps it. Before the look, so that of many CPUs that park at a
    /// time one looks at all the others.
    fn takes_watch(&self, machine: &Machine<H>) -> bool {
        let at = self.at(Site::Park);
        !machine.watch.is_kept(at) && machine.has_running(at) && machine.watch.take(at, self.cpu) == Claimed::Kick
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
            machine.watch.leave(at);
        }
        match roused {
            Roused::ByTime => {}
            Roused::ByKick(why) => {
                machine.count(at, Counter::Wakes, 1);
                self.woke_for_nothing = true;
                // Whoever kicked has counted the search.
                self.is_searching = why == KickReason::Search;
                self.owes_look |= why == KickReason::Masked;
            }
        }
    }
}
