//! A machine on threads: starting it, blocking on it, stopping it.
//!
//! Knows nothing of how tasks are shared out: the engine does that.

use crate::affinity::PinPlan;
use crate::block_on::block_on;
use crate::builder::{BuildError, Builder, Hooks};
use crate::threads::{Threads, drive};
use crossbeam_utils::sync::Parker;
use evenkeel_core::CpuId;
use evenkeel_core::stats::{Load, Stats};
use evenkeel_engine::api::{self, Group, GroupBuilder, Handle, JoinHandle, Switches};
use evenkeel_engine::{Config, Driver, Machine};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// A set of worker threads that shares their CPU time between groups of tasks.
///
/// Dropping it stops it: polls under way are waited for, every other future is dropped, handles resolve as cancelled.
/// Dropped inside a task, of whatever runtime, it stops in the background, so that it never waits for itself.
///
/// After `fork`, the child must not use a runtime of its parent: its worker threads are not there.
pub struct Runtime {
    handle: Handle,
    workers: Vec<thread::JoinHandle<()>>,
    running: Arc<Running>,
}

/// How many workers have not ended yet.
struct Running {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Runtime {
    /// Begins a runtime.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A runtime with defaults: as many workers as the process has CPUs.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> Result<Runtime, BuildError> {
        Builder::default().build()
    }

    pub(crate) fn start(
        config: Config,
        name: &str,
        stack_size: Option<usize>,
        plan: Option<&PinPlan>,
        hooks: &Hooks,
    ) -> Result<Runtime, BuildError> {
        let count = config.caches.len();
        let (host, parkers) = Threads::new(count);
        let machine = Machine::new(host, config);
        let handle = Handle::new(&machine);
        let running = Arc::new(Running { count: Mutex::new(0), changed: Condvar::new() });
        let mut runtime = Runtime { handle: handle.clone(), workers: Vec::with_capacity(count), running };
        let (report, reports) = mpsc::channel();
        for (index, parker) in parkers.into_iter().enumerate() {
            let cpu = CpuId::new(u32::try_from(index).expect("there are at most 8,192 workers"));
            let driver = Driver::new(&machine, cpu, handle.clone()).expect("each CPU of a new machine is free");
            let worker = Worker {
                driver,
                parker,
                machine: Arc::clone(&machine),
                plan: plan.cloned(),
                hooks: hooks.clone(),
                index,
            };
            let running = Arc::clone(&runtime.running);
            let report = report.clone();
            *running.count.lock() += 1;
            let thread = thread::Builder::new().name(format!("{name}-{index}"));
            let thread = stack_size.into_iter().fold(thread, thread::Builder::stack_size);
            match thread.spawn(move || worker.run(report, &running)) {
                Ok(thread) => runtime.workers.push(thread),
                Err(error) => {
                    // The drivers that exist stop as the runtime is dropped; this one's CPU is never driven.
                    *runtime.running.count.lock() -= 1;
                    return Err(BuildError::Thread(error));
                }
            }
        }
        drop(report);
        for pinned in reports {
            pinned?;
        }
        Ok(runtime)
    }

    /// Runs a future on the calling thread until it is done, while the workers run tasks.
    ///
    /// Inside it, the free functions ([`crate::spawn`], [`crate::sleep`], …) find this runtime.
    ///
    /// # Panics
    /// If called inside a task of any Evenkeel runtime: that would block a worker. The message says what to do instead.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on(&self.handle, future)
    }

    /// A reference that can be cloned and sent anywhere.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Spawns a task into the default group: see [`Handle::spawn`].
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Begins a new group.
    pub fn group(&self, name: impl Into<String>) -> GroupBuilder {
        self.handle.group(name)
    }

    /// The group of tasks that were spawned into no other.
    pub fn default_group(&self) -> Group {
        self.handle.default_group()
    }

    /// What was counted since the start.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// What the runtime does at this moment: a hint.
    pub fn load(&self) -> Load {
        self.handle.load()
    }

    /// The switches of the scheduler.
    pub fn switches(&self) -> Switches {
        self.handle.switches()
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Stops, and waits for polls under way, but not for longer than `limit`. Whether all workers have ended. Those that
    /// have not end when their polls do. Called inside a task it does not wait.
    pub fn shutdown_timeout(mut self, limit: Duration) -> bool {
        self.handle.stop();
        self.workers.clear();
        if api::is_on_worker() {
            return *self.running.count.lock() == 0;
        }
        let deadline = Instant::now().checked_add(limit);
        let mut count = self.running.count.lock();
        while *count > 0 {
            match deadline {
                Some(deadline) if self.running.changed.wait_until(&mut count, deadline).timed_out() => break,
                Some(_) => {}
                None => self.running.changed.wait(&mut count),
            }
        }
        *count == 0
    }

    /// Stops without waiting: workers end when their polls do, and drop the futures that are left.
    pub fn shutdown_background(mut self) {
        self.handle.stop();
        self.workers.clear();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.handle.stop();
        if api::is_on_worker() {
            return;
        }
        for worker in self.workers.drain(..) {
            // A worker that panics ends the process, so there is nothing to pass on.
            drop(worker.join());
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// What a worker thread begins with.
struct Worker {
    driver: Driver<Threads>,
    parker: Parker,
    machine: Arc<Machine<Threads>>,
    plan: Option<PinPlan>,
    hooks: Hooks,
    index: usize,
}

impl Worker {
    fn run(mut self, report: mpsc::Sender<Result<(), BuildError>>, running: &Running) {
        let pinned = self.plan.as_ref().map_or(Ok(()), |plan| plan.pin_current_thread(self.index));
        // The starter hangs up when another worker could not be started; it stops this one too.
        let _ = report.send(pinned.map_err(BuildError::from));
        drop(report);
        let guard = AbortOnPanic;
        // First, so that a hook that drops the runtime does not join this thread.
        api::note_worker_begins();
        self.hooks.start();
        drive(&mut self.driver, self.machine.host(), &self.parker);
        api::note_worker_ends();
        self.hooks.stop();
        drop(self);
        std::mem::forget(guard);
        let mut count = running.count.lock();
        *count -= 1;
        running.changed.notify_all();
    }
}

/// A panic that gets here is not a task's: an invariant of the scheduler is broken, and nothing it holds can be trusted
/// (or a hook of the user's panicked).
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        eprintln!("evenkeel: a worker thread panicked outside any task (see above); the process ends");
        std::process::abort();
    }
}
