//! Groups: who is in which, and when one ends.

use crate::support::{HANG, guarded, runtime, wait_until};
use evenkeel::{Group, GroupError, GroupId, Runtime};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::mpsc;
use std::task::Waker;
use std::time::Duration;

/// Polls of a group so far, as the statistics have them once the runtime is idle.
fn polls_of(runtime: &Runtime, group: &Group) -> u64 {
    wait_until("it is idle", || runtime.load().parked == runtime.workers());
    runtime.stats().groups.iter().find(|stats| stats.id == group.id()).map_or(0, |stats| stats.polls)
}

fn is_listed(runtime: &Runtime, id: GroupId, name: &str) -> bool {
    runtime.stats().groups.iter().any(|stats| stats.id == id && stats.name == name)
}

#[test]
fn a_task_spawned_inside_a_task_joins_its_group() {
    guarded(|| {
        let runtime = runtime(2);
        let group = runtime.group("tenant").build().unwrap();
        let before = polls_of(&runtime, &runtime.default_group());
        let handle = runtime.handle();
        let task = group.spawn(async move {
            let nested = evenkeel::spawn(async { evenkeel::spawn(async {}).await.unwrap() });
            let by_handle = handle.spawn(async {});
            nested.await.unwrap();
            by_handle.await.unwrap();
        });
        runtime.block_on(task).unwrap();
        assert!(polls_of(&runtime, &group) >= 4);
        assert_eq!(polls_of(&runtime, &runtime.default_group()), before);
    });
}

#[test]
fn a_task_spawned_into_another_group_passes_that_one_on() {
    guarded(|| {
        let runtime = runtime(2);
        let (one, two) = (runtime.group("one").build().unwrap(), runtime.group("two").build().unwrap());
        let inner = two.clone();
        let task = one.spawn(async move {
            inner.spawn(async { evenkeel::spawn(async {}).await.unwrap() }).await.unwrap();
        });
        runtime.block_on(task).unwrap();
        assert!(polls_of(&runtime, &two) >= 2);
        let of_one = polls_of(&runtime, &one);
        assert!((1..=2).contains(&of_one), "{of_one} polls");
    });
}

#[test]
fn a_spawn_from_block_on_joins_the_default_group() {
    guarded(|| {
        let runtime = runtime(1);
        runtime.block_on(async { evenkeel::spawn(async {}).await }).unwrap();
        assert_eq!(polls_of(&runtime, &runtime.default_group()), 1);
        assert_eq!(runtime.default_group().name(), "default");
    });
}

#[test]
fn groups_of_one_name_have_different_ids() {
    let runtime = runtime(1);
    let groups: Vec<_> = (0..100).map(|_| runtime.group("same").build().unwrap()).collect();
    let ids: BTreeSet<_> = groups.iter().map(Group::id).collect();
    assert_eq!(ids.len(), 100);
    assert!(groups.iter().all(|group| group.name() == "same"));
}

#[test]
fn weights_out_of_range_are_refused_and_the_message_has_the_range() {
    let runtime = runtime(1);
    for weight in [0, 10_001, u32::MAX] {
        let error = runtime.group("g").weight(weight).build().unwrap_err();
        assert!(matches!(error, GroupError::Weight(_)));
        let message = error.to_string();
        assert!(message.contains(&weight.to_string()) && message.contains("1 to 10000"), "{message}");
    }
    for weight in [1, 100, 10_000] {
        assert_eq!(runtime.group("g").weight(weight).build().unwrap().weight(), weight);
    }
    assert_eq!(runtime.group("g").build().unwrap().weight(), 100);
}

#[test]
fn a_weight_changes_while_tasks_run() {
    guarded(|| {
        let runtime = runtime(2);
        let group = runtime.group("g").weight(5).build().unwrap();
        let same = group.clone();
        let task = group.spawn(async {
            for _ in 0..2_000 {
                evenkeel::yield_now().await;
            }
        });
        let mut weight = 1;
        while !task.is_finished() {
            weight = weight % 10_000 + 1;
            group.set_weight(weight).unwrap();
            assert_eq!(same.weight(), weight);
        }
        assert!(group.set_weight(0).is_err() && group.set_weight(10_001).is_err());
        assert_eq!(group.weight(), weight);
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn a_group_ends_with_its_last_handle() {
    guarded(|| {
        let runtime = runtime(1);
        let group = runtime.group("short").build().unwrap();
        let (id, clone) = (group.id(), group.clone());
        drop(group);
        assert!(is_listed(&runtime, id, "short"));
        drop(clone);
        assert!(!is_listed(&runtime, id, "short"));
    });
}

/// What a task leaves behind must not keep its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    Nothing,
    Handle,
    Waker,
}

#[test]
fn a_group_ends_with_its_last_task() {
    guarded(|| {
        for left in [Left::Nothing, Left::Handle, Left::Waker] {
            let runtime = runtime(2);
            let group = runtime.group("tasks").build().unwrap();
            let id = group.id();
            let (give, given) = mpsc::channel::<Waker>();
            let (end, is_end) = futures::channel::oneshot::channel::<()>();
            let task = group.spawn(async move {
                std::future::poll_fn(|cx| {
                    give.send(cx.waker().clone()).unwrap();
                    std::task::Poll::Ready(())
                })
                .await;
                evenkeel::sleep(Duration::from_millis(1)).await;
                evenkeel::spawn(async { evenkeel::yield_now().await }).await.unwrap();
                is_end.await.unwrap();
            });
            let waker = given.recv().unwrap();
            drop(group);
            assert!(is_listed(&runtime, id, "tasks"), "a task is left");
            end.send(()).unwrap();
            wait_until("the task has ended", || task.is_finished());
            let task = (left == Left::Handle).then_some(task);
            let waker = (left == Left::Waker).then_some(waker);
            wait_until("the group has ended", || !is_listed(&runtime, id, "tasks"));
            drop((task, waker));
        }
    });
}

/// A worker keeps what it spawns into at hand; one that has parked keeps nothing.
#[test]
fn a_parked_worker_keeps_no_group() {
    guarded(|| {
        let runtime = runtime(2);
        for _ in 0..50 {
            let group = runtime.group("kept").build().unwrap();
            let id = group.id();
            let (tell, told) = mpsc::channel();
            let inner = group.clone();
            let spawner = runtime.spawn(async move { inner.spawn(pending::<()>()) });
            let sleeper = runtime.block_on(spawner).unwrap();
            drop(group);
            wait_until("all have parked", || runtime.load().parked == 2);
            // The other worker, or the same, drops it.
            sleeper.abort();
            drop(sleeper);
            tell.send(()).unwrap();
            told.recv_timeout(HANG).unwrap();
            wait_until("the group has ended", || !is_listed(&runtime, id, "kept"));
        }
    });
}

#[test]
fn thousands_of_groups_come_and_go() {
    guarded(|| {
        let runtime = runtime(2);
        for _ in 0..3 {
            let groups: Vec<_> =
                (1..=2_000).map(|n| runtime.group(format!("g{n}")).weight(n).build().unwrap()).collect();
            let tasks = groups.iter().map(|group| {
                group.spawn(async {
                    evenkeel::yield_now().await;
                    evenkeel::spawn(async { 1usize }).await.unwrap()
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let sum: usize = runtime.block_on(async {
                let mut sum = 0;
                for task in tasks {
                    sum += task.await.unwrap();
                }
                sum
            });
            assert_eq!(sum, 2_000);
            assert_eq!(runtime.stats().groups.len(), 2_001);
            drop(groups);
            wait_until("all groups have ended", || runtime.stats().groups.len() == 1);
        }
    });
}

#[test]
fn groups_are_made_and_dropped_by_many_threads_at_once() {
    guarded(|| {
        let runtime = runtime(2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..300 {
                        let group = runtime.group("g").weight(1 + n % 100).build().unwrap();
                        let task = group.spawn(evenkeel::yield_now());
                        drop(group);
                        if n % 3 == 0 {
                            task.abort();
                        }
                    }
                });
            }
            (0..200).for_each(|_| drop(runtime.stats()));
        });
        wait_until("all groups have ended", || runtime.stats().groups.len() == 1);
    });
}
