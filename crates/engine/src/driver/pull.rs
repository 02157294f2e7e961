//! Moving tasks here from other CPUs: for fairness at the end of a slice, for work when there is none.
//!
//! Never two queue locks at a time: a victim's is taken with the own one free, and given up before the own one is taken.
//! What is on its way counts as waiting all the while (`Count`).
//!
//! Knows nothing of parking.

use super::Turns;
use crate::cpu::{Counter, RunQueue};
use crate::host::{At, Event, Host, Lock, Shared, Site};
use crate::idle::Scope;
use crate::machine::{Machine, Woken};
use crate::task::Runnable;
use evenkeel_core::balance::{
    Appraisal, InboxHint, Look, Neighbor, Progress, Waiting, appraise, look, look_count, pull_count,
};
use evenkeel_core::fair_queue::{Admits, Count, Slot};
use evenkeel_core::{CpuId, GroupId, Time, Vtime};
use std::sync::atomic::Ordering::Relaxed;

/// CPUs that are looked at per end of slice. The simulations of decision 0001: one leaves 1.1 % error, two 0.5 %, all
/// 0.2 %.
const SAMPLES: usize = 2;

/// An idle CPU takes the better of this many.
const CANDIDATES: usize = 2;

/// The lock of another CPU's queue, held.
type QueueGuard<'a, H> = <<H as Host>::Lock<RunQueue> as Lock<RunQueue>>::Guard<'a>;

/// Tasks of one group, on their way from one queue to another.
struct Haul {
    group: GroupId,
    tasks: Vec<Runnable>,
    count: Option<Count>,
}

/// How far a look at other CPUs goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// To the first that has work: then nothing else is asked of it.
    FirstWork,
    /// To the last.
    All,
}

/// What a look at other CPUs found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Survey {
    /// A CPU that has work that anybody may run, or something in its inbox, which anybody may serve.
    pub(super) work_at: Option<CpuId>,
    /// Something waits that this CPU may run, and not everybody.
    pub(super) has_mine: bool,
    /// When something may have to be taken from a CPU that is busy now.
    pub(super) later: Time,
}

impl<H: Host> Turns<H> {
    /// The fairness pull: looks at two CPUs for a group that is behind, and at whether they are stuck in a poll.
    pub(super) fn look_around(&mut self, machine: &Machine<H>, mine: Waiting, now: Time) {
        let at = self.looking();
        let mut best: Option<(Vtime, CpuId)> = None;
        for _ in 0..SAMPLES.min(machine.cpu_count() - 1) {
            let other = self.random_other(machine);
            self.rescue(machine, other, now);
            let theirs = machine.waiting_for(at, other);
            let is_better = |clock: Vtime| best.is_none_or(|(least, _)| clock.is_before(least));
            if let Some(smallest) = theirs.smallest.filter(|smallest| is_better(smallest.clock)) {
                best = Some((smallest.clock, other));
            }
        }
        let Some((_, other)) = best else { return };
        let progress = self.progress_of(machine, other, now);
        let theirs = Neighbor { waiting: machine.waiting_for(at, other), progress };
        // Before locking, the clock itself: what was published may be old.
        if let Look::Pull(_) = self.judge(machine, at, &mine, &theirs) {
            self.pull_behind(machine, other, &mine, now);
        }
    }

    /// Where this is done: only a dispatch looks around.
    fn looking(&self) -> At {
        self.at(Site::Dispatch).within(Site::LookAround)
    }

    fn judge(&self, machine: &Machine<H>, at: At, mine: &Waiting, theirs: &Neighbor) -> Look {
        let Some(smallest) = theirs.waiting.smallest else { return Look::Leave };
        let row = machine.table.row(smallest.group);
        look(mine, theirs, row.clock(at), machine.config.slice, row.weight(at))
    }

    fn pull_behind(&mut self, machine: &Machine<H>, other: CpuId, mine: &Waiting, now: Time) {
        let at = self.looking();
        let Some(mut queue) = machine.claim(at, other) else { return };
        let showed = machine.cpu(other).waiting.open(at);
        machine.intake(at, other, &mut queue, now);
        let progress = self.progress_of(machine, other, now);
        let hauls = self.load_behind(machine, &mut queue, mine, progress);
        Self::leave_queue(machine, at, other, queue, showed);
        hauls.into_iter().for_each(|haul| self.unload(machine, at, haul));
    }

    /// Takes tasks of the most deserving groups, one group after the other. Ends: each turn takes a task at least, and
    /// `look_count` bounds how many.
    fn load_behind(&self, machine: &Machine<H>, queue: &mut RunQueue, mine: &Waiting, progress: Progress) -> Vec<Haul> {
        let at = self.looking();
        let (mut hauls, mut taken) = (Vec::new(), 0);
        let most = look_count(mine, &Waiting { smallest: None, length: queue.fair.len() });
        while taken < most {
            let smallest = machine.smallest_for(at, queue, self.cpu);
            let waiting = Waiting { smallest, length: queue.fair.len() };
            let theirs = Neighbor { waiting, progress };
            let here = Waiting { length: mine.length + taken, ..*mine };
            if self.judge(machine, at, &here, &theirs) == Look::Leave {
                break;
            }
            let group = waiting.smallest.map(|smallest| smallest.group);
            let haul = group.and_then(|group| self.load(machine, at, queue, group, most - taken));
            let Some(haul) = haul else { break };
            taken += haul.tasks.len();
            hauls.push(haul);
        }
        hauls
    }

    fn progress_of(&self, machine: &Machine<H>, other: CpuId, now: Time) -> Progress {
        let began = machine.cpu(other).prospect(self.looking()).poll_began;
        match began {
            Some(began) if now.since(began) > machine.config.slice => Progress::Stuck,
            _ => Progress::Going,
        }
    }

    /// Serves a CPU that has been in one poll for longer than a slice: takes its inbox into its queue, fires its timers.
    fn rescue(&mut self, machine: &Machine<H>, other: CpuId, now: Time) {
        let at = self.looking();
        let prospect = machine.cpu(other).prospect(at);
        let is_going = self.progress_of(machine, other, now) == Progress::Going;
        if is_going || (prospect.inbox == InboxHint::Empty && prospect.timer > now) {
            return;
        }
        let mut woken = Woken::new();
        let Some(mut queue) = machine.claim(at, other) else { return };
        machine.serve_timers(at, other, &mut queue, now, &mut woken);
        let showed = machine.cpu(other).waiting.open(at);
        machine.intake(at, other, &mut queue, now);
        Self::leave_queue(machine, at, other, queue, showed);
        self.wake_all(machine, woken);
    }

    /// Lets go of another CPU's queue, which showed `showed` tasks that may run everywhere when its inbox was taken in.
    fn leave_queue(machine: &Machine<H>, at: At, other: CpuId, queue: QueueGuard<'_, H>, showed: usize) {
        let is_news = showed == 0 && queue.open_len() > 0;
        Self::hand_back(machine, at, other, queue);
        if is_news {
            // ORDER P1, P3: as for a push. While the inbox was on its way into the queue, who looked may have seen
            // neither.
            H::fence(at);
            machine.kick_searcher(at, other);
        }
    }

    /// Publishes another CPU's queue, lets go of it, and tells those whom nobody else would tell of what has a mask.
    fn hand_back(machine: &Machine<H>, at: At, other: CpuId, mut queue: QueueGuard<'_, H>) {
        machine.publish(at, other, &mut queue);
        machine.settle_counts(at, &mut queue);
        machine.note_empty(at, other, &queue);
        let news = queue.masked.take_news();
        let is_for_owner = queue.masked.is_for(other, &machine.masks);
        drop(queue);
        machine.spread_news(at, other, news);
        if is_for_owner {
            machine.rouse(at, other);
        }
    }

    /// An idle CPU looks for work. Whether it found any.
    pub(super) fn search(&mut self, machine: &Machine<H>, scope: Scope, now: Time) -> bool {
        let at = self.at(Site::Search);
        machine.count(at, Counter::StealsTried, 1);
        let offset = self.random.usize(0..machine.cpu_count());
        let mut candidates: Vec<(Option<Vtime>, CpuId)> = Vec::with_capacity(CANDIDATES);
        for other in machine.others(at, scope, offset) {
            if appraise(&other.prospect(at), now) != Appraisal::Work && !other.has_masked_for_me(at) {
                continue;
            }
            let clock = other.waiting.read(at).smallest.map(|smallest| smallest.clock);
            candidates.push((clock, other.id));
            if candidates.len() == CANDIDATES && self.pull_first(machine, &mut candidates, now) {
                return true;
            }
        }
        self.pull_first(machine, &mut candidates, now)
    }

    /// Tries the candidates, smallest clock first. One without a published clock has only its inbox: those come first,
    /// since nobody has looked at them yet.
    fn pull_first(&mut self, machine: &Machine<H>, candidates: &mut Vec<(Option<Vtime>, CpuId)>, now: Time) -> bool {
        candidates.sort_by(|(one, _), (other, _)| match (one, other) {
            (Some(one), Some(other)) => one.ahead_of(*other).cmp(&0),
            (one, other) => one.is_some().cmp(&other.is_some()),
        });
        candidates.drain(..).any(|(_, other)| self.pull_work(machine, other, now))
    }

    /// Takes up to half of the most deserving group's tasks from a CPU.
    fn pull_work(&mut self, machine: &Machine<H>, other: CpuId, now: Time) -> bool {
        let at = self.at(Site::Search);
        let mut woken = Woken::new();
        let Some(mut queue) = machine.claim(at, other) else { return false };
        if !machine.cpu(other).prospect(at).is_parked {
            machine.serve_timers(at, other, &mut queue, now, &mut woken);
        }
        machine.intake(at, other, &mut queue, now);
        let smallest = machine.smallest_for(at, &mut queue, self.cpu);
        let haul = smallest.and_then(|smallest| {
            let slot = queue.fair.find(smallest.group)?;
            let count = pull_count(queue.fair.waiting(slot));
            self.load(machine, at, &mut queue, smallest.group, count)
        });
        Self::hand_back(machine, at, other, queue);
        let fired = !woken.is_empty();
        self.wake_all(machine, woken);
        let Some(haul) = haul else { return fired };
        machine.count(at, Counter::Steals, 1);
        self.unload(machine, at, haul);
        true
    }

    /// Takes tasks of a group out of a queue: the first ones that may run here.
    fn load(&self, machine: &Machine<H>, at: At, queue: &mut RunQueue, group: GroupId, count: usize) -> Option<Haul> {
        let slot = queue.fair.find(group)?;
        let is_mine = |mask| machine.masks.allows(mask, self.cpu);
        let admits = Admits { common: is_mine(queue.fair.payload(slot).mask), masked: is_mine };
        let tasks: Vec<_> = std::iter::from_fn(|| queue.pop_admitted(slot, &admits)).take(count).collect();
        H::queue_operations(at, tasks.len());
        let count = queue.fair.take_count(slot);
        (!tasks.is_empty()).then_some(Haul { group, tasks, count })
    }

    /// Puts them into the own queue. Not raised: they were waiting, so their claim is real.
    fn unload(&mut self, machine: &Machine<H>, at: At, haul: Haul) {
        let at = at.within(Site::Pull);
        let mut queue = machine.lock(at, self.cpu);
        machine.count(at, Counter::Migrations, haul.tasks.len() as u64);
        let mut slot = Slot::ROOT;
        for task in haul.tasks {
            if H::OBSERVES {
                machine.host.observe(at, Event::Moved(task.metadata().key()));
            }
            slot = Machine::<H>::slot_for(&mut queue, &task);
            queue.push(slot, task);
            H::queue_operations(at, 1);
        }
        let spare = haul.count.and_then(|count| queue.fair.give_count(slot, count));
        if let Some(Count { .. }) = spare {
            machine.table.row(haul.group).line.waiting_cpus.fetch_sub(at, 1, Relaxed);
        }
        machine.publish(at, self.cpu, &mut queue);
        machine.settle_counts(at, &mut queue);
    }

    /// What the other CPUs in a scope have to offer, without locks. What is seen to have work shows it afterwards.
    pub(super) fn survey(&self, machine: &Machine<H>, at: At, scope: Scope, depth: Depth, now: Time) -> Survey {
        let mut survey = Survey { work_at: None, has_mine: false, later: Time::NEVER };
        for other in machine.others(at, scope, 0) {
            survey.has_mine |= other.has_masked_for_me(at);
            match appraise(&other.prospect(at), now) {
                Appraisal::Nothing => {}
                Appraisal::Work => {
                    survey.work_at = Some(other.id);
                    machine.domain_of(other.id).show_loaded(at, other.place, || H::fence(at));
                    if depth == Depth::FirstWork {
                        break;
                    }
                }
                Appraisal::Later(due) => survey.later = survey.later.min(due),
            }
        }
        survey
    }

    fn random_other(&mut self, machine: &Machine<H>) -> CpuId {
        let count = machine.cpu_count();
        let index = (self.cpu.index() + 1 + self.random.usize(0..count - 1)) % count;
        machine.cpus[index].id
    }
}
