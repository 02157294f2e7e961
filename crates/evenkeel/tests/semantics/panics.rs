//! Panics of user code: contained, delivered, and no worker goes down.

use crate::support::{Drops, Token, guarded, runtime, wait_until};
use evenkeel::{JoinError, Runtime};
use futures::FutureExt;
use futures::channel::oneshot;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

/// Panics when dropped; counted all the same.
struct Bomb(#[expect(dead_code, reason = "it is there to be dropped")] Token);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor panics");
    }
}

/// Every worker still polls tasks.
fn all_workers_live(runtime: &Runtime) {
    let meet = Arc::new(std::sync::Barrier::new(runtime.workers()));
    let tasks = (0..runtime.workers()).map(|_| {
        let meet = Arc::clone(&meet);
        runtime.spawn(async move {
            meet.wait();
        })
    });
    let tasks: Vec<_> = tasks.collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_panic_in_a_poll_is_delivered_with_its_payload() {
    guarded(|| {
        let runtime = runtime(2);
        for at_poll in 0..3 {
            let drops = Drops::default();
            let token = drops.token();
            let task = runtime.spawn(async move {
                let _token = token;
                for _ in 0..at_poll {
                    evenkeel::yield_now().await;
                }
                std::panic::panic_any(41u8 + at_poll);
            });
            let error: JoinError = runtime.block_on(task).unwrap_err();
            assert!(error.is_panic() && !error.is_cancelled() && !error.is_full());
            assert_eq!(drops.count(), 1);
            assert_eq!(*error.into_panic().downcast::<u8>().unwrap(), 41 + at_poll);
        }
        let error = runtime.block_on(runtime.spawn(async { panic!("number {}", 3) })).unwrap_err();
        assert!(error.to_string().contains("number 3"));
        let error = runtime.block_on(runtime.spawn(async { panic!("plain") })).unwrap_err();
        assert!(error.to_string().contains("plain"));
        all_workers_live(&runtime);
    });
}

#[test]
fn into_panic_of_a_cancelled_task_panics_and_try_into_panic_gives_the_error_back() {
    let runtime = runtime(1);
    let task = runtime.spawn(pending::<()>());
    task.abort();
    let error = runtime.block_on(task).unwrap_err();
    let error = error.try_into_panic().unwrap_err();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| error.into_panic())).is_err());
}

#[test]
fn a_destructor_of_a_future_may_panic_on_every_path() {
    guarded(|| {
        let drops = Drops::default();
        let runtime = runtime(2);
        let bomb = || Bomb(drops.token());
        let (completes, aborted, panics, sleeps, queued) = (bomb(), bomb(), bomb(), bomb(), bomb());
        let task = runtime.spawn(async move {
            let _bomb = completes;
            evenkeel::yield_now().await;
        });
        // The destructor runs inside the last poll.
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        let task = runtime.spawn(async move {
            let _bomb = aborted;
            pending::<()>().await;
        });
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        let task = runtime.spawn(poll_fn(move |_| -> Poll<()> {
            let _ = &panics;
            std::panic::panic_any("in the poll");
        }));
        let payload = runtime.block_on(task).unwrap_err().into_panic();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "in the poll");
        all_workers_live(&runtime);
        drop(runtime.spawn(async move {
            let _bomb = sleeps;
            evenkeel::sleep(Duration::MAX).await;
        }));
        drop(runtime.spawn(async move {
            let _bomb = queued;
            loop {
                evenkeel::yield_now().await;
            }
        }));
        drop(runtime);
        assert_eq!(drops.count(), 5);
    });
}

#[test]
fn a_future_that_is_refused_panics_in_the_call_that_spawns_it() {
    guarded(|| {
        let drops = Drops::default();
        let runtime = runtime(2);
        let full = runtime.group("full").max_tasks(0).build().unwrap();
        let bomb = Bomb(drops.token());
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(full.spawn(async move { drop(bomb) }));
        }));
        assert!(refused.is_err());
        assert_eq!(drops.count(), 1);
        all_workers_live(&runtime);
    });
}

#[test]
fn a_destructor_of_an_output_may_panic() {
    guarded(|| {
        let drops = Drops::default();
        let runtime = runtime(2);
        for n in 0..20 {
            let bomb = Bomb(drops.token());
            let task = runtime.spawn(async move { bomb });
            if n % 2 == 0 {
                wait_until("it is done", || task.is_finished());
            }
            drop(task);
        }
        all_workers_live(&runtime);
        drop(runtime);
        assert_eq!(drops.count(), 20);
    });
}

#[test]
fn a_destructor_of_a_panic_payload_may_panic() {
    guarded(|| {
        let drops = Drops::default();
        let runtime = runtime(1);
        for _ in 0..10 {
            let bomb = Bomb(drops.token());
            let task = runtime.spawn(async move { std::panic::panic_any(bomb) });
            wait_until("it is done", || task.is_finished());
            drop::<evenkeel::JoinHandle<()>>(task);
        }
        all_workers_live(&runtime);
        assert_eq!(drops.count(), 10);
    });
}

/// What a hostile waker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PanicsIn {
    Wake,
    Drop,
}

struct Hostile(PanicsIn);

impl Wake for Hostile {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        assert!(self.0 != PanicsIn::Wake, "a waker panics");
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if self.0 == PanicsIn::Drop && !std::thread::panicking() {
            panic!("a waker panics when dropped");
        }
    }
}

/// Polls once with a hostile waker that is left behind.
fn poll_hostile<F: Future + Unpin>(future: &mut F, panics_in: PanicsIn) {
    let waker = Waker::from(Arc::new(Hostile(panics_in)));
    assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
    // What is left of it is with the task or timer.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker)));
}

#[test]
fn a_join_waker_may_panic() {
    guarded(|| {
        let runtime = runtime(2);
        for panics_in in [PanicsIn::Wake, PanicsIn::Drop] {
            for ending in 0..3 {
                let (go, goes) = oneshot::channel::<()>();
                let mut task = runtime.spawn(goes);
                poll_hostile(&mut task, panics_in);
                match ending {
                    0 => go.send(()).unwrap(),
                    1 => task.abort(),
                    // Another waker takes its place.
                    _ => {
                        assert!((&mut task).now_or_never().is_none());
                        go.send(()).unwrap();
                    }
                }
                wait_until("it is finished", || task.is_finished());
                let _ = runtime.block_on(task);
                all_workers_live(&runtime);
            }
        }
    });
}

#[test]
fn a_join_waker_may_panic_at_shutdown() {
    guarded(|| {
        for panics_in in [PanicsIn::Wake, PanicsIn::Drop] {
            let runtime = runtime(2);
            let mut task = runtime.spawn(pending::<()>());
            poll_hostile(&mut task, panics_in);
            assert!(runtime.shutdown_timeout(Duration::MAX));
            assert!(futures::executor::block_on(task).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_join_waker_whose_clone_panics_fails_the_poll_and_nothing_else() {
    const VTABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("a waker panics when cloned"), |_| {}, |_| {}, |_| {});
    guarded(|| {
        let runtime = runtime(1);
        let (go, goes) = oneshot::channel::<()>();
        let mut task = runtime.spawn(goes);
        // SAFETY: the functions ignore the data.
        let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
        let polled = std::panic::AssertUnwindSafe(|| Pin::new(&mut task).poll(&mut Context::from_waker(&waker)));
        assert!(std::panic::catch_unwind(polled).is_err());
        go.send(()).unwrap();
        runtime.block_on(task).unwrap().unwrap();
        all_workers_live(&runtime);
    });
}

#[test]
fn a_waker_called_by_a_timer_may_panic() {
    guarded(|| {
        let runtime = runtime(2);
        let group = runtime.default_group();
        for panics_in in [PanicsIn::Wake, PanicsIn::Drop] {
            for _ in 0..20 {
                // Several are due at once: those behind the hostile one are woken too.
                let sleeper = || group.spawn(evenkeel::sleep(Duration::from_millis(2)));
                let before = sleeper();
                let sleep = runtime.spawn(async move {
                    let mut sleep = evenkeel::sleep(Duration::from_millis(2));
                    poll_hostile(&mut sleep, panics_in);
                    sleep
                });
                let sleep = runtime.block_on(sleep).unwrap();
                let after = sleeper();
                runtime.block_on(async { futures::join!(before, after, sleep) }).0.unwrap();
            }
        }
        all_workers_live(&runtime);
    });
}

#[test]
fn a_sleep_dropped_with_a_hostile_waker_hurts_only_who_drops_it() {
    guarded(|| {
        let runtime = runtime(1);
        let task = runtime.spawn(async move {
            let mut sleep = evenkeel::sleep(Duration::from_secs(3_600));
            poll_hostile(&mut sleep, PanicsIn::Drop);
            drop(sleep);
        });
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        // The same at shutdown: the timer is orphaned, its waker dropped by a worker.
        let mut sleep = evenkeel::sleep(Duration::from_secs(3_600));
        runtime.block_on(async { poll_hostile(&mut sleep, PanicsIn::Wake) });
        all_workers_live(&runtime);
        drop(runtime);
        drop(sleep);
    });
}

/// A waker that looks like the task's own, by its data.
#[test]
fn a_join_waker_in_disguise_may_panic() {
    fn disguised(data: *const ()) -> RawWaker {
        const VTABLE: RawWakerVTable =
            RawWakerVTable::new(disguised, |_| panic!("a waker panics"), |_| panic!("a waker panics"), |_| {});
        RawWaker::new(data, &VTABLE)
    }
    guarded(|| {
        let runtime = runtime(2);
        let task = runtime.spawn(async {
            let (go, goes) = oneshot::channel::<()>();
            let mut inner = evenkeel::spawn(goes);
            poll_fn(|cx| {
                // SAFETY: the functions ignore the data.
                let waker = unsafe { Waker::from_raw(disguised(cx.waker().data())) };
                assert!(Pin::new(&mut inner).poll(&mut Context::from_waker(&waker)).is_pending());
                Poll::Ready(())
            })
            .await;
            go.send(()).unwrap();
            while !inner.is_finished() {
                evenkeel::yield_now().await;
            }
            inner.await.unwrap().unwrap();
        });
        runtime.block_on(task).unwrap();
        all_workers_live(&runtime);
    });
}

#[test]
fn thousands_of_panics_take_no_worker_down() {
    guarded(|| {
        let runtime = runtime(2);
        let bad = |n: u32| async move { std::panic::resume_unwind(Box::new(n)) };
        let tasks: Vec<_> = (0..2_000u32).map(|n| runtime.spawn(bad(n))).collect();
        for (n, task) in (0u32..).zip(tasks) {
            let task: evenkeel::JoinHandle<()> = task;
            assert_eq!(*runtime.block_on(task).unwrap_err().into_panic().downcast::<u32>().unwrap(), n);
        }
        all_workers_live(&runtime);
    });
}
