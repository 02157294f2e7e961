//! A single-threaded host in virtual time: for tests of the engine's rules, without noise and with as many CPUs as wanted.
//!
//! An event is "this CPU acts", "this script runs" or "the future of `block_on` is polled", at a virtual time. Events are
//! ordered by time, then by the order in which they were made; so a run is a function of the code, the configuration and
//! the seed. Scheduling costs nothing; a poll takes as long as the task computes in it, and [`TestConfig::poll_min`] at
//! least, so that a task which only yields does not stop time.
//!
//! What a poll does to others (wakes, spawns) is there from the poll's beginning, though its kicks arrive when its
//! computing so far has ended. A task that should first compute and then wake has to yield in between.
//!
//! Knows nothing of how tasks are shared out, and nothing of threads.

#![expect(clippy::disallowed_types, reason = "a host: its words and locks are where the engine gets them from")]

mod checker;
mod host;

pub use host::{FreeGuard, FreeLock, Virtual, Word};

use crate::api::{self, Handle};
use crate::host::{At, Host, Site};
use crate::machine::{Config, Machine};
use crate::{Driver, Step};
use checker::Checker;
use evenkeel_core::{CpuId, GroupId, Span, Time, Vtime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// What a test machine is made of.
#[derive(Clone, Debug)]
pub struct TestConfig {
    /// The machine itself.
    pub machine: Config,
    /// How long a kick takes to reach a parked CPU.
    pub kick_latency: Span,
    /// What a poll costs at least.
    pub poll_min: Span,
    /// Where the clocks of groups start: close to the end of the range, for tests of what happens when they wrap around.
    pub clock_start: Vtime,
    /// After how many steps the invariants are recomputed. Always 1 on machines of a few CPUs, where it is cheap.
    pub check_every: u64,
}

impl TestConfig {
    /// `cpus` CPUs that share one cache, with defaults for the rest.
    pub fn flat(cpus: usize) -> Self {
        TestConfig {
            machine: Config::flat(cpus),
            kick_latency: Span::ZERO,
            poll_min: Span::from_nanos(100),
            clock_start: Vtime::ZERO,
            check_every: if cpus <= CHEAP_CPUS { 1 } else { 1_024 },
        }
    }
}

/// So many CPUs can be checked after each step in a test that should end within seconds.
const CHEAP_CPUS: usize = 4;

/// A CPU that goes on for so many steps without its time moving is stuck: the longest honest sequence is a search that
/// finds each candidate gone.
const LIVELOCK_STEPS: u32 = 10_000;

/// Why a machine can't go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// A CPU acts over and over, and its time does not move.
    Livelock {
        /// Which one.
        cpu: CpuId,
        /// When.
        at: Time,
    },
    /// The future of `block_on` is not done, and nothing will ever happen again.
    Deadlock {
        /// Since when.
        at: Time,
    },
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stuck::Livelock { cpu, at } => {
                write!(f, "livelock: CPU {cpu} took {LIVELOCK_STEPS} steps at {at:?} and its time did not move")
            }
            Stuck::Deadlock { at } => {
                write!(f, "deadlock: nothing will happen after {at:?}, and the future is not done")
            }
        }
    }
}

impl std::error::Error for Stuck {}

/// What a run came to: equal for two runs of the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// Of the time, CPU and group of every poll.
    pub hash: u64,
    /// How many polls there were.
    pub polls: u64,
}

/// How long CPUs were parked while tasks waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleWhileWaiting {
    /// Summed over the CPUs for which something waited.
    pub total: Span,
    /// The longest time at a stretch during which there was such a CPU.
    pub longest: Span,
}

/// A machine on the single-threaded host.
pub struct TestMachine {
    machine: Arc<Machine<Virtual>>,
    handle: Handle,
    drivers: Vec<Driver<Virtual>>,
    cpus: Vec<CpuEvents>,
    events: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    now: Time,
    scripts: Vec<Option<Script>>,
    outside: Arc<Outside>,
    kick_latency: Span,
    poll_min: Span,
    check_every: u64,
    steps: u64,
    parked: usize,
    checker: Checker,
    hash: DefaultHasher,
    polls: u64,
    idle: IdleWhileWaiting,
    idle_stretch: Span,
}

type Script = Box<dyn FnOnce(&Handle)>;

/// What is known of one CPU's next event.
#[derive(Clone, Copy, Debug)]
struct CpuEvents {
    /// The event that counts, with its time; others in the queue are void.
    next: Option<(u64, Time)>,
    is_parked: bool,
    /// A kick came while it was not parked.
    is_kicked: bool,
    idle_steps: u32,
}

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    at: Time,
    sequence: u64,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Cpu(usize),
    Script(usize),
    /// The future of `block_on`.
    Outside,
}

/// Whether the future of `block_on` was woken.
#[derive(Debug, Default)]
struct Outside {
    is_woken: AtomicBool,
}

impl Wake for Outside {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for TestMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestMachine").field("now", &self.now).field("polls", &self.polls).finish_non_exhaustive()
    }
}

impl TestMachine {
    /// A machine at time zero, all of whose CPUs are about to act.
    ///
    /// # Panics
    /// If polls cost nothing at all: time would not move.
    pub fn new(config: TestConfig) -> Self {
        assert!(config.poll_min > Span::ZERO, "a poll takes time");
        let count = config.machine.caches.len();
        let machine = Machine::new(Virtual::new(count), config.machine);
        machine.start_clocks_at(config.clock_start);
        let handle = Handle::new(&machine);
        let ids = (0..count).map(|index| CpuId::new(u32::try_from(index).expect("a test has few CPUs")));
        let drivers = ids.map(|cpu| Driver::new(&machine, cpu, handle.clone()).expect("a new machine's CPUs are free"));
        let mut this = TestMachine {
            drivers: drivers.collect(),
            machine,
            handle,
            cpus: vec![CpuEvents { next: None, is_parked: false, is_kicked: false, idle_steps: 0 }; count],
            events: BinaryHeap::new(),
            sequence: 0,
            now: Time::ZERO,
            scripts: Vec::new(),
            outside: Arc::default(),
            kick_latency: config.kick_latency,
            poll_min: config.poll_min,
            check_every: config.check_every,
            steps: 0,
            parked: 0,
            checker: Checker::default(),
            hash: DefaultHasher::new(),
            polls: 0,
            idle: IdleWhileWaiting::default(),
            idle_stretch: Span::ZERO,
        };
        (0..count).for_each(|index| this.call_cpu(index, Time::ZERO));
        this
    }

    /// A handle of the machine.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The time of the event that was handled last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The CPU that takes wakes from outside, if it is parked or none is.
    pub fn set_home(&self, cpu: CpuId) {
        self.machine.host().set_home(cpu);
    }

    /// What the run came to so far.
    pub fn digest(&self) -> Digest {
        Digest { hash: self.hash.finish(), polls: self.polls }
    }

    /// How long CPUs were parked while tasks waited, so far.
    pub fn idle_while_waiting(&self) -> IdleWhileWaiting {
        self.idle
    }

    /// Runs `script` at a time, as a thread outside the machine would: it may spawn, wake, change weights.
    pub fn at(&mut self, time: Time, script: impl FnOnce(&Handle) + 'static) {
        self.scripts.push(Some(Box::new(script)));
        self.push(time.max(self.now), What::Script(self.scripts.len() - 1));
    }

    /// Handles all events before `end`, which is the time afterwards.
    ///
    /// # Errors
    /// If a CPU's time does not move.
    pub fn run_until(&mut self, end: Time) -> Result<(), Stuck> {
        while let Some(event) = self.next_before(end) {
            self.handle_event(event)?;
        }
        self.pass(end);
        Ok(())
    }

    /// Runs the machine until a future is done, which is polled outside it, as by a thread in `block_on`.
    ///
    /// # Errors
    /// If a CPU's time does not move, or if nothing is left that could complete the future.
    pub fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output, Stuck> {
        let waker = Waker::from(Arc::clone(&self.outside));
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        self.push(self.now, What::Outside);
        while let Some(event) = self.next_before(Time::NEVER) {
            if event.what != What::Outside {
                self.handle_event(event)?;
                continue;
            }
            self.pass(event.at);
            self.machine.host().act(CpuId::OUTSIDE, event.at);
            let handle = self.handle.clone();
            if let Poll::Ready(output) = api::enter(&handle, || future.as_mut().poll(&mut cx)) {
                self.after(CpuId::OUTSIDE);
                return Ok(output);
            }
            self.after(CpuId::OUTSIDE);
        }
        Err(Stuck::Deadlock { at: self.now })
    }

    /// Recomputes the invariants, which panics with the number of one that does not hold.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        self.machine.check();
    }

    fn push(&mut self, at: Time, what: What) -> u64 {
        self.sequence += 1;
        self.events.push(Reverse(Event { at, sequence: self.sequence, what }));
        self.sequence
    }

    /// Has a CPU act at a time, unless it does so earlier.
    fn call_cpu(&mut self, index: usize, at: Time) {
        if self.cpus[index].next.is_some_and(|(_, next)| next <= at) {
            return;
        }
        let sequence = self.push(at, What::Cpu(index));
        self.cpus[index].next = Some((sequence, at));
    }

    /// Ends: each turn takes an event out of the queue.
    fn next_before(&mut self, end: Time) -> Option<Event> {
        loop {
            let Reverse(event) = *self.events.peek().filter(|Reverse(event)| event.at < end)?;
            self.events.pop();
            match event.what {
                What::Cpu(index) if self.cpus[index].next != Some((event.sequence, event.at)) => {}
                _ => return Some(event),
            }
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), Stuck> {
        self.pass(event.at);
        match event.what {
            What::Cpu(index) => self.step(index),
            What::Script(index) => {
                self.machine.host().act(CpuId::OUTSIDE, event.at);
                if let Some(script) = self.scripts[index].take() {
                    script(&self.handle);
                }
                self.after(CpuId::OUTSIDE);
                Ok(())
            }
            // Woken by an earlier `block_on`.
            What::Outside => Ok(()),
        }
    }

    fn step(&mut self, index: usize) -> Result<(), Stuck> {
        let cpu = self.drivers[index].cpu();
        let began = self.now;
        self.machine.host().act(cpu, began);
        let known = &mut self.cpus[index];
        known.next = None;
        self.parked -= usize::from(std::mem::replace(&mut known.is_parked, false));
        let is_checked = cfg!(debug_assertions) && self.steps.is_multiple_of(self.check_every);
        self.steps += 1;
        if is_checked {
            self.checker.before(&self.machine, cpu);
        }
        let step = self.drivers[index].step();
        if is_checked {
            self.checker.after(&self.machine, cpu);
        }
        match step {
            Step::Polled => {
                self.note_poll(cpu, began);
                self.machine.host().act(cpu, began.after(self.poll_min));
                self.cpus[index].idle_steps = 0;
                let ended = self.machine.host().now(cpu);
                self.call_cpu(index, ended);
            }
            Step::Again | Step::Stopping => {
                self.cpus[index].idle_steps += 1;
                if self.cpus[index].idle_steps > LIVELOCK_STEPS {
                    return Err(Stuck::Livelock { cpu, at: began });
                }
                self.call_cpu(index, began);
            }
            Step::Park { until } => self.park(index, until),
            Step::Stopped => {}
        }
        self.after(cpu);
        Ok(())
    }

    fn park(&mut self, index: usize, until: Time) {
        self.cpus[index].idle_steps = 0;
        self.cpus[index].is_parked = true;
        self.parked += 1;
        if std::mem::replace(&mut self.cpus[index].is_kicked, false) {
            self.call_cpu(index, self.now.after(self.kick_latency));
        } else if until < Time::NEVER {
            self.call_cpu(index, until.max(self.now));
        }
    }

    fn note_poll(&mut self, cpu: CpuId, began: Time) {
        let at = At::outside(Site::Count);
        let running = self.machine.lock(at, cpu).running;
        self.hash.write_u64(began.as_nanos());
        self.hash.write_u32(cpu.get());
        self.hash.write_u32(running.map_or(u32::MAX, GroupId::get));
        self.polls += 1;
    }

    /// What `actor` has done to others takes effect.
    fn after(&mut self, actor: CpuId) {
        for kick in self.machine.host().take_kicks() {
            let index = kick.cpu.index();
            if self.cpus[index].is_parked {
                self.call_cpu(index, kick.at.after(self.kick_latency).max(self.now));
            } else {
                self.cpus[index].is_kicked = true;
            }
        }
        if self.outside.is_woken.swap(false, Ordering::Relaxed) {
            let outside = self.machine.host().now(CpuId::OUTSIDE);
            let woken = self.machine.host().now(actor).max(outside).max(self.now);
            self.push(woken, What::Outside);
        }
    }

    /// Time passes, and who was idle meanwhile is counted.
    fn pass(&mut self, to: Time) {
        let passed = to.since(self.now);
        self.now = self.now.max(to);
        if passed == Span::ZERO {
            return;
        }
        let idle = if self.parked == 0 { 0 } else { self.handle.load().idle_while_waiting.min(self.parked) };
        if idle == 0 {
            self.idle_stretch = Span::ZERO;
            return;
        }
        self.idle.total = self.idle.total.plus(passed.times(idle as u64));
        self.idle_stretch = self.idle_stretch.plus(passed);
        self.idle.longest = self.idle.longest.max(self.idle_stretch);
    }
}

/// Stops the machine, and drops every future.
impl Drop for TestMachine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.handle.stop();
        let mut rest: Vec<_> = std::mem::take(&mut self.drivers);
        // Ends: each turn every driver goes on to drop what is left; on one thread nothing is added but by those drops.
        for _ in 0..LIVELOCK_STEPS {
            rest.retain_mut(|driver| {
                self.machine.host().act(driver.cpu(), self.now);
                driver.step() != Step::Stopped
            });
            if rest.is_empty() {
                return;
            }
        }
        panic!("{} CPUs of a test machine did not stop", rest.len());
    }
}
