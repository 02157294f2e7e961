//! What nobody should do, and somebody does.

use crate::support::{Drops, Token, guarded, runtime, wait_until};
use evenkeel::{Handle, JoinHandle, Runtime};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[test]
fn futures_of_every_size_and_alignment_run() {
    #[repr(align(128))]
    struct Aligned(u8);
    guarded(|| {
        let runtime = runtime(2);
        runtime.block_on(async {
            evenkeel::spawn(std::future::ready(())).await.unwrap();
            let aligned = Aligned(5);
            let task = evenkeel::spawn(async move {
                let address = std::ptr::from_ref(&aligned).addr();
                evenkeel::yield_now().await;
                (address % 128, std::ptr::from_ref(&aligned).addr() == address, aligned.0)
            });
            assert_eq!(task.await.unwrap(), (0, true, 5));
            assert_eq!(evenkeel::spawn(async { Aligned(9) }).await.unwrap().0, 9);
        });
    });
}

/// An unoptimised build copies a future at each call on its way into a task, so this needs a stack with room.
#[test]
fn a_huge_future_and_a_huge_output_run() {
    let body = || {
        let runtime = Runtime::builder().workers(2).stack_size(16 << 20).build().unwrap();
        let huge = [7u8; 100_000];
        let task = runtime.spawn(async move {
            evenkeel::yield_now().await;
            huge.iter().map(|byte| u64::from(*byte)).sum::<u64>()
        });
        assert_eq!(runtime.block_on(task).unwrap(), 700_000);
        let output = runtime.block_on(runtime.spawn(async { [3u8; 50_000] })).unwrap();
        assert_eq!(output[49_999], 3);
    };
    std::thread::Builder::new().stack_size(16 << 20).spawn(body).unwrap().join().unwrap();
}

#[test]
fn a_waker_is_cloned_and_called_ten_thousand_times() {
    guarded(|| {
        let runtime = runtime(2);
        let mut polls = 0;
        let task = runtime.spawn(poll_fn(move |cx| {
            polls += 1;
            if polls == 1 {
                let clones: Vec<Waker> = (0..10_000).map(|_| cx.waker().clone()).collect();
                let threads = clones
                    .chunks(2_500)
                    .map(<[Waker]>::to_vec)
                    .map(|clones| std::thread::spawn(move || clones.into_iter().for_each(Waker::wake)));
                threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
                return Poll::Pending;
            }
            Poll::Ready(polls)
        }));
        assert_eq!(runtime.block_on(task).unwrap(), 2, "all wakes during a poll make one more");
    });
}

/// Wakes the task that it belongs to when dropped.
struct WakesItself(Arc<Mutex<Option<Waker>>>, #[expect(dead_code, reason = "it is there to be dropped")] Token);

impl Drop for WakesItself {
    fn drop(&mut self) {
        if let Some(waker) = self.0.lock().unwrap().take() {
            waker.wake_by_ref();
            waker.wake();
        }
    }
}

#[test]
fn a_future_may_wake_itself_from_its_destructor() {
    guarded(|| {
        let drops = Drops::default();
        let runtime = runtime(2);
        for ending in 0..3 {
            let place = Arc::new(Mutex::new(None));
            let (wakes, shared) = (WakesItself(Arc::clone(&place), drops.token()), Arc::clone(&place));
            let task = runtime.spawn(async move {
                let _wakes = wakes;
                poll_fn(|cx| {
                    *shared.lock().unwrap() = Some(cx.waker().clone());
                    Poll::Ready(())
                })
                .await;
                if ending > 0 {
                    pending::<()>().await;
                }
            });
            wait_until("it has been polled", || place.lock().unwrap().is_some() || task.is_finished());
            if ending == 1 {
                task.abort();
            }
            if ending < 2 {
                let _ = runtime.block_on(task);
            }
        }
        drop(runtime);
        assert_eq!(drops.count(), 3);
    });
}

struct SpawnsOnDrop(Handle, Drops, u32);

impl Drop for SpawnsOnDrop {
    fn drop(&mut self) {
        if self.2 > 0 {
            let (token, next) = (self.1.token(), SpawnsOnDrop(self.0.clone(), self.1.clone(), self.2 - 1));
            drop(self.0.spawn(async move {
                let _both = (token, next);
            }));
        }
    }
}

#[test]
fn destructors_may_spawn_tasks_whose_destructors_spawn() {
    guarded(|| {
        let (drops, runtime) = (Drops::default(), runtime(2));
        for _ in 0..50 {
            let spawns = SpawnsOnDrop(runtime.handle(), drops.clone(), 20);
            drop(runtime.spawn(async move { drop(spawns) }));
        }
        wait_until("the chains have ended", || drops.count() == 1_000);
    });
}

#[test]
fn a_task_may_await_abort_and_drop_its_own_handle() {
    guarded(|| {
        let (drops, runtime) = (Drops::default(), runtime(2));
        let own = |runtime: &evenkeel::Runtime, act: fn(JoinHandle<()>)| {
            let token = drops.token();
            let (give, given) = futures::channel::oneshot::channel::<JoinHandle<()>>();
            let task = runtime.spawn(async move {
                let _token = token;
                act(given.await.unwrap());
                evenkeel::yield_now().await;
            });
            give.send(task).unwrap();
        };
        own(&runtime, drop);
        own(&runtime, |task| task.abort());
        wait_until("both have ended", || drops.count() == 2);
        // Awaiting oneself never ends; shutdown does.
        let token = drops.token();
        let (give, given) = futures::channel::oneshot::channel::<JoinHandle<()>>();
        let task = runtime.spawn(async move {
            let _token = token;
            let _ = given.await.unwrap().await;
        });
        give.send(task).unwrap();
        drop(runtime);
        assert_eq!(drops.count(), 3);
    });
}

#[test]
fn two_tasks_may_hold_each_others_handles() {
    guarded(|| {
        let (drops, runtime) = (Drops::default(), runtime(2));
        let cycle = || {
            let (give, given) = futures::channel::oneshot::channel::<JoinHandle<()>>();
            let token = drops.token();
            let task = runtime.spawn(async move {
                let _token = token;
                let _ = given.await.unwrap().await;
            });
            (give, task)
        };
        let ((give_one, one), (give_two, two)) = (cycle(), cycle());
        give_one.send(two).unwrap();
        give_two.send(one).unwrap();
        drop(runtime);
        assert_eq!(drops.count(), 2);
    });
}

/// Each waker wakes the next when it is called: a wake within a wake.
#[test]
fn wakers_may_call_wakers() {
    struct Chain(Option<Waker>, Arc<AtomicUsize>);
    impl std::task::Wake for Chain {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            if let Some(next) = &self.0 {
                next.wake_by_ref();
            }
        }
    }
    guarded(|| {
        let runtime = runtime(2);
        let count = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&count);
        let mut sleep = evenkeel::sleep(Duration::from_millis(1));
        let mut polls = 0;
        let task = runtime.spawn(poll_fn(move |cx| {
            polls += 1;
            let chain =
                (0..1_000).fold(cx.waker().clone(), |next, _| Arc::new(Chain(Some(next), inner.clone())).into());
            Pin::new(&mut sleep).poll(&mut Context::from_waker(&chain)).map(|()| polls)
        }));
        assert!(runtime.block_on(task).unwrap() >= 2);
        assert_eq!(count.load(Ordering::SeqCst) % 1_000, 0);
    });
}

/// A waker that spawns when a timer calls it: on a worker, between polls.
#[test]
fn a_waker_may_spawn() {
    struct Spawns(Handle, Drops);
    impl std::task::Wake for Spawns {
        fn wake(self: Arc<Self>) {
            let token = self.1.token();
            drop(self.0.spawn(async move { drop(token) }));
        }
    }
    guarded(|| {
        let (drops, runtime) = (Drops::default(), runtime(1));
        let tenant = runtime.group("tenant").build().unwrap();
        let waker: Waker = Arc::new(Spawns(runtime.handle(), drops.clone())).into();
        let mut sleep = evenkeel::sleep(Duration::from_millis(1));
        let busy = tenant.spawn(async move {
            assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
            while Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending() {
                evenkeel::yield_now().await;
            }
        });
        runtime.block_on(busy).unwrap();
        wait_until("the spawned task has ended", || drops.count() == 1);
    });
}

#[test]
fn tasks_that_block_their_threads_delay_only_themselves() {
    guarded(|| {
        let runtime = runtime(3);
        let (free, is_free) = std::sync::mpsc::channel::<()>();
        let is_free = Arc::new(Mutex::new(is_free));
        let blockers: Vec<_> = (0..2)
            .map(|_| {
                let is_free = Arc::clone(&is_free);
                runtime.spawn(async move { is_free.lock().unwrap().recv().unwrap_err() })
            })
            .collect();
        let others = (0..1_000u64).map(|n| {
            runtime.spawn(async move {
                evenkeel::yield_now().await;
                evenkeel::sleep(Duration::from_micros(n % 300)).await;
            })
        });
        let others: Vec<_> = others.collect();
        runtime.block_on(futures::future::join_all(others));
        drop(free);
        let freed = runtime.block_on(futures::future::join_all(blockers));
        assert!(freed.iter().all(Result::is_ok));
    });
}

#[test]
fn a_flood_of_tasks_completes() {
    guarded(|| {
        for workers in [1, 3, 16] {
            let runtime = runtime(workers);
            let done = Arc::new(AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..10_000 {
                            let done = Arc::clone(&done);
                            drop(runtime.spawn(async move {
                                evenkeel::yield_now().await;
                                done.fetch_add(1, Ordering::Relaxed);
                            }));
                        }
                    });
                }
            });
            wait_until("all are done", || done.load(Ordering::Relaxed) == 30_000);
        }
    });
}

#[test]
fn a_deep_chain_of_spawns_completes() {
    fn chain(depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
        Box::pin(async move { if depth == 0 { 0 } else { 1 + evenkeel::spawn(chain(depth - 1)).await.unwrap() } })
    }
    guarded(|| {
        for workers in [1, 2] {
            let runtime = runtime(workers);
            assert_eq!(runtime.block_on(runtime.spawn(chain(5_000))).unwrap(), 5_000);
        }
    });
}

#[test]
fn runtimes_inside_runtimes_end() {
    guarded(|| {
        let outer = runtime(2);
        let tasks = (0..10).map(|n| {
            outer.spawn(async move {
                let inner = runtime(1);
                let sum = inner.spawn(async move { n + 1 }).await.unwrap();
                drop(inner);
                sum
            })
        });
        let tasks: Vec<_> = tasks.collect();
        let sums = outer.block_on(futures::future::join_all(tasks));
        assert_eq!(sums.into_iter().map(Result::unwrap).sum::<i32>(), 55);
    });
}

#[test]
fn what_users_hold_can_be_sent_and_shared() {
    fn is_send_sync<T: Send + Sync>() {}
    fn is_unpin<T: Unpin>() {}
    is_send_sync::<evenkeel::Runtime>();
    is_send_sync::<Handle>();
    is_send_sync::<evenkeel::Group>();
    is_send_sync::<evenkeel::JoinError>();
    is_send_sync::<JoinHandle<u8>>();
    is_send_sync::<evenkeel::Sleep>();
    is_unpin::<JoinHandle<std::marker::PhantomPinned>>();
    is_unpin::<evenkeel::Sleep>();
}

/// Handles of what can be sent but not shared.
#[test]
fn an_output_need_not_be_sync() {
    let runtime = runtime(1);
    let cell = runtime.block_on(runtime.spawn(async { std::cell::Cell::new(4) })).unwrap();
    assert_eq!(cell.get(), 4);
}
