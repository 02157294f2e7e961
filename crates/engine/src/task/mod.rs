//! The cell of a task: what the engine keeps in it, and how a future becomes one.
//!
//! The cell itself is `async-task`'s. It ends the process if the destructor of a future or output, or a join waker,
//! panics; so those run contained (`contain`, `future`, `join`). It has no abort through a shared handle; so abort is a
//! flag here plus a wake. It keeps no list of sleeping tasks; so a task that suspends is registered once (`registry`).
//!
//! Knows nothing of queues, clocks or CPUs. What happens to a task that becomes runnable is up to
//! [`crate::machine::AnyMachine`].
//!
//! # Invariants
//! - T1: the future of a task is dropped exactly once, on whatever path the task ends.
//! - T2: `Meta` is alive while a `TaskRef`, a `Runnable` or the future itself is.
//! - T3: the port is read by who has the task's one `Runnable`, and taken out by who polls or drops the future, which
//!   takes that `Runnable`. So there is one at a time.

mod contain;
mod future;
mod join;
mod registry;

pub(crate) use contain::contain;
pub(crate) use join::Reason;
pub use join::{JoinError, JoinHandle};
pub(crate) use registry::Registry;

use crate::context;
use crate::group::GroupPort;
use crate::host::TaskKey;
use crate::inbox::{Link, Linked};
use async_task::{Builder, ScheduleInfo, WithInfo};
use evenkeel_core::{CpuId, MaskId, Time};
use future::Contained;
use std::cell::UnsafeCell;
use std::future::Future;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
#[expect(clippy::disallowed_types, reason = "a task's cell, which exists without a host")]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::task::Waker;

/// A task that is runnable: whoever has it may poll it once.
pub(crate) type Runnable = async_task::Runnable<Meta>;

/// What the engine keeps in a task's cell.
#[expect(clippy::disallowed_types, reason = "a task's cell, which exists without a host")]
#[derive(Debug)]
pub(crate) struct Meta {
    /// The task's part in its group. `None` once the future is gone: what is left of a task, its handle or wakers, does
    /// not keep the group.
    port: UnsafeCell<Option<Arc<GroupPort>>>,
    link: Link,
    /// When it became runnable, in ns; written by who makes it so, before it is published.
    runnable_since: AtomicU64,
    /// Set by `abort`, read before and after each poll.
    is_aborted: AtomicBool,
    /// The future is gone: completed, aborted, or dropped with the machine.
    is_done: AtomicBool,
    /// Where it may run.
    mask: MaskId,
    /// The CPU that polled it last, kept for tasks with a mask only; `u32::MAX` if there is none.
    last_cpu: AtomicU32,
}

// SAFETY: all fields but `port` are `Sync`. `port` is only accessed by whoever may touch the future (T3).
unsafe impl Sync for Meta {}

impl Meta {
    /// What names the task in a host's records.
    pub(crate) fn key(&self) -> TaskKey {
        TaskKey(std::ptr::from_ref(self).addr())
    }

    /// The port, for whoever has the task's `Runnable`.
    ///
    /// # Panics
    /// If the future is gone: nobody schedules such a task.
    pub(crate) fn port(&self) -> &Arc<GroupPort> {
        // SAFETY: T3: the caller has the only `Runnable` of the task, so nobody takes the port out meanwhile.
        let port = unsafe { &*self.port.get() };
        port.as_ref().expect("T3: a task is enqueued while it has a future")
    }

    /// Takes the port out, as the future ends.
    fn take_port(&self) -> Option<Arc<GroupPort>> {
        // SAFETY: T3: the caller polls the future or drops it, so nobody else has the `Runnable`.
        let port = unsafe { &mut *self.port.get() };
        port.take()
    }

    pub(crate) fn runnable_since(&self) -> Time {
        Time::from_nanos(self.runnable_since.load(Ordering::Relaxed))
    }

    /// Where the task may run: set when it was made.
    pub(crate) fn mask(&self) -> MaskId {
        self.mask
    }

    /// The CPU that polled it last, if it has a mask.
    pub(crate) fn last_cpu(&self) -> Option<CpuId> {
        let cpu = CpuId::new(self.last_cpu.load(Ordering::Relaxed));
        (cpu != CpuId::OUTSIDE).then_some(cpu)
    }

    pub(crate) fn set_last_cpu(&self, cpu: CpuId) {
        self.last_cpu.store(cpu.get(), Ordering::Relaxed);
    }

    pub(crate) fn set_runnable_since(&self, now: Time) {
        self.runnable_since.store(now.as_nanos(), Ordering::Relaxed);
    }
}

// SAFETY: `async_task::Runnable` documents `into_raw` and `from_raw` as inverse; the pointer is to the cell, which
// begins with words and so is aligned to 4 bytes or more, and lives as long as the runnable does. The link is in the
// cell's metadata.
unsafe impl Linked for Runnable {
    fn into_raw(self) -> NonNull<()> {
        async_task::Runnable::into_raw(self)
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller passes what `into_raw` gave, once.
        unsafe { async_task::Runnable::from_raw(raw) }
    }

    fn link(&self) -> &Link {
        &self.metadata().link
    }
}

/// Keeps a task's cell alive and can wake it, without knowing the type of its future.
#[derive(Debug)]
pub(crate) struct TaskRef {
    waker: Waker,
    meta: MetaPtr,
}

/// Where the `Meta` of a cell is. Whoever has one also has something that keeps the cell alive.
#[derive(Clone, Copy, Debug)]
struct MetaPtr(NonNull<Meta>);

// SAFETY: `Meta` is `Send` and `Sync`; the pointer only gives shared access to it.
unsafe impl Send for MetaPtr {}
// SAFETY: as above.
unsafe impl Sync for MetaPtr {}

impl TaskRef {
    fn meta(&self) -> &Meta {
        // SAFETY: the waker holds a reference to the cell, and the metadata lives as long as the cell (T2).
        unsafe { self.meta.0.as_ref() }
    }

    fn is_done(&self) -> bool {
        self.meta().is_done.load(Ordering::Acquire)
    }

    /// Asks that the future be dropped at the next chance: after the poll that is under way, if one is.
    fn abort(&self) {
        // ORDER A: Release pairs with the Acquire in `Contained::poll`; the wake that follows makes sure of a poll.
        self.meta().is_aborted.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

/// Makes a task of a future. The task is runnable, and belongs to nobody until `Runnable::schedule` is called.
pub(crate) fn create<F>(port: Arc<GroupPort>, mask: MaskId, future: F) -> (Runnable, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[expect(clippy::disallowed_types, reason = "a task's cell, which exists without a host")]
    let meta = Meta {
        port: UnsafeCell::new(Some(port)),
        link: Link::default(),
        runnable_since: AtomicU64::new(0),
        is_aborted: AtomicBool::new(false),
        is_done: AtomicBool::new(false),
        mask,
        last_cpu: AtomicU32::new(CpuId::OUTSIDE.get()),
    };
    let wrap = |meta: &Meta| Contained::new(future, MetaPtr(NonNull::from(meta)));
    let (runnable, task) = Builder::new().propagate_panic(false).metadata(meta).spawn(wrap, WithInfo(schedule));
    let meta = MetaPtr(NonNull::from(runnable.metadata()));
    let task_ref = TaskRef { waker: runnable.waker(), meta };
    (runnable, JoinHandle::running(task.fallible(), task_ref))
}

/// Enqueues a new task for the first time. `port` is of the task's group, and keeps the machine meanwhile.
pub(crate) fn launch(port: &GroupPort, runnable: Runnable) {
    context::with(|current| match current.and_then(|current| current.seat_in(port)) {
        Some((machine, seat)) => machine.wake_here(seat, runnable),
        None => port.machine().wake_outside(runnable),
    });
}

/// What `async-task` calls when a task becomes runnable.
fn schedule(runnable: Runnable, info: ScheduleInfo) {
    context::with(|current| {
        if let Some((machine, seat)) = current.and_then(|current| current.seat_in(runnable.metadata().port())) {
            // Its machine cannot go away meanwhile: the driver of the seat holds it.
            if info.woken_while_running {
                seat.requeue(runnable);
            } else {
                machine.wake_here(seat, runnable);
            }
            return;
        }
        // Once the task is published, another CPU may run and free it. Keep the machine until the kick is done.
        let port = Arc::clone(runnable.metadata().port());
        port.machine().wake_outside(runnable);
    });
}
