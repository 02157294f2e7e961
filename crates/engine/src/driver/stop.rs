//! The end of a machine: every future is dropped, on a CPU of the machine, exactly once.
//!
//! Each driver sweeps when it stops: it drops what is queued and wakes what sleeps, so that it is queued and can be
//! dropped too. The last one goes on until nothing is left, then closes the inboxes. A task that is in its poll meanwhile
//! is dropped by a later sweep: its driver has not stopped yet.
//!
//! Knows nothing of who waits for the machine to end.

use super::{Driver, Step};
use crate::context;
use crate::host::{At, Host, Shared, Site};
use crate::machine::{AnyMachine, Woken};
use crate::task::{Runnable, contain};
use evenkeel_core::Time;
use evenkeel_core::balance::InboxHint;
use std::sync::Arc;
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

impl<H: Host> Driver<H> {
    pub(super) fn stop_step(&mut self, now: Time) -> Step {
        let at = self.at(Site::Stop);
        if self.stop == Progress::Running {
            self.leave(now);
        }
        self.sweep();
        match self.stop {
            Progress::Running => {
                // ORDER S: AcqRel: the last driver sees all that the others have left.
                let before = self.machine.drivers.fetch_sub(at, 1, Ordering::AcqRel);
                if before == 1 {
                    self.stop = Progress::Last;
                    return Step::Stopping;
                }
                self.end()
            }
            Progress::Last if self.is_quiet() => {
                self.close();
                self.end()
            }
            Progress::Last => Step::Stopping,
            Progress::Stopped => Step::Stopped,
        }
    }

    /// Gives up what this driver holds.
    fn leave(&mut self, now: Time) {
        self.own().poll.set_began(self.at(Site::Stop), None);
        let requeued = self.seat().take_requeue();
        let suspended: Vec<_> = std::iter::from_fn(|| self.seat().take_suspended()).collect();
        let machine = Arc::clone(&self.machine);
        let mut queue = machine.lock(self.at(Site::Stop), self.cpu);
        suspended.into_iter().for_each(|task| queue.registry.add(task));
        drop(queue);
        self.abandon_slice(now);
        self.seat().set_running(None);
        if self.is_searching {
            self.is_searching = false;
            machine.domain_of(self.cpu).end_search(self.at(Site::Stop));
        }
        self.drop_all(requeued.into_iter().collect());
    }

    /// Drops all that is queued anywhere, and wakes all that sleeps.
    fn sweep(&mut self) {
        let machine = Arc::clone(&self.machine);
        let at = self.at(Site::Stop);
        for cpu in &machine.cpus {
            let mut woken = Woken::new();
            let mut queue = machine.lock(at, cpu.id);
            let mut tasks: Vec<_> = cpu.inbox.take_all(at).collect();
            tasks.append(&mut queue.fair.drain());
            machine.serve_timers(at, cpu.id, &mut queue, Time::ZERO, &mut woken);
            queue.timers.orphan(&mut woken);
            queue.registry.sweep();
            woken.append(&mut queue.registry.wakers());
            machine.publish(at, cpu.id, &mut queue);
            machine.settle_counts(at, &mut queue);
            drop(queue);
            self.drop_all(tasks);
            self.wake_all(woken);
        }
    }

    /// Whether no task is left. A task that a thread outside is about to enqueue is still registered.
    fn is_quiet(&self) -> bool {
        let at = self.at(Site::Stop);
        self.machine.cpus.iter().all(|cpu| {
            let mut queue = self.machine.lock(at, cpu.id);
            queue.registry.is_empty() && queue.fair.is_empty() && cpu.inbox.hint(at) == InboxHint::Empty
        })
    }

    /// Refuses what comes from here on. What a spawn has pushed since the last sweep is dropped here.
    fn close(&mut self) {
        let at = self.at(Site::Stop);
        let machine = Arc::clone(&self.machine);
        for cpu in &machine.cpus {
            let tasks: Vec<_> = cpu.inbox.close(at).collect();
            self.drop_all(tasks);
        }
        machine.phase.store(at, 2, Ordering::Release);
    }

    fn end(&mut self) -> Step {
        self.stop = Progress::Stopped;
        self.seat().prune_ports();
        let at = At::new(self.cpu, Site::Owner);
        self.machine.cpu(self.cpu).owner.release(at, self.seat().epoch());
        Step::Stopped
    }

    /// Drops runnables, and so their futures: user code.
    fn drop_all(&self, tasks: Vec<Runnable>) {
        if !tasks.is_empty() {
            context::enter(&self.current, || {
                for task in tasks {
                    contain(|| drop(task));
                }
            });
        }
    }
}

/// A driver that goes away stops its machine: what it holds would never run.
impl<H: Host> Drop for Driver<H> {
    fn drop(&mut self) {
        if self.stop == Progress::Stopped || std::thread::panicking() {
            return;
        }
        self.machine.stop();
        let now = self.machine.host.now(self.cpu);
        // Ends: the last driver waits only for wakes that threads outside are in the middle of.
        while self.stop_step(now) != Step::Stopped {
            std::hint::spin_loop();
        }
    }
}
