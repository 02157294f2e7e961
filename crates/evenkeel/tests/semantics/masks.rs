//! CPU masks: where tasks run, what is refused, and how it ends.

use crate::support::{Drops, guarded, runtime, wait_until};
use evenkeel::{CpuId, CpuMask, CpusError, Group, GroupError, JoinHandle, SpawnError};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn mask(text: &str) -> CpuMask {
    text.parse().unwrap()
}

/// A task that sleeps, yields and spawns, and counts the polls that are not on one of these CPUs.
async fn roam(cpus: CpuMask, strays: Arc<AtomicUsize>, rounds: usize) {
    let look = || {
        let is_in = evenkeel::current_cpu().is_some_and(|cpu| cpus.contains(cpu));
        strays.fetch_add(usize::from(!is_in), Ordering::SeqCst);
    };
    for round in 0..rounds {
        look();
        match round % 3 {
            0 => evenkeel::yield_now().await,
            1 => evenkeel::sleep(Duration::from_micros(50)).await,
            _ => evenkeel::spawn(async {}).await.unwrap(),
        }
        look();
    }
}

fn join_all(runtime: &evenkeel::Runtime, tasks: Vec<JoinHandle<()>>) {
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_task_only_ever_runs_on_workers_of_its_mask() {
    for (workers, of_group, own) in [(1, "0", "0"), (2, "1", "0-1"), (4, "0-2", "1-3"), (4, "1,3", "3")] {
        guarded(move || {
            let runtime = runtime(workers);
            let group = runtime.group("masked").cpus(mask(of_group)).build().unwrap();
            assert_eq!(group.cpus(), mask(of_group));
            let own = mask(own).intersection(&mask(&format!("0-{}", workers - 1)));
            let strays = Arc::new(AtomicUsize::new(0));
            let mut tasks = Vec::new();
            for _ in 0..20 {
                tasks.push(group.spawn(roam(mask(of_group), Arc::clone(&strays), 60)));
                let both = own.intersection(&mask(of_group));
                tasks.push(group.spawn_on(&own, roam(both, Arc::clone(&strays), 60)));
                let all = mask(&format!("0-{}", workers - 1));
                tasks.push(runtime.spawn(roam(all, Arc::clone(&strays), 60)));
            }
            join_all(&runtime, tasks);
            assert_eq!(strays.load(Ordering::SeqCst), 0, "{workers} workers");
        });
    }
}

#[test]
fn a_waker_called_anywhere_puts_a_task_where_it_may_run() {
    guarded(|| {
        let runtime = runtime(3);
        let group = runtime.group("masked").cpus(mask("2")).build().unwrap();
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<()>();
        let mut receiver = receiver;
        let strays = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&strays);
        let listener = group.spawn(async move {
            let mut received = 0;
            while receiver.recv().await.is_some() {
                received += 1;
                seen.fetch_add(usize::from(evenkeel::current_cpu() != Some(CpuId::new(2))), Ordering::SeqCst);
            }
            received
        });
        // From a worker that it may not run on, from its own, and from a thread outside.
        let from_workers = [mask("0"), mask("2")].map(|cpus| {
            let sender = sender.clone();
            runtime.default_group().spawn_on(&cpus, async move {
                for _ in 0..100 {
                    sender.send(()).unwrap();
                    evenkeel::yield_now().await;
                }
            })
        });
        (0..100).for_each(|_| sender.send(()).unwrap());
        drop(sender);
        join_all(&runtime, from_workers.into());
        assert_eq!(runtime.block_on(listener).unwrap(), 300);
        assert_eq!(strays.load(Ordering::SeqCst), 0);
    });
}

fn refusal(group: &Group, cpus: &CpuMask) -> (SpawnError, String) {
    let drops = Drops::default();
    let token = drops.token();
    let refused = group.try_spawn_on(cpus, async move { drop(token) });
    assert_eq!(drops.count(), 1, "the future is dropped");
    let error = refused.map(drop).unwrap_err();
    (error, error.to_string())
}

#[test]
fn masks_that_leave_no_worker_are_refused() {
    guarded(|| {
        let runtime = runtime(2);
        let build = |cpus: CpuMask| runtime.group("masked").cpus(cpus).build().map(drop);
        assert_eq!(build(CpuMask::empty()), Err(GroupError::Cpus(CpusError::Empty)));
        let missing = CpusError::NoSuchCpu { cpu: CpuId::new(2), cpus: 2 };
        assert_eq!(build(mask("0-2")), Err(GroupError::Cpus(missing)));
        assert!(missing.to_string().contains("CPUs 0 to 1"), "{missing}");
        let group = runtime.group("masked").cpus(mask("1")).build().unwrap();
        assert_eq!(refusal(&group, &CpuMask::empty()).0, SpawnError::Cpus(CpusError::Empty));
        assert_eq!(
            refusal(&group, &mask("1,5")).0,
            SpawnError::Cpus(CpusError::NoSuchCpu { cpu: CpuId::new(5), cpus: 2 })
        );
        let (error, message) = refusal(&group, &mask("0"));
        assert_eq!(error, SpawnError::Cpus(CpusError::Disjoint));
        assert!(message.contains("in common"), "{message}");
        let refused = runtime.block_on(group.spawn_on(&mask("0"), async {})).unwrap_err();
        assert!(refused.has_no_cpu() && !refused.is_cancelled() && !refused.is_full() && !refused.is_panic());
        assert!(refused.to_string().contains("in common"), "{refused}");
        // A refusal takes no place in the group.
        let one = runtime.group("one").max_tasks(1).cpus(mask("1")).build().unwrap();
        let _ = refusal(&one, &mask("0"));
        assert!(one.try_spawn(async {}).is_ok());
    });
}

#[test]
fn a_runtime_stops_with_masked_tasks_in_every_state() {
    for workers in [1, 3] {
        guarded(move || {
            let runtime = runtime(workers);
            let last = CpuMask::single(CpuId::new(u32::try_from(workers - 1).unwrap()));
            let group = runtime.group("masked").cpus(last.clone()).build().unwrap();
            let drops = Drops::default();
            let begun = Arc::new(AtomicUsize::new(0));
            let mut kept = Vec::new();
            for _ in 0..10 {
                let (running, asleep, waiting) = (drops.token(), drops.token(), drops.token());
                let count = Arc::clone(&begun);
                kept.push(group.spawn(async move {
                    let _token = running;
                    count.fetch_add(1, Ordering::SeqCst);
                    loop {
                        evenkeel::yield_now().await;
                    }
                }));
                kept.push(group.spawn(async move {
                    let _token = asleep;
                    evenkeel::sleep(Duration::from_secs(3_600)).await;
                }));
                kept.push(runtime.default_group().spawn_on(&last, async move {
                    let _token = waiting;
                    pending::<()>().await;
                }));
            }
            wait_until("all have begun", || begun.load(Ordering::SeqCst) == 10);
            drop(runtime);
            assert_eq!(drops.count(), 30);
            let ends = kept.iter().filter(|task| task.is_finished()).count();
            assert_eq!(ends, 30);
            let late = group.try_spawn_on(&last, async {}).map(drop);
            assert_eq!(late.unwrap_err(), SpawnError::Stopping);
        });
    }
}

#[test]
fn a_free_worker_of_the_mask_takes_what_waits_behind_a_long_poll() {
    guarded(|| {
        let runtime = runtime(3);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (say, has_begun) = std::sync::mpsc::channel();
        let group = runtime.group("masked").cpus(mask("0-1")).build().unwrap();
        let inner = group.clone();
        // Holds a worker of the mask until the others have run: they could never, if they had to wait for it.
        let holder = group.spawn(async move {
            let spawned: Vec<_> = (0..4).map(|_| inner.spawn(async { evenkeel::current_cpu() })).collect();
            say.send(spawned).unwrap();
            held.recv().unwrap();
            evenkeel::current_cpu()
        });
        let spawned = has_begun.recv().unwrap();
        let ran: Vec<_> = spawned.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
        release.send(()).unwrap();
        let holder = runtime.block_on(holder).unwrap();
        assert!(ran.iter().all(|cpu| *cpu != holder && *cpu != Some(CpuId::new(2))), "{ran:?} beside {holder:?}");
    });
}
