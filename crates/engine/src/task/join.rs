//! The handle of a task: awaits its output, aborts it, detaches it when dropped.
//!
//! Knows nothing of queues.

use super::TaskRef;
use super::contain::contain;
use super::future::Output;
use crate::context;
use async_task::FallibleTask;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
#[expect(
    clippy::disallowed_types,
    reason = "makes the payload of a panic `Sync`; the user's code takes it out, no scheduling path does"
)]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::Meta;
use crate::masks::CpusError;

/// Awaits the output of a task. Dropping it detaches the task, which goes on running.
///
/// Resolves to `Err` if the task panicked, was aborted, was refused by its group's limit, or ended with its runtime. By
/// then the task's future has been dropped.
pub struct JoinHandle<T> {
    state: State<T>,
}

enum State<T> {
    Running {
        task: FallibleTask<Output<T>, Meta>,
        task_ref: TaskRef,
    },
    /// The task was never made.
    Refused(Reason),
    /// The output was taken.
    Done,
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    pub(super) fn running(task: FallibleTask<Output<T>, Meta>, task_ref: TaskRef) -> Self {
        JoinHandle { state: State::Running { task, task_ref } }
    }

    pub(crate) fn refused(reason: Reason) -> Self {
        JoinHandle { state: State::Refused(reason) }
    }

    /// Asks that the task end: its future is dropped by a worker at the next chance, and the handle resolves to a
    /// cancelled [`JoinError`]. A poll under way is not interrupted; if it completes the task, the output stands.
    pub fn abort(&self) {
        if let State::Running { task_ref, .. } = &self.state {
            task_ref.abort();
        }
    }

    /// Whether awaiting this handle would return at once: the task has ended, on whatever path.
    pub fn is_finished(&self) -> bool {
        match &self.state {
            // A task that is being dropped counts as finished in the cell before its future is gone.
            State::Running { task, task_ref } => task.is_finished() && task_ref.is_done(),
            State::Refused(_) | State::Done => true,
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If polled again after it has resolved.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if context::gives_way(cx).is_pending() {
            return Poll::Pending;
        }
        let output = match &mut self.state {
            State::Running { task, .. } => {
                let polled = if context::is_trusted(cx.waker()) {
                    Pin::new(task).poll(cx)
                } else {
                    let waker = ContainedWaker::wrap(cx.waker());
                    Pin::new(task).poll(&mut Context::from_waker(&waker))
                };
                match polled {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(output)) => output.into_inner(),
                    Poll::Ready(None) => Err(JoinError::cancelled()),
                }
            }
            State::Refused(reason) => Err(JoinError { why: Why::Reason(*reason) }),
            State::Done => panic!("a JoinHandle was polled after it had resolved"),
        };
        self.detach();
        Poll::Ready(output)
    }
}

impl<T> JoinHandle<T> {
    fn detach(&mut self) {
        if let State::Running { task, .. } = std::mem::replace(&mut self.state, State::Done) {
            task.detach();
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        self.detach();
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// A waker that is not one of our tasks': user code, which may panic in `wake` or when dropped.
struct ContainedWaker(Option<Waker>);

impl ContainedWaker {
    fn wrap(waker: &Waker) -> Waker {
        Waker::from(Arc::new(ContainedWaker(Some(waker.clone()))))
    }
}

impl Wake for ContainedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        contain(|| self.0.as_ref().map(Waker::wake_by_ref));
    }
}

impl Drop for ContainedWaker {
    fn drop(&mut self) {
        let waker = self.0.take();
        contain(|| drop(waker));
    }
}

/// Why a task was refused or ended without an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// It was aborted, or its runtime stopped.
    Cancelled,
    /// Its group has as many tasks as it may have.
    Full,
    /// There is no runtime to run it.
    NoRuntime,
    /// There is no CPU that it may run on.
    Cpus(CpusError),
}

/// Why a task has no output.
pub struct JoinError {
    why: Why,
}

#[expect(clippy::disallowed_types, reason = "makes the payload of a panic `Sync`; only the user's code takes it out")]
enum Why {
    Reason(Reason),
    /// A panic's payload need not be `Sync`; the lock makes the error so.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl JoinError {
    pub(super) fn cancelled() -> Self {
        JoinError { why: Why::Reason(Reason::Cancelled) }
    }

    #[expect(
        clippy::disallowed_types,
        reason = "makes the payload of a panic `Sync`; only the user's code takes it out"
    )]
    pub(super) fn panicked(payload: Box<dyn Any + Send>) -> Self {
        JoinError { why: Why::Panicked(Mutex::new(payload)) }
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.why, Why::Panicked(_))
    }

    /// Whether the task was aborted, or its runtime stopped before it was done or before it was spawned.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.why, Why::Reason(Reason::Cancelled | Reason::NoRuntime))
    }

    /// Whether the task was refused because its group was full.
    pub fn is_full(&self) -> bool {
        matches!(self.why, Why::Reason(Reason::Full))
    }

    /// Whether the task was refused because there is no CPU that it may run on: see
    /// [`Group::spawn_on`](crate::api::Group::spawn_on).
    pub fn has_no_cpu(&self) -> bool {
        matches!(self.why, Why::Reason(Reason::Cpus(_)))
    }

    /// The payload of the task's panic, to be looked at or resumed.
    ///
    /// # Errors
    /// The error itself, if it is not a panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.why {
            Why::Panicked(payload) => Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner)),
            why => Err(JoinError { why }),
        }
    }

    /// The payload of the task's panic.
    ///
    /// # Panics
    /// If the task did not panic: see [`JoinError::is_panic`].
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        self.try_into_panic().expect("the task did not panic")
    }

    fn message(&self) -> Option<String> {
        let Why::Panicked(payload) = &self.why else { return None };
        let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned())
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.why, self.message()) {
            (Why::Panicked(_), Some(message)) => write!(f, "task panicked: {message}"),
            (Why::Panicked(_), None) => f.write_str("task panicked"),
            (Why::Reason(Reason::Cancelled), _) => f.write_str("task was cancelled"),
            (Why::Reason(Reason::Full), _) => f.write_str("task was refused: its group has reached max_tasks"),
            (Why::Reason(Reason::Cpus(error)), _) => write!(f, "task was refused: {error}"),
            (Why::Reason(Reason::NoRuntime), _) => f.write_str("task was refused: no runtime runs here"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}
