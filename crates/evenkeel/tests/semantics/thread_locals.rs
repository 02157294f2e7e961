//! Calls from destructors of thread-local values: errors, never a panic, which there would end the process.

use crate::support::{Drops, guarded, runtime};
use evenkeel::{Group, Handle, NoRuntime, Runtime, SpawnError};
use futures::channel::oneshot;
use std::cell::RefCell;
use std::sync::mpsc;

type AtExit = Box<dyn FnOnce()>;

/// Runs what it holds when its thread ends.
struct OnExit(Vec<AtExit>);

impl Drop for OnExit {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|exit| exit());
    }
}

thread_local! {
    static ON_EXIT: RefCell<OnExit> = const { RefCell::new(OnExit(Vec::new())) };
}

fn at_exit(exit: impl FnOnce() + 'static) {
    ON_EXIT.with(|on_exit| on_exit.borrow_mut().0.push(Box::new(exit)));
}

/// What the destructor saw.
#[derive(Debug, PartialEq)]
struct Seen {
    current: Option<NoRuntime>,
    try_spawn: Option<SpawnError>,
    free_spawn_ended: bool,
}

#[test]
fn on_a_worker_they_return_errors() {
    guarded(|| {
        let runtime = runtime(1);
        let (tell, told) = mpsc::channel();
        let drops = Drops::default();
        let (group, token) = (runtime.default_group(), drops.token());
        let task = runtime.spawn(async move {
            at_exit(move || {
                let spawned = evenkeel::spawn(async move { drop(token) });
                let seen = Seen {
                    current: Handle::try_current().err(),
                    try_spawn: group.try_spawn(async {}).err(),
                    free_spawn_ended: spawned.is_finished(),
                };
                tell.send(seen).unwrap();
            });
        });
        runtime.block_on(task).unwrap();
        drop(runtime);
        let expected = Seen { current: Some(NoRuntime), try_spawn: Some(SpawnError::Stopping), free_spawn_ended: true };
        assert_eq!(told.recv().unwrap(), expected);
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn on_a_plain_thread_there_is_no_runtime_but_a_group_can_be_spawned_into() {
    guarded(|| {
        let runtime = runtime(1);
        let group: Group = runtime.default_group();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            at_exit(move || {
                let is_outside = Handle::try_current().is_err();
                tell.send((is_outside, group.try_spawn(async { 5 }))).unwrap();
            });
        })
        .join()
        .unwrap();
        let (is_outside, task) = told.recv().unwrap();
        assert!(is_outside);
        assert_eq!(runtime.block_on(task.unwrap()).unwrap(), 5);
    });
}

#[test]
fn on_a_plain_thread_the_free_spawn_panics() {
    guarded(|| {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // A panic that leaves such a destructor ends the process, so it is caught inside.
            at_exit(move || {
                let spawned = std::panic::catch_unwind(|| drop(evenkeel::spawn(async {})));
                tell.send(spawned.is_err()).unwrap();
            });
        });
        thread.join().unwrap();
        assert!(told.recv().unwrap());
    });
}

#[test]
fn a_task_can_be_woken_aborted_and_dropped_from_there() {
    guarded(|| {
        let runtime = runtime(1);
        let (wake, woken) = oneshot::channel::<()>();
        let sleeper = runtime.spawn(woken);
        let aborted = runtime.spawn(std::future::pending::<()>());
        let (give, given) = mpsc::channel();
        std::thread::spawn(move || {
            at_exit(move || {
                wake.send(()).unwrap();
                aborted.abort();
                give.send(aborted).unwrap();
            });
        })
        .join()
        .unwrap();
        runtime.block_on(sleeper).unwrap().unwrap();
        assert!(runtime.block_on(given.recv().unwrap()).unwrap_err().is_cancelled());
    });
}

#[test]
fn a_worker_that_ends_can_wake_tasks_of_another_runtime() {
    guarded(|| {
        let (one, two) = (runtime(1), runtime(1));
        let (wake, woken) = oneshot::channel::<()>();
        let sleeper = two.spawn(woken);
        one.block_on(one.spawn(async move { at_exit(move || wake.send(()).unwrap()) })).unwrap();
        drop(one);
        two.block_on(sleeper).unwrap().unwrap();
    });
}

#[test]
fn a_runtime_dropped_as_its_own_worker_ends_does_not_wait_for_itself() {
    guarded(|| {
        let patiently = |runtime: Runtime| {
            let _ = runtime.shutdown_timeout(std::time::Duration::MAX);
        };
        for end in [drop as fn(Runtime), patiently] {
            let runtime = runtime(2);
            let handle = runtime.handle();
            let (tell, told) = mpsc::channel();
            let (give, given) = mpsc::channel::<Runtime>();
            let task = handle.spawn(async move {
                at_exit(move || {
                    end(given.recv().unwrap());
                    tell.send(()).unwrap();
                });
            });
            futures::executor::block_on(task).unwrap();
            handle.stop();
            give.send(runtime).unwrap();
            told.recv().unwrap();
        }
    });
}

#[test]
fn block_on_works_as_a_worker_of_another_runtime_ends() {
    guarded(|| {
        let (one, two) = (runtime(1), runtime(1));
        let (tell, told) = mpsc::channel();
        one.block_on(one.spawn(async move {
            at_exit(move || tell.send(two.block_on(async { evenkeel::spawn(async { 8 }).await.unwrap() })).unwrap());
        }))
        .unwrap();
        drop(one);
        assert_eq!(told.recv().unwrap(), 8);
    });
}

/// Hooks run on worker threads too, before the first task and after the last.
#[test]
fn a_runtime_dropped_in_a_hook_of_its_own_worker_does_not_wait_for_itself() {
    guarded(|| {
        let patiently = |runtime: Runtime| {
            let _ = runtime.shutdown_timeout(std::time::Duration::MAX);
        };
        for end in [drop as fn(Runtime), patiently] {
            for is_start in [true, false] {
                let (tell, told) = mpsc::channel();
                let (give, given) = mpsc::channel::<Runtime>();
                let ends = std::sync::Mutex::new(Some((given, tell)));
                let hook = move || {
                    let Some((given, tell)) = ends.lock().unwrap().take() else { return };
                    end(given.recv().unwrap());
                    tell.send(()).unwrap();
                };
                let builder = Runtime::builder().workers(2);
                let builder = if is_start { builder.on_thread_start(hook) } else { builder.on_thread_stop(hook) };
                let runtime = builder.build().unwrap();
                if !is_start {
                    runtime.handle().stop();
                }
                give.send(runtime).unwrap();
                told.recv().unwrap();
            }
        }
    });
}
