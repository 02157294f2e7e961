//! A simulation: a machine, its engine, and what the outside does to it.
//!
//! Knows nothing of costs: the world has those.
//!
//! # Invariants
//! - V4: no suspended fiber is dropped: a machine that stops lets all of them return. One that failed leaks them.

mod outside;

use crate::faults::Faults;
use crate::fiber::{Fiber, Progress};
use crate::host::Simulated;
use crate::machine::Machine;
use crate::world::account::Accounting;
use crate::world::events::Record;
use crate::world::faults::FaultStat;
use crate::world::lock_stat::LockStat;
use crate::world::{self, Enter, Preemption, World};
use evenkeel_core::{CpuId, GroupId, Seed, Span, Time, Vtime};
use evenkeel_engine::api::{self, Handle};
use evenkeel_engine::{Driver, Machine as EngineMachine, SLICE_DEFAULT, Step};
use outside::{Act, Outside};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// What a simulation is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it runs on.
    pub machine: Machine,
    /// How long a group runs before the pick is made anew.
    pub slice: Span,
    /// From which the engine's random choices are drawn, and the faults.
    pub seed: u64,
    /// What goes wrong. By default nothing.
    pub faults: Faults,
    /// When a task that computes may lose its CPU.
    pub preemption: Preemption,
    /// Bytes of stack per CPU, of which only what is touched takes memory. Polls run on it.
    pub stack: usize,
}

/// Enough for polls that format text and for the report of a panic, in debug builds too; 1,024 of them are a quarter of
/// a gigabyte of addresses.
const STACK: usize = 256 << 10;

impl Config {
    /// This machine, with defaults for the rest.
    pub fn new(machine: Machine) -> Config {
        let (faults, preemption) = (Faults::NONE, Preemption::default());
        Config { machine, slice: SLICE_DEFAULT, seed: 1, faults, preemption, stack: STACK }
    }
}

/// A simulation could not be started: the system has no memory for the stacks.
#[derive(Debug)]
pub struct StartError(std::io::Error);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for the stacks of the simulated CPUs: {}", self.0)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Why a simulation can't go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An invariant of the engine is broken: what it said.
    Panicked {
        /// On which CPU.
        cpu: CpuId,
        /// When.
        at: Time,
        /// What it said.
        message: String,
    },
    /// A check of [`Simulation::check_every`] failed.
    Check {
        /// When.
        at: Time,
        /// What it said.
        message: String,
    },
    /// The future of `block_on` is not done, and nothing will ever happen again.
    Deadlock {
        /// Since when.
        at: Time,
    },
    /// The machine was told to stop, and CPUs did not.
    DidNotStop {
        /// How many.
        cpus: usize,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Panicked { cpu, at, message } => write!(f, "at {at:?}, CPU {cpu}: {message}"),
            Failure::Check { at, message } => write!(f, "at {at:?}: {message}"),
            Failure::Deadlock { at } => write!(f, "nothing will happen after {at:?}, and the future is not done"),
            Failure::DidNotStop { cpus } => write!(f, "{cpus} CPUs did not stop"),
        }
    }
}

impl std::error::Error for Failure {}

/// What a run came to: equal for two runs of the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Of all events.
    pub hash: u64,
    /// How many there were.
    pub count: u64,
}

/// How much a simulation has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speed {
    /// Accesses, locks, looks at the clock, switches, kicks and parks.
    pub cost_points: u64,
    /// Times that a CPU had its turn: switches of fibers.
    pub turns: u64,
}

/// A simulated machine that runs an engine.
///
/// Lives on one thread. Several can live at a time, also beside runtimes on threads, and may wake each other's tasks; what
/// one does to another takes effect when the other runs. A wake from another thread does too, and makes the run one that
/// does not repeat.
pub struct Simulation {
    world: Option<Box<World>>,
    parts: Parts,
}

/// What the loop works on beside the world.
struct Parts {
    id: u32,
    engine: Arc<EngineMachine<Simulated>>,
    handle: Handle,
    fibers: Vec<Fiber>,
    outside: Outside,
    panicked: Rc<RefCell<Option<String>>>,
    failure: Option<Failure>,
    turns: u64,
    running: usize,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now()).field("turns", &self.parts.turns).finish_non_exhaustive()
    }
}

/// Only compared: two worlds differ in it.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Simulation {
    /// A machine at time zero, all of whose CPUs are about to act.
    ///
    /// # Errors
    /// If there is no memory for the stacks.
    pub fn new(config: Config) -> Result<Simulation, StartError> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let engine_config = evenkeel_engine::Config {
            caches: config.machine.topology.caches(),
            slice: config.slice,
            seed: config.seed,
            ..evenkeel_engine::Config::flat(1)
        };
        let count = config.machine.cpus();
        let world = World::new(id, config.machine, config.preemption, config.faults, Seed::new(config.seed));
        let mut world = Some(Box::new(world));
        let entered = Enter::new(&mut world);
        let engine = EngineMachine::new(Simulated::new(id), engine_config);
        let handle = Handle::new(&engine);
        let panicked = Rc::default();
        let ids = (0..count).map(|index| CpuId::new(u32::try_from(index).unwrap_or(u32::MAX)));
        let fibers = ids.map(|cpu| cpu_fiber(&engine, &handle, cpu, config.stack, &panicked));
        let fibers = fibers.collect::<Result<Vec<_>, _>>().map_err(StartError)?;
        drop(entered);
        let outside = Outside::new(id);
        let parts = Parts { id, engine, handle, fibers, outside, panicked, failure: None, turns: 0, running: count };
        Ok(Simulation { world, parts })
    }

    /// A handle of the machine. What is done with it outside a script takes no time.
    pub fn handle(&self) -> Handle {
        self.parts.handle.clone()
    }

    /// The time that has passed.
    pub fn now(&self) -> Time {
        self.world().now()
    }

    /// The CPU that takes wakes from outside, if it is parked or none is.
    pub fn set_home(&self, cpu: CpuId) {
        self.parts.engine.host().set_home(cpu);
    }

    /// Runs `f` with this simulation as the one that runs on the thread: what it does to the machine costs nothing.
    pub fn with<R>(&mut self, f: impl FnOnce(&Handle) -> R) -> R {
        let _entered = Enter::new(&mut self.world);
        f(&self.parts.handle)
    }

    /// Runs `script` at a time, as a device outside the machine would: it may spawn, wake, change weights. It costs time
    /// of the device, which does one thing after the other.
    pub fn at(&mut self, time: Time, script: impl FnOnce(&Handle) + 'static) {
        self.plan(time, Act::Script(Box::new(script)));
    }

    /// Calls `check` once per `period`, beginning one period from now: a look at the machine that costs nothing and must
    /// change nothing. The simulation ends with a failure if the check does.
    ///
    /// # Panics
    /// If the period is zero.
    pub fn check_every(&mut self, period: Span, check: impl FnMut(&Handle, Time) -> Result<(), String> + 'static) {
        assert!(period > Span::ZERO, "a period takes time");
        self.plan(self.now().after(period), Act::Check { period, check: Box::new(check) });
    }

    fn plan(&mut self, time: Time, act: Act) {
        let time = time.max(self.now());
        self.parts.outside.plan(time, act);
        let next = self.parts.outside.next();
        self.world_mut().set_outside(next);
    }

    /// Lets everything happen that happens before `end`, which is the time afterwards.
    ///
    /// # Errors
    /// If an invariant is broken or a check fails. The simulation has ended then.
    ///
    /// # Panics
    /// V3: if a CPU's time is not accounted for.
    pub fn run_until(&mut self, end: Time) -> Result<(), Failure> {
        let entered = Enter::new(&mut self.world);
        let result = self.parts.run(end, || false);
        let _ = world::with(|world| world.pass(end));
        drop(entered);
        self.parts.leave(self.world());
        result?;
        let _ = self.accounting();
        Ok(())
    }

    /// Lets the simulation go on until a future is done, which is polled by the outside, as by a thread in `block_on`.
    ///
    /// # Errors
    /// If an invariant is broken or a check fails, or if nothing is left that could complete the future.
    pub fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output, Failure> {
        let waker = Waker::from(Arc::clone(&self.parts.outside.waker));
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        let mut output = None;
        let handle = self.handle();
        let entered = Enter::new(&mut self.world);
        waker.wake_by_ref();
        let result = self.parts.run(Time::NEVER, || {
            let polled = api::enter(&handle, || future.as_mut().poll(&mut cx));
            if let Poll::Ready(value) = polled {
                output = Some(value);
            }
            output.is_some()
        });
        drop(entered);
        self.parts.leave(self.world());
        result?;
        output.ok_or(Failure::Deadlock { at: self.now() })
    }

    /// Stops the machine: every future is dropped, every CPU ends.
    ///
    /// # Errors
    /// If an invariant is broken, or CPUs don't end.
    pub fn stop(&mut self) -> Result<(), Failure> {
        let entered = Enter::new(&mut self.world);
        self.parts.outside.forget_plans();
        let _ = world::with(|world| world.set_outside(Time::NEVER));
        self.parts.handle.stop();
        let result = self.parts.run(Time::NEVER, || false);
        drop(entered);
        self.parts.leave(self.world());
        result?;
        match self.parts.running {
            0 => Ok(()),
            cpus => {
                let failure = Failure::DidNotStop { cpus };
                self.parts.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// What every CPU's time went to so far.
    ///
    /// # Panics
    /// V3: if it does not sum to the time that has passed.
    pub fn accounting(&self) -> Accounting {
        self.world().accounting()
    }

    /// What locks and lines cost so far, or since [`Simulation::clear_lock_stat`].
    pub fn lock_stat(&self) -> LockStat {
        self.world().lock_stat()
    }

    /// From here on, these faults happen, and no others.
    pub fn set_faults(&mut self, faults: Faults) {
        self.world_mut().set_faults(faults);
    }

    /// What faults have done so far.
    pub fn fault_stat(&self) -> FaultStat {
        self.world().fault_stat()
    }

    /// From here on, counts of locks and lines begin anew.
    pub fn clear_lock_stat(&mut self) {
        self.world_mut().clear_lock_stat();
    }

    /// What the run came to so far.
    pub fn digest(&self) -> Digest {
        let (hash, count) = self.world().digest();
        Digest { hash, count }
    }

    /// From here on, keeps every event. What is kept begins with a [`crate::RecordKind::Park`] for each CPU that is idle.
    pub fn keep_records(&mut self) {
        self.keep_records_up_to(usize::MAX);
    }

    /// From here on, keeps events until there are `max`: each takes 32 bytes.
    pub fn keep_records_up_to(&mut self, max: usize) {
        self.world_mut().keep_records(max);
    }

    /// The events kept, in the order in which they happened: no later one is a cause of an earlier one. Times grow on one
    /// CPU, but for those of stalls, which may come into work whose poll is recorded already; those of different CPUs may
    /// be out of order a little, since a CPU may be ahead of the others.
    pub fn records(&self) -> &[Record] {
        self.world().records()
    }

    /// How many events were not kept since [`Simulation::keep_records_up_to`], because there were too many.
    pub fn left_out(&self) -> u64 {
        self.world().left_out()
    }

    /// How many tasks wait in a CPU's queue, as the engine publishes it.
    pub fn queue_length(&self, cpu: CpuId) -> usize {
        self.parts.engine.queue_length(cpu)
    }

    /// What the clock of a group that is alive shows.
    pub fn group_clock(&self, group: GroupId) -> Vtime {
        self.parts.engine.group_clock(group)
    }

    /// The events kept, which are not kept here any longer; those to come are, until there were as many in all as are to be
    /// kept.
    pub fn take_records(&mut self) -> Vec<Record> {
        self.world_mut().take_records()
    }

    /// How much was done so far.
    pub fn speed(&self) -> Speed {
        Speed { cost_points: self.world().cost_points, turns: self.parts.turns }
    }

    fn world(&self) -> &World {
        self.world.as_deref().expect("the world is at home while it does not run")
    }

    fn world_mut(&mut self) -> &mut World {
        self.world.as_deref_mut().expect("the world is at home while it does not run")
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.parts.failure.is_none() && self.parts.running > 0 {
            // What went wrong was said to nobody: the fibers that are left are leaked (V4).
            let _ = self.stop();
        }
    }
}

/// The fiber of a CPU: its driver, until that has ended.
fn cpu_fiber(
    engine: &Arc<EngineMachine<Simulated>>,
    handle: &Handle,
    cpu: CpuId,
    stack: usize,
    panicked: &Rc<RefCell<Option<String>>>,
) -> std::io::Result<Fiber> {
    let mut driver = Driver::new(engine, cpu, handle.clone()).expect("a new machine's CPUs are free");
    let panicked = Rc::clone(panicked);
    Fiber::new(stack, move || {
        let ended = catch_unwind(AssertUnwindSafe(|| drive(&mut driver)));
        if let Err(payload) = ended {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            *panicked.borrow_mut() = Some(text.unwrap_or("a panic without a text").to_owned());
            // Its destructor would go on with what is broken.
            std::mem::forget(driver);
        }
    })
}

fn drive(driver: &mut Driver<Simulated>) {
    // Ends: when the machine stops.
    loop {
        world::begin_step();
        match driver.step() {
            Step::Polled | Step::Again => {}
            Step::Park { until } => world::park(driver.cpu(), until),
            Step::Stopping => world::wait_for_others(),
            Step::Stopped => return world::sync(),
        }
    }
}

impl Parts {
    /// Lets everything happen before `end`. `poll` is what the outside does when it is woken: true if that is the end.
    fn run(&mut self, end: Time, mut poll: impl FnMut() -> bool) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let _ = world::with(|world| world.run_to(end));
        // Ends: at `end`, or when nothing is left that could happen.
        loop {
            self.take_kicks();
            let Some((actor, at)) = world::with(World::next).flatten() else { return Ok(()) };
            let went = if actor == CpuId::OUTSIDE { self.act_outside(at, &mut poll) } else { self.turn(actor, at) };
            match went {
                Ok(Went::On) => {}
                Ok(Went::Done) => return Ok(()),
                Err(failure) => {
                    self.failure = Some(failure.clone());
                    return Err(failure);
                }
            }
        }
    }

    /// What others did to this machine while it did not run.
    fn take_kicks(&mut self) {
        if self.engine.host().has_kicks() {
            let kicks = self.engine.host().take_kicks();
            let _ = world::with(|world| kicks.into_iter().for_each(|cpu| world.kick(cpu)));
        }
        if self.outside.waker.was_woken_elsewhere() {
            let _ = world::with(World::call_outside);
        }
    }

    fn turn(&mut self, cpu: CpuId, at: Time) -> Result<Went, Failure> {
        self.turns += 1;
        let _ = world::with(|world| world.begin_turn(cpu, at));
        let progress = self.fibers[cpu.index()].resume();
        if progress == Progress::Suspended {
            return Ok(Went::On);
        }
        self.running -= 1;
        let _ = world::with(|world| world.end_cpu(cpu));
        match self.panicked.borrow_mut().take() {
            Some(message) => Err(Failure::Panicked { cpu, at, message }),
            None => Ok(Went::On),
        }
    }

    fn act_outside(&mut self, at: Time, poll: &mut impl FnMut() -> bool) -> Result<Went, Failure> {
        let mut went = Ok(Went::On);
        let mut free_at = at;
        match self.outside.due(at) {
            Some((number, Act::Script(script))) => {
                let _ = world::with(|world| world.begin_outside(at, number));
                script(&self.handle);
                free_at = world::with(World::end_outside).unwrap_or(at);
            }
            Some((_, Act::Check { period, mut check })) => {
                let _ = world::with(|world| world.pass(at));
                if let Err(message) = check(&self.handle, at) {
                    went = Err(Failure::Check { at, message });
                }
                self.outside.plan(at.after(period), Act::Check { period, check });
            }
            None if self.outside.waker.take() => {
                let _ = world::with(|world| world.begin_outside(at, u32::MAX));
                if poll() {
                    went = Ok(Went::Done);
                }
                free_at = world::with(World::end_outside).unwrap_or(at);
            }
            None => {}
        }
        let next = if self.outside.waker.is_woken() { free_at } else { self.outside.next().max(free_at) };
        let next = if self.outside.has_next() { next } else { Time::NEVER };
        let _ = world::with(|world| world.set_outside(next));
        went
    }

    fn leave(&self, world: &World) {
        self.engine.host().leave_at(world.now());
        debug_assert_eq!(self.id, world.id);
    }
}

/// Whether a run goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Went {
    On,
    Done,
}
