//! Spawn, wake, abort, panic, sleep and shutdown in every order, drawn from a seed; every future is dropped once.

use crate::support::{Drops, guarded, runtime};
use evenkeel::{Group, Handle, JoinHandle, Runtime};
use futures::channel::oneshot;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A small generator of our own: a seed gives the same program everywhere (Marsaglia 2003, xorshift).
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn fork(&mut self) -> Draws {
        Draws(self.below(u64::MAX) | 1)
    }
}

/// What all tasks of a run share.
struct World {
    made: AtomicUsize,
    drops: Drops,
    /// Handles and wakers that tasks have left for each other.
    handles: Mutex<Vec<JoinHandle<u64>>>,
    wakes: Mutex<Vec<oneshot::Sender<()>>>,
    groups: Vec<Group>,
    fuel: AtomicU64,
}

impl World {
    fn takes_fuel(&self) -> bool {
        self.fuel.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fuel| fuel.checked_sub(1)).is_ok()
    }

    fn pop<T>(place: &Mutex<Vec<T>>, draws: &mut Draws) -> Option<T> {
        let mut all = place.lock().unwrap();
        let count = all.len() as u64;
        (count > 0).then(|| all.swap_remove(usize::try_from(draws.below(count)).unwrap()))
    }

    fn spawn(self: &Arc<Self>, draws: &mut Draws) -> JoinHandle<u64> {
        self.made.fetch_add(1, Ordering::SeqCst);
        let body = body(Arc::clone(self), draws.fork());
        match draws.below(4) {
            0 => match Handle::try_current() {
                Ok(handle) => handle.spawn(body),
                Err(_) => self.groups[0].spawn(body),
            },
            group => self.groups[usize::try_from(group).unwrap() % self.groups.len()].spawn(body),
        }
    }
}

/// One task: a few random steps.
fn body(world: Arc<World>, mut draws: Draws) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    // Made here, so that a future which is never polled is counted too.
    let token = world.drops.token();
    Box::pin(async move {
        let _token = token;
        for _ in 0..1 + draws.below(6) {
            step(&world, &mut draws).await;
        }
        draws.0
    })
}

async fn step(world: &Arc<World>, draws: &mut Draws) {
    match draws.below(14) {
        0..=2 => evenkeel::yield_now().await,
        3 => evenkeel::sleep(Duration::from_micros(draws.below(400))).await,
        4 if draws.below(8) == 0 => pending().await,
        5 if draws.below(3) == 0 => std::panic::resume_unwind(Box::new("drawn")),
        6 | 7 if world.takes_fuel() => {
            let task = world.spawn(draws);
            world.handles.lock().unwrap().push(task);
        }
        8 if world.takes_fuel() => drop(world.spawn(draws)),
        9 => {
            if let Some(task) = World::pop(&world.handles, draws) {
                task.abort();
            }
        }
        10 => {
            if let Some(task) = World::pop(&world.handles, draws) {
                let limit = Duration::from_micros(draws.below(500));
                let _ = evenkeel::timeout(limit, task).await;
            }
        }
        11 => {
            let (wake, woken) = oneshot::channel();
            world.wakes.lock().unwrap().push(wake);
            let _ = evenkeel::timeout(Duration::from_millis(2), woken).await;
        }
        12 => {
            if let Some(wake) = World::pop(&world.wakes, draws) {
                let _ = wake.send(());
            }
        }
        _ => evenkeel::checkpoint().await,
    }
}

fn end(runtime: Runtime, way: u64) {
    match way {
        0 => drop(runtime),
        1 => assert!(runtime.shutdown_timeout(Duration::MAX)),
        2 => {
            let _ = runtime.shutdown_timeout(Duration::ZERO);
        }
        3 => runtime.shutdown_background(),
        _ => {
            let handle = runtime.handle();
            // The task may be dropped with the runtime inside it.
            drop(handle.spawn(async move { drop(runtime) }));
        }
    }
}

fn run(workers: usize, seed: u64) {
    let mut draws = Draws(seed | 1);
    draws.below(2);
    let runtime = runtime(workers);
    let mut groups = vec![runtime.default_group()];
    groups.extend((1..4).map(|n| runtime.group("stress").weight(n * 10).max_tasks(50).build().unwrap()));
    let world = Arc::new(World {
        made: AtomicUsize::new(0),
        drops: Drops::default(),
        handles: Mutex::default(),
        wakes: Mutex::default(),
        groups,
        fuel: AtomicU64::new(300),
    });
    let outside = (0..2).map(|_| {
        let (world, mut draws) = (Arc::clone(&world), draws.fork());
        std::thread::spawn(move || {
            for _ in 0..60 {
                let task = world.spawn(&mut draws);
                match draws.below(4) {
                    0 => task.abort(),
                    1 => world.handles.lock().unwrap().push(task),
                    2 if draws.below(4) == 0 => {
                        drop(futures::executor::block_on(futures::future::select(task, std::future::ready(()))))
                    }
                    _ => drop(task),
                }
                if let (0, Some(wake)) = (draws.below(3), World::pop(&world.wakes, &mut draws)) {
                    let _ = wake.send(());
                }
            }
        })
    });
    let outside: Vec<_> = outside.collect();
    for _ in 0..draws.below(2_000) {
        std::hint::spin_loop();
    }
    end(runtime, draws.below(5));
    outside.into_iter().for_each(|thread| thread.join().unwrap());
    // Those that were made outside last may be on their way still, if the end was not waited for.
    let made = || world.made.load(Ordering::SeqCst);
    crate::support::wait_until("every future is dropped", || world.drops.count() >= made());
    assert_eq!(world.drops.count(), made(), "every future is dropped once");
    let left = std::mem::take(&mut *world.handles.lock().unwrap());
    left.into_iter().for_each(|task| drop(futures::executor::block_on(task)));
}

/// Prints the line that repeats a run which fails.
struct Names(usize, u64);

impl Drop for Names {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("stress: failed with {} workers; repeat with EVENKEEL_STRESS_SEED={}", self.0, self.1);
        }
    }
}

fn stress(workers: usize) {
    let given = std::env::var("EVENKEEL_STRESS_SEED").ok().map(|seed| seed.parse().unwrap());
    let rounds = if given.is_some() { 1 } else { 40 };
    for round in 0..rounds {
        let drawn = (round + 1u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(workers as u64);
        let seed: u64 = given.unwrap_or(drawn);
        let _names = Names(workers, seed);
        guarded(move || run(workers, seed));
    }
}

#[test]
fn every_order_on_1_worker() {
    stress(1);
}

#[test]
fn every_order_on_2_workers() {
    stress(2);
}

#[test]
fn every_order_on_3_workers() {
    stress(3);
}

#[test]
fn every_order_on_8_workers() {
    stress(8);
}
