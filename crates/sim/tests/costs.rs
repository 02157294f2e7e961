//! What takes time on a simulated machine, and how much: each cost of a machine file is paid where docs/machines.md says.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, ns, spin_in, us};
use evenkeel_core::{Span, Time};
use evenkeel_engine::api;
use evenkeel_engine::host::Site;
use evenkeel_sim::machine::{DeepIdle, Machine, Tick};
use evenkeel_sim::{Account, Activity, Config, Function, RecordKind, Simulation};
use std::time::Duration;

/// A machine of `cpus` CPUs like `flat-4`, without ticks and deep idle.
fn plain(cpus: u32) -> Machine {
    let text = include_str!("../../../machines/flat-4.toml");
    let text = text.replace("cores_per_cache = 4", &format!("cores_per_cache = {cpus}"));
    Machine { tick: None, deep_idle: None, ..Machine::parse("plain.toml", &text).unwrap() }
}

fn until(micros: u64) -> Time {
    Time::ZERO.after(us(micros))
}

/// What everything of a run came to: the sum of the accounts, and how often each kind of record was made.
struct Ran {
    account: Account,
    sim: Simulation,
}

impl Ran {
    fn of(&self, function: Function) -> Span {
        self.account.of(Activity::Scheduler(function))
    }

    fn count(&self, kind: RecordKind) -> u64 {
        self.sim.records().iter().filter(|record| record.kind == kind).count() as u64
    }
}

/// Runs until nothing happens any more.
fn run(machine: Machine, setup: impl FnOnce(&mut Simulation)) -> Ran {
    let mut sim = Simulation::new(Config::new(machine)).unwrap();
    sim.keep_records();
    setup(&mut sim);
    sim.run_until(until(50_000)).unwrap();
    Ran { account: sim.accounting().total(), sim }
}

fn sleepers(sim: &mut Simulation) {
    sim.with(|handle| {
        for turn in 0..7 {
            drop(handle.spawn(async move {
                for _ in 0..20 {
                    api::compute(Duration::from_nanos(900 + 150 * turn));
                    api::yield_now().await;
                    api::sleep(Duration::from_micros(40 + turn)).await;
                }
            }));
        }
    });
}

#[test]
fn every_dispatch_pays_a_switch() {
    let machine = plain(3);
    let switch = machine.costs.switch;
    let ran = run(machine, sleepers);
    let dispatches = ran.count(RecordKind::Dispatch);
    assert!(dispatches >= 7 * 40, "{dispatches}");
    assert_eq!(ran.of(Function::Switch), switch.times(dispatches));
    assert_eq!(ran.sim.handle().stats().total(|cpu| cpu.polls), dispatches);
}

#[test]
fn every_park_and_every_way_back_is_paid() {
    let machine = plain(3);
    let costs = machine.costs;
    let ran = run(machine, sleepers);
    let (parks, unparks) = (ran.count(RecordKind::Park), ran.count(RecordKind::Unpark));
    assert!(unparks > 60 && parks - unparks == 3, "{parks} {unparks}");
    // One that is kicked at the last moment has paid, and does not park.
    assert!(ran.of(Function::Park) >= costs.park.times(parks));
    assert_eq!(ran.of(Function::Park).as_nanos() % costs.park.as_nanos(), 0);
    assert_eq!(ran.of(Function::IdleExit), costs.idle_exit.times(unparks));
}

#[test]
fn a_long_idle_time_costs_more_on_waking() {
    let exits = |after| {
        let deep_idle = Some(DeepIdle { after, exit: us(77) });
        let ran = run(Machine { deep_idle, ..plain(1) }, |sim| {
            sim.with(|handle| {
                drop(handle.spawn(async {
                    for _ in 0..10 {
                        api::sleep(Duration::from_micros(300)).await;
                    }
                }));
            });
        });
        ran.of(Function::IdleExit)
    };
    assert_eq!(exits(us(1_000)), plain(1).costs.idle_exit.times(10));
    assert_eq!(exits(us(200)), us(77).times(10));
}

#[test]
fn a_timer_is_paid_for_when_it_is_set_and_when_it_fires() {
    let ran = run(plain(1), |sim| {
        sim.with(|handle| {
            drop(handle.spawn(async {
                for _ in 0..10 {
                    api::sleep(Duration::from_micros(300)).await;
                }
            }));
        });
    });
    let costs = plain(1).costs;
    assert_eq!(ran.of(Function::Timer), costs.timer_set.plus(costs.timer_fire).times(10));
    // Whom a kick wakes has no timer to pay for.
    let kicked = run(plain(1), |sim| {
        for turn in 1..=10 {
            sim.at(until(300 * turn), |handle| drop(handle.spawn(async { api::compute(Duration::from_micros(1)) })));
        }
    });
    assert_eq!((kicked.of(Function::Timer), kicked.count(RecordKind::Unpark)), (Span::ZERO, 10));
}

#[test]
fn a_kick_is_paid_for_and_takes_its_time_to_arrive() {
    let mut machine = plain(2);
    (machine.costs.kick, machine.costs.kick_delivery) = (us(5), us(30));
    let ran = run(machine, |sim| {
        sim.with(|handle| {
            // It wakes a second one, for which the other CPU is kicked, and goes on.
            drop(handle.spawn(async {
                for _ in 0..10 {
                    let handle = api::Handle::current();
                    drop(handle.spawn(async { api::run(Duration::from_micros(2)).await }));
                    drop(handle.spawn(async { api::run(Duration::from_micros(2)).await }));
                    api::run(Duration::from_micros(200)).await;
                    api::sleep(Duration::from_micros(500)).await;
                }
            }));
        });
    });
    let kicks: Vec<_> = ran.sim.records().iter().filter(|record| record.kind == RecordKind::Kick).collect();
    assert!(kicks.len() >= 5, "{kicks:?}");
    assert_eq!(ran.of(Function::Kick), us(5).times(kicks.len() as u64));
    // Each parked CPU that was kicked comes back that long after the kick, which is recorded when it begins.
    for kick in kicks {
        let back = ran
            .sim
            .records()
            .iter()
            .find(|record| record.kind == RecordKind::Unpark && record.cpu.get() == kick.a && record.at > kick.at);
        assert!(back.is_some_and(|back| back.at.since(kick.at) >= us(35)), "{kick:?} {back:?}");
    }
}

#[test]
fn every_look_at_the_clock_is_paid() {
    let looks = |cost: u64| {
        let mut machine = plain(1);
        machine.costs.clock_read = ns(cost);
        let ran = run(machine, |sim| {
            sim.with(|handle| {
                drop(handle.spawn(async {
                    for _ in 0..100 {
                        let _ = api::now();
                    }
                }));
            });
        });
        let clock = ran.of(Function::Clock).as_nanos();
        assert_eq!(clock % cost, 0);
        clock / cost
    };
    assert!((100..130).contains(&looks(10)), "{}", looks(10));
    assert_eq!(looks(10), looks(1_000));
}

#[test]
fn queue_operations_are_paid_per_hold_and_per_task() {
    // What an operation costs is far above everything else that happens at these places.
    let operations = |tasks: u64| {
        let mut machine = plain(1);
        machine.costs.queue_operation = us(10);
        let ran = run(machine, |sim| {
            sim.with(|handle| (0..tasks).for_each(|_| drop(handle.spawn(async {}))));
        });
        let sum = ran.account.scheduler().minus(ran.of(Function::Park)).as_nanos() / 10_000;
        let holds: u64 = ran.sim.lock_stat().sites.iter().map(|(_, stat)| stat.acquisitions).sum();
        // Each task is put in and taken out.
        assert_eq!(sum, holds + 2 * tasks, "{tasks} tasks");
        holds
    };
    assert!(operations(20) > operations(1));
}

#[test]
fn timers_are_queue_operations_too() {
    let timer = |sleeps: u64| {
        let mut machine = plain(1);
        machine.costs.queue_operation = us(10);
        let ran = run(machine, |sim| {
            sim.with(|handle| {
                drop(handle.spawn(async move {
                    for _ in 0..sleeps {
                        api::sleep(Duration::from_micros(500)).await;
                    }
                }));
            });
        });
        let stat = ran.sim.lock_stat();
        let holds = stat.sites.iter().find(|(site, _)| *site == Site::Timer).map_or(0, |(_, stat)| stat.acquisitions);
        ran.of(Function::Engine(Site::Timer)).as_nanos() / 10_000 - holds
    };
    // Each is put in, and taken out when it fires.
    assert_eq!((timer(1), timer(10)), (2, 20));
}

#[test]
fn ticks_interrupt_busy_cpus_and_only_those() {
    let tick = Some(Tick { period: us(100), handler: us(3) });
    let ticks = |tasks: usize| {
        let mut sim = Simulation::new(Config::new(Machine { tick, ..plain(2) })).unwrap();
        let group = sim.handle().group("g").build().unwrap();
        sim.with(|_| spin_in(&group, tasks, us(30)));
        sim.run_until(until(50_000)).unwrap();
        let accounting = sim.accounting();
        accounting
            .cpus
            .iter()
            .map(|account| account.of(Activity::Scheduler(Function::Tick)).as_nanos() / 3_000)
            .sum::<u64>()
    };
    assert_eq!(ticks(0), 0);
    assert!((498..=500).contains(&ticks(1)), "{}", ticks(1));
    assert!((996..=1_000).contains(&ticks(2)), "{}", ticks(2));
}

#[test]
fn work_takes_as_long_as_it_says() {
    let ran = run(plain(3), sleepers);
    let work: u64 = (0..7).map(|turn| 20 * (900 + 150 * turn)).sum();
    assert_eq!(ran.account.of(Activity::Work), ns(work));
}

#[test]
fn cpus_act_in_the_order_of_virtual_time() {
    // These are recorded when a CPU's turn has come and before it has spent anything, so in the order of time.
    let ran = run(machine("flat-16"), |sim| {
        sim.with(|handle| handle.switches().set("claim", "block").unwrap());
        (0..20).for_each(|_| sleepers(sim));
    });
    let of = |kind| ran.sim.records().iter().filter(move |record| record.kind == kind);
    assert!(of(RecordKind::Park).count() > 100 && of(RecordKind::LockWait).count() > 100);
    let acts =
        ran.sim.records().iter().filter(|record| [RecordKind::Park, RecordKind::LockWait].contains(&record.kind));
    assert!(acts.is_sorted_by_key(|record| record.at));
}
