//! Virtual time: what each CPU has spent, who acts next, and what an act costs.
//!
//! A CPU may be ahead of the others by what it has spent since its turn began. Before an act that others could notice it
//! waits until its turn has come again ([`sync`]); what only it can notice (reads and writes of lines that it has, looks
//! at the clock) is collected. Inside user code everything is (V2).
//!
//! The world of a simulation is reached through one thread-local, set while that simulation runs: the engine's words and
//! locks know nothing of their machine. Without it, everything is free.
//!
//! Knows nothing of the engine but the names of its places, nothing of fibers but that the acting one can be suspended.

pub(crate) mod account;
mod acts;
mod agenda;
pub(crate) mod events;
pub(crate) mod faults;
mod line;
pub(crate) mod lock_stat;
pub(crate) mod locks;
mod observe;
mod place;

pub(crate) use acts::{
    access, before_release, begin_step, begin_user, end_user, last_wait, lock, park, release, sync, try_lock,
    wait_for_others,
};
pub(crate) use line::Access;
pub(crate) use place::{Enter, Tag, with, with_mine};

use crate::faults::{FaultKind, Faults};
use crate::machine::Machine;
use account::{Account, Accounting, Activity, Books, Frame, Function};
use agenda::Agenda;
use evenkeel_core::{CpuId, Seed, Span, Time};
use evenkeel_engine::host::{At, Site, Sites};
use events::{RecordKind, Stream};
use line::{LineId, Lines};
use locks::LockState;

/// Everything about one simulation that changes as its time passes.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) id: u32,
    pub(crate) machine: Machine,
    preemption: Preemption,
    cpus: Vec<Cpu>,
    agenda: Agenda,
    /// The time of the act under way.
    now: Time,
    /// Nothing happens from here on.
    end: Time,
    /// Who acts; nobody if what happens is to cost nothing.
    acting: Option<CpuId>,
    /// How far the outside is ahead.
    outside_ahead: Span,
    lines: Lines,
    locks: Vec<LockState>,
    stream: Stream,
    lock_stat: lock_stat::Collector,
    faults: faults::State,
    pub(crate) cost_points: u64,
}

/// One CPU.
#[derive(Debug)]
struct Cpu {
    /// What it has reached: the world's time, or ahead of it.
    local: Time,
    phase: Phase,
    /// Inside a poll, a waker or a destructor.
    is_in_user: bool,
    /// Declared in this poll, and not done yet.
    work: Span,
    next_tick: Time,
    /// When that would be if no tick were late.
    tick_due: Time,
    /// While it waits: when it would act if nothing were late, and when it was called for. It may stall beyond that.
    wanted: Time,
    called: Time,
    stalled_until: Time,
    /// When a late kick arrives that was sent while it was not parked.
    late_kick: Time,
    /// The last access was a read that took a transfer: the next one like it overlaps with it.
    is_reading: bool,
    /// A tick came since this was last asked.
    is_ticked: bool,
    /// A kick came while it was not parked.
    is_kicked: bool,
    parks: u64,
    /// The place in the engine that its last access came from, and the places around it: where a kick, a wait or a
    /// look at the clock that follows is done.
    last_in: Sites,
    /// How long it waited for the lock that it waited for last.
    waited: Span,
    /// The task that was dispatched last, and its group, by their numbers.
    dispatched: (u32, u32),
    /// Work that it had done when the user code that runs, or ran last, began.
    worked_before: Span,
    books: Books,
}

/// What a CPU does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Runs,
    WaitsForLock { since: Time },
    Idle { since: Time },
    Ended,
}

/// When a task that computes may lose its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preemption {
    /// When its poll ends: as in a runtime.
    #[default]
    BetweenPolls,
    /// At ticks too, while it awaits [`evenkeel_engine::api::run`]: as in a kernel.
    AtTicks,
}

/// Whether the acting fiber has to be suspended before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
enum Order {
    /// It is its turn.
    Now,
    /// Others come first; its next act is set.
    Later,
}

/// What is collected at most before a CPU waits for its turn: it might be waiting, in a loop, for something that another
/// CPU writes.
const COLLECTED_MAX: Span = Span::from_nanos(100);

/// Work beside a sibling is cut into pieces: how fast it goes is looked at once for each.
const PIECE: Span = Span::from_micros(50);

impl Cpu {
    /// The next tick is one to come: no ticks come to a CPU that is idle. It may be late.
    fn skip_ticks(&mut self, period: Span, faults: &mut faults::State) {
        if self.next_tick <= self.local {
            let missed = self.local.since(self.tick_due).as_nanos() / period.as_nanos() + 1;
            self.tick_due = self.tick_due.after(period.times(missed));
            self.next_tick = self.tick_due.after(faults.delay(FaultKind::LateTick));
        }
    }
}

impl World {
    pub(crate) fn new(id: u32, machine: Machine, preemption: Preemption, faults: Faults, seed: Seed) -> World {
        let count = machine.cpus();
        let period = machine.tick.map_or(Span::ZERO, |tick| tick.period);
        // Ticks of different CPUs are spread over the period.
        let tick_of =
            |cpu: usize| Time::ZERO.after(Span::from_nanos(period.as_nanos() * (cpu as u64 + 1) / count as u64));
        let cpu = |index: usize| Cpu {
            local: Time::ZERO,
            phase: Phase::Runs,
            is_in_user: false,
            work: Span::ZERO,
            next_tick: tick_of(index),
            tick_due: tick_of(index),
            wanted: Time::NEVER,
            called: Time::NEVER,
            stalled_until: Time::ZERO,
            late_kick: Time::NEVER,
            is_reading: false,
            is_ticked: false,
            is_kicked: false,
            parks: 0,
            last_in: Sites::NONE,
            waited: Span::ZERO,
            dispatched: (u32::MAX, u32::MAX),
            worked_before: Span::ZERO,
            books: Books::default(),
        };
        let mut agenda = Agenda::new(count + 1);
        (0..count).for_each(|index| agenda.set(index, Time::ZERO));
        World {
            id,
            preemption,
            cpus: (0..count).map(cpu).collect(),
            agenda,
            now: Time::ZERO,
            end: Time::ZERO,
            acting: None,
            outside_ahead: Span::ZERO,
            lines: Lines::new(count),
            locks: Vec::new(),
            stream: Stream::new(),
            lock_stat: lock_stat::Collector::default(),
            faults: faults::State::new(faults, seed, count),
            cost_points: 0,
            machine,
        }
    }

    /// The time that the actor has reached.
    pub(crate) fn acting_time(&self) -> Time {
        match self.acting {
            None => self.now,
            Some(CpuId::OUTSIDE) => self.now.after(self.outside_ahead),
            Some(cpu) => {
                let cpu = &self.cpus[cpu.index()];
                cpu.local.after(cpu.work)
            }
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The actor spends time, as part of what is done at these places.
    fn spend(&mut self, activity: Activity, within: Sites, span: Span) {
        match self.acting {
            None => {}
            Some(CpuId::OUTSIDE) => self.outside_ahead = self.outside_ahead.plus(span),
            Some(cpu) => {
                let cpu = &mut self.cpus[cpu.index()];
                cpu.local = cpu.local.after(span);
                cpu.books.book(Frame { activity, within }, span);
            }
        }
    }

    fn acting_cpu(&mut self) -> Option<&mut Cpu> {
        let cpu = self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE)?;
        Some(&mut self.cpus[cpu.index()])
    }

    fn spend_at(&mut self, at: At, span: Span) {
        self.spend(Activity::Scheduler(Function::Engine(at.site)), at.outer, span);
    }

    fn spend_on(&mut self, function: Function, within: Sites, span: Span) {
        self.spend(Activity::Scheduler(function), within, span);
    }

    /// The acting CPU is at a place in the engine. What follows a count belongs to what was counted, and what follows a
    /// question of who owns the CPU belongs to nobody: user code asks.
    fn come(&mut self, at: At) {
        match at.site {
            Site::Count => {}
            Site::Owner => self.come_into(Sites::NONE),
            _ => self.come_into(at.outer.with(at.site)),
        }
    }

    /// The acting CPU is at these places in the engine, or at none.
    pub(crate) fn come_into(&mut self, places: Sites) {
        if let Some(cpu) = self.acting_cpu() {
            cpu.last_in = places;
        }
    }

    /// How long the acting CPU waited for the lock that it waited for last.
    fn last_wait(&self) -> Span {
        let cpu = self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE);
        cpu.map_or(Span::ZERO, |cpu| self.cpus[cpu.index()].waited)
    }

    /// Where in the engine the acting CPU is.
    fn place(&self) -> Sites {
        let cpu = self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE);
        cpu.map_or(Sites::NONE, |cpu| self.cpus[cpu.index()].last_in)
    }

    /// The CPU that acts, unless it is inside user code: only then can it be suspended.
    fn suspendable(&self) -> Option<CpuId> {
        self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE && !self.cpus[cpu.index()].is_in_user)
    }

    /// Lets those come first whose time is earlier. If nobody's is, what the CPU has spent has passed.
    fn order(&mut self) -> Order {
        let Some(cpu) = self.suspendable() else { return Order::Now };
        // Ends: CPUs stall for half of their time at most.
        while self.faults.next_stall() <= self.cpus[cpu.index()].local {
            self.stall();
        }
        let local = self.cpus[cpu.index()].local;
        if local >= self.end || local >= self.agenda.first().1 {
            self.agenda.set(cpu.index(), local);
            self.acting = None;
            return Order::Later;
        }
        self.now = local;
        self.cpus[cpu.index()].books.catch_up();
        Order::Now
    }

    /// The acting CPU does nothing until `next`.
    fn leave(&mut self, cpu: CpuId, phase: Phase, next: Time) {
        let state = &mut self.cpus[cpu.index()];
        state.books.catch_up();
        (state.phase, state.wanted, state.called) = (phase, next, next);
        self.agenda.set(cpu.index(), next);
        self.acting = None;
    }

    /// A CPU that waits acts at this time, or earlier if it was to. What calls it may be late.
    fn call(&mut self, cpu: CpuId, at: Time, late: Span) {
        let wanted = at.max(self.now);
        let called = wanted.after(late);
        let state = &mut self.cpus[cpu.index()];
        state.wanted = state.wanted.min(wanted);
        if called < state.called {
            state.called = called;
            self.agenda.set(cpu.index(), called.max(state.stalled_until));
        }
    }

    /// Gets a line for the actor. Its own time if others can't see it (inside user code) counts from the world's.
    fn get_line(&mut self, line: LineId, at: At, access: Access) {
        let Some(who) = self.acting else { return };
        if self.lines.is_hit(line, who, access) {
            return;
        }
        let asks = match self.suspendable() {
            Some(cpu) => self.cpus[cpu.index()].local,
            None => self.now,
        };
        let transfer = self.lines.fetch(&self.machine, line, who, access, asks);
        let overlap = if access == Access::Read && self.reads_on() { self.machine.reads_overlap } else { 1 };
        let moved = Span::from_nanos(transfer.moved.as_nanos().div_ceil(overlap));
        let whole = transfer.queued.plus(moved);
        self.lock_stat.transfer(self.lines.class(line), at.site, whole, transfer.queued);
        self.spend_at(at, whole);
    }

    /// Whether the actor has just read another line; it has from here on.
    fn reads_on(&mut self) -> bool {
        match self.acting {
            Some(cpu) if cpu != CpuId::OUTSIDE => std::mem::replace(&mut self.cpus[cpu.index()].is_reading, true),
            _ => false,
        }
    }

    /// What the actor does now waits for what it has read.
    fn stop_reading(&mut self) {
        if let Some(cpu) = self.acting_cpu() {
            cpu.is_reading = false;
        }
    }

    /// Whether an access can be collected: others can't notice.
    fn is_private(&self, line: LineId, access: Access) -> bool {
        let Some(cpu) = self.suspendable() else { return true };
        let ahead = self.cpus[cpu.index()].local.since(self.now);
        ahead < COLLECTED_MAX && self.lines.is_hit(line, cpu, access)
    }

    fn access(&mut self, line: LineId, at: At, access: Access) {
        self.cost_points += 1;
        self.come(at);
        if access != Access::Read {
            self.stop_reading();
        }
        self.get_line(line, at, access);
        let costs = &self.machine.costs;
        let cost = if access == Access::Modify { costs.atomic } else { costs.hit };
        self.spend_at(at, cost);
    }

    /// The next piece of the work that the acting CPU's poll has declared. False if there is none left.
    fn work_piece(&mut self) -> bool {
        let Some(cpu) = self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE) else { return false };
        if self.handle_tick(cpu) {
            return true;
        }
        let state = &self.cpus[cpu.index()];
        if state.work == Span::ZERO {
            return false;
        }
        let (mut piece, local) = (state.work.as_nanos(), state.local);
        let is_slow = self.machine.beside_busy_sibling_percent < 100;
        let sibling = self.machine.topology.sibling(cpu).filter(|_| is_slow);
        let is_beside = sibling.is_some_and(|sibling| self.cpus[sibling.index()].phase == Phase::Runs);
        let percent = if is_beside { self.machine.beside_busy_sibling_percent } else { 100 };
        if sibling.is_some() {
            piece = piece.min(PIECE.as_nanos());
        }
        if self.machine.tick.is_some() {
            piece = piece.min(self.before(state.next_tick.since(local), percent));
        }
        self.cpus[cpu.index()].work = Span::from_nanos(state.work.as_nanos() - piece);
        let ran = scale(piece, 100, percent);
        let passed = scale(ran, 1_000, self.machine.got_permille);
        self.spend(Activity::Work, Sites::NONE, Span::from_nanos(ran));
        if passed > ran {
            self.spend(Activity::Taken, Sites::NONE, Span::from_nanos(passed - ran));
        }
        true
    }

    /// How much work fits into a time, at this speed.
    fn before(&self, time: Span, percent: u64) -> u64 {
        let fits = u128::from(time.as_nanos()) * u128::from(percent * self.machine.got_permille) / 100_000;
        u64::try_from(fits).unwrap_or(u64::MAX).max(1)
    }

    /// Handles a tick if one is due. Several that came while the CPU was busy with itself are one.
    fn handle_tick(&mut self, cpu: CpuId) -> bool {
        let Some(tick) = self.machine.tick else { return false };
        let state = &mut self.cpus[cpu.index()];
        if state.next_tick > state.local {
            return false;
        }
        state.is_ticked = true;
        state.skip_ticks(tick.period, &mut self.faults);
        self.spend_on(Function::Tick, Sites::NONE, tick.handler);
        true
    }

    /// Declares some of a task's work, and says how much: up to the next tick, if ticks preempt.
    pub(crate) fn declare_piece(&mut self, work: Span) -> Span {
        let piece = match (self.preemption, self.acting) {
            (Preemption::AtTicks, Some(cpu)) if cpu != CpuId::OUTSIDE && self.machine.tick.is_some() => {
                let state = &self.cpus[cpu.index()];
                let until = state.next_tick.since(state.local.after(state.work));
                work.min(Span::from_nanos(self.before(until, 100)))
            }
            _ => work,
        };
        self.declare_work(piece);
        piece
    }

    /// Whether ticks preempt, and one came since this was last asked.
    pub(crate) fn takes_tick(&mut self, cpu: CpuId) -> bool {
        std::mem::take(&mut self.cpus[cpu.index()].is_ticked) && self.preemption == Preemption::AtTicks
    }

    /// What the acting CPU has got of its processor, if anything takes it away.
    pub(crate) fn cpu_time(&mut self) -> Option<(Span, u64)> {
        let is_taken = self.machine.got_permille < 1_000 || self.faults.takes_processor();
        let cpu = self.acting.filter(|cpu| *cpu != CpuId::OUTSIDE && is_taken)?;
        self.spend_on(Function::Clock, self.place(), self.machine.costs.clock_read);
        let state = &self.cpus[cpu.index()];
        let all = [Activity::Idle, Activity::Taken].into_iter().chain(FaultKind::ALL.map(Activity::Lost));
        let off = all.map(|activity| state.books.of(activity)).fold(Span::ZERO, Span::plus);
        Some((state.local.since(Time::ZERO).minus(off), state.parks))
    }

    pub(crate) fn read_clock(&mut self) -> Time {
        self.cost_points += 1;
        self.spend_on(Function::Clock, self.place(), self.machine.costs.clock_read);
        // Never zero: the engine takes that for "never yet".
        self.acting_time().max(Time::from_nanos(1))
    }

    /// Work that is declared outside a poll is done at once.
    pub(crate) fn declare_work(&mut self, work: Span) {
        self.cost_points += 1;
        match self.acting {
            Some(cpu) if cpu != CpuId::OUTSIDE && self.cpus[cpu.index()].is_in_user => {
                let state = &mut self.cpus[cpu.index()];
                state.work = state.work.plus(work);
            }
            _ => self.spend(Activity::Work, Sites::NONE, work),
        }
    }

    /// Something is done to a queue whose lock is held, this many times.
    pub(crate) fn queue_operations(&mut self, at: At, count: u64) {
        self.cost_points += 1;
        self.come(at);
        self.spend_at(at, self.machine.costs.queue_operation.times(count));
    }

    pub(crate) fn fence(&mut self, at: At) {
        self.cost_points += 1;
        self.stop_reading();
        self.come(at);
        self.spend_at(at, self.machine.costs.atomic);
    }

    pub(crate) fn kick(&mut self, target: CpuId) {
        self.cost_points += 1;
        self.record(RecordKind::Kick, target.get(), 0);
        self.spend_on(Function::Kick, self.place(), self.machine.costs.kick);
        let arrives = self.acting_time().after(self.machine.costs.kick_delivery);
        let late = self.faults.delay(FaultKind::LateKick);
        let state = &mut self.cpus[target.index()];
        match state.phase {
            Phase::Idle { .. } => self.call(target, arrives, late),
            Phase::Runs | Phase::WaitsForLock { .. } if late > Span::ZERO => {
                state.late_kick = state.late_kick.min(arrives.after(late));
            }
            Phase::Runs | Phase::WaitsForLock { .. } => state.is_kicked = true,
            Phase::Ended => {}
        }
    }

    /// What every CPU's time went to until now.
    pub(crate) fn accounting(&self) -> Accounting {
        let cpus = self.cpus.iter().map(|cpu| self.account(cpu)).collect();
        Accounting { elapsed: self.now.since(Time::ZERO), cpus }
    }

    fn account(&self, cpu: &Cpu) -> Account {
        cpu.books.at(self.now, cpu.waits(self.now))
    }

    pub(crate) fn lock_stat(&self) -> lock_stat::LockStat {
        self.lock_stat.stat()
    }

    /// From here on, counts of locks and lines begin anew.
    pub(crate) fn clear_lock_stat(&mut self) {
        self.lock_stat = lock_stat::Collector::default();
    }
}

/// `amount` × `of` / `per`, rounded up.
fn scale(amount: u64, of: u64, per: u64) -> u64 {
    let scaled = (u128::from(amount) * u128::from(of)).div_ceil(u128::from(per));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// What the loop of a simulation does with its world.
impl World {
    /// Nothing that happens at or after `end` is to happen yet.
    pub(crate) fn run_to(&mut self, end: Time) {
        self.end = end;
    }

    /// The actor whose turn it is before the end: a CPU, or the outside.
    pub(crate) fn next(&mut self) -> Option<(CpuId, Time)> {
        let (mut actor, mut at) = self.agenda.first();
        // Ends: CPUs stall for half of their time at most. Where nothing will happen none needs to stall.
        while at < self.end && self.faults.next_stall() <= at {
            self.stall();
            (actor, at) = self.agenda.first();
        }
        let is_outside = actor == self.cpus.len();
        let actor = if is_outside { CpuId::OUTSIDE } else { CpuId::new(u32::try_from(actor).unwrap_or(u32::MAX)) };
        (at < self.end).then_some((actor, at))
    }

    /// A CPU acts, whose turn it is.
    pub(crate) fn begin_turn(&mut self, cpu: CpuId, at: Time) {
        self.now = at;
        self.acting = Some(cpu);
        self.agenda.set(cpu.index(), Time::NEVER);
        let state = &mut self.cpus[cpu.index()];
        if let Phase::WaitsForLock { .. } | Phase::Idle { .. } = state.phase {
            for (frame, span) in state.waits(at) {
                state.books.book(frame, span);
            }
        }
        (state.phase, state.local) = (Phase::Runs, at);
        state.books.catch_up();
    }

    /// The fiber of the acting CPU has returned.
    pub(crate) fn end_cpu(&mut self, cpu: CpuId) {
        self.record(RecordKind::End, 0, 0);
        self.cpus[cpu.index()].phase = Phase::Ended;
        self.cpus[cpu.index()].books.catch_up();
        self.acting = None;
    }

    /// Time passes until `to` without anybody acting.
    pub(crate) fn pass(&mut self, to: Time) {
        self.now = self.now.max(to);
        self.acting = None;
    }

    /// The outside acts at `at`. Its scripts are numbered.
    pub(crate) fn begin_outside(&mut self, at: Time, script: u32) {
        self.now = at;
        self.acting = Some(CpuId::OUTSIDE);
        self.outside_ahead = Span::ZERO;
        self.record(RecordKind::Script, script, 0);
    }

    /// When the outside, which has acted, can act again.
    pub(crate) fn end_outside(&mut self) -> Time {
        self.acting = None;
        self.now.after(std::mem::take(&mut self.outside_ahead))
    }

    /// When the outside acts next.
    pub(crate) fn set_outside(&mut self, at: Time) {
        self.agenda.set(self.cpus.len(), at);
    }

    /// The outside acts at the actor's time, or earlier.
    pub(crate) fn call_outside(&mut self) {
        let at = self.acting_time().max(self.now);
        if at < self.agenda.time(self.cpus.len()) {
            self.agenda.set(self.cpus.len(), at);
        }
    }
}
