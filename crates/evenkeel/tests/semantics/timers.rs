//! Sleeping.

use crate::support::{Drops, guarded, runtime, wait_until};
use evenkeel::{Elapsed, Sleep, Span, Time};
use futures::FutureExt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_sleep_for_ever_never_fires_and_never_panics() {
    guarded(|| {
        let runtime = runtime(2);
        let almost = Duration::from_nanos(u64::MAX - 1_000_000_000);
        let spans = [Duration::MAX, Duration::from_nanos(u64::MAX), almost, Duration::from_secs(u64::MAX / 4)];
        let sleepers: Vec<_> = spans.map(|span| runtime.spawn(evenkeel::sleep(span))).into();
        // A later timer on each CPU has fired, and the workers have parked with the long ones in their heaps.
        let short = (0..8).map(|_| runtime.spawn(evenkeel::sleep(Duration::from_millis(3))));
        runtime.block_on(futures::future::join_all(short.collect::<Vec<_>>()));
        wait_until("it is idle", || runtime.load().parked == 2);
        assert!(sleepers.iter().all(|sleeper| !sleeper.is_finished()));
        assert!(runtime.block_on(evenkeel::timeout(Duration::from_millis(1), evenkeel::sleep(Duration::MAX))).is_err());
        sleepers.iter().for_each(evenkeel::JoinHandle::abort);
        for sleeper in sleepers {
            assert!(runtime.block_on(sleeper).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn no_time_at_all_and_times_past_are_ready_at_once() {
    guarded(|| {
        let runtime = runtime(1);
        runtime.block_on(async {
            assert!(evenkeel::sleep(Duration::ZERO).now_or_never().is_some());
            assert!(evenkeel::sleep_until(Time::ZERO).now_or_never().is_some());
            assert!(evenkeel::sleep_until(evenkeel::now()).now_or_never().is_some());
            assert!(evenkeel::sleep_until(Time::NEVER).now_or_never().is_none());
        });
    });
}

#[test]
fn no_sleep_is_short() {
    guarded(|| {
        let runtime = runtime(2);
        let sleepers = (0..200u64).map(|n| {
            runtime.spawn(async move {
                let span = Span::from_micros(n * 37);
                let began = evenkeel::now();
                evenkeel::sleep(span.into()).await;
                evenkeel::now().since(began) >= span
            })
        });
        let slept = runtime.block_on(futures::future::join_all(sleepers.collect::<Vec<_>>()));
        assert!(slept.into_iter().all(Result::unwrap));
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    guarded(|| {
        let runtime = runtime(1);
        let woken = Arc::new(std::sync::Mutex::new(Vec::new()));
        let start = runtime.handle().now().after(Span::from_millis(20));
        let sleepers = [5u64, 1, 9, 3, 7].map(|n| {
            let woken = Arc::clone(&woken);
            runtime.spawn(async move {
                evenkeel::sleep_until(start.after(Span::from_millis(n))).await;
                woken.lock().unwrap().push(n);
            })
        });
        runtime.block_on(futures::future::join_all(sleepers));
        assert_eq!(*woken.lock().unwrap(), [1, 3, 5, 7, 9]);
    });
}

#[test]
fn a_timeout_gives_the_output_or_elapses() {
    guarded(|| {
        let runtime = runtime(2);
        runtime.block_on(async {
            let long = Duration::from_secs(3_600);
            assert_eq!(evenkeel::timeout(long, async { 3 }).await, Ok(3));
            assert_eq!(evenkeel::timeout(Duration::ZERO, async { 3 }).await, Ok(3), "the future comes first");
            assert_eq!(evenkeel::timeout(Duration::from_millis(1), pending::<()>()).await, Err(Elapsed));
            assert_eq!(evenkeel::timeout(Duration::MAX, async { 3 }).await, Ok(3));
        });
    });
}

#[test]
fn a_timeout_drops_its_future_once() {
    guarded(|| {
        let runtime = runtime(2);
        let drops = Drops::default();
        let tasks = (0..100).map(|_| {
            let token = drops.token();
            runtime.spawn(evenkeel::timeout(Duration::from_millis(1), async move {
                let _token = token;
                pending::<()>().await;
            }))
        });
        let tasks: Vec<_> = tasks.collect();
        let ended = runtime.block_on(futures::future::join_all(tasks));
        assert!(ended.into_iter().all(|end| end.unwrap().is_err()));
        assert_eq!(drops.count(), 100);
    });
}

/// A hundred thousand sleeps, dropped while they wait; the waker of each is ours to count.
#[test]
fn dropped_sleeps_keep_nothing() {
    struct Counted(#[expect(dead_code, reason = "it is there to be dropped")] crate::support::Token);
    impl std::task::Wake for Counted {
        fn wake(self: Arc<Self>) {}
    }
    guarded(|| {
        let runtime = runtime(1);
        let drops = Drops::default();
        let inner = drops.clone();
        let task = runtime.spawn(async move {
            for n in 0..100_000u64 {
                let waker = Arc::new(Counted(inner.token())).into();
                let mut sleep = evenkeel::sleep(Duration::from_secs(3_600));
                assert!(sleep.poll_unpin(&mut std::task::Context::from_waker(&waker)).is_pending());
                drop((sleep, waker));
                if n % 1_000 == 0 {
                    evenkeel::yield_now().await;
                }
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(drops.count(), 100_000);
    });
}

#[test]
fn many_timers_all_fire() {
    guarded(|| {
        let runtime = runtime(3);
        let fired = Arc::new(AtomicUsize::new(0));
        let tasks = (0..20_000u64).map(|n| {
            let fired = Arc::clone(&fired);
            runtime.spawn(async move {
                evenkeel::sleep(Duration::from_micros(n * 7 % 20_000)).await;
                fired.fetch_add(1, Ordering::Relaxed);
            })
        });
        let tasks: Vec<_> = tasks.collect();
        runtime.block_on(futures::future::join_all(tasks));
        assert_eq!(fired.load(Ordering::Relaxed), 20_000);
    });
}

/// A sleep that was armed on a runtime which then ended.
fn orphan(span: Duration) -> Sleep {
    let runtime = runtime(1);
    let mut sleep = evenkeel::sleep(span);
    assert!(runtime.block_on(async { (&mut sleep).now_or_never() }).is_none());
    sleep
}

#[test]
fn a_sleep_whose_runtime_has_ended_goes_on_where_it_is_polled() {
    guarded(|| {
        let sleep = orphan(Duration::from_millis(2));
        let runtime = runtime(2);
        runtime.block_on(runtime.spawn(sleep)).unwrap();
    });
}

#[test]
fn a_sleep_whose_runtime_ends_meanwhile_goes_on_where_it_is_polled() {
    guarded(|| {
        let (one, two) = (runtime(1), runtime(1));
        let mut sleep = evenkeel::sleep(Duration::from_millis(20));
        assert!(one.block_on(async { (&mut sleep).now_or_never() }).is_none());
        let task = two.spawn(sleep);
        drop(one);
        two.block_on(task).unwrap();
    });
}

#[test]
fn what_is_left_of_a_sleep_is_kept_from_one_clock_to_another() {
    guarded(|| {
        // The old runtime's clock has run for far longer than either sleep lasts.
        let old = runtime(1);
        wait_until("the old clock is ahead", || old.handle().now() > Time::ZERO.after(Span::from_millis(300)));
        let mut sleep = evenkeel::sleep(Duration::from_millis(30));
        assert!(old.block_on(async { (&mut sleep).now_or_never() }).is_none());
        drop(old);
        let new = runtime(1);
        let (tell, told) = std::sync::mpsc::channel();
        let tasks = [("moved", sleep), ("later", evenkeel::sleep(Duration::from_millis(60)))].map(|(name, sleep)| {
            let tell = tell.clone();
            new.spawn(async move {
                sleep.await;
                tell.send(name).unwrap();
            })
        });
        new.block_on(futures::future::join_all(tasks));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["moved", "later"]);
    });
}

#[test]
fn a_sleep_moves_between_tasks() {
    guarded(|| {
        let (one, two) = (runtime(2), runtime(2));
        for _ in 0..50 {
            let sleep = evenkeel::sleep(Duration::from_millis(1));
            let shared = futures::FutureExt::shared(sleep);
            let tasks = [one.spawn(shared.clone()), two.spawn(shared.clone()), one.spawn(shared)];
            futures::executor::block_on(futures::future::join_all(tasks));
        }
    });
}

#[test]
fn what_a_foreign_waker_of_a_timer_spawns_belongs_to_no_group_that_happened_to_run() {
    struct Spawner(std::sync::Mutex<Option<evenkeel::JoinHandle<()>>>);
    impl std::task::Wake for Spawner {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() = Some(evenkeel::spawn(async {}));
        }
    }
    guarded(|| {
        let runtime = runtime(1);
        let busy = runtime.group("busy").build().unwrap();
        let task = busy.spawn(async {
            loop {
                evenkeel::yield_now().await;
            }
        });
        let spawner = Arc::new(Spawner(std::sync::Mutex::new(None)));
        let waker = std::task::Waker::from(Arc::clone(&spawner));
        let mut sleep = std::pin::pin!(evenkeel::sleep(Duration::from_millis(5)));
        runtime.block_on(async {
            let mut cx = std::task::Context::from_waker(&waker);
            assert!(std::future::Future::poll(sleep.as_mut(), &mut cx).is_pending());
        });
        wait_until("the waker has spawned", || spawner.0.lock().unwrap().is_some());
        let spawned = spawner.0.lock().unwrap().take().unwrap();
        runtime.block_on(spawned).unwrap();
        task.abort();
        let _ = runtime.block_on(task);
        let default = runtime.default_group().id();
        wait_until("its poll is counted", || {
            runtime.stats().groups.iter().any(|group| group.id == default && group.polls == 1)
        });
    });
}
