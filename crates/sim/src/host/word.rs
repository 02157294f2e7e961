//! A shared word that knows which cache line it is on.
//!
//! Twice as large as on threads, and lines here are twice as large as there: so words share a line here exactly if they
//! do there, where the engine has laid them out on lines of their own.
//!
//! Knows nothing of costs. Really atomic, since nothing keeps a task's waker from going to another thread.

use crate::world::{self, Access, Tag};
use evenkeel_engine::host::{At, LineClass, Shared};
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared word.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Word {
    value: AtomicU64,
    tag: Tag,
}

/// Bytes of a line: of 8 words here as on threads.
const LINE: usize = 8 * size_of::<Word>();

impl Word {
    fn touch(&self, at: At, access: Access) {
        world::access(&self.tag, std::ptr::from_ref(self).addr() / LINE, at, access);
    }
}

impl Shared for Word {
    fn new(value: u64) -> Self {
        Self::of(LineClass::Other, value)
    }

    fn of(class: LineClass, value: u64) -> Self {
        Word { value: AtomicU64::new(value), tag: Tag::new(class) }
    }

    fn load(&self, at: At, order: Ordering) -> u64 {
        self.touch(at, Access::Read);
        self.value.load(order)
    }

    fn store(&self, at: At, value: u64, order: Ordering) {
        self.touch(at, Access::Write);
        self.value.store(value, order);
    }

    fn swap(&self, at: At, value: u64, order: Ordering) -> u64 {
        self.touch(at, Access::Modify);
        self.value.swap(value, order)
    }

    fn fetch_add(&self, at: At, value: u64, order: Ordering) -> u64 {
        self.touch(at, Access::Modify);
        self.value.fetch_add(value, order)
    }

    fn fetch_or(&self, at: At, bits: u64, order: Ordering) -> u64 {
        self.touch(at, Access::Modify);
        self.value.fetch_or(bits, order)
    }

    fn fetch_and(&self, at: At, bits: u64, order: Ordering) -> u64 {
        self.touch(at, Access::Modify);
        self.value.fetch_and(bits, order)
    }

    fn compare_exchange(&self, at: At, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.touch(at, Access::Modify);
        self.value.compare_exchange(current, new, order, Ordering::Relaxed)
    }
}
