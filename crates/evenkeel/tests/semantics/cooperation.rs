//! A task that is always ready on our own primitives gives way.

use crate::support::{guarded, runtime};
use futures::FutureExt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Ready = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `ready` over and over on the only worker, until another task has run there.
fn gives_way(ready: fn() -> Ready) {
    guarded(move || {
        let runtime = runtime(1);
        let has_run = Arc::new(AtomicBool::new(false));
        let (seen, tell) = (Arc::clone(&has_run), Arc::clone(&has_run));
        let greedy = runtime.spawn(async move {
            drop(evenkeel::spawn(async move { tell.store(true, Ordering::SeqCst) }));
            while !seen.load(Ordering::SeqCst) {
                ready().await;
            }
        });
        runtime.block_on(greedy).unwrap();
    });
}

#[test]
fn a_task_that_sleeps_for_no_time_gives_way() {
    gives_way(|| Box::pin(evenkeel::sleep(Duration::ZERO)));
}

#[test]
fn a_task_that_awaits_refused_handles_gives_way() {
    gives_way(|| {
        let full = evenkeel::Handle::current().group("full").max_tasks(0).build().unwrap();
        Box::pin(full.spawn(async {}).map(drop))
    });
}

#[test]
fn a_task_that_only_times_out_gives_way() {
    gives_way(|| Box::pin(evenkeel::timeout(Duration::ZERO, std::future::pending::<()>()).map(drop)));
}

#[test]
fn a_task_that_calls_checkpoint_gives_way() {
    gives_way(|| Box::pin(evenkeel::checkpoint()));
}

#[test]
fn a_task_that_yields_gives_way() {
    gives_way(|| Box::pin(evenkeel::yield_now()));
}

#[test]
fn a_checkpoint_is_ready_while_nothing_waits_and_the_slice_lasts() {
    guarded(|| {
        let runtime = evenkeel::Runtime::builder().workers(1).slice(Duration::from_secs(1)).build().unwrap();
        let task = runtime.spawn(async {
            let free = (0..1_000).all(|_| evenkeel::checkpoint().now_or_never().is_some());
            drop(evenkeel::spawn(async {}));
            (free, evenkeel::checkpoint().now_or_never().is_none())
        });
        let (free, gives_way) = runtime.block_on(task).unwrap();
        assert!(free, "nothing waited");
        assert!(gives_way, "a task waited");
        runtime.block_on(async { evenkeel::checkpoint().await });
    });
}

#[test]
fn a_primitive_that_gave_way_is_ready_at_the_next_poll() {
    guarded(|| {
        let runtime = runtime(1);
        let task = runtime.spawn(async {
            for _ in 0..20_000 {
                evenkeel::sleep(Duration::ZERO).await;
            }
            let done = evenkeel::spawn(async { 3 });
            evenkeel::yield_now().await;
            done.await.unwrap()
        });
        assert_eq!(runtime.block_on(task).unwrap(), 3);
    });
}
