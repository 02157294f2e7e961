//! Running a future on a thread that drives no CPU.
//!
//! Knows nothing of tasks.

use crossbeam_utils::sync::{Parker, Unparker};
use evenkeel_engine::api::{self, Handle};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

struct ThreadWaker(Unparker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    api::enter(handle, || {
        let parker = Parker::new();
        let waker = Waker::from(Arc::new(ThreadWaker(parker.unparker().clone())));
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            parker.park();
        }
    })
}
