//! What the record of a run says, held against the accounting and against what the engine shows.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, spin_in, us};
use evenkeel_core::{CpuId, Span, Time, Vspan, Vtime, Weight};
use evenkeel_engine::{SLICE_DEFAULT, api};
use evenkeel_sim::{Activity, Config, FaultKind, Faults, Record, RecordKind, Simulation};
use std::time::Duration;

/// Two groups that compute and sleep, on a machine whose CPUs fight for work; all that came is done at the end.
fn finite(name: &str, faults: &str) -> Simulation {
    let faults = if faults.is_empty() { Faults::default() } else { faults.parse().unwrap() };
    let mut sim = Simulation::new(Config { faults, ..Config::new(machine(name)) }).unwrap();
    sim.keep_records();
    let handle = sim.handle();
    let heavy = handle.group("heavy").weight(300).build().unwrap();
    let light = handle.group("light").weight(100).build().unwrap();
    let tasks = sim.accounting().cpus.len() as u64;
    sim.with(|_| {
        for task in 0..3 * tasks {
            let group = if task % 3 == 0 { &light } else { &heavy };
            drop(group.spawn(async move {
                for turn in 0..20 {
                    api::compute(Duration::from_nanos(3_000 + 100 * task));
                    api::yield_now().await;
                    api::run(Duration::from_micros(2)).await;
                    api::sleep(Duration::from_micros(20 + turn)).await;
                }
            }));
        }
    });
    sim.run_until(Time::ZERO.after(us(30_000))).unwrap();
    sim
}

fn of(sim: &Simulation, cpu: CpuId) -> impl Iterator<Item = &Record> {
    sim.records().iter().filter(move |record| record.cpu == cpu)
}

/// The time between records of two kinds on one CPU, summed; the last one lasts until the end.
fn between(sim: &Simulation, cpu: CpuId, begin: RecordKind, end: RecordKind) -> Span {
    let (mut sum, mut since) = (Span::ZERO, None);
    for record in of(sim, cpu) {
        if record.kind == begin {
            assert_eq!(since.replace(record.at), None, "{record:?}");
        } else if record.kind == end {
            sum = sum.plus(record.at.since(since.take().unwrap()));
        }
    }
    since.map_or(sum, |since| sum.plus(sim.now().since(since)))
}

#[test]
fn the_record_and_the_accounting_agree_to_the_nanosecond() {
    let faults = "holder=exp:5us@5%,kick=exp:50us@50%,tick=exp:300us@50%";
    for (name, faults) in [("flat-4", ""), ("xeon-e5-2650v4-2s", ""), ("xeon-e5-2650v4-2s", faults)] {
        let sim = finite(name, faults);
        let accounting = sim.accounting();
        let mut waited = Span::ZERO;
        for (cpu, account) in (0..).map(CpuId::new).zip(&accounting.cpus) {
            let work: u64 =
                of(&sim, cpu).filter(|record| record.kind == RecordKind::UserEnd).map(|record| record.b).sum();
            assert_eq!(Span::from_nanos(work), account.of(Activity::Work), "{name}, CPU {cpu}");
            let idle = between(&sim, cpu, RecordKind::Park, RecordKind::Unpark);
            // What passes between the time when it should have been kicked and the time when it was is lost.
            let late = account.of(Activity::Lost(FaultKind::LateKick));
            assert_eq!(idle, account.of(Activity::Idle).plus(late), "{name}, CPU {cpu}");
            let waits = between(&sim, cpu, RecordKind::LockWait, RecordKind::LockGot);
            assert_eq!(waits, account.of(Activity::LockWait), "{name}, CPU {cpu}");
            waited = waited.plus(waits);
        }
        assert!(accounting.total().of(Activity::Work) > Span::from_micros(1_000), "{name}");
        assert!(name == "flat-4" || waited > Span::ZERO, "{name}: no lock was waited for");
    }
}

#[test]
fn dispatches_and_ends_alternate_and_enclose_the_polls() {
    let sim = finite("flat-16", "stall=exp:100us@1000/s,holder=exp:5us@5%");
    assert!(sim.records().iter().any(|record| record.kind == RecordKind::Stall));
    for cpu in (0..16).map(CpuId::new) {
        let mut dispatched = None;
        let mut is_in_user = false;
        let mut last = Time::ZERO;
        for record in of(&sim, cpu) {
            if record.kind != RecordKind::Stall {
                assert!(record.at >= std::mem::replace(&mut last, record.at), "time falls: {record:?}");
            }
            match record.kind {
                RecordKind::Dispatch => assert_eq!(dispatched.replace((record.a, record.b)), None),
                RecordKind::Leave => assert_eq!(dispatched.take(), Some((record.a, record.b))),
                RecordKind::UserBegin => assert!(!std::mem::replace(&mut is_in_user, true)),
                RecordKind::UserEnd => assert!(std::mem::replace(&mut is_in_user, false)),
                _ => {}
            }
        }
    }
}

#[test]
fn the_last_records_are_what_the_engine_shows() {
    let mut sim = Simulation::new(Config::new(machine("flat-4"))).unwrap();
    sim.keep_records();
    let weights = [300, 100];
    let groups = weights.map(|weight| sim.handle().group("g").weight(weight).build().unwrap());
    sim.with(|_| groups.iter().for_each(|group| spin_in(group, 9, us(30))));
    sim.run_until(Time::ZERO.after(us(5_000))).unwrap();
    let last = |kind, a| sim.records().iter().rev().find(|record| record.kind == kind && record.a == a).unwrap().b;
    let queued: Vec<_> = (0..4).map(|cpu| last(RecordKind::Queue, cpu)).collect();
    let shown: Vec<_> = (0..4).map(|cpu| sim.queue_length(CpuId::new(cpu)) as u64).collect();
    assert_eq!(queued, shown);
    assert_eq!(shown.iter().sum::<u64>(), 18 - 4);
    for (group, weight) in groups.iter().zip(weights) {
        // A turn that is under way has reserved something since the last settlement: a slice per CPU at most.
        let settled = Vtime::from_bits(last(RecordKind::Clock, group.id().get()));
        let ahead = sim.group_clock(group.id()).ahead_of(settled);
        let most = Vspan::of(SLICE_DEFAULT.times(4), Weight::new(weight).unwrap());
        assert!((0..=most.units().cast_signed()).contains(&ahead), "{ahead}");
    }
}

#[test]
fn a_turn_that_reserves_more_shows_in_the_record() {
    let mut sim = Simulation::new(Config::new(machine("flat-4"))).unwrap();
    sim.keep_records();
    let group = sim.handle().group("g").build().unwrap();
    sim.with(|_| {
        drop(group.spawn(async {
            // Turns of this group are short, it seems.
            for _ in 0..50 {
                api::run(Duration::from_micros(10)).await;
                api::sleep(Duration::from_micros(20)).await;
            }
            loop {
                api::run(Duration::from_micros(30)).await;
                api::yield_now().await;
            }
        }));
    });
    // In the middle of the first long turn.
    sim.run_until(Time::ZERO.after(us(2_200))).unwrap();
    let last = sim.records().iter().rev().find(|record| record.kind == RecordKind::Clock).unwrap();
    assert_eq!(Vtime::from_bits(last.b), sim.group_clock(group.id()));
    let received = sim.handle().stats().groups.iter().find(|stats| stats.name == "g").unwrap().run;
    assert!(received < us(800), "the long turn is not settled yet: {received:?}");
}

#[test]
fn what_is_not_kept_is_counted() {
    let run = |max: Option<usize>| {
        let mut sim = Simulation::new(Config::new(machine("flat-4"))).unwrap();
        max.into_iter().for_each(|max| sim.keep_records_up_to(max));
        let group = sim.handle().group("g").build().unwrap();
        sim.with(|_| spin_in(&group, 9, us(30)));
        sim.run_until(Time::ZERO.after(us(500))).unwrap();
        sim
    };
    let (whole, cut) = (run(Some(usize::MAX)), run(Some(100)));
    assert_eq!((whole.left_out(), cut.records().len()), (0, 100));
    assert_eq!(cut.records(), &whole.records()[..100]);
    assert_eq!(cut.left_out() + 100, whole.records().len() as u64);
    // A run is the same whether it is recorded or not.
    let unrecorded = run(None);
    assert_eq!(unrecorded.records(), []);
    for other in [whole, cut] {
        assert_eq!((other.digest(), other.speed()), (unrecorded.digest(), unrecorded.speed()));
        assert_eq!(other.accounting(), unrecorded.accounting());
    }
}

#[test]
fn what_is_kept_begins_with_the_cpus_that_are_idle() {
    let ran = |keeps: bool| {
        let mut sim = Simulation::new(Config::new(machine("flat-4"))).unwrap();
        let handle = sim.handle();
        sim.with(|_| spin_in(&handle.default_group(), 1, us(500)));
        sim.run_until(Time::ZERO.after(us(100))).unwrap();
        if keeps {
            sim.keep_records();
        }
        let kept = sim.records().to_vec();
        sim.run_until(Time::ZERO.after(us(1_000))).unwrap();
        (kept, sim.digest())
    };
    let (kept, digest) = ran(true);
    let idle: Vec<_> = kept.iter().filter(|record| record.kind == RecordKind::Park).map(|record| record.cpu).collect();
    assert_eq!((kept.len(), idle.len()), (3, 3), "all but the one that computes: {kept:?}");
    assert!(kept.iter().all(|record| record.at >= Time::ZERO.after(us(100))));
    assert_eq!(digest, ran(false).1, "it is no event");
}
