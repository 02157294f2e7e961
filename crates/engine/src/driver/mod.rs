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
use crate::cpu::{Counter, Cpu};
use crate::host::{At, Host, Shared, Site};
use crate::machine::{AnyMachine, Machine, MachinePhase, Woken};
use crate::seat::Seat;
use crate::task::{Runnable, contain};
use dispatch::Slice;
use evenkeel_core::{CpuId, Span, Time};
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

/// Drives one CPU. One at a time exists per CPU.
#[derive(Debug)]
pub struct Driver<H: Host> {
    machine: Arc<Machine<H>>,
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
    /// Kicked, and nothing found yet.
    woke_for_nothing: bool,
    charged: dispatch::CpuTimeMark,
    stop: stop::Progress,
}

impl<H: Host> Driver<H> {
    /// Takes a CPU. `handle` is what [`crate::api::Handle::current`] gives to tasks that run on it. `None` if the CPU
    /// is driven already, or the machine stops.
    ///
    /// # Panics
    /// If the machine has no such CPU, or `handle` is of another machine.
    pub fn new(machine: &Arc<Machine<H>>, cpu: CpuId, handle: Handle) -> Option<Self> {
        let any: Arc<dyn AnyMachine> = Arc::clone(machine) as _;
        assert!(std::ptr::addr_eq(Arc::as_ptr(&any), Arc::as_ptr(handle.machine())), "a handle of this machine");
        let at = At::new(cpu, Site::Owner);
        let epoch = machine.cpu(cpu).owner.claim(at)?;
        machine.drivers.fetch_add(at, 1, Relaxed);
        let seat = Seat::new(cpu, epoch);
        Some(Driver {
            machine: Arc::clone(machine),
            cpu,
            current: Current::new(handle, Some(seat)),
            random: fastrand::Rng::with_seed(machine.config.seed ^ (u64::from(cpu.get()) << 32)),
            slice: None,
            polled_at: None,
            poll_average: Span::ZERO,
            is_searching: false,
            is_parked: false,
            keeps_watch: false,
            woke_for_nothing: false,
            charged: dispatch::CpuTimeMark::default(),
            stop: stop::Progress::default(),
        })
    }

    /// The CPU that it drives.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// One turn of the scheduler: at most one poll.
    pub fn step(&mut self) -> Step {
        let now = self.machine.host.now(self.cpu);
        if self.is_parked {
            self.resume();
        }
        if self.machine.machine_phase(self.at(Site::Stop)) != MachinePhase::Running {
            return self.stop_step(now);
        }
        self.end_poll(now);
        self.fire_timers(now);
        match self.dispatch(now) {
            Some(task) => self.poll(task, now),
            None => self.go_idle(now),
        }
    }

    fn at(&self, site: Site) -> At {
        At::new(self.cpu, site)
    }

    fn own(&self) -> &Cpu<H> {
        self.machine.cpu(self.cpu)
    }

    fn seat(&self) -> &Seat {
        self.current.own_seat()
    }

    fn count(&self, counter: Counter, value: u64) {
        self.machine.count(self.at(Site::Count), counter, value);
    }

    fn poll(&mut self, task: Runnable, now: Time) -> Step {
        self.own().poll.set_began(self.at(Site::Dispatch), Some(now));
        self.polled_at = Some(now);
        self.count(Counter::Polls, 1);
        context::enter(&self.current, || task.run());
        Step::Polled
    }

    /// Counts the poll that has ended.
    fn end_poll(&mut self, now: Time) {
        let Some(began) = self.polled_at.take() else { return };
        let length = now.since(began);
        if length > self.machine.config.slice {
            self.count(Counter::LongPolls, 1);
        }
        let eighth = |span: Span| Span::from_nanos(span.as_nanos() / 8);
        self.poll_average = self.poll_average.minus(eighth(self.poll_average)).plus(eighth(length));
        self.seat().is_brisk.set(self.poll_average < evenkeel_core::balance::HAND_OFF);
    }

    /// Fires the timers of this CPU that are due.
    fn fire_timers(&mut self, now: Time) {
        let at = self.at(Site::Timer);
        if self.own().prospect(at).timer > now && self.own().timer_inbox.is_empty() {
            return;
        }
        let mut woken = Woken::new();
        let mut queue = self.machine.lock(at, self.cpu);
        self.machine.serve_timers(at, self.cpu, &mut queue, now, &mut woken);
        drop(queue);
        self.wake_all(woken);
    }

    /// Calls wakers, which may be user code.
    fn wake_all(&self, woken: Woken) {
        if !woken.is_empty() {
            context::enter(&self.current, || {
                for waker in woken {
                    contain(|| waker.wake());
                }
            });
        }
    }
}
