//! The end of a machine: every future is dropped, on a CPU of the machine, exactly once.
//!
//! Each driver sweeps its CPU when it stops: it drops what is queued and wakes what sleeps, so that it is queued and can be
//! dropped too. The last one sweeps them all until nothing is left, then closes the inboxes. A task that is in its poll
//! meanwhile is dropped by a later sweep: its driver has not stopped yet.
//!
//! Knows nothing of who waits for the machine to end.

use super::{Step, Turns};
use crate::cpu::Cpu;
use crate::host::{At, Host, Shared, Site};
use crate::machine::{AnyMachine, Machine, Woken};
use crate::task::{Runnable, contain};
use evenkeel_core::Time;
use evenkeel_core::balance::InboxHint;
use std::sync::atomic::Ordering;

/// How far this driver has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Progress {
    #[default]
    Running,
    /// The last driver: waits until nothing is left.
    Last,
    Stopped,
}

impl<H: Host> Turns<H> {
    pub(super) fn stop_step(&mut self, machine: &Machine<H>, now: Time) -> Step {
        let at = self.at(Site::Stop);
        if self.stop == Progress::Running {
            self.leave(machine, now);
        }
        match self.stop {
            Progress::Running => self.sweep(machine, std::slice::from_ref(machine.cpu(self.cpu))),
            Progress::Last | Progress::Stopped => self.sweep(machine, &machine.cpus),
        }
        match self.stop {
            Progress::Running => {
                // ORDER S: AcqRel: the last driver sees all that the others have left.
                let before = machine.drivers.fetch_sub(at, 1, Ordering::AcqRel);
                if before == 1 {
                    self.stop = Progress::Last;
                    return Step::Stopping;
                }
                self.end(machine)
            }
            Progress::Last if self.is_quiet(machine) => {
                self.close(machine);
                self.end(machine)
            }
            Progress::Last => Step::Stopping,
            Progress::Stopped => Step::Stopped,
        }
    }

    /// Gives up what this driver holds.
    fn leave(&mut self, machine: &Machine<H>, now: Time) {
        machine.cpu(self.cpu).poll.set_began(self.at(Site::Stop), None);
        let requeued = self.seat().take_requeue();
        let suspended: Vec<_> = std::iter::from_fn(|| self.seat().take_suspended()).collect();
        let mut queue = machine.lock(self.at(Site::Stop), self.cpu);
        suspended.into_iter().for_each(|task| queue.registry.add(task));
        drop(queue);
        self.abandon_slice(machine, now);
        self.seat().set_running(None);
        if self.is_searching {
            self.is_searching = false;
            machine.domain_of(self.cpu).end_search(self.at(Site::Stop));
        }
        self.drop_all(machine, requeued.into_iter().collect());
    }

    /// Drops all that is queued on these CPUs, and wakes all that sleeps.
    fn sweep(&mut self, machine: &Machine<H>, cpus: &[Cpu<H>]) {
        let at = self.at(Site::Stop);
        for cpu in cpus {
            let mut woken = Woken::new();
            let mut queue = machine.lock(at, cpu.id);
            let mut tasks: Vec<_> = cpu.inbox.take_all(at).collect();
            tasks.append(&mut queue.drain());
            machine.serve_timers(at, cpu.id, &mut queue, Time::ZERO, &mut woken);
            queue.timers.orphan(&mut woken);
            queue.registry.sweep();
            woken.append(&mut queue.registry.wakers());
            machine.publish(at, cpu.id, &mut queue);
            machine.settle_counts(at, &mut queue);
            drop(queue);
            self.drop_all(machine, tasks);
            self.wake_all(machine, woken);
        }
    }

    /// Whether no task is left. A task that a thread outside is about to enqueue is still registered.
    fn is_quiet(&self, machine: &Machine<H>) -> bool {
        let at = self.at(Site::Stop);
        machine.cpus.iter().all(|cpu| {
            let mut queue = machine.lock(at, cpu.id);
            queue.registry.is_empty() && queue.fair.is_empty() && cpu.inbox.hint(at) == InboxHint::Empty
        })
    }

    /// Refuses what comes from here on. What a spawn has pushed since the last sweep is dropped here.
    fn close(&mut self, machine: &Machine<H>) {
        let at = self.at(Site::Stop);
        for cpu in &machine.cpus {
            let tasks: Vec<_> = cpu.inbox.close(at).collect();
            self.drop_all(machine, tasks);
        }
        machine.phase.store(at, 2, Ordering::Release);
    }

    fn end(&mut self, machine: &Machine<H>) -> Step {
        self.stop = Progress::Stopped;
        self.seat().prune_ports();
        let at = At::new(self.cpu, Site::Owner);
        machine.cpu(self.cpu).owner.release(at, self.seat().epoch());
        Step::Stopped
    }

    /// Drops runnables, and so their futures: user code.
    fn drop_all(&self, machine: &Machine<H>, tasks: Vec<Runnable>) {
        if !tasks.is_empty() {
            self.user(machine, || {
                for task in tasks {
                    contain(|| drop(task));
                }
            });
        }
    }

    /// Stops the machine, unless this driver has ended already.
    pub(super) fn stop_now(&mut self, machine: &Machine<H>) {
        if self.stop == Progress::Stopped {
            return;
        }
        machine.stop();
        let now = machine.host.now(self.cpu);
        // Ends: the last driver waits only for wakes that threads outside are in the middle of.
        while self.stop_step(machine, now) != Step::Stopped {
            std::hint::spin_loop();
        }
    }
}
