//! A stack that can be left and resumed: the only file that switches stacks.
//!
//! Knows nothing of CPUs or of time.
//!
//! # Invariants
//! - F1: `YIELDER` is that of the fiber that runs on this thread, or null if none does.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

type Gate = Yielder<(), ()>;

thread_local! {
    static YIELDER: Cell<*const Gate> = const { Cell::new(std::ptr::null()) };
}

/// A function that has a stack of its own.
pub(crate) struct Fiber {
    coroutine: Option<Coroutine<(), (), ()>>,
    gate: Rc<Cell<*const Gate>>,
}

/// How far a fiber has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Progress {
    Suspended,
    Ended,
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fiber").finish_non_exhaustive()
    }
}

impl Fiber {
    /// A fiber that will run `f` on a stack of `bytes` bytes, of which only what is touched takes memory.
    pub(crate) fn new(bytes: usize, f: impl FnOnce() + 'static) -> std::io::Result<Fiber> {
        let gate = Rc::new(Cell::new(std::ptr::null()));
        let slot = Rc::clone(&gate);
        let stack = DefaultStack::new(bytes)?;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Gate, ()| {
            slot.set(yielder);
            YIELDER.set(yielder);
            f();
        });
        Ok(Fiber { coroutine: Some(coroutine), gate })
    }

    /// Runs it until it suspends or ends. One that has ended stays so.
    pub(crate) fn resume(&mut self) -> Progress {
        let Some(coroutine) = self.coroutine.as_mut().filter(|coroutine| !coroutine.done()) else {
            return Progress::Ended;
        };
        // Another fiber may be the caller: a task may run a simulation of its own.
        let caller = YIELDER.replace(self.gate.get());
        let result = coroutine.resume(());
        YIELDER.set(caller);
        match result {
            CoroutineResult::Yield(()) => Progress::Suspended,
            CoroutineResult::Return(()) => Progress::Ended,
        }
    }
}

/// Leaves the fiber that runs, until it is resumed.
///
/// # Panics
/// If none runs.
pub(crate) fn suspend() {
    let gate = YIELDER.get();
    assert!(!gate.is_null(), "F1: only a fiber can be suspended");
    // SAFETY: the pointer is that of the fiber that runs on this thread now (F1). Its yielder lives below the frames of
    // the function that called us, on the same stack, and so outlives this call.
    let gate = unsafe { &*gate };
    gate.suspend(());
}

impl Drop for Fiber {
    /// A suspended stack is leaked (V4): unwinding it would run the engine's destructors at a time that is not theirs.
    fn drop(&mut self) {
        if let Some(coroutine) = self.coroutine.take()
            && coroutine.started()
            && !coroutine.done()
        {
            std::mem::forget(coroutine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_take_turns_and_nest() {
        let log = Rc::new(Cell::new(0_u32));
        let inner_log = Rc::clone(&log);
        let mut outer = Fiber::new(1 << 16, move || {
            let nested_log = Rc::clone(&inner_log);
            let mut nested = Fiber::new(1 << 16, move || {
                nested_log.set(nested_log.get() * 10 + 1);
                suspend();
                nested_log.set(nested_log.get() * 10 + 3);
            })
            .unwrap();
            assert_eq!(nested.resume(), Progress::Suspended);
            inner_log.set(inner_log.get() * 10 + 2);
            suspend();
            assert_eq!(nested.resume(), Progress::Ended);
        })
        .unwrap();
        assert_eq!(outer.resume(), Progress::Suspended);
        assert_eq!(log.get(), 12);
        assert_eq!(outer.resume(), Progress::Ended);
        assert_eq!(log.get(), 123);
        assert_eq!(outer.resume(), Progress::Ended);
    }

    #[test]
    fn a_suspended_fiber_is_never_unwound() {
        struct Loud(Rc<Cell<bool>>);
        impl Drop for Loud {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let is_dropped = Rc::new(Cell::new(false));
        let loud = Loud(Rc::clone(&is_dropped));
        let mut fiber = Fiber::new(1 << 16, move || {
            let _loud = loud;
            suspend();
        })
        .unwrap();
        assert_eq!(fiber.resume(), Progress::Suspended);
        drop(fiber);
        assert!(!is_dropped.get());
    }
}
