//! What a CPU does with its time: dispatch, poll, look around, search, park, stop.
//!
//! A host calls [`Driver::step`] over and over and does what it returns. A step ends the poll before, picks a task and
//! polls it; so what a poll took is charged at the beginning of the next step.
//!
//! Knows nothing of threads or of how parking is done.

mod dispatch;
mod park;
mod pull;
mod stop;

use crate::api::Handle;
use crate::context::{self, Current};
use crate::cpu::Counter;
use crate::host::{At, Event, Host, Shared, Site};
use crate::machine::{AnyMachine, Machine, MachinePhase, Woken};
use crate::seat::Seat;
use crate::task::{Runnable, contain};
use dispatch::Slice;
use evenkeel_core::{CpuId, Purpose, Seed, Span, Time};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What a host does after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// A task was polled: call again.
    Polled,
    /// Work was found or waited for by others: call again.
    Again,
    /// Nothing to do: call again once the CPU has been kicked, or at this time.
    Park {
        /// When to call again without a kick. [`Time::NEVER`] if only a kick is waited for.
        until: Time,
    },
    /// The machine stops, and this CPU waits for wakes that are under way elsewhere: call again soon.
    Stopping,
    /// This CPU has ended: do not call again.
    Stopped,
}

/// Drives one CPU. One at a time exists per CPU. Dropping it stops its machine: what it holds would never run.
#[derive(Debug)]
pub struct Driver<H: Host> {
    machine: Arc<Machine<H>>,
    turns: Turns<H>,
}

/// What a driver keeps from step to step. Apart from the machine, so that a step borrows that rather than count a
/// reference to it, on a line that all CPUs share.
#[derive(Debug)]
struct Turns<H: Host> {
    cpu: CpuId,
    current: Current,
    random: fastrand::Rng,
    slice: Option<Slice>,
    /// When the poll before began, if there was one.
    polled_at: Option<Time>,
    /// Average length of polls here, moved an eighth of the way by each.
    poll_average: Span,
    is_searching: bool,
    is_parked: bool,
    keeps_watch: bool,
    /// It kept the watch, and has not looked at everything since.
    has_left_watch: bool,
    /// It was kicked for something that few may run, and has not passed that on yet (P6).
    owes_look: bool,
    /// Its last look saw work, perhaps on a CPU that does not show any: the search that follows looks there too.
    has_seen_work: bool,
    /// It saw something that this CPU may run and not everybody.
    has_seen_mine: bool,
    /// Somebody keeps the watch over the timers here, or had no need to, since it was last idle.
    is_watch_settled: bool,
    /// What is left waiting here at the end of this dispatch was not shown to others before it.
    is_news: bool,
    /// Kicked, and nothing found yet.
    woke_for_nothing: bool,
    charged: dispatch::CpuTimeMark,
    stop: stop::Progress,
    host: PhantomData<fn(H)>,
}

impl<H: Host> Driver<H> {
    /// Takes a CPU. `handle` is what [`crate::api::Handle::current`] gives to tasks that run on it. `None` if the CPU
    /// is driven already.
    ///
    /// # Panics
    /// If the machine has no such CPU, or `handle` is of another machine.
    pub fn new(machine: &Arc<Machine<H>>, cpu: CpuId, handle: Handle) -> Option<Self> {
        let any: Arc<dyn AnyMachine> = Arc::clone(machine) as _;
        assert!(std::ptr::addr_eq(Arc::as_ptr(&any), Arc::as_ptr(handle.machine())), "a handle of this machine");
        let at = At::new(cpu, Site::Owner);
        let epoch = machine.cpu(cpu).owner.claim(at)?;
        machine.drivers.fetch_add(at, 1, Relaxed);
        let seed = Seed::new(machine.config.seed);
        let turns = Turns {
            cpu,
            current: Current::new(handle, Some(Seat::new(cpu, epoch))),
            random: fastrand::Rng::with_seed(seed.stream(Purpose::Engine, u64::from(cpu.get()))),
            slice: None,
            polled_at: None,
            poll_average: Span::ZERO,
            is_searching: false,
            is_parked: false,
            keeps_watch: false,
            has_left_watch: false,
            owes_look: false,
            has_seen_work: false,
            has_seen_mine: false,
            is_watch_settled: false,
            is_news: false,
            woke_for_nothing: false,
            charged: dispatch::CpuTimeMark::default(),
            stop: stop::Progress::default(),
            host: PhantomData,
        };
        Some(Driver { machine: Arc::clone(machine), turns })
    }

    /// The CPU that it drives.
    pub fn cpu(&self) -> CpuId {
        self.turns.cpu
    }

    /// One turn of the scheduler: at most one poll.
    pub fn step(&mut self) -> Step {
        self.turns.step(&self.machine)
    }
}

impl<H: Host> Drop for Driver<H> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.turns.stop_now(&self.machine);
        }
    }
}

impl<H: Host> Turns<H> {
    fn step(&mut self, machine: &Machine<H>) -> Step {
        let now = machine.host.now(self.cpu);
        if self.is_parked {
            self.resume(machine);
        }
        if machine.machine_phase(self.at(Site::Stop)) != MachinePhase::Running {
            return self.stop_step(machine, now);
        }
        self.end_poll(machine, now);
        self.fire_timers(machine, now);
        match self.dispatch(machine, now) {
            Some(task) => self.poll(machine, task, now),
            None => self.go_idle(machine, now),
        }
    }

    fn at(&self, site: Site) -> At {
        At::new(self.cpu, site)
    }

    fn seat(&self) -> &Seat {
        self.current.own_seat()
    }

    fn count(&self, machine: &Machine<H>, counter: Counter, value: u64) {
        machine.count(self.at(Site::Dispatch), counter, value);
    }

    fn poll(&mut self, machine: &Machine<H>, task: Runnable, now: Time) -> Step {
        machine.cpu(self.cpu).poll.set_began(self.at(Site::Dispatch), Some(now));
        self.polled_at = Some(now);
        self.count(machine, Counter::Polls, 1);
        if H::OBSERVES {
            let metadata = task.metadata();
            machine.host.observe(self.at(Site::Dispatch), Event::Dispatched(metadata.key(), metadata.port().id()));
        }
        self.user(machine, || task.run());
        // Ends: the task declares no more work, or has to give way.
        while H::DEFERS && self.seat().take_goes_on() && !self.is_preempted(machine) {
            match self.seat().take_requeue() {
                Some(task) => self.user(machine, || task.run()),
                None => break,
            };
        }
        if H::OBSERVES {
            machine.host.observe(self.at(Site::Dispatch), Event::Left);
        }
        Step::Polled
    }

    fn is_preempted(&self, machine: &Machine<H>) -> bool {
        machine.host.takes_tick(self.cpu) && machine.should_yield(self.seat())
    }

    /// Counts the poll that has ended.
    fn end_poll(&mut self, machine: &Machine<H>, now: Time) {
        let Some(began) = self.polled_at.take() else { return };
        let length = now.since(began);
        if length > machine.config.slice {
            self.count(machine, Counter::LongPolls, 1);
        }
        let eighth = |span: Span| Span::from_nanos(span.as_nanos() / 8);
        self.poll_average = self.poll_average.minus(eighth(self.poll_average)).plus(eighth(length));
        self.seat().is_brisk.set(self.poll_average < evenkeel_core::balance::HAND_OFF);
    }

    /// Fires the timers of this CPU that are due.
    fn fire_timers(&mut self, machine: &Machine<H>, now: Time) {
        let at = self.at(Site::Timer);
        if machine.cpu(self.cpu).poll.timer.read(at) > now && machine.cpu(self.cpu).timer_inbox.is_empty() {
            return;
        }
        let mut woken = Woken::new();
        let mut queue = machine.lock(at, self.cpu);
        machine.serve_timers(at, self.cpu, &mut queue, now, &mut woken);
        drop(queue);
        self.wake_all(machine, woken);
    }

    /// Runs user code on this CPU.
    fn user<R>(&self, machine: &Machine<H>, f: impl FnOnce() -> R) -> R {
        machine.host.user_begins(self.cpu);
        let result = context::enter(&self.current, f);
        machine.host.user_ends(self.cpu);
        result
    }

    /// Calls wakers, which may be user code. It belongs to no group: what it spawns joins the default one.
    fn wake_all(&self, machine: &Machine<H>, woken: Woken) {
        if woken.is_empty() {
            return;
        }
        let running = self.seat().running();
        self.seat().set_running(None);
        self.user(machine, || {
            for waker in woken {
                contain(|| waker.wake());
            }
        });
        self.seat().set_running(running);
    }
}
