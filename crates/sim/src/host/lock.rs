//! A lock in virtual time.
//!
//! The lock of the operating system inside is never waited for on the thread of its simulation: the world decides who
//! has it.
//!
//! Knows nothing of costs.

use crate::world::locks::Take;
use crate::world::{self, Tag};
use evenkeel_core::CpuId;
use evenkeel_engine::host::{At, LineClass, Lock, Waited};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};

/// A lock over data of one CPU.
#[derive(Debug)]
pub(crate) struct QueueLock<T> {
    owner: CpuId,
    tag: Tag,
    value: Mutex<T>,
}

/// Holds a [`QueueLock`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    lock: &'a QueueLock<T>,
    at: At,
    value: Option<MutexGuard<'a, T>>,
}

impl<T: Send> QueueLock<T> {
    fn guard(&self, at: At, take: Option<Take>) -> Guard<'_, T> {
        let value = match take {
            // No world runs here: another thread, or nobody.
            None => self.value.lock(),
            Some(_) => self.value.try_lock().unwrap_or_else(|| {
                panic!("the lock of CPU {} was given to {at:?} in virtual time, but is held", self.owner)
            }),
        };
        Guard { lock: self, at, value: Some(value) }
    }
}

impl<T: Send + 'static> Lock<T> for QueueLock<T> {
    type Guard<'a> = Guard<'a, T>;

    fn new(owner: CpuId, value: T) -> Self {
        QueueLock { owner, tag: Tag::new(LineClass::QueueLock), value: Mutex::new(value) }
    }

    fn lock(&self, at: At) -> (Guard<'_, T>, Waited) {
        let take = world::lock(&self.tag, at);
        let waited = if take == Some(Take::Held) { Waited::Yes(world::last_wait()) } else { Waited::No };
        (self.guard(at, take), waited)
    }

    fn try_lock(&self, at: At) -> Option<Guard<'_, T>> {
        match world::try_lock(&self.tag, at) {
            Some(Take::Held) => None,
            take => Some(self.guard(at, take)),
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect("only a drop takes the value out")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("only a drop takes the value out")
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // A panic unwinds in no time: no fiber may be left in the middle of it.
        if !std::thread::panicking() {
            world::before_release(&self.lock.tag, self.at);
        }
        self.value = None;
        world::release(&self.lock.tag);
    }
}
