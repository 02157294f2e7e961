//! What is counted of locks, lines and time agrees, whoever counted it.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, spin_in, us};
use evenkeel_core::{Span, Time};
use evenkeel_engine::api;
use evenkeel_sim::{Activity, Config, Function, LineClass, RecordKind, Simulation, Site, Sites};
use std::time::Duration;

/// Tasks that compute, sleep, yield and come from outside; thieves that wait for locks or only try them.
fn busy(name: &str, claim: &str) -> Simulation {
    let machine = machine(name);
    let cpus = machine.cpus();
    let mut sim = Simulation::new(Config::new(machine)).unwrap();
    sim.keep_records();
    let handle = sim.handle();
    handle.switches().set("claim", claim).unwrap();
    let group = handle.group("short").build().unwrap();
    sim.with(|_| {
        spin_in(&group, cpus / 2, us(30));
        for turn in 0..cpus as u64 {
            drop(group.spawn(async move {
                loop {
                    api::compute(Duration::from_nanos(1_000 + turn));
                    api::sleep(Duration::from_micros(20)).await;
                }
            }));
        }
    });
    for turn in 1..20 {
        let group = group.clone();
        sim.at(Time::ZERO.after(us(17 * turn)), move |_| {
            drop(group.spawn(async { api::compute(Duration::from_micros(3)) }));
        });
    }
    sim.run_until(Time::ZERO.after(us(2_000))).unwrap();
    sim
}

const fn engine(site: Site) -> Activity {
    Activity::Scheduler(Function::Engine(site))
}

#[test]
fn the_engine_counts_locks_as_the_machine_does() {
    for claim in ["block", "try-victim"] {
        let mut sim = busy("flat-16", claim);
        // Nobody is between taking a lock and counting it then.
        sim.stop().unwrap();
        let (stat, stats) = (sim.lock_stat(), sim.handle().stats());
        assert!(stat.sites.len() > 3, "{claim}: {stat:?}");
        for (site, machine) in &stat.sites {
            let engine = stats.locks.iter().find(|engine| engine.site == *site).unwrap();
            let waits = (engine.waits, engine.wait, engine.wait_max);
            assert_eq!(waits, (machine.waits.count, machine.waits.total, machine.waits.max), "{claim}, {site:?}");
            assert_eq!(engine.wait_min, machine.waits.min, "{claim}, {site:?}");
            assert_eq!(engine.failed_tries, machine.failed_tries.count, "{claim}, {site:?}");
            assert_eq!(engine.acquisitions, machine.acquisitions, "{claim}, {site:?}");
        }
        assert_eq!(stats.locks.len(), stat.sites.len(), "{claim}");
        let sum = |pairs: &[(Site, Site, u64)]| pairs.iter().map(|pair| pair.2).sum::<u64>();
        assert_eq!(sum(&stat.waited_for), stats.total(|cpu| cpu.contended), "{claim}");
        assert_eq!(sum(&stat.failed_for), stats.total(|cpu| cpu.failed_tries), "{claim}");
        let lines = stat.lines.iter().filter(|(class, _, _)| *class == LineClass::QueueLock);
        assert!(lines.map(|(_, _, line)| line.transfers.count).sum::<u64>() > 0, "{claim}: locks are lines too");
    }
}

#[test]
fn thieves_that_wait_do_not_fail_and_those_that_try_do_not_wait() {
    let search = |claim| {
        let stat = busy("flat-16", claim).lock_stat();
        let (_, search) = *stat.sites.iter().find(|(site, _)| *site == Site::Search).unwrap();
        (search.waits.count > 0, search.failed_tries.count > 0)
    };
    assert_eq!(search("block"), (true, false));
    assert_eq!(search("try-victim"), (false, true));
}

#[test]
fn every_poll_is_a_wait_a_wake_or_a_yield() {
    let mut sim = busy("flat-16", "try-victim");
    let stats = sim.handle().stats();
    let polls = stats.total(|cpu| cpu.polls);
    let woken = sim.records().iter().filter(|record| matches!(record.kind, RecordKind::Wake | RecordKind::Spawn));
    let counted = stats.total(|cpu| cpu.woken_here) + stats.total(|cpu| cpu.woken_outside);
    // Two are between the record and the count on each CPU at most.
    assert!(counted.abs_diff(woken.count() as u64) <= 2 * 16);
    assert!(stats.total(|cpu| cpu.woken_outside) >= 19, "what scripts spawn comes from outside");
    let waiting = (counted + stats.total(|cpu| cpu.yields)).checked_sub(polls).unwrap();
    assert!(waiting <= 3 * 16, "{waiting} tasks wait");
    // Nobody is between two counts of the same once all CPUs have ended.
    sim.stop().unwrap();
    let stats = sim.handle().stats();
    let dispatches = sim.records().iter().filter(|record| record.kind == RecordKind::Dispatch).count() as u64;
    assert_eq!(stats.total(|cpu| cpu.polls), dispatches);
    assert_eq!(stats.total(|cpu| cpu.wait.count()), dispatches);
    for cpu in &stats.cpus {
        let least: u64 = cpu.wait.buckets().map(|(edge, count)| (edge.as_nanos() - edge.as_nanos() / 4) * count).sum();
        let most: u64 = cpu.wait.buckets().map(|(edge, count)| edge.as_nanos() * count).sum();
        assert!(
            (least..=most + 1).contains(&cpu.wait_total.as_nanos()),
            "{} in {least}..={most}",
            cpu.wait_total.as_nanos()
        );
    }
}

#[test]
fn time_by_part_sums_to_the_time_of_all_cpus() {
    let sim = busy("xeon-e5-2650v4-2s", "block");
    let accounting = sim.accounting();
    let total = accounting.total();
    let sum = |frames: Vec<(evenkeel_sim::Frame, Span)>| {
        frames.into_iter().map(|(_, span)| span).fold(Span::ZERO, Span::plus)
    };
    assert_eq!(sum(total.frames()), us(2_000).times(48));
    for account in &accounting.cpus {
        assert_eq!(sum(account.frames()), us(2_000));
        for activity in Activity::all() {
            assert!(account.with_callees(activity) >= account.of(activity), "{activity}");
        }
    }
    let (looks, dispatch) = (total.with_callees(engine(Site::LookAround)), total.with_callees(engine(Site::Dispatch)));
    assert!(looks > total.of(engine(Site::LookAround)) && looks < dispatch, "a dispatch looks around");
    // What a switch costs belongs to the dispatch that makes it, what a wait costs to where the lock is wanted.
    let of = |activity, site| {
        let frames = total.frames().into_iter();
        frames.filter(move |(frame, _)| frame.activity == activity && frame.within.contains(site)).map(|(_, span)| span)
    };
    assert_eq!(
        of(Activity::Scheduler(Function::Switch), Site::Dispatch).fold(Span::ZERO, Span::plus),
        total.of(Activity::Scheduler(Function::Switch))
    );
    assert!(of(Activity::LockWait, Site::Search).fold(Span::ZERO, Span::plus) > Span::ZERO);
    let loose = total
        .frames()
        .into_iter()
        .find(|(frame, _)| frame.activity == Activity::LockWait && frame.within == Sites::NONE);
    assert_eq!(loose, None, "every wait is somewhere");
}

#[test]
fn counts_of_locks_begin_anew_when_told() {
    let mut sim = busy("flat-16", "try-victim");
    assert!(sim.lock_stat().total(|site| site.acquisitions) > 0);
    sim.clear_lock_stat();
    assert_eq!(sim.lock_stat(), evenkeel_sim::LockStat::default());
    let before = sim.handle().stats().locks.iter().map(|site| site.acquisitions).sum::<u64>();
    sim.run_until(Time::ZERO.after(us(3_000))).unwrap();
    let after = sim.handle().stats().locks.iter().map(|site| site.acquisitions).sum::<u64>();
    // A CPU may have been between taking a lock and counting it.
    let counted = sim.lock_stat().total(|site| site.acquisitions);
    assert!(counted > 0 && counted.abs_diff(after - before) <= 16, "{counted}, {before}, {after}");
}
