//! A machine: its CPUs, its groups, and what happens when a task becomes runnable.
//!
//! [`AnyMachine`] is what user-facing code sees of it, whatever the host. What a CPU does with its time is in
//! [`crate::driver`].
//!
//! Knows nothing of threads. Holds no global state: two machines can run in one process.

mod check;
mod clocks;
mod enqueue;
mod wake;

#[cfg(feature = "test-host")]
pub(crate) use check::Raises;
pub(crate) use clocks::{Credit, Level, Reservation};
pub(crate) use enqueue::Woken;

use crate::cpu::{Counter, Cpu, RunQueue};
use crate::group::{GroupNode, GroupPort, Limit};
use crate::host::{At, Host, LineClass, Lock, Shared, Site, Waited};
use crate::idle::{Domain, Place, Watch};
use crate::lock_count;
use crate::masks::{CpuBits, CpusError, Masks};
use crate::seat::Seat;
use crate::table::{Admission, Table, TableFull};
use crate::task::Runnable;
use crate::timer::Timer;
use crossbeam_utils::CachePadded;
use evenkeel_core::balance::Waiting;
use evenkeel_core::stats::{Load, Stats};
use evenkeel_core::switches::{Claim, LookAround, Switch};
use evenkeel_core::{CpuId, CpuMask, GroupId, MaskId, Span, Time, Vtime, Weight};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How long a group runs before the pick is made anew, by default. A millisecond, as in the simulations that chose the
/// sharing rule; latency and switching cost pull in opposite directions.
pub const SLICE_DEFAULT: Span = Span::from_millis(1);

/// When a group's clock is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charging {
    /// What a turn of the group usually takes is reserved at the pick, and settled at its end.
    #[default]
    ReserveAndSettle,
    /// At the end of the slice only. Wrong: between two charges all CPUs pick the same group. Here so that the test of
    /// the herd can be seen to fail.
    #[cfg(feature = "test-host")]
    AtEnd,
}

/// To what, and when, a group is raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Raising {
    /// To the smallest clock that waits on the CPUs of its mask: on wake, and when a running task is requeued.
    #[default]
    ToSmallestWaiting,
    /// To the largest clock that was ever picked. Wrong with masks: who has CPUs of its own runs ahead, and carries along who
    /// shares the others. Here so that a test can be seen to fail.
    #[cfg(feature = "test-host")]
    ToLargestPicked,
    /// On wake only. Wrong with masks: a group that never sleeps stays behind, and its neighbor, which does, is raised past
    /// it. Here so that a test can be seen to fail.
    #[cfg(feature = "test-host")]
    NotAtRequeue,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// The last-level cache of each CPU, any numbering: one entry per CPU.
    pub caches: Vec<usize>,
    /// How long a group runs before the pick is made anew.
    pub slice: Span,
    /// From which random choices are drawn.
    pub seed: u64,
    /// When a group's clock is charged.
    pub charging: Charging,
    /// To what, and when, a group is raised.
    pub raising: Raising,
}

impl Config {
    /// `cpus` CPUs that share one cache, with defaults for the rest.
    pub fn flat(cpus: usize) -> Self {
        Config {
            caches: vec![0; cpus],
            slice: SLICE_DEFAULT,
            seed: 1,
            charging: Charging::default(),
            raising: Raising::default(),
        }
    }
}

/// One for each last-level cache.
type Domains<S> = Box<[CachePadded<Domain<S>>]>;

/// One machine on host `H`.
pub struct Machine<H: Host> {
    pub(crate) host: H,
    pub(crate) config: Config,
    pub(crate) cpus: Box<[Cpu<H>]>,
    pub(crate) domains: Domains<H::Shared>,
    pub(crate) table: Table<H>,
    pub(crate) masks: Masks<H>,
    /// Where groups start that may run on all CPUs.
    pub(crate) watch: CachePadded<Watch<H::Shared>>,
    pub(crate) level: CachePadded<clocks::Level<H>>,
    switches: CachePadded<SwitchWords<H>>,
    pub(crate) phase: CachePadded<H::Shared>,
    pub(crate) drivers: H::Shared,
}

struct SwitchWords<H: Host> {
    claim: H::Shared,
    look_around: H::Shared,
}

/// Where a machine is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MachinePhase {
    Running,
    /// Drivers finish their polls and end; nothing new is taken.
    Stopping,
    /// All futures are gone.
    Stopped,
}

/// How much of a task's computing is done, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Piece {
    Done(Span),
    /// The task must return, and goes on then.
    WhenThePollReturns(Span),
}

/// What user-facing code and task cells see of a machine. Object-safe, so that they need not know the host.
pub(crate) trait AnyMachine: Send + Sync {
    fn wake_here(&self, seat: &Seat, runnable: Runnable);
    fn wake_outside(&self, runnable: Runnable);
    fn owns(&self, seat: &Seat) -> bool;
    fn admit(&self, node: &GroupNode) -> Admission;
    fn retire(&self, group: GroupId);
    fn open_group(&self, weight: Weight, mask: Option<&CpuMask>) -> Result<(GroupId, MaskId), OpenGroupError>;
    fn introduce_group(&self, node: &Arc<GroupNode>);
    fn close_group(&self, group: GroupId);
    fn cpus_of(&self, mask: MaskId) -> CpuMask;
    fn mask_within(&self, mask: &CpuMask, group: MaskId) -> Result<MaskId, CpusError>;
    fn weight(&self, group: GroupId) -> Weight;
    fn set_weight(&self, group: GroupId, weight: Weight);
    fn arm(&self, seat: Option<&Seat>, timer: Arc<Timer>) -> CpuId;
    fn note_cancelled(&self, cpu: CpuId);
    fn now(&self, seat: Option<&Seat>) -> Time;
    fn compute(&self, seat: Option<&Seat>, work: Span);
    fn compute_piece(&self, seat: &Seat, work: Span) -> Piece;
    fn is_slice_over(&self, seat: &Seat) -> bool;
    fn should_yield(&self, seat: &Seat) -> bool;
    fn is_stopping(&self) -> bool;
    fn stop(&self);
    fn stats(&self) -> Stats;
    fn load(&self) -> Load;
    fn set_switch(&self, switch: Switch);
    fn switches(&self) -> Vec<Switch>;
}

impl fmt::Debug for dyn AnyMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

impl<H: Host> fmt::Debug for Machine<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("cpus", &self.cpus.len()).finish_non_exhaustive()
    }
}

/// Why a group could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenGroupError {
    Stopping,
    TableFull,
    Cpus(CpusError),
}

impl<H: Host> Machine<H> {
    /// A machine of as many CPUs as `config.caches` has entries. It runs nothing until its CPUs are driven.
    ///
    /// # Panics
    /// If there are no CPUs.
    pub fn new(host: H, config: Config) -> Arc<Self> {
        assert!(!config.caches.is_empty(), "a machine has at least one CPU");
        let (places, domains) = domains_of(&config.caches);
        let cpus =
            places.iter().enumerate().map(|(index, place)| Cpu::new(cpu_id(index), *place, places.len())).collect();
        let switch = || H::Shared::of(LineClass::Switches, 0);
        Arc::new(Machine {
            host,
            config,
            cpus,
            domains,
            table: Table::new(),
            masks: Masks::new(places.len()),
            watch: CachePadded::new(Watch::default()),
            level: CachePadded::new(clocks::Level::new()),
            switches: CachePadded::new(SwitchWords { claim: switch(), look_around: switch() }),
            phase: CachePadded::new(H::Shared::of(LineClass::Phase, 0)),
            drivers: H::Shared::new(0),
        })
    }

    /// How many CPUs it has.
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The host that it runs on.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// How many tasks wait in a CPU's queue, as it is published: a hint. Without the inbox.
    pub fn queue_length(&self, cpu: CpuId) -> usize {
        self.cpu(cpu).waiting.length(At::new(cpu, Site::Check))
    }

    /// What the clock of a group that is alive shows: a hint.
    pub fn group_clock(&self, group: GroupId) -> Vtime {
        self.table.row(group).clock(At::outside(Site::Check))
    }

    pub(crate) fn cpu(&self, id: CpuId) -> &Cpu<H> {
        &self.cpus[id.index()]
    }

    pub(crate) fn domain_of(&self, cpu: CpuId) -> &Domain<H::Shared> {
        &self.domains[self.cpu(cpu).place.domain]
    }

    /// Takes the queue lock of a CPU on behalf of the CPU `at.cpu`, counting if it had to wait.
    pub(crate) fn lock(&self, at: At, of: CpuId) -> <H::Lock<RunQueue> as Lock<RunQueue>>::Guard<'_> {
        let (guard, waited) = self.cpu(of).queue().lock(at);
        self.count_lock(at);
        if let Waited::Yes(span) = waited {
            self.count_wait(at, span);
        }
        guard
    }

    /// Takes the queue lock of another CPU as the switch `claim` says.
    pub(crate) fn claim(&self, at: At, of: CpuId) -> Option<<H::Lock<RunQueue> as Lock<RunQueue>>::Guard<'_>> {
        match self.claim_switch(at) {
            Claim::Block => Some(self.lock(at, of)),
            Claim::TryVictim => {
                let guard = self.cpu(of).queue().try_lock(at);
                match guard {
                    Some(_) => self.count_lock(at),
                    None => self.count_failed_try(at),
                }
                guard
            }
        }
    }

    pub(crate) fn count(&self, at: At, counter: Counter, value: u64) {
        if at.cpu != CpuId::OUTSIDE {
            self.cpu(at.cpu).counters.add(at, counter, value);
        }
    }

    fn count_lock(&self, at: At) {
        if at.cpu != CpuId::OUTSIDE {
            self.cpu(at.cpu).counters.locks.add_acquisition(at);
        }
    }

    fn count_failed_try(&self, at: At) {
        self.count(at, Counter::FailedTries, 1);
        if at.cpu != CpuId::OUTSIDE {
            self.cpu(at.cpu).counters.locks.add_failed_try(at);
        }
    }

    #[cold]
    fn count_wait(&self, at: At, span: Span) {
        self.count(at, Counter::Contended, 1);
        if at.cpu != CpuId::OUTSIDE {
            self.cpu(at.cpu).counters.locks.add_wait(at, span);
        }
    }

    /// What waits on a CPU, as far as `at.cpu` is concerned. Who may run nothing of the group that waits there with the
    /// smallest clock is told of the next one, if that may run everywhere; otherwise of that group all the same: what it may
    /// take has a larger clock, and only a look under the lock tells which.
    pub(crate) fn waiting_for(&self, at: At, other: CpuId) -> Waiting {
        let cpu = self.cpu(other);
        let waiting = cpu.waiting.read(at);
        let Some(smallest) = waiting.smallest.filter(|_| cpu.waiting.masked(at) > 0) else { return waiting };
        let is_mine = self.masks.allows(self.table.row(smallest.group).mask(at), at.cpu);
        if is_mine || cpu.has_masked_for_me(at) { waiting } else { cpu.waiting.read_open(at) }
    }

    pub(crate) fn machine_phase(&self, at: At) -> MachinePhase {
        match self.phase.load(at, Relaxed) {
            0 => MachinePhase::Running,
            1 => MachinePhase::Stopping,
            _ => MachinePhase::Stopped,
        }
    }

    fn claim_switch(&self, at: At) -> Claim {
        match self.switches.claim.load(at, Relaxed) {
            0 => Claim::TryVictim,
            _ => Claim::Block,
        }
    }

    pub(crate) fn look_around_switch(&self, at: At) -> LookAround {
        match self.switches.look_around.load(at, Relaxed) {
            0 => LookAround::On,
            _ => LookAround::Off,
        }
    }
}

fn cpu_id(index: usize) -> CpuId {
    CpuId::new(u32::try_from(index).expect("a machine has fewer than 2^32 CPUs"))
}

/// Each CPU's place, and the domains.
fn domains_of<S: Shared>(caches: &[usize]) -> (Vec<Place>, Domains<S>) {
    let mut names: Vec<usize> = caches.to_vec();
    names.sort_unstable();
    names.dedup();
    let mut members: Vec<Vec<CpuId>> = vec![Vec::new(); names.len()];
    let places = caches.iter().enumerate().map(|(index, cache)| {
        let domain = names.binary_search(cache).expect("every cache is among the names");
        members[domain].push(cpu_id(index));
        Place { domain, bit: members[domain].len() - 1 }
    });
    let places = places.collect();
    (places, members.into_iter().map(|cpus| CachePadded::new(Domain::new(cpus))).collect())
}

impl<H: Host> AnyMachine for Machine<H> {
    fn wake_here(&self, seat: &Seat, runnable: Runnable) {
        self.wake_on_seat(seat, runnable);
    }

    fn wake_outside(&self, runnable: Runnable) {
        self.wake_from_outside(runnable);
    }

    fn owns(&self, seat: &Seat) -> bool {
        self.cpu(seat.cpu()).owner.is_held_by(At::new(seat.cpu(), Site::Owner), seat.epoch())
    }

    fn admit(&self, node: &GroupNode) -> Admission {
        let at = At::outside(Site::Group);
        if self.machine_phase(at) != MachinePhase::Running {
            return Admission::Stopping;
        }
        self.table.admit(at, node.id(), node.limit())
    }

    fn retire(&self, group: GroupId) {
        self.table.retire(At::outside(Site::Group), group);
    }

    fn open_group(&self, weight: Weight, mask: Option<&CpuMask>) -> Result<(GroupId, MaskId), OpenGroupError> {
        let at = At::outside(Site::Group);
        if self.machine_phase(at) != MachinePhase::Running {
            return Err(OpenGroupError::Stopping);
        }
        let mask = mask.map_or(Ok(MaskId::ALL), |mask| self.masks.intern(mask)).map_err(OpenGroupError::Cpus)?;
        let clock = self.start_clock(at, weight, mask);
        let id = self.table.allocate(at, weight, mask, clock).map_err(|TableFull| OpenGroupError::TableFull)?;
        self.masks.add_group(at, mask);
        // Until its turns are known, it is taken for a group that uses whole slices.
        self.table.row(id).line.turn.store(at, self.config.slice.as_nanos(), Relaxed);
        Ok((id, mask))
    }

    fn introduce_group(&self, node: &Arc<GroupNode>) {
        self.table.set_node(node.id(), node);
    }

    fn close_group(&self, group: GroupId) {
        let at = At::outside(Site::Group);
        self.masks.remove_group(at, self.table.row(group).mask(at));
        self.table.release(group);
    }

    fn cpus_of(&self, mask: MaskId) -> CpuMask {
        self.masks.mask(mask)
    }

    fn mask_within(&self, mask: &CpuMask, group: MaskId) -> Result<MaskId, CpusError> {
        self.masks.intern_within(mask, group)
    }

    fn weight(&self, group: GroupId) -> Weight {
        self.table.row(group).weight(At::outside(Site::Group))
    }

    fn set_weight(&self, group: GroupId, weight: Weight) {
        let at = At::outside(Site::Group);
        let line = &self.table.row(group).line;
        line.weight.store(at, u64::from(weight.get()), Relaxed);
        line.weight_changes.fetch_add(at, 1, Relaxed);
    }

    fn arm(&self, seat: Option<&Seat>, timer: Arc<Timer>) -> CpuId {
        self.arm_timer(seat, timer)
    }

    fn note_cancelled(&self, cpu: CpuId) {
        self.cpu(cpu).poll.cancelled.fetch_add(At::outside(Site::Timer), 1, Relaxed);
    }

    fn now(&self, seat: Option<&Seat>) -> Time {
        self.host.now(seat.map_or(CpuId::OUTSIDE, Seat::cpu))
    }

    fn compute(&self, seat: Option<&Seat>, work: Span) {
        self.host.compute(seat.map_or(CpuId::OUTSIDE, Seat::cpu), work);
    }

    fn compute_piece(&self, seat: &Seat, work: Span) -> Piece {
        let done = self.host.compute_piece(seat.cpu(), work);
        if H::DEFERS { Piece::WhenThePollReturns(done) } else { Piece::Done(done) }
    }

    fn is_slice_over(&self, seat: &Seat) -> bool {
        self.host.now(seat.cpu()) >= seat.slice_end.get()
    }

    fn should_yield(&self, seat: &Seat) -> bool {
        use evenkeel_core::balance::InboxHint;
        let at = At::new(seat.cpu(), Site::Dispatch);
        self.cpu(seat.cpu()).inbox.hint(at) != InboxHint::Empty || self.is_slice_over(seat)
    }

    fn is_stopping(&self) -> bool {
        self.machine_phase(At::outside(Site::Stop)) != MachinePhase::Running
    }

    fn stop(&self) {
        let at = At::outside(Site::Stop);
        if self.phase.compare_exchange(at, 0, 1, Relaxed).is_ok() {
            self.cpus.iter().for_each(|cpu| self.host.kick(cpu.id));
        }
    }

    fn stats(&self) -> Stats {
        let at = At::outside(Site::Count);
        let cpus = self.cpus.iter().map(|cpu| cpu.stats(at)).collect();
        let locks = lock_count::sum(at, self.cpus.iter().map(|cpu| &cpu.counters.locks));
        Stats { cpus, groups: self.table.stats(at), locks }
    }

    fn load(&self) -> Load {
        let at = At::outside(Site::Count);
        let (mut load, mut for_all, mut masked) = (Load::default(), 0, CpuBits::default());
        for cpu in &self.cpus {
            cpu.add_load(at, &mut load, &mut for_all, &mut masked);
        }
        let for_some = masked.iter().filter(|cpu| self.cpu(*cpu).park.is_parked(at)).count();
        load.idle_while_waiting = load.parked.min(for_all + for_some).min(load.waiting);
        load
    }

    fn set_switch(&self, switch: Switch) {
        let at = At::outside(Site::Group);
        match switch {
            Switch::Claim(claim) => self.switches.claim.store(at, u64::from(claim == Claim::Block), Relaxed),
            Switch::LookAround(look) => {
                self.switches.look_around.store(at, u64::from(look == LookAround::Off), Relaxed);
            }
        }
    }

    fn switches(&self) -> Vec<Switch> {
        let at = At::outside(Site::Group);
        vec![Switch::Claim(self.claim_switch(at)), Switch::LookAround(self.look_around_switch(at))]
    }
}

/// The parts of a group that live in its machine, made together.
pub(crate) fn make_group(
    machine: &Arc<dyn AnyMachine>,
    name: &str,
    weight: Weight,
    limit: Limit,
    mask: Option<&CpuMask>,
) -> Result<Arc<GroupPort>, OpenGroupError> {
    let (id, mask) = machine.open_group(weight, mask)?;
    let node = Arc::new(GroupNode::new(Arc::clone(machine), id, name.into(), limit, mask));
    machine.introduce_group(&node);
    Ok(GroupPort::new(node))
}
