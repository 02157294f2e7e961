//! The simplest uses.

use evenkeel::Runtime;
use std::time::Duration;

#[test]
fn tasks_run_and_return_on_any_number_of_workers() {
    for workers in [1, 2, 3, 8] {
        let runtime = Runtime::builder().workers(workers).build().unwrap();
        let handles: Vec<_> = (0..1_000u64).map(|n| runtime.spawn(async move { n })).collect();
        let sum = runtime.block_on(async {
            let mut sum = 0;
            for handle in handles {
                sum += handle.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 499_500);
    }
}

#[test]
fn yields_and_sleeps_end() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let sleepers: Vec<_> = (0..100u64)
        .map(|n| {
            runtime.spawn(async move {
                for _ in 0..10 {
                    evenkeel::yield_now().await;
                }
                evenkeel::sleep(Duration::from_millis(n % 7)).await;
                evenkeel::spawn(async move { n }).await.unwrap()
            })
        })
        .collect();
    let sum: u64 = runtime.block_on(async {
        let mut sum = 0;
        for sleeper in sleepers {
            sum += sleeper.await.unwrap();
        }
        sum
    });
    assert_eq!(sum, 4_950);
}

#[test]
fn hooks_run_on_each_worker_before_its_first_task_and_after_its_last() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (started, stopped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (on_start, on_stop) = (Arc::clone(&started), Arc::clone(&stopped));
    let runtime = Runtime::builder()
        .workers(3)
        .on_thread_start(move || {
            on_start.fetch_add(1, Ordering::SeqCst);
        })
        .on_thread_stop(move || {
            on_stop.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    let seen = Arc::clone(&started);
    let task = runtime.spawn(async move { seen.load(Ordering::SeqCst) });
    assert!(runtime.block_on(task).unwrap() >= 1);
    drop(runtime);
    assert_eq!((started.load(Ordering::SeqCst), stopped.load(Ordering::SeqCst)), (3, 3));
}
