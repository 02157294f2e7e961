//! The end of a runtime: who waits for whom, and what becomes of what is left.

use crate::support::{Drops, HANG, guarded, runtime, wait_until};
use evenkeel::{GroupError, Handle, Runtime, SpawnError};
use futures::channel::oneshot;
use std::future::pending;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// How a runtime is ended.
const WAYS: [fn(Runtime); 4] = [drop, shutdown_patiently, shutdown_hastily, Runtime::shutdown_background];

fn shutdown_patiently(runtime: Runtime) {
    let _ = runtime.shutdown_timeout(Duration::MAX);
}

fn shutdown_hastily(runtime: Runtime) {
    let _ = runtime.shutdown_timeout(Duration::ZERO);
}

#[test]
fn a_runtime_ended_by_its_own_task_ends_in_the_background() {
    guarded(|| {
        for workers in [1, 2] {
            for way in WAYS {
                let runtime = runtime(workers);
                let handle = runtime.handle();
                let drops = Drops::default();
                let token = drops.token();
                drop(runtime.spawn(async move {
                    let _token = token;
                    pending::<()>().await;
                }));
                let (ended, has_ended) = mpsc::channel();
                let task = handle.spawn(async move {
                    way(runtime);
                    ended.send(()).unwrap();
                });
                has_ended.recv_timeout(HANG / 2).expect("a runtime that waits for itself");
                futures::executor::block_on(task).unwrap();
                wait_until("the sleeping future is dropped", || drops.count() == 1);
            }
        }
    });
}

#[test]
fn a_runtime_ended_in_the_destructor_of_its_own_future_does_not_wait_for_itself() {
    struct Ends(Option<Runtime>, fn(Runtime));
    impl Drop for Ends {
        fn drop(&mut self) {
            self.1(self.0.take().unwrap());
        }
    }
    guarded(|| {
        for way in WAYS {
            let runtime = runtime(1);
            let handle = runtime.handle();
            let ends = Ends(Some(runtime), way);
            let task = handle.spawn(async move {
                let _ends = ends;
                pending::<()>().await;
            });
            task.abort();
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_runtime_dropped_by_a_task_of_another_ends_in_the_background() {
    guarded(|| {
        let (one, other) = (runtime(1), runtime(1));
        let (free, is_free) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        let long = other.spawn(async move {
            began.send(()).unwrap();
            is_free.recv().unwrap();
        });
        has_begun.recv().unwrap();
        // It does not wait for the poll under way: that goes on only afterwards.
        one.block_on(one.spawn(async move { drop(other) })).unwrap();
        free.send(()).unwrap();
        futures::executor::block_on(long).unwrap();
    });
}

/// A task in a poll that goes on until it is let go.
fn long_poll(runtime: &Runtime) -> (mpsc::Sender<()>, evenkeel::JoinHandle<()>) {
    let (free, is_free) = mpsc::channel::<()>();
    let (began, has_begun) = mpsc::channel();
    let handle = runtime.spawn(async move {
        began.send(()).unwrap();
        let _ = is_free.recv();
    });
    has_begun.recv().unwrap();
    (free, handle)
}

#[test]
fn shutdown_timeout_returns_in_time_while_a_poll_goes_on() {
    guarded(|| {
        let runtime = runtime(2);
        let (free, long) = long_poll(&runtime);
        assert!(!runtime.shutdown_timeout(Duration::from_millis(5)));
        assert!(!long.is_finished());
        drop(free);
        futures::executor::block_on(long).unwrap();
    });
}

#[test]
fn shutdown_timeout_tells_that_all_have_ended() {
    guarded(|| {
        for limit in [Duration::from_secs(50), Duration::MAX] {
            assert!(runtime(3).shutdown_timeout(limit));
        }
    });
}

#[test]
fn shutdown_background_does_not_wait() {
    guarded(|| {
        let runtime = runtime(1);
        let (free, long) = long_poll(&runtime);
        runtime.shutdown_background();
        assert!(!long.is_finished());
        drop(free);
        futures::executor::block_on(long).unwrap();
    });
}

#[test]
fn drop_waits_for_polls_under_way() {
    guarded(|| {
        let runtime = runtime(2);
        let (free, long) = long_poll(&runtime);
        let (dropped, is_dropped) = mpsc::channel();
        let dropper = std::thread::spawn(move || {
            drop(runtime);
            dropped.send(()).unwrap();
        });
        for _ in 0..1_000 {
            std::thread::yield_now();
            assert!(is_dropped.try_recv().is_err(), "drop did not wait");
        }
        drop(free);
        dropper.join().unwrap();
        assert!(long.is_finished());
    });
}

#[test]
fn a_spawn_after_shutdown_is_cancelled_and_drops_its_future_once() {
    guarded(|| {
        let runtime = runtime(2);
        let (handle, group) = (runtime.handle(), runtime.default_group());
        drop(runtime);
        let drops = Drops::default();
        let future = || {
            let token = drops.token();
            async move { drop(token) }
        };
        let refused = [handle.spawn(future()), group.spawn(future())];
        assert_eq!(drops.count(), 2);
        for task in refused {
            assert!(task.is_finished());
            task.abort();
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
        assert_eq!(group.try_spawn(future()).unwrap_err(), SpawnError::Stopping);
        assert_eq!(drops.count(), 3);
    });
}

#[test]
fn a_spawn_during_shutdown_is_cancelled() {
    guarded(|| {
        let runtime = runtime(1);
        let handle = runtime.handle();
        let (began, has_begun) = mpsc::channel();
        let (free, is_free) = mpsc::channel::<()>();
        let drops = Drops::default();
        let token = drops.token();
        let task = runtime.spawn(async move {
            began.send(()).unwrap();
            is_free.recv().unwrap();
            let inner = evenkeel::spawn(async move { drop(token) });
            inner.is_finished() && evenkeel::Handle::current().group("late").build().is_err()
        });
        has_begun.recv().unwrap();
        runtime.shutdown_background();
        assert!(handle.is_stopping());
        free.send(()).unwrap();
        assert!(futures::executor::block_on(task).unwrap());
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn what_outlives_a_runtime_returns_errors() {
    guarded(|| {
        let runtime = runtime(1);
        let (handle, group) = (runtime.handle(), runtime.group("g").weight(7).build().unwrap());
        drop(runtime);
        assert_eq!(handle.group("late").build().unwrap_err(), GroupError::Stopping);
        assert_eq!((group.name(), group.weight()), ("g", 7));
        group.set_weight(8).unwrap();
        assert_eq!(group.weight(), 8);
        assert_eq!(handle.stats().cpus.len(), 1);
        assert_eq!(handle.load().waiting, 0);
        handle.switches().set("claim", "block").unwrap();
        assert!(format!("{handle:?} {group:?}").contains("true"));
    });
}

#[test]
fn a_wake_after_shutdown_does_nothing() {
    guarded(|| {
        let drops = Drops::default();
        let runtime = runtime(2);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = oneshot::channel::<()>();
        let (token, place) = (drops.token(), Arc::clone(&kept));
        let task = runtime.spawn(async move {
            let _token = token;
            std::future::poll_fn(|cx| {
                place.lock().unwrap().push(cx.waker().clone());
                std::task::Poll::Ready(())
            })
            .await;
            receiver.await.unwrap();
        });
        wait_until("it has suspended", || kept.lock().unwrap().len() == 1);
        drop(runtime);
        assert_eq!(drops.count(), 1);
        sender.send(()).unwrap_err();
        let waker = kept.lock().unwrap().pop().unwrap();
        let clones: Vec<_> = (0..10_000).map(|_| waker.clone()).collect();
        clones.into_iter().for_each(std::task::Waker::wake);
        waker.wake_by_ref();
        task.abort();
        assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        drop(waker);
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn tasks_in_every_state_are_dropped_once_at_shutdown() {
    guarded(|| {
        for workers in [1, 2, 3] {
            let runtime = runtime(workers);
            let drops = Drops::default();
            let (_never, receiver) = oneshot::channel::<()>();
            let token = || drops.token();
            let (timer, channel, never, ready, yields) = (token(), token(), token(), token(), token());
            let handles = [
                runtime.spawn(async move {
                    let _token = timer;
                    evenkeel::sleep(Duration::from_secs(3_600)).await;
                }),
                runtime.spawn(async move {
                    let _token = channel;
                    let _ = receiver.await;
                }),
                runtime.spawn(async move {
                    let _token = never;
                    pending::<()>().await;
                }),
                runtime.spawn(async move {
                    let _token = yields;
                    loop {
                        evenkeel::yield_now().await;
                    }
                }),
                runtime.spawn(async move { drop(ready) }),
            ];
            drop(runtime);
            assert_eq!(drops.count(), 5);
            let cancelled = handles.map(|task| futures::executor::block_on(task).is_err());
            assert!(cancelled[..4].iter().all(|is_cancelled| *is_cancelled));
        }
    });
}

#[test]
fn a_destructor_may_spawn_and_wake_at_shutdown() {
    struct Spawns(Handle, Drops);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let token = self.1.token();
            let handle = self.0.spawn(async move { drop(token) });
            assert!(handle.is_finished());
        }
    }
    guarded(|| {
        let runtime = runtime(2);
        let drops = Drops::default();
        for _ in 0..100 {
            let spawns = Spawns(runtime.handle(), drops.clone());
            drop(runtime.spawn(async move {
                let _spawns = spawns;
                pending::<()>().await;
            }));
        }
        let handle = runtime.handle();
        drop(runtime);
        assert_eq!(drops.count(), 100);
        assert!(handle.is_stopping());
    });
}

#[test]
fn a_stopped_runtime_is_freed() {
    guarded(|| {
        let drops = Drops::default();
        let token = drops.token();
        let runtime = runtime(2);
        let (kept, receiver) = oneshot::channel::<super::support::Token>();
        let task = runtime.spawn(async move {
            let token = receiver.await.unwrap();
            let _ = &token;
            pending::<()>().await;
        });
        assert!(kept.send(token).is_ok());
        drop(runtime);
        drop(task);
        assert_eq!(drops.count(), 1);
    });
}
