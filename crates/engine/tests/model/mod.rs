//! What the models of the lock-free pieces run on: loom's words and threads under `cfg(loom)`, real ones otherwise.
//!
//! Under loom a model is run once per interleaving; on real threads many times, as a stress test.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test crate uses a part of this, not all the same")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a host: words, locks and threads come from here"
)]

use evenkeel_core::CpuId;
use evenkeel_engine::host::{At, Shared, Site};
use std::sync::atomic::Ordering;

#[cfg(loom)]
pub use loom::{cell::UnsafeCell, sync::Arc};
#[cfg(loom)]
use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, fence as atomic_fence},
    },
    thread,
};
#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(not(loom))]
use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, fence as atomic_fence},
    },
    thread,
};

/// A word that CPUs share.
#[derive(Debug)]
pub struct Word(AtomicU64);

impl Shared for Word {
    fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    fn load(&self, _: At, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, _: At, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap(&self, _: At, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }

    fn fetch_add(&self, _: At, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    fn fetch_or(&self, _: At, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(bits, order)
    }

    fn fetch_and(&self, _: At, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(bits, order)
    }

    fn compare_exchange(&self, _: At, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, order, Ordering::Relaxed)
    }
}

/// A lock.
#[derive(Debug, Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub fn new(value: T) -> Self {
        Locked(Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no role panics while it holds a lock")
    }
}

/// The host's fence.
pub fn fence() {
    atomic_fence(Ordering::SeqCst);
}

/// An access by a CPU. The site means nothing here.
pub fn at(cpu: usize) -> At {
    At::new(cpu_id(cpu), Site::Park)
}

pub fn cpu_id(index: usize) -> CpuId {
    CpuId::new(u32::try_from(index).expect("models are small"))
}

/// A value that loom sees the accesses to; without loom a plain cell.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Runs a model: all its interleavings under loom, or many times.
pub fn explore(f: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    loom::model(f);
    #[cfg(not(loom))]
    for _ in 0..2_000 {
        f();
    }
}

/// As `explore`, with this many preemptions at most: for models of too many interleavings.
pub fn explore_within(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(f);
    }
    #[cfg(not(loom))]
    {
        let _ = preemptions;
        explore(f);
    }
}

/// One thread of a model.
pub type Role = Box<dyn FnOnce() + Send>;

/// A thread of a model that works on `world`.
pub fn role<W: Send + Sync + 'static>(world: &Arc<W>, f: impl FnOnce(&W) + Send + 'static) -> Role {
    let world = Arc::clone(world);
    Box::new(move || f(&world))
}

/// Runs the roles side by side, and waits for them.
pub fn race<const N: usize>(roles: [Role; N]) {
    #[cfg(not(loom))]
    let start = std::sync::Arc::new(std::sync::Barrier::new(N));
    let threads = roles.map(|role| {
        #[cfg(not(loom))]
        let start = std::sync::Arc::clone(&start);
        thread::spawn(move || {
            #[cfg(not(loom))]
            start.wait();
            role();
        })
    });
    for thread in threads {
        thread.join().expect("the role has told why");
    }
}
