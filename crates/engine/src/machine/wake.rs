//! A task becomes runnable: into which inbox it goes, and whom that kicks.
//!
//! Called from inside polls, wakers and destructors: takes no lock, runs no user code, drops no future.
//!
//! Knows nothing of clocks or of the order of run queues: who drains the inbox enqueues.

use super::Machine;
use crate::cpu::{Counter, Cpu, RunQueue};
use crate::host::{At, Event, Host, Shared, Site};
use crate::idle::{Claimed, Domain, KickReason, Scope, Searcher};
use crate::inbox::Pushed;
use crate::masks::CpuBits;
use crate::seat::Seat;
use crate::task::{Runnable, contain};
use crate::timer::Timer;
use evenkeel_core::balance::InboxHint;
use evenkeel_core::{CpuId, GroupId, MaskId, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How many neighbors of a busy home CPU are looked at. Two, as in the look around.
const NEIGHBORS_PER_WAKE: usize = 2;

/// What a task that comes from outside meets on a busy CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TurnHere {
    /// Nothing, as far as one can see: it may be next.
    Soon,
    /// One more task came just before, or its own group runs here: that goes first.
    Behind,
    /// Several came just before. Others will fetch from here; looking elsewhere for each of a burst would not pay.
    Flooded,
}

impl<H: Host> Machine<H> {
    /// From a thread that drives a CPU: to that CPU's own inbox, if the task may run there.
    pub(super) fn wake_on_seat(&self, seat: &Seat, runnable: Runnable) {
        let at = At::new(seat.cpu(), Site::Wake);
        self.observe_wake(at, &runnable);
        runnable.metadata().set_runnable_since(self.host.now(seat.cpu()));
        let mask = runnable.metadata().mask();
        if !self.masks.allows(mask, seat.cpu()) {
            return self.wake_within(at, mask, seat.cpu(), runnable);
        }
        if mask != MaskId::ALL {
            self.cpu(seat.cpu()).note_inbox(at, self.masks.row(mask).bits());
        }
        let is_lone = match self.cpu(seat.cpu()).inbox.push(at, runnable) {
            Pushed::First => seat.left_waiting.get() == 0,
            Pushed::More => false,
            Pushed::Closed(runnable) => return refuse(runnable),
        };
        self.count(at, Counter::WokenHere, 1);
        // ORDER P1, P3, P4: pairs with the fence of a CPU that parks, ends a search, or leaves the watch.
        H::fence(at);
        // The one task that waits here is the next one to run here, unless this poll goes on for long: a CPU that
        // keeps time sees to that. If it is not the next, the dispatch that leaves it waiting kicks.
        if is_lone && seat.is_brisk.get() && self.watch.is_kept(at) {
            return;
        }
        if mask == MaskId::ALL {
            self.kick_searcher(at, seat.cpu());
        } else {
            // Not a searcher, who may not be allowed to run it: one who is. If none is parked, whoever of them parks next
            // sees the task, or keeps the watch over it, or somebody else does and puts it where it is seen (P6).
            let _ = self.kick_allowed(at, self.masks.row(mask).bits(), seat.cpu());
        }
    }

    /// A task with a mask, from a CPU that it may not run on, or from outside: to the inbox of a CPU that it may run on.
    fn wake_within(&self, at: At, mask: MaskId, from: CpuId, runnable: Runnable) {
        let target = self.place_within(at, mask, from, runnable.metadata().last_cpu());
        self.cpu(target).note_inbox(at, self.masks.row(mask).bits());
        match self.cpu(target).inbox.push(at, runnable) {
            Pushed::First | Pushed::More => {}
            Pushed::Closed(runnable) => return refuse(runnable),
        }
        self.cpu(target).inbox.count_outside(at);
        // ORDER P1: as in `wake_from_outside`.
        H::fence(at);
        match self.cpu(target).park.claim(at, KickReason::Inbox) {
            Claimed::Kick => self.host.kick(target),
            Claimed::No => {
                let _ = self.kick_allowed(at, self.masks.row(mask).bits(), target);
            }
        }
    }

    /// Where a task with a mask goes: to the CPU that ran it last if that is parked, or to another parked one of its mask;
    /// otherwise back to the one that ran it last. A new one to its waker's CPU if it may run there, or to each of its
    /// CPUs in turn. Who is parked is a hint that may be old.
    fn place_within(&self, at: At, mask: MaskId, from: CpuId, last: Option<CpuId>) -> CpuId {
        let row = self.masks.row(mask);
        let known = last.or_else(|| Some(from).filter(|cpu| row.bits().contains(*cpu)));
        let is_parked = |cpu: CpuId| self.cpu(cpu).park.is_parked(at);
        if let Some(known) = known.filter(|cpu| is_parked(*cpu)) {
            return known;
        }
        let near = known.unwrap_or(from);
        let parked = self.domains_from(near).find_map(|(domain, start)| {
            let mut parked = domain.parked(at, start).filter(|cpu| row.bits().contains(*cpu) && is_parked(*cpu));
            parked.next()
        });
        parked.or(known).unwrap_or_else(|| row.next_in_turn(at))
    }

    /// From any other thread: to the inbox of its home CPU, or of a parked one.
    pub(super) fn wake_from_outside(&self, runnable: Runnable) {
        let at = At::outside(Site::Wake);
        self.observe_wake(at, &runnable);
        runnable.metadata().set_runnable_since(self.host.now(CpuId::OUTSIDE));
        let home = self.host.home();
        let mask = runnable.metadata().mask();
        if mask != MaskId::ALL {
            return self.wake_within(at, mask, home, runnable);
        }
        let target = self.target_for(at, home, runnable.metadata().port().id());
        match self.cpu(target).inbox.push(at, runnable) {
            Pushed::First | Pushed::More => {}
            Pushed::Closed(runnable) => return refuse(runnable),
        }
        self.cpu(target).inbox.count_outside(at);
        // ORDER P1: pairs with the fence of a parking driver. Either its last look sees the task, or we see that it
        // parks and kick it.
        H::fence(at);
        match self.cpu(target).park.claim(at, KickReason::Inbox) {
            Claimed::Kick => self.host.kick(target),
            Claimed::No => self.kick_searcher(at, target),
        }
    }

    /// Where a task that is woken outside goes: the home CPU if it is parked; otherwise a parked CPU near it, so that the
    /// task need not be fetched from a busy one. If none is parked, the home CPU again, unless that has a task of this
    /// group to do first while a neighbor has not: there the task may cut in after the poll under way. All of it are
    /// hints that may be old.
    fn target_for(&self, at: At, home: CpuId, group: GroupId) -> CpuId {
        if self.cpu(home).park.is_parked(at) {
            return home;
        }
        let place = self.cpu(home).place;
        let domain = &self.domains[place.domain];
        let parked = domain.parked(at, place.bit).find(|cpu| self.cpu(*cpu).park.is_parked(at));
        parked.unwrap_or_else(|| match self.turn_of(at, home, group) {
            TurnHere::Soon | TurnHere::Flooded => home,
            TurnHere::Behind => {
                let is_better = |cpu: &CpuId| self.turn_of(at, *cpu, group) == TurnHere::Soon;
                domain.neighbors(place.bit, NEIGHBORS_PER_WAKE).find(is_better).unwrap_or(home)
            }
        })
    }

    fn turn_of(&self, at: At, cpu: CpuId, group: GroupId) -> TurnHere {
        let cpu = self.cpu(cpu);
        match cpu.inbox.hint(at) {
            InboxHint::Many => TurnHere::Flooded,
            InboxHint::One => TurnHere::Behind,
            InboxHint::Empty if cpu.waiting.running(at) == Some(group) => TurnHere::Behind,
            InboxHint::Empty => TurnHere::Soon,
        }
    }

    /// A task without a time has never been runnable before.
    fn observe_wake(&self, at: At, runnable: &Runnable) {
        if H::OBSERVES {
            let metadata = runnable.metadata();
            let is_new = metadata.runnable_since() == Time::ZERO;
            let event = if is_new { Event::Spawned } else { Event::Woken };
            self.host.observe(at, event(metadata.key()));
        }
    }

    /// Kicks one parked CPU to search, near `from` first, unless somebody searches there already, for something that
    /// waits on `from`. A fence must have come before. All domains are looked at: a CPU far away that parked when all was
    /// quiet keeps no watch, and would never learn of this otherwise.
    pub(crate) fn kick_searcher(&self, at: At, from: CpuId) {
        for (domain, start) in self.domains_from(from) {
            // While nobody is parked, whoever parks first looks at all CPUs: no need to show anything.
            if !domain.has_parked(at) {
                continue;
            }
            self.show_loaded(at, from);
            match domain.claim_searcher(at, start, |cpu| &*self.cpu(cpu).park, || H::fence(at)) {
                Searcher::Kick(cpu) => return self.host.kick(cpu),
                Searcher::Underway => return,
                Searcher::Nobody => {}
            }
        }
    }

    /// Kicks one parked CPU of these, near `from` first: something waits on `from` that they may run, and not everybody
    /// may. A fence must have come before.
    pub(crate) fn kick_allowed(&self, at: At, allowed: &CpuBits, from: CpuId) -> Searcher {
        for (domain, start) in self.domains_from(from) {
            if !domain.has_parked(at) {
                continue;
            }
            self.show_loaded(at, from);
            let searcher = domain.claim_allowed(at, start, |cpu| allowed.contains(cpu), |cpu| &*self.cpu(cpu).park);
            if let Searcher::Kick(cpu) = searcher {
                self.host.kick(cpu);
            }
            if searcher != Searcher::Nobody {
                return searcher;
            }
        }
        Searcher::Nobody
    }

    /// All domains, that of a CPU first, each with the place in it to begin at.
    fn domains_from(&self, from: CpuId) -> impl Iterator<Item = (&Domain<H::Shared>, usize)> {
        let first = self.cpu(from).place;
        let count = self.domains.len();
        (0..count).map(move |turn| {
            let start = if turn == 0 { first.bit } else { 0 };
            (&*self.domains[(first.domain + turn) % count], start)
        })
    }

    /// Shows that a CPU may have something to take. After a fence.
    pub(crate) fn show_loaded(&self, at: At, of: CpuId) {
        let place = self.cpu(of).place;
        self.domains[place.domain].show_loaded(at, place, || H::fence(at));
    }

    /// Whether any CPU shows that it parks.
    pub(crate) fn has_parked(&self, at: At) -> bool {
        self.domains.iter().any(|domain| domain.has_parked(at))
    }

    /// Whether any CPU shows that it may have something to take.
    pub(crate) fn has_loaded(&self, at: At) -> bool {
        self.domains.iter().any(|domain| domain.has_loaded(at))
    }

    /// Whether any other CPU does not show that it parks.
    pub(crate) fn has_running(&self, at: At) -> bool {
        let own = self.cpu(at.cpu).place;
        let domains = self.domains.iter().enumerate();
        domains.into_iter().any(|(index, domain)| domain.has_running(at, (index == own.domain).then_some(own.bit)))
    }

    /// The other CPUs in a scope: those of the own cache first, from the one `offset` after the own on; then those of
    /// the other caches, from the one that `offset` falls on.
    pub(crate) fn others(&self, at: At, scope: Scope, offset: usize) -> impl Iterator<Item = &Cpu<H>> {
        let own = self.cpu(at.cpu).place;
        let count = self.domains.len();
        let first_other = offset % (count - 1).max(1);
        let far = (0..count - 1).map(move |turn| (own.domain + 1 + (first_other + turn) % (count - 1)) % count);
        let near = std::iter::once((own.domain, own.bit + 1 + offset));
        near.chain(far.map(move |domain| (domain, offset)))
            .flat_map(move |(domain, from)| {
                let domain = &self.domains[domain];
                domain.in_scope(at, scope, from % domain.len())
            })
            .filter(move |cpu| *cpu != at.cpu)
            .map(|cpu| self.cpu(cpu))
    }

    /// Shows that a CPU has nothing to take, if so. With the lock of its queue held, after what waits there is published.
    pub(crate) fn note_empty(&self, at: At, of: CpuId, queue: &RunQueue) {
        if queue.open_len() > 0 || queue.masked.shows_any() {
            return;
        }
        let at = at.within(Site::Park);
        let cpu = self.cpu(of);
        let showed_otherwise = self.domains[cpu.place.domain].hide_loaded(at, cpu.place, || H::fence(at));
        if showed_otherwise && cpu.inbox.hint(at) != InboxHint::Empty {
            self.kick_searcher(at, of);
        }
    }

    /// Puts a timer where it will be seen: the own CPU's inbox, or that of the caller's home.
    pub(super) fn arm_timer(&self, seat: Option<&Seat>, timer: Arc<Timer>) -> CpuId {
        let deadline = timer.deadline();
        match seat {
            Some(seat) => {
                self.cpu(seat.cpu()).timer_inbox.push(timer);
                seat.cpu()
            }
            None => {
                let at = At::outside(Site::Timer);
                let home = self.host.home();
                let cpu = self.cpu(home);
                cpu.timer_inbox.push(timer);
                // ORDER M: pairs with the fence in `serve_timers`, see there.
                H::fence(at);
                cpu.poll.timer.lower(at, deadline);
                // ORDER P1: as in `wake_from_outside`.
                H::fence(at);
                match cpu.park.claim(at, KickReason::Inbox) {
                    Claimed::Kick => self.host.kick(home),
                    // Its poll may outlast the deadline: a parked CPU has to know of it.
                    Claimed::No if !self.watch.is_kept(at) => self.kick_searcher(at, home),
                    Claimed::No => {}
                }
                home
            }
        }
    }

    /// Timers that were cancelled on a CPU since this was last asked, set to zero if `clean` made use of it.
    pub(crate) fn clean_timers(&self, at: At, cpu: CpuId, clean: impl FnOnce(u64) -> bool) {
        let cancelled = &self.cpu(cpu).poll.cancelled;
        let count = cancelled.load(at, Relaxed);
        if count > 0 && clean(count) {
            cancelled.fetch_sub(at, count, Relaxed);
        }
    }
}

/// The machine has stopped. Only a task that was never enqueued gets here, in the call that spawns it: every other one
/// was dropped before the inboxes closed.
fn refuse(runnable: Runnable) {
    contain(|| drop(runnable));
}
