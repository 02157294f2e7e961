//! Futures that hold a mutex while they wake others, as many libraries do, run on one OS thread without waiting for themselves:
//! no CPU is left in the middle of a poll, a waker or a destructor.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::us;
use evenkeel_core::Time;
use evenkeel_engine::api::{self, Handle};
use evenkeel_sim::machine::{Machine, Tick};
use evenkeel_sim::{Config, Preemption, RecordKind, Simulation};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Runs `setup`, which counts tasks that end, on machines of few and many CPUs, with and without ticks that preempt.
fn everywhere(setup: impl Fn(&Handle, u64) -> Arc<AtomicU64>) {
    let text = include_str!("../../../machines/flat-64.toml");
    for cpus in [1, 2, 64] {
        let text = text.replace("cores_per_cache = 64", &format!("cores_per_cache = {cpus}"));
        let tick = Some(Tick { period: us(20), handler: us(1) });
        let machine = Machine { tick, ..Machine::parse("m.toml", &text).unwrap() };
        for preemption in [Preemption::BetweenPolls, Preemption::AtTicks] {
            let mut sim = Simulation::new(Config { preemption, ..Config::new(machine.clone()) }).unwrap();
            let tasks = 2 * cpus + 3;
            let ended = sim.with(|handle| setup(handle, tasks));
            sim.run_until(Time::ZERO.after(us(400_000))).unwrap();
            assert_eq!(ended.load(Ordering::Relaxed), tasks, "{cpus} CPUs, {preemption:?}");
            sim.stop().unwrap();
        }
    }
}

/// A lock that says so, rather than wait, if it is held: on one thread it would wait for ever.
trait TryLock<T>: Send + Sync + 'static {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
}

impl<T: Send + 'static> TryLock<T> for std::sync::Mutex<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.try_lock().expect("nobody is inside: polls are not left in the middle"))
    }
}

impl<T: Send + 'static> TryLock<T> for parking_lot::Mutex<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.try_lock().expect("nobody is inside: polls are not left in the middle"))
    }
}

/// Whose turn it is, and who waits for its own.
type Turns = (u64, Vec<Waker>);

const ROUNDS: u64 = 5;

/// Tasks take turns in a ring. Each wakes all others while it holds the lock, and computes before and after.
fn ring<L: TryLock<Turns>>(handle: &Handle, tasks: u64, turns: L) -> Arc<AtomicU64> {
    let (turns, ended) = (Arc::new(turns), Arc::new(AtomicU64::new(0)));
    let groups = ["a", "b"].map(|name| handle.group(name).build().unwrap());
    for task in 0..tasks {
        let (turns, ended) = (Arc::clone(&turns), Arc::clone(&ended));
        drop(groups[usize::from(task % 2 == 0)].spawn(async move {
            for _ in 0..ROUNDS {
                poll_fn(|cx| {
                    turns.with(|(turn, wakers)| {
                        api::compute(Duration::from_nanos(300));
                        if *turn % tasks != task {
                            wakers.push(cx.waker().clone());
                            return Poll::Pending;
                        }
                        *turn += 1;
                        wakers.drain(..).for_each(Waker::wake);
                        api::compute(Duration::from_nanos(300));
                        Poll::Ready(())
                    })
                })
                .await;
                api::run(Duration::from_micros(3)).await;
            }
            ended.fetch_add(1, Ordering::Relaxed);
        }));
    }
    ended
}

#[test]
fn a_mutex_of_std_may_be_held_across_a_wake() {
    everywhere(|handle, tasks| ring(handle, tasks, std::sync::Mutex::new((0, Vec::new()))));
}

#[test]
fn a_mutex_of_parking_lot_may_be_held_across_a_wake() {
    everywhere(|handle, tasks| ring(handle, tasks, parking_lot::Mutex::new((0, Vec::new()))));
}

#[test]
fn a_destructor_may_wake_under_a_mutex() {
    struct Leaves(Arc<parking_lot::Mutex<Turns>>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            self.0.with(|(left, wakers)| {
                *left += 1;
                wakers.drain(..).for_each(Waker::wake);
                api::compute(Duration::from_nanos(300));
            });
        }
    }
    everywhere(|handle, tasks| {
        let (turns, ended) = (Arc::new(parking_lot::Mutex::new((0, Vec::new()))), Arc::new(AtomicU64::new(0)));
        for _ in 0..tasks {
            let (leaves, turns, ended) = (Leaves(Arc::clone(&turns)), Arc::clone(&turns), Arc::clone(&ended));
            // The first half of each task: dropped when it ends. All wait until all have left.
            let first = handle.spawn(async move {
                api::run(Duration::from_micros(2)).await;
                drop(leaves);
            });
            drop(handle.spawn(async move {
                first.await.unwrap();
                poll_fn(|cx| {
                    turns.with(|(left, wakers)| {
                        if *left == tasks {
                            return Poll::Ready(());
                        }
                        wakers.push(cx.waker().clone());
                        Poll::Pending
                    })
                })
                .await;
                ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
        ended
    });
}

/// A waker of another kind, which does things under a mutex before it passes the wake on.
struct Loud {
    inside: Arc<std::sync::Mutex<u64>>,
    inner: Waker,
}

impl Wake for Loud {
    fn wake(self: Arc<Self>) {
        self.inside.with(|wakes| {
            *wakes += 1;
            api::compute(Duration::from_nanos(300));
            self.inner.wake_by_ref();
            api::compute(Duration::from_nanos(300));
        });
    }
}

#[test]
fn a_waker_of_another_kind_may_lock_when_timers_fire() {
    everywhere(|handle, tasks| {
        let (inside, ended) = (Arc::new(std::sync::Mutex::new(0)), Arc::new(AtomicU64::new(0)));
        for task in 0..tasks {
            let (inside, ended) = (Arc::clone(&inside), Arc::clone(&ended));
            drop(handle.spawn(async move {
                for _ in 0..ROUNDS {
                    let mut sleep = Box::pin(api::sleep(Duration::from_micros(20 + task % 3)));
                    poll_fn(|cx| {
                        let loud = Loud { inside: Arc::clone(&inside), inner: cx.waker().clone() };
                        sleep.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(loud))))
                    })
                    .await;
                }
                inside.with(|wakes| assert!(*wakes >= ROUNDS));
                ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
        ended
    });
}

#[test]
fn event_listener_runs() {
    everywhere(|handle, tasks| {
        let (event, turn) = (Arc::new(event_listener::Event::new()), Arc::new(AtomicU64::new(0)));
        let ended = Arc::new(AtomicU64::new(0));
        for task in 0..tasks {
            let (event, turn, ended) = (Arc::clone(&event), Arc::clone(&turn), Arc::clone(&ended));
            drop(handle.spawn(async move {
                for _ in 0..ROUNDS {
                    // Ends: whoever passes the turn on notifies all that listen.
                    loop {
                        let listener = event.listen();
                        if turn.load(Ordering::Acquire) % tasks == task {
                            break;
                        }
                        listener.await;
                    }
                    api::run(Duration::from_micros(1)).await;
                    turn.fetch_add(1, Ordering::Release);
                    event.notify(usize::MAX);
                }
                ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
        ended
    });
}

#[test]
fn async_lock_runs() {
    everywhere(|handle, tasks| {
        let (shared, ended) = (Arc::new(async_lock::Mutex::new(0_u64)), Arc::new(AtomicU64::new(0)));
        for _ in 0..tasks {
            let (shared, ended) = (Arc::clone(&shared), Arc::clone(&ended));
            drop(handle.spawn(async move {
                for _ in 0..ROUNDS {
                    let mut inside = shared.lock().await;
                    let before = *inside;
                    api::run(Duration::from_micros(2)).await;
                    *inside = before + 1;
                }
                // Held across all that is awaited: nobody's increment is lost. A task that panics has not ended.
                let is_last = ended.load(Ordering::Relaxed) + 1 == tasks;
                assert!(!is_last || *shared.lock().await == tasks * ROUNDS);
                ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
        ended
    });
}

#[test]
fn async_channel_runs() {
    everywhere(|handle, tasks| {
        let (sender, receiver) = async_channel::bounded::<u64>(2);
        let (sum, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let producers = tasks / 2;
        for task in 0..tasks {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            let (sum, ended) = (Arc::clone(&sum), Arc::clone(&ended));
            drop(handle.spawn(async move {
                if task < producers {
                    drop(receiver);
                    for number in 0..20 {
                        api::run(Duration::from_nanos(700)).await;
                        sender.send(number).await.unwrap();
                    }
                } else {
                    drop(sender);
                    while let Ok(number) = receiver.recv().await {
                        api::run(Duration::from_micros(1)).await;
                        sum.fetch_add(number, Ordering::Relaxed);
                    }
                }
                // A task that panics has not ended.
                let is_last = ended.load(Ordering::Relaxed) + 1 == tasks;
                assert!(!is_last || sum.load(Ordering::Relaxed) == producers * 190);
                ended.fetch_add(1, Ordering::Relaxed);
            }));
        }
        ended
    });
}

#[test]
fn ticks_do_preempt_in_these_tests() {
    // Two tasks that await long work on one CPU: with ticks that preempt they take turns within it.
    let dispatches = |preemption| {
        let text = include_str!("../../../machines/flat-4.toml").replace("cores_per_cache = 4", "cores_per_cache = 1");
        let tick = Some(Tick { period: us(20), handler: us(1) });
        let machine = Machine { tick, ..Machine::parse("m.toml", &text).unwrap() };
        let mut sim = Simulation::new(Config { preemption, slice: us(100), ..Config::new(machine) }).unwrap();
        sim.keep_records();
        let groups = ["a", "b"].map(|name| sim.handle().group(name).build().unwrap());
        sim.with(|_| {
            for group in &groups {
                drop(group.spawn(async { api::run(Duration::from_millis(5)).await }));
            }
        });
        sim.run_until(Time::ZERO.after(us(20_000))).unwrap();
        sim.records().iter().filter(|record| record.kind == RecordKind::Dispatch).count()
    };
    assert!(dispatches(Preemption::BetweenPolls) < 10);
    assert!(dispatches(Preemption::AtTicks) > 20);
}
