//! `max_tasks`: exact, whatever ends a task, and however many threads spawn.

use crate::support::{Drops, guarded, runtime, wait_until};
use evenkeel::{Group, SpawnError};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn limited(runtime: &evenkeel::Runtime, most: usize) -> Group {
    runtime.group("limited").max_tasks(most).build().unwrap()
}

#[test]
fn a_full_group_refuses_and_drops_the_future() {
    guarded(|| {
        let runtime = runtime(2);
        let group = limited(&runtime, 3);
        let tasks: Vec<_> = (0..3).map(|_| group.try_spawn(pending::<()>()).unwrap()).collect();
        let drops = Drops::default();
        let (first, second) = (drops.token(), drops.token());
        assert_eq!(group.try_spawn(async move { drop(first) }).unwrap_err(), SpawnError::Full);
        let refused = group.spawn(async move { drop(second) });
        assert_eq!(drops.count(), 2);
        assert!(refused.is_finished());
        let error = runtime.block_on(refused).unwrap_err();
        assert!(error.is_full() && !error.is_cancelled() && !error.is_panic());
        assert!(error.to_string().contains("max_tasks"));
        drop(tasks);
        assert_eq!(group.try_spawn(async {}).unwrap_err(), SpawnError::Full, "detached tasks live on");
    });
}

#[test]
fn a_group_of_no_tasks_refuses_all() {
    let runtime = runtime(1);
    assert_eq!(limited(&runtime, 0).try_spawn(async {}).unwrap_err(), SpawnError::Full);
}

#[test]
fn a_slot_is_free_once_the_handle_resolves_however_the_task_ended() {
    guarded(|| {
        let runtime = runtime(2);
        let group = limited(&runtime, 1);
        for n in 0..600 {
            let task = group.try_spawn(async move {
                match n % 4 {
                    0 => {}
                    1 => std::panic::resume_unwind(Box::new(())),
                    2 => evenkeel::yield_now().await,
                    _ => pending().await,
                }
            });
            let task = task.expect("the slot of the task before");
            if n % 4 == 3 {
                task.abort();
            }
            let _ = runtime.block_on(task);
        }
    });
}

#[test]
fn a_flood_from_many_threads_never_exceeds_the_limit() {
    const MOST: usize = 10;
    guarded(|| {
        let runtime = runtime(2);
        let group = limited(&runtime, MOST);
        let (alive, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        struct Alive(Arc<AtomicUsize>);
        impl Drop for Alive {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let admitted: usize = std::thread::scope(|scope| {
            let threads = (0..6).map(|_| {
                let (group, alive, peak) = (&group, &alive, &peak);
                scope.spawn(move || {
                    let one = || {
                        let (alive, peak) = (Arc::clone(alive), Arc::clone(peak));
                        group.try_spawn(async move {
                            peak.fetch_max(alive.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            let _alive = Alive(alive);
                            evenkeel::yield_now().await;
                        })
                    };
                    (0..3_000).filter(|_| one().is_ok()).count()
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(admitted >= MOST);
        wait_until("all have ended", || alive.load(Ordering::SeqCst) == 0);
        assert!(peak.load(Ordering::SeqCst) <= MOST);
        wait_until("all slots are free", || {
            let tasks: Vec<_> = (0..MOST).map_while(|_| group.try_spawn(pending::<()>()).ok()).collect();
            tasks.iter().for_each(evenkeel::JoinHandle::abort);
            tasks.len() == MOST
        });
    });
}
