//! The end of a task: completed, aborted, detached. Its future is dropped exactly once.

use crate::support::{Drops, guarded, runtime, wait_until};
use evenkeel::JoinHandle;
use futures::channel::oneshot;
use futures::future::FutureExt;
use std::future::pending;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn a_completed_future_is_dropped_before_its_handle_resolves() {
    guarded(|| {
        let runtime = runtime(2);
        for _ in 0..500 {
            let drops = Drops::default();
            let token = drops.token();
            let task = runtime.spawn(async move {
                let _token = token;
                evenkeel::yield_now().await;
            });
            runtime.block_on(task).unwrap();
            assert_eq!(drops.count(), 1);
        }
    });
}

#[test]
fn a_finished_handle_means_a_dropped_future() {
    guarded(|| {
        for way in 0..3 {
            for _ in 0..200 {
                let runtime = runtime(1);
                let drops = Drops::default();
                let token = drops.token();
                let task = runtime.spawn(async move {
                    let _token = SlowToDrop(token);
                    if way > 0 {
                        pending::<()>().await;
                    }
                });
                match way {
                    0 => {}
                    1 => task.abort(),
                    _ => runtime.shutdown_background(),
                }
                wait_until("it is finished", || task.is_finished());
                assert_eq!(drops.count(), 1, "way {way}");
            }
        }
    });
}

/// Widens the window between the beginning of a destructor and its end.
struct SlowToDrop(#[expect(dead_code, reason = "it is there to be dropped")] crate::support::Token);

impl Drop for SlowToDrop {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn an_abort_takes_effect_when_the_poll_returns_and_drops_on_a_worker() {
    struct DropsWhere(mpsc::Sender<std::thread::ThreadId>);
    impl Drop for DropsWhere {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).unwrap();
        }
    }
    guarded(|| {
        let runtime = runtime(1);
        let (dropped, dropped_on) = mpsc::channel();
        let (began, has_begun) = mpsc::channel();
        let (free, is_free) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            let _tells = DropsWhere(dropped);
            began.send(std::thread::current().id()).unwrap();
            is_free.recv().unwrap();
            evenkeel::yield_now().await;
            unreachable!("an aborted task is not polled again");
        });
        let worker = has_begun.recv().unwrap();
        task.abort();
        assert!(!task.is_finished());
        assert!(dropped_on.try_recv().is_err(), "the poll is under way");
        free.send(()).unwrap();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        assert_eq!(dropped_on.try_recv().unwrap(), worker);
    });
}

#[test]
fn an_abort_during_the_last_poll_leaves_the_output() {
    guarded(|| {
        let runtime = runtime(1);
        let (began, has_begun) = mpsc::channel();
        let (free, is_free) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            began.send(()).unwrap();
            is_free.recv().unwrap();
            9
        });
        has_begun.recv().unwrap();
        task.abort();
        free.send(()).unwrap();
        assert_eq!(runtime.block_on(task).unwrap(), 9);
    });
}

/// Aborts a task in each state, and says how its handle resolved.
#[test]
fn an_abort_works_in_every_state() {
    guarded(|| {
        let runtime = runtime(1);
        let drops = Drops::default();
        // The only worker is kept busy, so that the next task is queued and not polled.
        let (free, is_free) = mpsc::channel::<()>();
        drop(runtime.spawn(async move { is_free.recv().unwrap() }));
        let token = drops.token();
        let queued = runtime.spawn(async move {
            let _token = token;
            unreachable!("aborted before its first poll");
        });
        queued.abort();
        queued.abort();
        free.send(()).unwrap();
        assert!(runtime.block_on(queued).unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 1);

        let sleeping = |drops: &Drops| {
            let token = drops.token();
            let (tell, told) = mpsc::channel();
            let task: JoinHandle<()> = runtime.spawn(async move {
                let _token = token;
                tell.send(()).unwrap();
                evenkeel::sleep(Duration::from_secs(3_600)).await;
            });
            told.recv().unwrap();
            task
        };
        let task = sleeping(&drops);
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 2);

        let done = runtime.spawn(async { 4 });
        wait_until("it is done", || done.is_finished());
        done.abort();
        assert_eq!(runtime.block_on(done).unwrap(), 4);
    });
}

#[test]
fn a_dropped_handle_detaches() {
    guarded(|| {
        let runtime = runtime(2);
        let (tell, told) = mpsc::channel();
        let (go, goes) = oneshot::channel::<()>();
        drop(runtime.spawn(async move {
            goes.await.unwrap();
            tell.send(()).unwrap();
        }));
        go.send(()).unwrap();
        told.recv().unwrap();
    });
}

#[test]
fn a_detached_output_is_dropped_once() {
    guarded(|| {
        let runtime = runtime(2);
        let drops = Drops::default();
        for n in 0..200 {
            let token = drops.token();
            let task = runtime.spawn(async move { token });
            if n % 2 == 0 {
                wait_until("it is done", || task.is_finished());
            }
            drop(task);
        }
        drop(runtime);
        assert_eq!(drops.count(), 200);
    });
}

#[test]
fn a_handle_that_has_resolved_panics_when_polled_again() {
    let runtime = runtime(1);
    let mut task = runtime.spawn(async { 1 });
    assert_eq!(runtime.block_on(&mut task).unwrap(), 1);
    assert!(task.is_finished());
    task.abort();
    let again = std::panic::AssertUnwindSafe(|| (&mut task).now_or_never());
    assert!(std::panic::catch_unwind(again).is_err());
}

#[test]
fn a_handle_can_be_polled_by_one_after_another() {
    guarded(|| {
        let runtime = runtime(2);
        let (go, goes) = oneshot::channel::<u8>();
        let mut task = runtime.spawn(goes);
        for _ in 0..10 {
            assert!((&mut task).now_or_never().is_none());
        }
        let waits = runtime.spawn(task);
        go.send(5).unwrap();
        assert_eq!(runtime.block_on(waits).unwrap().unwrap().unwrap(), 5);
    });
}

#[test]
fn a_select_drops_the_loser_once() {
    guarded(|| {
        let runtime = runtime(2);
        let drops = Drops::default();
        let rounds = 300;
        let (inner, outer) = (drops.clone(), drops.clone());
        let task = runtime.spawn(async move {
            for n in 0..rounds {
                let token = inner.token();
                let loser = async move {
                    let _token = token;
                    evenkeel::sleep(Duration::from_secs(3_600)).await;
                };
                let winner = evenkeel::spawn(async move {
                    for _ in 0..n % 3 {
                        evenkeel::yield_now().await;
                    }
                });
                futures::pin_mut!(loser);
                futures::future::select(loser, winner).await;
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(outer.count(), rounds);
    });
}
