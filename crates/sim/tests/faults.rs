//! Faults happen when they are switched on, are accounted for, lose nothing, and are not there when they are off.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, spin_in, us};
use evenkeel_core::{Span, Time};
use evenkeel_engine::api::{self, Handle};
use evenkeel_sim::{Activity, Config, Digest, Failure, FaultKind, Faults, Preemption, Simulation};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every kind, alone and with all others, often enough to hurt.
const HEAVY: [&str; 6] = [
    "stall=50us@2000/s",
    "stall=exp:200us@1000/s",
    "holder=exp:20us@5%",
    "kick=100us@50%",
    "tick=exp:700us@50%",
    "stall=exp:100us@3000/s,holder=exp:10us@10%,kick=exp:50us@60%,tick=3ms@30%",
];

fn faults(text: &str) -> Faults {
    text.parse().unwrap()
}

fn start(name: &str, text: &str) -> Simulation {
    Simulation::new(Config { faults: faults(text), ..Config::new(machine(name)) }).unwrap()
}

fn until(micros: u64) -> Time {
    Time::ZERO.after(us(micros))
}

/// A busy machine with two groups, for a while.
fn busy(name: &str, text: &str, micros: u64) -> Simulation {
    let mut sim = start(name, text);
    let cpus = sim.accounting().cpus.len();
    let group = sim.handle().group("busy").build().unwrap();
    sim.with(|_| spin_in(&group, cpus + cpus / 2, us(30)));
    sim.run_until(until(micros)).unwrap();
    sim
}

fn lost(sim: &Simulation, kind: FaultKind) -> Span {
    sim.accounting().total().of(Activity::Lost(kind))
}

#[test]
fn cpus_stall_as_often_and_as_long_as_they_are_to() {
    let sim = busy("flat-16", "stall=100us@500/s", 100_000);
    let stat = sim.fault_stat().of(FaultKind::Stall);
    // 800 are expected; the standard deviation is 28.
    assert!((660..940).contains(&stat.count), "{stat:?}");
    assert_eq!((stat.min, stat.max), (us(100), us(100)));
    let lost = lost(&sim, FaultKind::Stall);
    // Less than all: stalls that overlap, and the last ones, which are not over.
    assert!(lost <= stat.total && lost.times(100) >= stat.total.times(93), "{lost:?} of {:?}", stat.total);
    for account in &sim.accounting().cpus {
        let lost = account.of(Activity::Lost(FaultKind::Stall)).as_secs_f64();
        assert!((0.0015..0.010).contains(&lost), "{lost}");
    }
}

#[test]
fn what_a_stall_takes_is_not_charged() {
    // The thread had no processor, and the runtime asks once per millisecond what it had.
    let sim = busy("flat-4", "stall=exp:400us@1000/s", 200_000);
    let total = sim.accounting().total();
    let run = sim.handle().stats().groups.iter().map(|group| group.run.as_secs_f64()).sum::<f64>();
    let had = total.total().minus(total.of(Activity::Lost(FaultKind::Stall))).as_secs_f64();
    assert!(total.of(Activity::Lost(FaultKind::Stall)).as_secs_f64() > total.total().as_secs_f64() * 0.25);
    assert!(run < had * 1.05, "{run} of {had}");
}

#[test]
fn a_stalled_cpu_answers_no_kick_before_it_goes_on() {
    // One CPU, in deep idle, stalled nearly half of the time: some of the arrivals find it stalled, and wait for its end.
    let text = include_str!("../../../machines/flat-4.toml").replace("cores_per_cache = 4", "cores_per_cache = 1");
    let machine = evenkeel_sim::machine::Machine::parse("one.toml", &text).unwrap();
    let mut sim = Simulation::new(Config { faults: faults("stall=1ms@499/s"), ..Config::new(machine) }).unwrap();
    let seen: Arc<Mutex<Vec<Span>>> = Arc::default();
    for turn in 1..=200 {
        let (seen, planned) = (Arc::clone(&seen), until(5_000 * turn));
        sim.at(planned, move |handle| {
            drop(handle.spawn(async move { seen.lock().unwrap().push(api::now().since(planned)) }));
        });
    }
    sim.run_until(until(1_005_000)).unwrap();
    let late = seen.lock().unwrap().iter().filter(|wait| **wait > us(80)).count();
    assert!((30..140).contains(&late), "{late}");
    assert!(seen.lock().unwrap().iter().filter(|wait| **wait < us(60)).count() > 40);
    let lost = lost(&sim, FaultKind::Stall);
    let waited = seen.lock().unwrap().iter().fold(Span::ZERO, |sum, wait| sum.plus(*wait));
    assert!(lost > us(10_000) && lost <= waited, "{lost:?} of {waited:?}");
}

#[test]
fn a_holder_that_loses_its_processor_keeps_others_waiting() {
    let run = |text: &str| {
        let mut sim = start("flat-16", text);
        sim.with(|handle| {
            handle.switches().set("claim", "block").unwrap();
            for _ in 0..400 {
                drop(handle.spawn(async { api::compute(Duration::from_nanos(300)) }));
            }
        });
        sim.run_until(until(5_000)).unwrap();
        (
            sim.accounting().total().of(Activity::LockWait),
            sim.fault_stat().of(FaultKind::HolderOff),
            lost(&sim, FaultKind::HolderOff),
        )
    };
    let (waited, none, nothing) = run("kick=1ns@0.0001%");
    assert_eq!((none.count, nothing), (0, Span::ZERO));
    let (waited_more, stat, lost) = run("holder=30us@10%");
    assert!(stat.count > 20, "{stat:?}");
    assert_eq!(lost, stat.total);
    assert!(waited_more > waited.times(3), "{waited_more:?} against {waited:?}");
}

#[test]
fn late_kicks_make_arrivals_late() {
    let mut sim = start("flat-4", "kick=70us@100%");
    let seen: Arc<Mutex<Vec<Span>>> = Arc::default();
    for turn in 1..=20 {
        let (seen, planned) = (Arc::clone(&seen), until(500 * turn));
        sim.at(planned, move |handle| {
            drop(handle.spawn(async move { seen.lock().unwrap().push(api::now().since(planned)) }));
        });
    }
    sim.run_until(until(20_000)).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|late| (us(72)..us(80)).contains(late)), "{seen:?}");
    let stat = sim.fault_stat().of(FaultKind::LateKick);
    assert!(stat.count >= 20 && stat.min == us(70), "{stat:?}");
    let lost = lost(&sim, FaultKind::LateKick);
    assert!(lost >= us(70 * 20) && lost <= stat.total, "{lost:?} {stat:?}");
}

#[test]
fn a_late_kick_that_meets_a_cpu_on_its_way_to_park_is_not_lost() {
    // A second task comes about when the CPU has found nothing more to do, and is parking: at every moment around that.
    let text = include_str!("../../../machines/flat-4.toml").replace("cores_per_cache = 4", "cores_per_cache = 1");
    let machine = evenkeel_sim::machine::Machine::parse("one.toml", &text).unwrap();
    let mut sim = Simulation::new(Config { faults: faults("kick=20us@100%"), ..Config::new(machine) }).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let mut arrive = |nanos: u64| {
        let seen = Arc::clone(&seen);
        sim.at(Time::from_nanos(nanos), move |handle| {
            drop(handle.spawn(async move { seen.fetch_add(1, Ordering::Relaxed) }));
        });
    };
    for turn in 0..400 {
        arrive(200_000 * turn);
        arrive(200_000 * turn + 22_000 + 13 * turn);
    }
    sim.run_until(until(90_000)).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 800);
}

#[test]
fn late_ticks_preempt_late() {
    // A long task runs; a short one comes at 2 ms and gets the CPU at a tick.
    let short_ends = |text: &str| {
        let file = include_str!("../../../machines/flat-4.toml").replace("cores_per_cache = 4", "cores_per_cache = 1");
        let machine = evenkeel_sim::machine::Machine::parse("one.toml", &file).unwrap();
        let config = Config { preemption: Preemption::AtTicks, faults: faults(text), ..Config::new(machine) };
        let mut sim = Simulation::new(config).unwrap();
        let (long, short) = (sim.handle().group("long").build().unwrap(), sim.handle().group("short").build().unwrap());
        sim.with(|_| drop(long.spawn(async { api::run(Duration::from_millis(100)).await })));
        let ended = Arc::new(AtomicU64::new(0));
        let ends = Arc::clone(&ended);
        sim.at(until(2_000), move |_| {
            drop(short.spawn(async move {
                api::run(Duration::from_micros(100)).await;
                ends.store(api::now().as_nanos(), Ordering::Relaxed);
            }));
        });
        sim.run_until(until(150_000)).unwrap();
        assert_eq!(lost(&sim, FaultKind::LateTick), Span::ZERO);
        (ended.load(Ordering::Relaxed) / 1_000, sim.fault_stat().of(FaultKind::LateTick))
    };
    let (on_time, _) = short_ends("kick=1ns@0.0001%");
    assert!((2_100..3_300).contains(&on_time), "{on_time}");
    let (late, stat) = short_ends("tick=5ms@100%");
    assert!((5_000..9_400).contains(&late), "{late}");
    assert!((12..30).contains(&stat.count) && stat.max == us(5_000), "{stat:?}");
}

/// Tasks that compute, sleep, yield, wake each other and end. How many ended.
fn workload(handle: &Handle, tasks: usize) -> Arc<AtomicU64> {
    let ended = Arc::new(AtomicU64::new(0));
    let groups = ["a", "b", "c"].map(|name| handle.group(name).build().unwrap());
    for task in 0..tasks {
        let (ended, next) = (Arc::clone(&ended), groups[(task + 1) % 3].clone());
        drop(groups[task % 3].spawn(async move {
            for turn in 0..8_u64 {
                api::run(Duration::from_nanos(700 * (1 + turn))).await;
                api::sleep(Duration::from_micros(5 + task as u64 % 7)).await;
                api::yield_now().await;
                let _ = next.spawn(async { api::run(Duration::from_micros(1)).await }).await;
            }
            ended.fetch_add(1, Ordering::Relaxed);
        }));
    }
    ended
}

#[test]
fn nothing_is_lost_while_faults_go_on() {
    for text in HEAVY {
        for name in ["flat-4", "xeon-e5-2650v4-2s"] {
            let mut sim = start(name, text);
            let ended = sim.with(|handle| workload(handle, 150));
            sim.run_until(until(300_000)).unwrap();
            assert_eq!(ended.load(Ordering::Relaxed), 150, "{text} on {name}");
            sim.stop().unwrap();
        }
    }
}

#[test]
fn what_faults_held_up_drains_when_they_stop() {
    for text in HEAVY {
        let mut sim = start("flat-16", text);
        let ended = sim.with(|handle| workload(handle, 100));
        sim.run_until(until(60)).unwrap();
        assert!(ended.load(Ordering::Relaxed) < 100, "{text}");
        sim.set_faults(Faults::NONE);
        let before = sim.fault_stat();
        sim.run_until(until(30_000)).unwrap();
        assert_eq!(ended.load(Ordering::Relaxed), 100, "{text}");
        assert_eq!(before, sim.fault_stat(), "{text}");
        sim.stop().unwrap();
    }
}

#[test]
fn a_machine_with_faults_stops_with_work_left() {
    for text in HEAVY {
        let mut sim = busy("flat-16", text, 700);
        sim.stop().unwrap();
    }
}

#[test]
fn time_is_accounted_for_at_any_time_under_all_faults() {
    let mut sim = start("xeon-e5-2650v4-2s", HEAVY[5]);
    let _ended = sim.with(|handle| workload(handle, 60));
    for turn in 0..100 {
        sim.at(until(35 * turn), |handle| drop(handle.spawn(async { api::run(Duration::from_micros(3)).await })));
    }
    let mut before = sim.accounting();
    for step in 1..2_000 {
        // Looking asserts V3.
        sim.run_until(Time::from_nanos(1_913 * step)).unwrap();
        let after = sim.accounting();
        for (then, now) in before.cpus.iter().zip(&after.cpus) {
            assert!(Activity::all().all(|activity| now.of(activity) >= then.of(activity)));
        }
        before = after;
    }
    for kind in [FaultKind::Stall, FaultKind::HolderOff, FaultKind::LateKick] {
        assert!(lost(&sim, kind) > Span::ZERO, "{kind:?}: {:?}", sim.fault_stat());
    }
}

fn digest(text: &str, seed: u64) -> (Digest, u64) {
    let faults = if text.is_empty() { Faults::NONE } else { faults(text) };
    let mut sim = Simulation::new(Config { faults, seed, ..Config::new(machine("flat-16")) }).unwrap();
    let _ended = sim.with(|handle| {
        (0..3).for_each(|_| drop(handle.spawn(async { api::run(Duration::from_millis(9)).await })));
        workload(handle, 60)
    });
    for turn in 0..20 {
        sim.at(until(2_000 + 40 * turn), |handle| {
            drop(handle.spawn(async { api::run(Duration::from_micros(3)).await }))
        });
    }
    sim.run_until(until(3_000)).unwrap();
    sim.stop().unwrap();
    let stat = sim.fault_stat();
    (sim.digest(), FaultKind::ALL.map(|kind| stat.of(kind).count).iter().sum())
}

#[test]
fn runs_with_faults_repeat() {
    for text in HEAVY {
        assert_eq!(digest(text, 1), digest(text, 1), "{text}");
        assert_ne!(digest(text, 1), digest(text, 2), "{text}");
    }
}

#[test]
fn what_never_happens_changes_nothing() {
    let without = digest("", 1);
    for text in HEAVY {
        let with = digest(text, 1);
        assert!(with.1 > 0 && with.0 != without.0, "{text}: {with:?} {without:?}");
    }
    // They are on and draw, but nothing comes of it in so short a time.
    for text in ["stall=1us@1/s", "holder=1us@0.0001%", "kick=1us@0.0001%", "tick=1us@0.0001%"] {
        assert_eq!(digest(text, 2), digest("", 2), "{text}");
    }
}

#[test]
fn a_machine_on_which_nothing_will_happen_is_still_found_out() {
    let mut sim = start("flat-4", HEAVY[5]);
    let failure = sim.block_on(std::future::pending::<()>()).unwrap_err();
    assert!(matches!(failure, Failure::Deadlock { .. }), "{failure}");
}
