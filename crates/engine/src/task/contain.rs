//! User code that runs where nobody could catch its panic.
//!
//! Knows nothing of tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f` and swallows a panic. The panic hook has reported it by then.
///
/// The payload of the panic is user data with a destructor, which may panic again; that payload is leaked.
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(payload) => {
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            None
        }
    }
}

/// A value whose destructor may panic, contained.
#[derive(Debug)]
pub(crate) struct Caught<T>(Option<T>);

impl<T> Caught<T> {
    pub(crate) fn new(value: T) -> Self {
        Caught(Some(value))
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("a value is taken out once")
    }
}

impl<T> Drop for Caught<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            contain(|| drop(value));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_types, reason = "counts drops")]

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Bomb<'a>(&'a AtomicUsize);

    impl Drop for Bomb<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("bomb");
        }
    }

    #[test]
    fn a_destructor_that_panics_is_contained_and_runs_once() {
        let drops = AtomicUsize::new(0);
        drop(Caught::new(Bomb(&drops)));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_panic_payload_that_panics_is_contained() {
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        assert!(contain(|| std::panic::panic_any(Bomb(&DROPS))).is_none());
        assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    }
}
