//! Who drives a CPU: one word with an epoch, checked at every entry from inside a poll.
//!
//! A thread that has lost its CPU must not touch what belongs to the CPU's owner; it takes the path of threads
//! outside. The page beside this file (`ownership.md`) has the protocol; `tests/loom_ownership.rs` checks it.
//!
//! Knows nothing of what a CPU's owner may touch. Handing a CPU over while its owner is in a poll comes later; the word
//! and the check are made for it.
//!
//! # Invariants
//! - O1: at most one epoch of a CPU is held at a time.
//! - O2: epochs of one CPU never repeat.

use crate::host::{At, LineClass, Shared};
use std::sync::atomic::Ordering;

/// Who owns a CPU.
///
/// | bits | field | set by | cleared by |
/// |------|-------|--------|------------|
/// | 0 | held | who claims a free CPU | its holder |
/// | 1.. | epoch | each claim adds one | never |
#[derive(Debug)]
pub struct Ownership<S: Shared>(S);

/// One term of ownership of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch(u64);

const HELD: u64 = 1;

impl<S: Shared> Default for Ownership<S> {
    fn default() -> Self {
        Ownership(S::of(LineClass::Owner, 0))
    }
}

impl<S: Shared> Ownership<S> {
    /// Claims the CPU if nobody holds it.
    pub fn claim(&self, at: At) -> Option<Epoch> {
        let word = self.0.load(at, Ordering::Relaxed);
        if word & HELD != 0 {
            return None;
        }
        let epoch = (word | HELD).wrapping_add(2);
        // ORDER O: Acquire pairs with the Release of `release`: the new owner sees what the last one did.
        self.0.compare_exchange(at, word, epoch, Ordering::Acquire).ok().map(|_| Epoch(epoch))
    }

    /// Ends this term.
    ///
    /// # Panics
    /// O1: if another epoch is held.
    pub fn release(&self, at: At, epoch: Epoch) {
        // ORDER O: Release, see `claim`.
        let freed = self.0.compare_exchange(at, epoch.0, epoch.0 & !HELD, Ordering::Release);
        assert!(freed.is_ok(), "O1: a CPU was released by who does not own it");
    }

    /// Whether this term still lasts. Relaxed: who asks is the owner itself, or has lost the CPU to somebody who wrote
    /// the word before touching anything.
    pub fn is_held_by(&self, at: At, epoch: Epoch) -> bool {
        self.0.load(at, Ordering::Relaxed) == epoch.0
    }
}
