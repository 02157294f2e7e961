//! The future inside a task's cell: the user's, with its panics caught and its abort obeyed.
//!
//! Knows nothing of who polls it.

use super::contain::{Caught, contain};
use super::join::JoinError;
use super::{MetaPtr, TaskRef};
use crate::context;
use pin_project_lite::pin_project;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// What a task leaves for its join handle.
pub(super) type Output<T> = Caught<Result<T, JoinError>>;

pin_project! {
    pub(super) struct Contained<F> {
        // `None` once it was dropped.
        #[pin]
        future: Option<F>,
        meta: MetaPtr,
        is_registered: bool,
    }

    impl<F> PinnedDrop for Contained<F> {
        fn drop(this: Pin<&mut Self>) {
            this.end();
        }
    }
}

impl<F> Contained<F> {
    pub(super) fn new(future: F, meta: MetaPtr) -> Self {
        Contained { future: Some(future), meta, is_registered: false }
    }

    /// Drops the user's future, if that was not done yet (T1).
    fn end(self: Pin<&mut Self>) {
        let mut this = self.project();
        if this.future.is_some() {
            contain(|| this.future.set(None));
            // SAFETY: this future lives in the cell, and so does its metadata (T2).
            let meta = unsafe { this.meta.0.as_ref() };
            // ORDER D: Release pairs with the Acquire of `TaskRef::is_done`: who sees it may rely on the drop.
            meta.is_done.store(true, Ordering::Release);
            if let Some(port) = meta.take_port() {
                port.retire();
            }
        }
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = Output<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: this future lives in the cell, and so does its metadata (T2).
        let meta = unsafe { &*self.meta.0.as_ptr() };
        // ORDER A: Acquire pairs with the Release of `TaskRef::abort`.
        if meta.is_aborted.load(Ordering::Acquire) {
            self.end();
            return Poll::Ready(Caught::new(Err(JoinError::cancelled())));
        }
        context::begin_task(cx.waker());
        let polled = {
            let future = self.as_mut().project().future.as_pin_mut();
            let future = future.expect("async-task polls no future that has ended");
            catch_unwind(AssertUnwindSafe(|| future.poll(cx)))
        };
        let result = match polled {
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(JoinError::panicked(payload)),
            Ok(Poll::Pending) if meta.is_aborted.load(Ordering::Acquire) => Err(JoinError::cancelled()),
            Ok(Poll::Pending) => {
                self.as_mut().register(cx);
                return Poll::Pending;
            }
        };
        // From here on it must be dropped even if something below panics.
        let result = Caught::new(result);
        self.end();
        Poll::Ready(result)
    }
}

impl<F> Contained<F> {
    /// A task that suspends for the first time becomes known to the machine, which must reach it when it stops.
    fn register(self: Pin<&mut Self>, cx: &Context<'_>) {
        let this = self.project();
        if !*this.is_registered {
            *this.is_registered = true;
            context::register(TaskRef { waker: cx.waker().clone(), meta: *this.meta });
        }
    }
}
