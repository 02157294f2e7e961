//! The earliest deadline of a CPU's timers, as others see it: one word.
//!
//! Written by whoever holds the CPU's queue lock, from the heap, and lowered by threads outside that put a timer into
//! the CPU's timer inbox.
//!
//! Knows nothing of timers, heaps, or of who waits for the time.
//!
//! # Invariants
//! - M1: once `lower` has returned and the timer inbox has been drained, the word is not later than any deadline in
//!   the heap. A word that is too early costs a look.

use crate::host::{At, LineClass, Shared};
use evenkeel_core::Time;
use std::sync::atomic::Ordering::Relaxed;

/// A published deadline. [`Time::NEVER`] if there is none.
#[derive(Debug)]
pub struct Deadline<S: Shared>(S);

impl<S: Shared> Default for Deadline<S> {
    fn default() -> Self {
        Deadline(S::of(LineClass::Poll, Time::NEVER.as_nanos()))
    }
}

impl<S: Shared> Deadline<S> {
    /// What is published.
    pub fn read(&self, at: At) -> Time {
        Time::from_nanos(self.0.load(at, Relaxed))
    }

    /// With the queue lock held, after the timer inbox was drained: publishes what the heap says. Follow with a fence
    /// and one more look at the inbox.
    pub fn set(&self, at: At, deadline: Time) {
        self.0.store(at, deadline.as_nanos(), Relaxed);
    }

    /// After a timer was put into the inbox, and a fence: publishes its deadline if it is earlier. By exchange, never
    /// by a plain store: a holder of the lock may publish an earlier one between the look and the write.
    pub fn lower(&self, at: At, deadline: Time) {
        let mut held = self.0.load(at, Relaxed);
        // Ends: each failure means that somebody has written another deadline meanwhile.
        while deadline.as_nanos() < held {
            match self.0.compare_exchange(at, held, deadline.as_nanos(), Relaxed) {
                Ok(_) => return,
                Err(now) => held = now,
            }
        }
    }
}
