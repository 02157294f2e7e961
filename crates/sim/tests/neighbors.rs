//! Machines in one process: they wake each other's tasks, and a runtime on threads beside them changes nothing.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, spin_in, us};
use evenkeel_core::Time;
use evenkeel_engine::api::{self, JoinHandle};
use evenkeel_sim::{Config, Digest, Simulation};
use futures::channel::{mpsc, oneshot};
use futures::{SinkExt, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn start(name: &str) -> Simulation {
    Simulation::new(Config::new(machine(name))).unwrap()
}

fn until(micros: u64) -> Time {
    Time::ZERO.after(us(micros))
}

/// Takes what comes, computes, and passes one more on, until it has passed on `last`.
async fn pass_on(mut inlet: mpsc::Receiver<u64>, mut outlet: mpsc::Sender<u64>, last: u64) -> u64 {
    let mut passed = 0;
    while let Some(number) = inlet.next().await {
        api::run(Duration::from_micros(3)).await;
        passed += 1;
        // The other one may have ended.
        if outlet.send(number + 1).await.is_err() || number >= last {
            break;
        }
    }
    passed
}

/// Two machines in turns, whose tasks pass a number to and fro beside some that compute.
fn two_machines() -> (Digest, Digest, u64) {
    let (mut one, mut other) = (start("flat-4"), start("xeon-e5-2650v4-2s"));
    for sim in [&mut one, &mut other] {
        let group = sim.handle().group("busy").build().unwrap();
        sim.with(|_| spin_in(&group, 6, us(20)));
    }
    let (mut first, here) = mpsc::channel(4);
    let (to_there, there) = mpsc::channel(4);
    first.try_send(0).unwrap();
    let to_here = first.clone();
    drop(first);
    let ours = one.with(|handle| handle.spawn(pass_on(here, to_there, 60)));
    let theirs = other.with(|handle| handle.spawn(pass_on(there, to_here, 60)));
    for turn in 1..=80 {
        one.run_until(until(50 * turn)).unwrap();
        other.run_until(until(70 * turn)).unwrap();
    }
    let passed = one.block_on(ours).unwrap().unwrap() + other.block_on(theirs).unwrap().unwrap();
    one.stop().unwrap();
    other.stop().unwrap();
    (one.digest(), other.digest(), passed)
}

#[test]
fn two_machines_that_wake_each_others_tasks_repeat() {
    let first = two_machines();
    assert!(first.2 >= 60, "{}", first.2);
    assert_eq!(first, two_machines());
}

#[test]
fn a_runtime_that_is_busy_beside_two_machines_changes_nothing() {
    let alone = two_machines();
    let runtime = evenkeel::Runtime::builder().workers(2).build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            runtime.spawn(async move {
                let mut turns = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    turns += 1;
                    evenkeel::sleep(Duration::from_micros(50)).await;
                    evenkeel::yield_now().await;
                }
                turns
            })
        })
        .collect();
    let beside = two_machines();
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        assert!(runtime.block_on(task).unwrap() > 0);
    }
    assert_eq!(beside, alone);
}

#[test]
fn two_machines_and_a_runtime_wake_each_other_around_a_ring() {
    let runtime = evenkeel::Runtime::builder().workers(2).build().unwrap();
    let (mut one, mut other) = (start("flat-4"), start("flat-16"));
    let [(to_one, at_one), (to_other, at_other), (to_threads, at_threads)] = [0; 3].map(|_| mpsc::channel(1));
    let (done, mut is_done) = mpsc::channel(64);
    let ours = one.with(|handle| handle.spawn(pass_on(at_one, to_other, 90)));
    let theirs = other.with(|handle| handle.spawn(pass_on(at_other, to_threads, 90)));
    let on_threads = runtime.spawn(tell(at_threads, to_one.clone(), done));
    to_one.clone().try_send(0).unwrap();
    drop(to_one);
    for turn in 1..=30_u64 {
        one.run_until(until(100 * turn)).unwrap();
        other.run_until(until(100 * turn)).unwrap();
        // Waits for the threads: their wake is there when the machines go on.
        assert_eq!(runtime.block_on(is_done.next()), Some(3 * turn - 1));
    }
    one.stop().unwrap();
    other.stop().unwrap();
    assert_eq!(runtime.block_on(on_threads).unwrap(), 30);
    let ours = one.block_on(ours).unwrap();
    assert!(ours.is_err(), "its machine has stopped: {ours:?}");
    assert!(runtime.block_on(theirs).is_err(), "its machine has stopped");
}

/// As [`pass_on`], on threads; tells what it has passed on, after that.
async fn tell(mut inlet: mpsc::Receiver<u64>, mut outlet: mpsc::Sender<u64>, mut done: mpsc::Sender<u64>) -> u64 {
    let mut passed = 0;
    while let Some(number) = inlet.next().await {
        passed += 1;
        let is_sent = outlet.send(number + 1).await.is_ok();
        if done.send(number).await.is_err() || !is_sent {
            break;
        }
    }
    passed
}

#[test]
fn machines_on_two_threads_wake_each_other() {
    let (to_there, there) = oneshot::channel::<u32>();
    let (to_here, here) = oneshot::channel::<u32>();
    let other = std::thread::spawn(move || {
        let mut sim = start("flat-16");
        let task = sim.with(|handle| {
            handle.spawn(async move {
                to_here.send(1).unwrap();
                there.await.unwrap()
            })
        });
        let got = wait(&mut sim, task);
        sim.stop().unwrap();
        got
    });
    let mut sim = start("flat-4");
    let task = sim.with(|handle| {
        handle.spawn(async move {
            let got = here.await.unwrap();
            to_there.send(got + 1).unwrap();
            got
        })
    });
    assert_eq!(wait(&mut sim, task), 1);
    assert_eq!(other.join().unwrap(), 2);
    sim.stop().unwrap();
}

/// Lets a simulation go on until a task has ended for which another thread has to do something. Ends: that thread does.
fn wait<T: 'static>(sim: &mut Simulation, task: JoinHandle<T>) -> T {
    while !task.is_finished() {
        sim.run_until(sim.now().after(us(10))).unwrap();
        std::thread::yield_now();
    }
    sim.block_on(task).unwrap().unwrap()
}

#[test]
fn a_task_may_run_a_machine_of_its_own() {
    let alone = {
        let mut sim = start("flat-4");
        sim.block_on(async { api::run(Duration::from_micros(5)).await }).unwrap();
        sim.stop().unwrap();
        sim.digest()
    };
    let mut outer = Simulation::new(Config { stack: 4 << 20, ..Config::new(machine("flat-4")) }).unwrap();
    let nested = outer.block_on(async {
        let began = api::now();
        let mut inner = start("flat-4");
        inner.block_on(async { api::run(Duration::from_micros(5)).await }).unwrap();
        inner.stop().unwrap();
        // The time of the inner machine is not the outer one's.
        assert!(api::now().since(began) < us(1));
        api::run(Duration::from_micros(1)).await;
        inner.digest()
    });
    assert_eq!(nested.unwrap(), alone);
    outer.stop().unwrap();
}

#[test]
fn a_machine_that_has_gone_leaves_the_others_in_peace() {
    let (mut one, mut other) = (start("flat-4"), start("flat-4"));
    let (sender, receiver) = oneshot::channel::<u32>();
    let waits = one.with(|handle| handle.spawn(async move { receiver.await.is_ok() }));
    one.run_until(until(100)).unwrap();
    // A task there holds what wakes a task here, and waits for one here.
    let task = other.with(|handle| {
        handle.spawn(async move {
            api::sleep(Duration::from_micros(500)).await;
            (sender.send(1).is_ok(), waits.await.is_err())
        })
    });
    other.run_until(until(100)).unwrap();
    drop(one);
    assert_eq!(other.block_on(task).unwrap().unwrap(), (false, true));
    other.stop().unwrap();
}
