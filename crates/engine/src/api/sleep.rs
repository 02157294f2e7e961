//! Waiting for time to pass.
//!
//! Knows nothing of heaps or CPUs: `timer` has those.

use super::NoRuntime;
use crate::context;
use crate::machine::AnyMachine;
use crate::timer::{Phase, Timer};
use evenkeel_core::{CpuId, Span, Time};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits until `duration` has passed since the first poll. [`Duration::MAX`] waits for ever.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { until: Until::In(Span::from(duration)), armed: None }
}

/// Waits until a time of the current runtime's clock: see [`super::now`].
pub fn sleep_until(deadline: Time) -> Sleep {
    Sleep { until: Until::At(deadline), armed: None }
}

/// Future of [`sleep`] and [`sleep_until`].
///
/// # Panics
/// When polled outside any runtime.
#[derive(Debug)]
#[must_use = "does nothing unless awaited"]
pub struct Sleep {
    until: Until,
    armed: Option<Armed>,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    In(Span),
    At(Time),
    Over,
}

/// A timer that was armed, and where: its machine must be told if it is cancelled.
#[derive(Debug)]
struct Armed {
    timer: Arc<Timer>,
    machine: Arc<dyn AnyMachine>,
    cpu: CpuId,
}

impl Drop for Armed {
    fn drop(&mut self) {
        if self.timer.phase() == Phase::Armed {
            self.timer.cancel();
            self.machine.note_cancelled(self.cpu);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(armed) = &self.armed {
            armed.timer.register(cx.waker());
            match armed.timer.phase() {
                Phase::Armed | Phase::Cancelled => return Poll::Pending,
                Phase::Fired => return self.finish(cx),
                Phase::Orphaned => self.leave(),
            }
        }
        context::with(|current| {
            let current = current.ok_or(NoRuntime).unwrap_or_else(|error| panic!("{error}"));
            let (machine, seat) = (current.machine(), current.seat());
            let now = machine.now(seat);
            let deadline = match self.until {
                Until::In(span) => now.after(span),
                Until::At(deadline) => deadline,
                Until::Over => return Poll::Ready(()),
            };
            self.until = Until::At(deadline);
            if deadline <= now {
                return self.finish(cx);
            }
            if deadline < Time::NEVER {
                let timer = Timer::new(deadline);
                timer.register(cx.waker());
                let cpu = machine.arm(seat, Arc::clone(&timer));
                self.armed = Some(Armed { timer, machine: Arc::clone(machine), cpu });
            }
            Poll::Pending
        })
    }
}

impl Sleep {
    /// Its machine has stopped: what is left of it goes on where it is polled now, by that machine's clock.
    fn leave(&mut self) {
        if let (Some(armed), Until::At(deadline)) = (self.armed.take(), self.until) {
            self.until = Until::In(deadline.since(armed.machine.now(None)));
        }
    }

    /// It is time; but a task that is always ready gives way now and then.
    fn finish(&mut self, cx: &Context<'_>) -> Poll<()> {
        if context::gives_way(cx).is_pending() {
            return Poll::Pending;
        }
        (self.until, self.armed) = (Until::Over, None);
        Poll::Ready(())
    }
}

/// Awaits `future`, but not for longer than `duration`.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

pin_project_lite::pin_project! {
    /// Future of [`timeout`].
    #[derive(Debug)]
    #[must_use = "does nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

/// The time was up before the future was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the future was done")
    }
}

impl std::error::Error for Elapsed {}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Elapsed))
    }
}
