//! Computing that takes its time on any host.
//!
//! Knows nothing of how a host computes.

use super::NoRuntime;
use crate::context;
use crate::machine::Piece;
use evenkeel_core::Span;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Occupies the CPU with a fixed amount of computing, as [`super::compute`] does, and is ready when it is done.
///
/// On threads it computes in its first poll. On a simulated host the poll returns, time passes, and the task goes on at
/// the time when the work is done: so what it does after it happens after it for everybody. There a tick may preempt it.
pub fn run(work: Duration) -> Run {
    Run { left: Span::from(work) }
}

impl Run {
    /// What is still to be computed, beside the piece that is under way: none from when the last one begins.
    pub fn left(&self) -> Duration {
        self.left.into()
    }
}

/// Future of [`run`].
///
/// # Panics
/// When polled outside any runtime.
#[derive(Debug)]
#[must_use = "does nothing unless awaited"]
pub struct Run {
    left: Span,
}

impl Future for Run {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        context::with(|current| {
            let current = current.ok_or(NoRuntime).unwrap_or_else(|error| panic!("{error}"));
            let Some(seat) = current.seat() else {
                // Outside a task nobody else's time depends on it.
                current.machine().compute(None, std::mem::take(&mut self.left));
                return Poll::Ready(());
            };
            // Ends: a host computes something of what it is asked for, or returns.
            while self.left > Span::ZERO {
                match current.machine().compute_piece(seat, self.left) {
                    Piece::Done(done) => self.left = self.left.minus(done),
                    Piece::WhenThePollReturns(done) => {
                        self.left = self.left.minus(done);
                        seat.note_goes_on();
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(())
        })
    }
}
