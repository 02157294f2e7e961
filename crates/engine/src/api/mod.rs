//! What users call. Re-exported by the crate `evenkeel`.
//!
//! The free functions find their machine through what runs on the calling thread, so the same code runs on any host.
//!
//! Knows nothing of hosts.

mod group;
mod run;
mod sleep;

pub use group::{Group, GroupBuilder, GroupError, SpawnError};
pub use run::{Run, run};
pub use sleep::{Elapsed, Sleep, Timeout, sleep, sleep_until, timeout};

pub use crate::masks::CpusError;
pub use crate::task::{JoinError, JoinHandle};
pub use evenkeel_core::stats::{CpuStats, GroupStats, Load, LockStats, Stats};
pub use evenkeel_core::switches::SwitchError;

use crate::context::{self, Current};
use crate::group::GroupPort;
use crate::host::Host;
use crate::machine::{AnyMachine, Machine, make_group};
use crate::seat::Seat;
use crate::task::Reason;
use evenkeel_core::switches::Switch;
use evenkeel_core::{CpuId, Span, Time, Weight};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A reference to a runtime: spawns tasks and makes groups. Cheap to clone; does not keep the runtime running.
#[derive(Clone)]
pub struct Handle {
    machine: Arc<dyn AnyMachine>,
    default_group: Arc<GroupPort>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("is_stopping", &self.is_stopping()).finish_non_exhaustive()
    }
}

/// The calling thread is inside no task and no `block_on`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRuntime;

impl fmt::Display for NoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no Evenkeel runtime runs here: call this from a task or from within block_on, or use a Handle")
    }
}

impl std::error::Error for NoRuntime {}

impl Handle {
    /// A handle of a machine, with a new group of default weight for tasks spawned outside any other. For hosts.
    ///
    /// # Panics
    /// If the machine has stopped.
    pub fn new<H: Host>(machine: &Arc<Machine<H>>) -> Handle {
        let machine: Arc<dyn AnyMachine> = Arc::clone(machine) as _;
        let default_group = make_group(&machine, "default", Weight::DEFAULT, crate::group::Limit::None, None)
            .expect("a machine that has not stopped has room for a first group");
        Handle { machine, default_group }
    }

    pub(crate) fn machine(&self) -> &Arc<dyn AnyMachine> {
        &self.machine
    }

    /// The runtime that the calling task or `block_on` belongs to.
    ///
    /// # Panics
    /// If the calling thread is inside neither: see [`Handle::try_current`].
    pub fn current() -> Handle {
        Handle::try_current().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The runtime that the calling task or `block_on` belongs to.
    ///
    /// # Errors
    /// If the calling thread is inside neither; so also in destructors of thread-local values.
    pub fn try_current() -> Result<Handle, NoRuntime> {
        context::with(|current| current.map(|current| current.handle().clone()).ok_or(NoRuntime))
    }

    /// Spawns a task into the default group, or into the caller's group if the caller is a task of this runtime.
    ///
    /// If the runtime is stopping, the future is dropped and the handle resolves to a cancelled [`JoinError`].
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let inherited = context::with(|current| {
            let (_, seat) = current?.seat_in(&self.default_group)?;
            seat.running()
        });
        let port = inherited.unwrap_or_else(|| Arc::clone(&self.default_group));
        Group::of(port).spawn(future)
    }

    /// Begins a new group at the top.
    pub fn group(&self, name: impl Into<String>) -> GroupBuilder {
        GroupBuilder::new(Arc::clone(&self.machine), name.into())
    }

    /// The group of tasks that were spawned into no other.
    pub fn default_group(&self) -> Group {
        Group::of(Arc::clone(&self.default_group))
    }

    /// What the runtime has counted since it started.
    pub fn stats(&self) -> Stats {
        self.machine.stats()
    }

    /// What the runtime does at this moment: a hint, read without locks.
    pub fn load(&self) -> Load {
        self.machine.load()
    }

    /// The switches of the scheduler.
    pub fn switches(&self) -> Switches {
        Switches { machine: Arc::clone(&self.machine) }
    }

    /// The time since the runtime's host began to count.
    pub fn now(&self) -> Time {
        self.machine.now(None)
    }

    /// Whether the runtime is stopping or has stopped: it takes no more tasks.
    pub fn is_stopping(&self) -> bool {
        self.machine.is_stopping()
    }

    /// Asks the runtime to stop, and returns at once. For hosts.
    #[doc(hidden)]
    pub fn stop(&self) {
        self.machine.stop();
    }
}

/// Reads and sets the switches of a runtime while it runs.
#[derive(Clone, Debug)]
pub struct Switches {
    machine: Arc<dyn AnyMachine>,
}

impl Switches {
    /// Sets a switch by name, from the next decision on.
    ///
    /// # Errors
    /// If there is no such switch or it has no such value.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SwitchError> {
        self.machine.set_switch(Switch::parse(name, value)?);
        Ok(())
    }

    /// The value of a switch.
    pub fn get(&self, name: &str) -> Option<&'static str> {
        self.list().into_iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Every switch with its value.
    pub fn list(&self) -> Vec<(&'static str, &'static str)> {
        self.machine.switches().into_iter().map(|switch| (switch.name(), switch.value())).collect()
    }
}

/// Spawns a task into the group of the calling task; from within `block_on`, into the default group.
///
/// If the runtime is stopping, the future is dropped and the handle resolves to a cancelled [`JoinError`].
///
/// On a worker thread that has left its last task (in the destructor of a thread-local value) there is no runtime any
/// more: the future is dropped, and the handle resolves to an error.
///
/// # Panics
/// If called outside any runtime. Use [`Handle::try_current`] where that may be.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match Handle::try_current() {
        Ok(handle) => handle.spawn(future),
        Err(NoRuntime) if context::is_ending() => JoinHandle::refused(Reason::NoRuntime),
        Err(error) => panic!("{error}"),
    }
}

/// The CPU that the calling task runs on: on threads the number of its worker, from 0, as in [`GroupBuilder::cpus`]. `None`
/// outside a task. It may be another one after each await.
pub fn current_cpu() -> Option<CpuId> {
    context::with(|current| current.and_then(Current::seat).map(Seat::cpu))
}

/// Lets others go first: the calling task stays runnable and is polled again in its turn.
///
/// All the time between polls is charged, so a task that only yields gains nothing by it.
pub fn yield_now() -> YieldNow {
    YieldNow { has_yielded: false }
}

/// Future of [`yield_now`].
#[derive(Debug)]
#[must_use = "does nothing unless awaited"]
pub struct YieldNow {
    has_yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A place at which a long computation gives way, if its slice is used up or something has become runnable on its CPU.
///
/// Ready at once otherwise, at the cost of a look at the clock. Outside a task it is always ready.
pub fn checkpoint() -> Checkpoint {
    Checkpoint { has_yielded: false }
}

/// Future of [`checkpoint`].
#[derive(Debug)]
#[must_use = "does nothing unless awaited"]
pub struct Checkpoint {
    has_yielded: bool,
}

impl Future for Checkpoint {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let must = !self.has_yielded && context::should_yield();
        if !must {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The time since the host of the current runtime began to count.
///
/// # Panics
/// If called outside any runtime.
pub fn now() -> Time {
    context::with(|current| {
        let current = current.ok_or(NoRuntime).unwrap_or_else(|error| panic!("{error}"));
        current.machine().now(current.seat())
    })
}

/// Occupies the CPU with a fixed amount of computing: on threads as many turns of a loop as took `work` when the loop
/// was calibrated, so that time spent preempted does not count; on a simulated host virtual time.
///
/// # Panics
/// If called outside any runtime.
pub fn compute(work: Duration) {
    context::with(|current| {
        let current = current.ok_or(NoRuntime).unwrap_or_else(|error| panic!("{error}"));
        current.machine().compute(current.seat(), Span::from(work));
    });
}

/// Runs `f` as if inside a `block_on` of this runtime. For hosts.
///
/// # Panics
/// If the calling thread is inside the poll of a task: blocking there would stop a CPU. Await instead, or block on a
/// thread of your own.
pub fn enter<R>(handle: &Handle, f: impl FnOnce() -> R) -> R {
    assert!(
        !context::is_in_task(),
        "block_on was called inside a task, which would block a worker of the runtime. \
         Await the future instead, or call block_on on a thread of its own (std::thread::spawn)."
    );
    context::enter(&Current::new(handle.clone(), None), f)
}

/// Notes that the calling thread is a worker from here on, though it is in no task yet: see [`is_on_worker`]. For hosts.
pub fn note_worker_begins() {
    context::note_worker();
}

/// Notes that the calling thread, a worker, has left its last task: from here on `spawn` returns an error rather than
/// panic, which in the destructor of a thread-local value would end the process. For hosts.
pub fn note_worker_ends() {
    context::note_ending();
}

/// Whether the calling thread is a worker: inside the poll of a task of any runtime, or before its first one, or past its
/// last. It must not wait for workers to end then, of which it may be one. For hosts.
pub fn is_on_worker() -> bool {
    context::is_in_task() || context::is_worker()
}
