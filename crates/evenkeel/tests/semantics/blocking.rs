//! `block_on`: where it is allowed.

use crate::support::{guarded, runtime};
use evenkeel::{Handle, JoinError};
use std::sync::Arc;

fn message(error: JoinError) -> String {
    let payload = error.into_panic();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

#[test]
fn block_on_inside_a_task_panics_with_advice() {
    guarded(|| {
        let own = Arc::new(runtime(1));
        let other = runtime(1);
        let inner = Arc::clone(&own);
        let task = own.spawn(async move { inner.block_on(async { 1 }) });
        let error = other.block_on(task).unwrap_err();
        let message = message(error);
        assert!(message.contains("inside a task") && message.contains("Await"), "{message}");
    });
}

#[test]
fn block_on_of_another_runtime_inside_a_task_panics_with_advice() {
    guarded(|| {
        let other = runtime(1);
        let runtime = runtime(1);
        let task = runtime.spawn(async move { other.block_on(async { 1 }) });
        assert!(message(runtime.block_on(task).unwrap_err()).contains("inside a task"));
    });
}

#[test]
fn block_on_on_a_plain_thread_made_by_a_task_works() {
    guarded(|| {
        let runtime = Arc::new(runtime(1));
        let inner = Arc::clone(&runtime);
        let task =
            runtime.spawn(async move { std::thread::spawn(move || inner.block_on(async { 7 })).join().unwrap() });
        assert_eq!(runtime.block_on(task).unwrap(), 7);
    });
}

#[test]
fn block_on_nests_across_runtimes_and_restores_the_outer_one() {
    guarded(|| {
        let (one, two) = (runtime(1), runtime(1));
        let group_of = || async { Handle::current().default_group().name().to_owned() };
        let seen = one.block_on(async {
            let _mine = one.group("of one").build().unwrap();
            let groups = |handle: Handle| handle.stats().groups.len();
            let outer = groups(Handle::current());
            let inner = two.block_on(async { groups(Handle::current()) });
            let name = group_of().await;
            (outer, inner, groups(Handle::current()), name)
        });
        assert_eq!(seen, (2, 1, 2, "default".to_owned()));
        assert!(Handle::try_current().is_err());
    });
}

#[test]
fn block_on_that_panics_leaves_no_runtime_behind() {
    let runtime = runtime(1);
    let blocked = std::panic::AssertUnwindSafe(|| runtime.block_on(async { panic!("in block_on") }));
    assert!(std::panic::catch_unwind(blocked).is_err());
    assert!(Handle::try_current().is_err());
    assert_eq!(runtime.block_on(async { evenkeel::spawn(async { 3 }).await }).unwrap(), 3);
}

#[test]
fn many_threads_block_on_one_runtime() {
    guarded(|| {
        let runtime = runtime(2);
        std::thread::scope(|scope| {
            for n in 0..8u64 {
                let runtime = &runtime;
                scope.spawn(move || {
                    for m in 0..50 {
                        assert_eq!(runtime.block_on(runtime.spawn(async move { n + m })).unwrap(), n + m);
                    }
                });
            }
        });
    });
}

#[test]
fn the_free_functions_panic_outside_a_runtime() {
    let outside = |f: fn()| std::panic::catch_unwind(f).is_err();
    assert!(outside(|| drop(evenkeel::spawn(async {}))));
    assert!(outside(|| assert!(evenkeel::now() > evenkeel::Time::ZERO)));
    assert!(outside(|| drop(Handle::current())));
    assert!(outside(|| futures::executor::block_on(evenkeel::sleep(std::time::Duration::from_millis(1)))));
    // These two need no runtime.
    futures::executor::block_on(async {
        evenkeel::yield_now().await;
        evenkeel::checkpoint().await;
    });
}
