//! Handles and wakers across runtimes, of our kind and of others.

use crate::support::{Drops, guarded, runtime, wait_until};
use evenkeel::{Handle, Runtime};
use futures::channel::oneshot;
use std::sync::{Arc, Barrier, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

#[test]
fn a_handle_is_awaited_from_any_runtime() {
    guarded(|| {
        let (ours, other, tokio) = (runtime(2), runtime(1), tokio_runtime());
        for n in 0..200u64 {
            let work = || async move {
                evenkeel::yield_now().await;
                n
            };
            assert_eq!(futures::executor::block_on(ours.spawn(work())).unwrap(), n);
            let handle = ours.spawn(work());
            assert_eq!(tokio.block_on(async { tokio::spawn(handle).await }).unwrap().unwrap(), n);
            assert_eq!(other.block_on(other.spawn(ours.spawn(work()))).unwrap().unwrap(), n);
            let theirs = tokio.spawn(async move {
                tokio::task::yield_now().await;
                n
            });
            assert_eq!(ours.block_on(ours.spawn(theirs)).unwrap().unwrap(), n);
        }
    });
}

#[test]
fn tokio_channels_work_inside_our_tasks() {
    guarded(|| {
        let (ours, tokio) = (runtime(2), tokio_runtime());
        let (to_ours, mut from_tokio) = tokio::sync::mpsc::channel::<u64>(4);
        let (to_tokio, mut from_ours) = tokio::sync::mpsc::channel::<u64>(4);
        let echo = ours.spawn(async move {
            while let Some(value) = from_tokio.recv().await {
                to_tokio.send(value * 2).await.unwrap();
            }
        });
        let sum = tokio.block_on(async move {
            let mut sum = 0;
            for n in 0..500 {
                to_ours.send(n).await.unwrap();
                sum += from_ours.recv().await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 2 * (0..500).sum::<u64>());
        ours.block_on(echo).unwrap();
    });
}

#[test]
fn tokio_locks_and_notifications_work_between_our_tasks() {
    guarded(|| {
        let runtime = runtime(3);
        let count = Arc::new(tokio::sync::Mutex::new(0u32));
        let gate = Arc::new(tokio::sync::Barrier::new(8));
        let tasks = (0..8).map(|_| {
            let (count, gate) = (Arc::clone(&count), Arc::clone(&gate));
            runtime.spawn(async move {
                gate.wait().await;
                for _ in 0..200 {
                    let mut count = count.lock().await;
                    *count += 1;
                    evenkeel::yield_now().await;
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        runtime.block_on(futures::future::join_all(tasks));
        assert_eq!(*count.blocking_lock(), 1_600);
    });
}

#[test]
fn a_task_of_one_runtime_woken_on_a_worker_of_another_runs_on_its_own() {
    fn worker_of(runtime: &Runtime) -> ThreadId {
        runtime.block_on(runtime.spawn(async { std::thread::current().id() })).unwrap()
    }
    guarded(|| {
        let (one, two) = (runtime(1), runtime(1));
        let (ones, twos) = (worker_of(&one), worker_of(&two));
        for _ in 0..200 {
            let (wake, woken) = oneshot::channel::<ThreadId>();
            let sleeper = one.spawn(async move {
                let woken_on = woken.await.unwrap();
                (woken_on, std::thread::current().id())
            });
            drop(two.spawn(async move { wake.send(std::thread::current().id()).unwrap() }));
            assert_eq!(one.block_on(sleeper).unwrap(), (twos, ones));
        }
    });
}

#[test]
fn a_spawn_into_another_runtime_uses_its_default_group_and_its_clock() {
    guarded(|| {
        let (one, two) = (runtime(1), runtime(1));
        let tenant = one.group("tenant").build().unwrap();
        let handle = two.handle();
        let spawner = tenant.spawn(async move {
            // Of the tenant's runtime this would join the tenant; of the other one it can't.
            handle.spawn(async { Handle::current().stats().groups.len() }).await
        });
        assert_eq!(one.block_on(spawner).unwrap().unwrap(), 1);
    });
}

#[test]
fn two_runtimes_pass_a_token_back_and_forth() {
    guarded(|| {
        let (one, two) = (runtime(2), runtime(2));
        let (to_two, mut at_two) = futures::channel::mpsc::unbounded::<u32>();
        let (to_one, mut at_one) = futures::channel::mpsc::unbounded::<u32>();
        use futures::StreamExt;
        let echo = two.spawn(async move {
            while let Some(n) = at_two.next().await {
                to_one.unbounded_send(n + 1).unwrap();
            }
        });
        let player = one.spawn(async move {
            let mut n = 0;
            while n < 2_000 {
                to_two.unbounded_send(n).unwrap();
                n = at_one.next().await.unwrap();
            }
            n
        });
        assert_eq!(one.block_on(player).unwrap(), 2_000);
        two.block_on(echo).unwrap();
    });
}

#[test]
fn a_foreign_executor_inside_a_task_polls_our_handles() {
    guarded(|| {
        let runtime = runtime(2);
        let group = runtime.default_group();
        let task = runtime.spawn(async move {
            let inner = group.spawn(async { 11 });
            // It blocks this worker, which is the user's choice; the other one runs the inner task.
            futures::executor::block_on(inner).unwrap()
        });
        assert_eq!(runtime.block_on(task).unwrap(), 11);
    });
}

#[test]
fn a_join_set_of_wakers_within_one_task_works() {
    guarded(|| {
        use futures::stream::{FuturesUnordered, StreamExt};
        let runtime = runtime(2);
        let task = runtime.spawn(async {
            let all: FuturesUnordered<_> = (0..500u64)
                .map(|n| async move {
                    evenkeel::sleep(Duration::from_micros(n % 50)).await;
                    evenkeel::spawn(async move { n }).await.unwrap()
                })
                .collect();
            all.fold(0, |sum, n| async move { sum + n }).await
        });
        assert_eq!(runtime.block_on(task).unwrap(), (0..500).sum());
    });
}

#[test]
fn a_handle_whose_runtime_ends_resolves_in_the_other() {
    guarded(|| {
        let (one, two) = (runtime(2), runtime(2));
        let drops = Drops::default();
        let (token, started) = (drops.token(), Arc::new(Barrier::new(2)));
        let start = Arc::clone(&started);
        let sleeper = one.spawn(async move {
            let _token = token;
            start.wait();
            evenkeel::sleep(Duration::MAX).await;
        });
        let waits = two.spawn(sleeper);
        started.wait();
        drop(one);
        assert!(two.block_on(waits).unwrap().unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn runtimes_that_end_while_they_wake_each_other_end() {
    guarded(|| {
        for _ in 0..30 {
            let (one, two) = (runtime(2), runtime(2));
            let chatter = |from: &Runtime, to: &Runtime| {
                let handle = to.handle();
                drop(from.spawn(async move {
                    loop {
                        if handle.spawn(evenkeel::yield_now()).await.is_err() {
                            evenkeel::yield_now().await;
                        }
                    }
                }));
            };
            chatter(&one, &two);
            chatter(&two, &one);
            let (first, second) = (std::thread::spawn(|| drop(one)), std::thread::spawn(|| drop(two)));
            first.join().unwrap();
            second.join().unwrap();
        }
    });
}

#[test]
fn our_tasks_are_driven_by_wakers_kept_on_plain_threads() {
    guarded(|| {
        let runtime = runtime(2);
        let (send, receive) = mpsc::channel::<std::task::Waker>();
        let waker_thread = std::thread::spawn(move || receive.into_iter().for_each(std::task::Waker::wake));
        let mut polls = 0;
        let task = runtime.spawn(std::future::poll_fn(move |cx| {
            polls += 1;
            if polls > 1_000 {
                return std::task::Poll::Ready(polls);
            }
            send.send(cx.waker().clone()).unwrap();
            std::task::Poll::Pending
        }));
        assert_eq!(runtime.block_on(task).unwrap(), 1_001);
        waker_thread.join().unwrap();
        wait_until("it is idle", || runtime.load().parked == 2);
    });
}
