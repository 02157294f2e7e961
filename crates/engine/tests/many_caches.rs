//! Machines of several last-level caches: nobody waits beside a parked CPU, wherever it is.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{at_ms, ms, us};
use evenkeel_core::{CpuId, Span};
use evenkeel_engine::Config;
use evenkeel_engine::api::{compute, sleep, spawn, yield_now};
use evenkeel_engine::test_host::{TestConfig, TestMachine};

fn machine(caches: Vec<usize>) -> TestMachine {
    let mut config = TestConfig::flat(1);
    config.check_every = if caches.len() > 4 { 64 } else { 1 };
    config.machine = Config { caches, ..Config::flat(1) };
    TestMachine::new(config)
}

fn cpu(index: usize) -> CpuId {
    CpuId::new(u32::try_from(index).unwrap())
}

/// A busy CPU keeps no watch of its own, and those far away parked when all was quiet, so without one.
#[test]
fn a_parked_cpu_far_away_runs_what_waits_behind_long_polls() {
    for count in [2, 6, 7, 16, 66] {
        for busy in [1, 2, 5, 6, 9, 60].into_iter().filter(|busy| *busy < count) {
            let mut machine = machine((0..count).collect());
            for index in 0..busy {
                let time = at_ms(10 + index as u64 / 4);
                machine.run_until(time).unwrap();
                machine.set_home(cpu(index));
                machine.at(time, |handle| drop(handle.spawn(async { compute(ms(500).into()) })));
            }
            machine.run_until(at_ms(30)).unwrap();
            machine.set_home(cpu(0));
            machine.at(at_ms(30), |handle| drop(handle.spawn(async { compute(us(100).into()) })));
            machine.run_until(at_ms(800)).unwrap();
            let idle = machine.idle_while_waiting();
            assert!(idle.longest <= ms(2), "{count} caches, {busy} busy: {idle:?}");
        }
    }
}

#[test]
fn no_task_waits_for_long_beside_a_parked_cpu_on_any_machine() {
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..100 {
        let count = [1, 2, 3, 5, 8, 20, 66, 140][round % 8];
        let names = 1 + random.usize(0..count);
        let mut machine = machine((0..count).map(|_| random.usize(0..names)).collect());
        let mut time = at_ms(5);
        let rare = random.u64(1..2_000);
        for _ in 0..40 {
            time = time.after(us(random.u64(0..rare + 1)));
            machine.run_until(time).unwrap();
            machine.set_home(cpu(random.usize(0..count)));
            let length = [20, 300, 3_000, 60_000][random.usize(0..4)];
            let (kind, work) = (random.u8(0..4), us(random.u64(1..length)));
            machine.at(time, move |handle| {
                drop(handle.spawn(async move {
                    match kind {
                        0 => compute(work.into()),
                        1 => {
                            drop(spawn(async move { compute(work.into()) }));
                            compute(work.into());
                        }
                        2 => {
                            sleep(work.into()).await;
                            compute(work.into());
                        }
                        _ => {
                            yield_now().await;
                            drop(spawn(async move {
                                sleep(us(50).into()).await;
                                compute(work.into());
                            }));
                            compute(work.into());
                            yield_now().await;
                            compute(work.into());
                        }
                    }
                }));
            });
        }
        machine.run_until(time.after(Span::from_millis(2_000))).unwrap();
        let idle = machine.idle_while_waiting();
        assert!(idle.longest <= ms(3), "round {round}, {count} CPUs, {names} caches: {idle:?}");
        assert_eq!(machine.handle().load().waiting, 0);
    }
}
