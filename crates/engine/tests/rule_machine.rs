//! The machine in virtual time: no CPU idles while a task waits, groups come and go, clocks wrap around, runs repeat.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::disallowed_types, reason = "a test keeps its own books, beside the engine's words and locks")]

mod common;

use common::workloads::{backlog, on_off};
use common::{Bench, at_ms, ms, us};
use evenkeel_core::{CpuId, Span, Time, Vspan, Vtime, Weight};
use evenkeel_engine::api::{compute, now, sleep, spawn};
use evenkeel_engine::test_host::{Digest, IdleWhileWaiting, Stuck, TestConfig, TestMachine};
use parking_lot::Mutex;
use std::future::pending;
use std::sync::Arc;

const KICK: Span = us(5);

fn slow_kicks(cpus: usize) -> TestMachine {
    let mut config = TestConfig::flat(cpus);
    config.kick_latency = KICK;
    TestMachine::new(config)
}

#[test]
fn no_cpu_idles_while_a_task_from_outside_waits() {
    for cpus in [2, 4, 16] {
        let mut machine = slow_kicks(cpus);
        let mut random = fastrand::Rng::with_seed(7);
        let mut time = Time::ZERO;
        for _ in 0..500 {
            time = time.after(us(random.u64(0..100)));
            let (work, home) = (us(random.u64(10..1_000)), random.usize(0..cpus));
            machine.at(time, move |handle| drop(handle.spawn(async move { compute(work.into()) })));
            machine.run_until(time).unwrap();
            machine.set_home(CpuId::new(u32::try_from(home).unwrap()));
        }
        machine.run_until(time.after(ms(1_000))).unwrap();
        let idle = machine.idle_while_waiting();
        // Kicks may follow each other: who finds work and knows of more kicks the next one.
        assert!(idle.longest <= KICK.times(cpus as u64), "{cpus} CPUs: {idle:?}");
    }
}

#[test]
fn no_cpu_idles_while_a_task_that_another_woke_waits() {
    for (cpus, children) in [(2, 1), (4, 1), (4, 8), (16, 40)] {
        let mut machine = slow_kicks(cpus);
        let handle = machine.handle();
        let rounds = 50u64;
        drop(handle.spawn(async move {
            for _ in 0..rounds {
                for _ in 0..children {
                    drop(spawn(async { compute(us(300).into()) }));
                }
                compute(us(1_000).into());
                sleep(ms(8).into()).await;
            }
        }));
        machine.run_until(at_ms(10 * rounds)).unwrap();
        // A task alone may be left to its CPU for a while, see HAND_OFF; after that, kicks may follow each other.
        let bound = evenkeel_core::balance::HAND_OFF.plus(KICK.times(cpus as u64));
        let idle = machine.idle_while_waiting();
        assert!(idle.longest <= bound, "{cpus} CPUs, {children} children: {idle:?}");
        assert_eq!(machine.handle().load().waiting, 0);
    }
}

#[test]
fn idling_costs_nothing_when_kicks_are_instant() {
    let mut bench = Bench::flat(16);
    on_off(&mut bench, 16, ms(3), us(250));
    bench.run(3);
    assert_eq!(bench.machine.idle_while_waiting(), IdleWhileWaiting::default());
}

/// Groups of one task each, ten thousand in a second and all from one thread outside, that ask for four fifths of the
/// machine, beside one group that always has work. How long each lived, shortest first.
fn short_lived(cpus: usize, windows: u64) -> (Bench, usize, Vec<Span>) {
    let mut bench = Bench::flat(cpus);
    let (hog, short) = (bench.group(100), bench.group(100));
    bench.hogs(hog, cpus, us(50));
    let lives = Arc::new(Mutex::new(Vec::new()));
    for birth in 0..windows * 1_000 {
        let at = Time::ZERO.after(us(100 * birth));
        let (ledger, lives) = (bench.ledger.clone(), Arc::clone(&lives));
        bench.machine.at(at, move |handle| {
            let group = handle.group("short").weight(100).build().unwrap();
            drop(group.spawn(async move {
                ledger.work_in_polls(short, us(80).times(cpus as u64), us(50)).await;
                lives.lock().push(now().since(at));
            }));
        });
    }
    bench.run(windows);
    let mut lives = std::mem::take(&mut *lives.lock());
    lives.sort_unstable();
    (bench, hog, lives)
}

#[test]
fn ten_thousand_groups_a_second_come_and_go() {
    let (bench, hog, lives) = short_lived(4, 6);
    // Far less than the hog's share: it leaves them all that they ask for, and gets the rest.
    let got = bench.cpus_of(hog, 1, 6).got;
    assert!((0.75..0.85).contains(&got), "{got} CPUs");
    assert!(lives.len() > 5_900, "{} of 6,000 ended", lives.len());
    assert!(lives[lives.len() * 99 / 100] < ms(2 * 36), "{:?}", lives[lives.len() * 99 / 100]);
    // Ids are reused: as many as were alive at a time, not as many as there were.
    let group = bench.machine.handle().group("last").build().unwrap();
    assert!(group.id().index() < 600, "{:?}", group.id());
    assert!(bench.machine.handle().stats().groups.len() < 100);
}

fn digest(start: Vtime, check_every: u64, seed: u64) -> Digest {
    let mut config = TestConfig::flat(4);
    (config.clock_start, config.check_every, config.machine.seed) = (start, check_every, seed);
    let mut bench = Bench::new(config);
    backlog(&mut bench, &[100, 1_000], 8, us(50));
    on_off(&mut bench, 4, ms(10), us(50));
    bench.run(3);
    bench.machine.digest()
}

#[test]
fn clocks_that_wrap_around_change_nothing() {
    let weight = Weight::DEFAULT;
    let soon = Vtime::ZERO.minus(Vspan::of(ms(100), weight));
    assert_eq!(digest(soon, 16, 1), digest(Vtime::ZERO.plus(Vspan::of(ms(1_000), weight)), 16, 1));
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let first = digest(Vtime::ZERO, 16, 1);
    assert_eq!(first, digest(Vtime::ZERO, 64, 1), "nor do checks change it");
    assert_ne!(first.hash, digest(Vtime::ZERO, 16, 2).hash);
    println!("{first:?}");
    assert!(first.polls > 10_000);
}

#[test]
fn any_number_of_cpus_is_used() {
    for (cpus, windows, poll) in [(1, 2, us(50)), (3, 2, us(50)), (1_024, 1, ms(5))] {
        let mut config = TestConfig::flat(cpus);
        config.check_every = config.check_every.max(8_192);
        let mut bench = Bench::new(config);
        backlog(&mut bench, &[100, 300], 2 * cpus, poll);
        bench.run(windows);
        let stats = bench.machine.handle().stats();
        let idle = stats.cpus.iter().filter(|cpu| cpu.polls == 0).count();
        assert_eq!(idle, 0, "of {cpus} CPUs");
        let run: f64 = (0..2).map(|group| bench.cpus_of(group, 0, usize::try_from(windows).unwrap()).got).sum();
        assert!(run > 0.99 * cpus as f64, "{run} of {cpus} CPUs did work");
    }
}

#[test]
fn caches_of_their_own_do_not_keep_work_from_idle_cpus() {
    let mut config = TestConfig::flat(12);
    config.machine.caches = (0..12).map(|cpu| cpu / 2).collect();
    let mut bench = Bench::new(config);
    backlog(&mut bench, &[100, 100], 12, us(250));
    bench.run(3);
    bench.assert_lag_bound(1, us(250));
    assert_eq!(bench.machine.idle_while_waiting().total, Span::ZERO);
}

#[test]
fn a_future_that_nothing_completes_is_an_error() {
    let mut machine = TestMachine::new(TestConfig::flat(2));
    let stuck = machine.block_on(pending::<()>());
    assert!(matches!(stuck, Err(Stuck::Deadlock { .. })), "{stuck:?}");
    assert!(stuck.unwrap_err().to_string().contains("nothing will happen"));
}

#[test]
fn sleeps_end_at_their_time() {
    let mut machine = TestMachine::new(TestConfig::flat(2));
    let woken = machine.block_on(async {
        let early = spawn(async {
            sleep(ms(3).into()).await;
            now()
        });
        sleep(ms(7).into()).await;
        (early.await.unwrap(), now())
    });
    assert_eq!(woken, Ok((at_ms(3), at_ms(7))));
}
