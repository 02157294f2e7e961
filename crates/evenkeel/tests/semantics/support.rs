//! What the tests share: runtimes, counted drops, and a guard against hangs.

use evenkeel::Runtime;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What takes longer hangs. Far above what anything here needs, also on a busy machine.
pub(crate) const HANG: Duration = Duration::from_secs(60);

pub(crate) fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// Runs a test's body on a thread of its own; one that hangs fails.
pub(crate) fn guarded<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(catch_unwind(AssertUnwindSafe(body))));
    match is_done.recv_timeout(HANG) {
        Ok(Ok(value)) => value,
        Ok(Err(payload)) => resume_unwind(payload),
        Err(_) => panic!("it hangs"),
    }
}

/// Waits on the calling thread until `is_so`. For what follows soon, but not at once.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "still waiting until {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Counts how often its tokens were dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

pub(crate) struct Token(Arc<AtomicUsize>);

impl Drops {
    pub(crate) fn token(&self) -> Token {
        Token(Arc::clone(&self.0))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
