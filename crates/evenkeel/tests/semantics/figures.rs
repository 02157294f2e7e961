//! Statistics add up; switches do what they say.

use crate::support::{guarded, runtime, wait_until};
use evenkeel::{Claim, Runtime, Span, Stats};
use std::sync::mpsc;

/// The statistics once nothing moves.
fn settled(runtime: &Runtime) -> Stats {
    wait_until("it is idle", || runtime.load().parked == runtime.workers());
    runtime.stats()
}

/// Some work of three groups on all workers.
fn work(runtime: &Runtime, tasks: usize) -> Vec<evenkeel::Group> {
    let groups: Vec<_> = (1..=3).map(|n| runtime.group(format!("g{n}")).weight(n).build().unwrap()).collect();
    let tasks = (0..tasks).map(|n| {
        groups[n % 3].spawn(async move {
            for _ in 0..n % 20 {
                evenkeel::yield_now().await;
            }
            evenkeel::sleep(std::time::Duration::from_micros(n as u64 % 100)).await;
        })
    });
    let tasks: Vec<_> = tasks.collect();
    runtime.block_on(futures::future::join_all(tasks));
    groups
}

#[test]
fn counters_add_up() {
    guarded(|| {
        for workers in [1, 2, 3] {
            let runtime = runtime(workers);
            let _groups = work(&runtime, 500);
            let stats = settled(&runtime);
            let polls = stats.total(|cpu| cpu.polls);
            assert!(polls >= 500);
            assert_eq!(stats.total(|cpu| cpu.wait.count()), polls, "a wait for each poll");
            assert_eq!(stats.groups.iter().map(|group| group.polls).sum::<u64>(), polls, "by group as by CPU");
            assert_eq!(stats.groups.iter().map(|group| group.wait.count()).sum::<u64>(), polls);
            let by_group = stats.groups.iter().map(|group| group.run).fold(Span::ZERO, Span::plus);
            let by_cpu = stats.cpus.iter().map(|cpu| cpu.run).fold(Span::ZERO, Span::plus);
            assert_eq!(by_group, by_cpu);
            assert!(stats.total(|cpu| cpu.steals) <= stats.total(|cpu| cpu.steals_tried));
            assert!(stats.total(|cpu| cpu.empty_wakes) <= stats.total(|cpu| cpu.wakes));
            assert!(stats.total(|cpu| cpu.parks) >= workers as u64);
            let woken = stats.total(|cpu| cpu.woken_here + cpu.woken_outside);
            assert_eq!(woken + stats.total(|cpu| cpu.yields), polls, "each poll follows a wake or a yield");
            assert!(stats.total(|cpu| cpu.woken_outside) >= 500, "the tasks were spawned outside");
            assert!(stats.total(|cpu| cpu.idles) >= workers as u64);
        }
    });
}

#[test]
fn locks_are_counted_by_place() {
    guarded(|| {
        for claim in [Claim::Block, Claim::TryVictim] {
            let runtime = Runtime::builder().workers(3).claim(claim).build().unwrap();
            let _groups = work(&runtime, 500);
            let stats = settled(&runtime);
            let sum = |count: fn(&evenkeel::LockStats) -> u64| stats.locks.iter().map(count).sum::<u64>();
            assert!(sum(|site| site.acquisitions) >= stats.total(|cpu| cpu.polls), "a lock for each poll at least");
            assert_eq!(sum(|site| site.waits), stats.total(|cpu| cpu.contended));
            assert_eq!(sum(|site| site.failed_tries), stats.total(|cpu| cpu.failed_tries));
            assert!(claim == Claim::TryVictim || sum(|site| site.failed_tries) == 0);
            for site in &stats.locks {
                assert!(site.wait_min <= site.wait_max && site.wait_max <= site.wait, "{site:?}");
                assert!(site.acquisitions + site.failed_tries > 0 && site.waits <= site.acquisitions, "{site:?}");
            }
        }
    });
}

#[test]
fn counters_only_grow() {
    guarded(|| {
        let runtime = runtime(2);
        let mut before = runtime.stats();
        for _ in 0..10 {
            let _groups = work(&runtime, 60);
            let after = runtime.stats();
            for (before, after) in before.cpus.iter().zip(&after.cpus) {
                assert!(after.polls >= before.polls && after.run >= before.run && after.parks >= before.parks);
                assert!(after.wait.count() >= before.wait.count());
            }
            before = after;
        }
    });
}

#[test]
fn load_tells_what_waits_and_who_is_parked() {
    guarded(|| {
        let runtime = runtime(1);
        wait_until("it is idle", || runtime.load().parked == 1);
        assert_eq!(runtime.load().waiting, 0);
        let (free, is_free) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        let long = runtime.spawn(async move {
            began.send(()).unwrap();
            is_free.recv().unwrap();
        });
        has_begun.recv().unwrap();
        assert_eq!(runtime.load().parked, 0);
        let tasks: Vec<_> = (0..5).map(|_| runtime.spawn(async {})).collect();
        assert!(runtime.load().waiting >= 2, "an inbox counts as two at most");
        free.send(()).unwrap();
        runtime.block_on(futures::future::join_all(tasks));
        runtime.block_on(long).unwrap();
        wait_until("it is idle", || runtime.load().parked == 1 && runtime.load().waiting == 0);
    });
}

#[test]
fn a_poll_longer_than_a_slice_is_counted() {
    guarded(|| {
        let runtime = runtime(1);
        let task = runtime.spawn(async {
            let began = evenkeel::now();
            while evenkeel::now().since(began) <= Span::from_millis(2) {}
        });
        runtime.block_on(task).unwrap();
        assert!(settled(&runtime).total(|cpu| cpu.long_polls) >= 1);
    });
}

#[test]
fn switches_are_set_by_name_and_errors_say_what_there_is() {
    let runtime = runtime(1);
    let switches = runtime.switches();
    assert_eq!(switches.list(), [("claim", "try-victim"), ("look_around", "on")]);
    for (name, value) in [("claim", "block"), ("look_around", "off"), ("claim", "try-victim"), ("look_around", "on")] {
        switches.set(name, value).unwrap();
        assert_eq!(switches.get(name), Some(value));
        assert_eq!(runtime.handle().switches().get(name), Some(value), "it is the runtime's, not the handle's");
    }
    assert_eq!(switches.get("steel"), None);
    let unknown = switches.set("steel", "on").unwrap_err().to_string();
    assert!(unknown.contains("claim") && unknown.contains("look_around"), "{unknown}");
    let wrong = switches.set("claim", "on").unwrap_err().to_string();
    assert!(wrong.contains("claim") && wrong.contains("block") && wrong.contains("try-victim"), "{wrong}");
    assert_eq!(switches.get("claim"), Some("try-victim"), "an error changes nothing");
}

#[test]
fn switches_of_two_runtimes_are_apart() {
    let (one, two) = (runtime(1), runtime(1));
    one.switches().set("claim", "block").unwrap();
    assert_eq!(two.switches().get("claim"), Some("try-victim"));
}

#[test]
fn a_blocking_claim_never_gives_up() {
    guarded(|| {
        let runtime = Runtime::builder().workers(4).claim(Claim::Block).build().unwrap();
        assert_eq!(runtime.switches().get("claim"), Some("block"));
        let before = settled(&runtime).total(|cpu| cpu.failed_tries);
        let _groups = work(&runtime, 2_000);
        assert_eq!(settled(&runtime).total(|cpu| cpu.failed_tries), before);
    });
}

#[test]
fn switches_are_flipped_while_tasks_run() {
    guarded(|| {
        let runtime = runtime(3);
        let switches = runtime.switches();
        let flipper = std::thread::spawn(move || {
            for n in 0..500 {
                switches.set("claim", ["block", "try-victim"][n % 2]).unwrap();
                switches.set("look_around", ["off", "on"][n / 2 % 2]).unwrap();
                std::thread::yield_now();
            }
        });
        let _groups = work(&runtime, 3_000);
        flipper.join().unwrap();
        let stats = settled(&runtime);
        assert_eq!(stats.total(|cpu| cpu.wait.count()), stats.total(|cpu| cpu.polls));
    });
}
