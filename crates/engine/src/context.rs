//! What runs on this thread now, and whether it is a worker that ends: the only globals there are.
//!
//! A thread-local pointer to a [`Current`], set for the length of a poll (by a driver) or of a `block_on` (by a host).
//! User code finds its machine through it.
//!
//! Knows nothing of how tasks are queued. A thread that is not inside a poll or a `block_on` has no current machine;
//! so calls from thread-local destructors find none, and get an error.

use crate::api::Handle;
use crate::group::GroupPort;
use crate::machine::AnyMachine;
use crate::seat::Seat;
use crate::task::TaskRef;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWakerVTable, Waker};

thread_local! {
    // Without a destructor, so that it can be read while the thread ends.
    static CURRENT: Cell<Option<NonNull<Current>>> = const { Cell::new(None) };
    // A worker has left its last task.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
    // A worker, from before its first task to the end of its thread.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// The machine that a thread acts for, and its CPU if it drives one.
#[derive(Debug)]
pub(crate) struct Current {
    handle: Handle,
    seat: Option<Seat>,
    /// What the waker of the task in its poll is made of: that one is not user code. Both, since somebody may wrap a
    /// waker around the same data.
    task: Cell<(*const (), *const RawWakerVTable)>,
}

// SAFETY: the pointers are only compared, never followed. The other fields are `Send`.
unsafe impl Send for Current {}

impl Current {
    pub(crate) fn new(handle: Handle, seat: Option<Seat>) -> Self {
        Current { handle, seat, task: Cell::new((std::ptr::null(), std::ptr::null())) }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn machine(&self) -> &Arc<dyn AnyMachine> {
        self.handle.machine()
    }

    /// The CPU that this thread drives, if it does and has not lost it.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref().filter(|seat| self.machine().owns(seat))
    }

    /// The driver's own view of its seat.
    pub(crate) fn own_seat(&self) -> &Seat {
        self.seat.as_ref().expect("a driver has a seat")
    }

    fn is_own(&self, waker: &Waker) -> bool {
        self.task.get() == (waker.data(), std::ptr::from_ref(waker.vtable()))
    }

    /// The seat, if this thread drives a CPU of the machine that the port's group belongs to.
    pub(crate) fn seat_in(&self, port: &GroupPort) -> Option<(&dyn AnyMachine, &Seat)> {
        let is_same = std::ptr::addr_eq(Arc::as_ptr(port.machine()), Arc::as_ptr(self.machine()));
        let seat = is_same.then(|| self.seat()).flatten()?;
        Some((&**self.machine(), seat))
    }
}

/// Calls `f` with what runs on this thread.
pub(crate) fn with<R>(f: impl FnOnce(Option<&Current>) -> R) -> R {
    // SAFETY: the pointer was set by `enter` from a reference that outlives the call under way, on this thread; only
    // shared references are made of it.
    f(CURRENT.get().map(|current| unsafe { current.as_ref() }))
}

/// Runs `f` with `current` as what runs on this thread; what was before is restored, also when `f` panics.
pub(crate) fn enter<R>(current: &Current, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<NonNull<Current>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(Some(NonNull::from(current))));
    f()
}

/// Whether this thread is inside the poll of a task, of whatever machine.
pub(crate) fn is_in_task() -> bool {
    with(|current| current.is_some_and(|current| current.seat.is_some()))
}

/// Notes which task's poll begins.
pub(crate) fn begin_task(waker: &Waker) {
    with(|current| {
        if let Some(current) = current {
            current.task.set((waker.data(), std::ptr::from_ref(waker.vtable())));
        }
    });
}

/// Whether `waker` wakes the task that is in its poll here.
pub(crate) fn is_trusted(waker: &Waker) -> bool {
    with(|current| current.is_some_and(|current| current.seat.is_some() && current.is_own(waker)))
}

/// Leaves a task that suspends for the first time to the driver, to be registered after the poll.
pub(crate) fn register(task: TaskRef) {
    with(|current| {
        if let Some(seat) = current.and_then(|current| current.seat.as_ref()) {
            seat.register(task);
        }
    });
}

/// Called by the runtime's own primitives where they would be ready: pending, with a wake, if the slice is used up, so
/// that a task which is always ready still gives way. Once per poll.
pub(crate) fn gives_way(cx: &Context<'_>) -> Poll<()> {
    let must = with(|current| {
        current.is_some_and(|current| {
            current.is_own(cx.waker())
                && current.seat().is_some_and(|seat| seat.counts_call() && current.machine().is_slice_over(seat))
        })
    });
    if must {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

/// Whether the task in its poll here had better give way: its slice is used up, or something has become runnable here.
pub(crate) fn should_yield() -> bool {
    with(|current| {
        current.is_some_and(|current| current.seat().is_some_and(|seat| current.machine().should_yield(seat)))
    })
}

/// Whether this thread was a worker and has left its last task.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.get()
}

/// Whether this thread is a worker, inside a task or not.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// See [`crate::api::note_worker_begins`].
pub(crate) fn note_worker() {
    IS_WORKER.set(true);
}

/// See [`crate::api::note_worker_ends`].
pub(crate) fn note_ending() {
    IS_ENDING.set(true);
}
