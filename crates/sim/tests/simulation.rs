//! What a simulated machine promises: the same run twice, all time accounted for, locks and lines that cost.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, ns, spin_in, us};
use evenkeel_core::{CpuId, Span, Time};
use evenkeel_engine::api::{self, Handle};
use evenkeel_engine::host::Site;
use evenkeel_sim::machine::{LockKind, Machine};
use evenkeel_sim::{Activity, Config, Digest, Failure, Preemption, RecordKind, Simulation};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

fn start(machine: Machine) -> Simulation {
    Simulation::new(Config::new(machine)).unwrap()
}

/// Two groups of unequal weight that compute, tasks that sleep, and arrivals from outside.
fn mixed(machine: Machine, length: Span) -> Simulation {
    let cpus = machine.cpus();
    let mut sim = start(machine);
    sim.keep_records();
    let handle = sim.handle();
    let heavy = handle.group("heavy").weight(300).build().unwrap();
    let light = handle.group("light").weight(100).build().unwrap();
    sim.with(|_| {
        spin_in(&heavy, cpus, us(50));
        spin_in(&light, cpus, us(70));
        for _ in 0..cpus {
            drop(light.spawn(async {
                loop {
                    api::compute(Duration::from_nanos(2_500));
                    api::sleep(Duration::from_micros(53)).await;
                }
            }));
        }
    });
    for turn in 1..20 {
        let heavy = heavy.clone();
        sim.at(Time::ZERO.after(us(17 * turn)), move |_| {
            drop(heavy.spawn(async { api::compute(Duration::from_micros(3)) }));
        });
    }
    sim.run_until(Time::ZERO.after(length)).unwrap();
    sim
}

/// The digest of a run and what its time went to.
fn run_mixed(name: &str, length: Span) -> (Digest, evenkeel_sim::Accounting) {
    let mut sim = mixed(machine(name), length);
    let accounting = sim.accounting();
    sim.stop().unwrap();
    (sim.digest(), accounting)
}

#[test]
fn the_same_run_twice_is_the_same() {
    for name in ["flat-4", "xeon-e5-2650v4-2s"] {
        let first = run_mixed(name, us(2_000));
        // Something else in between, so that the memory is not laid out alike.
        let _other: Vec<Vec<u8>> = (0..1_000).map(|size| vec![0; size]).collect();
        let _ = run_mixed("flat-16", us(100));
        assert_eq!(first, run_mixed(name, us(2_000)), "{name}");
    }
}

#[test]
fn a_seed_makes_a_difference_where_chance_decides() {
    let digest = |seed| {
        let mut sim = Simulation::new(Config { seed, ..Config::new(machine("flat-16")) }).unwrap();
        let group = sim.handle().group("g").build().unwrap();
        sim.with(|_| spin_in(&group, 40, us(30)));
        sim.run_until(Time::ZERO.after(us(3_000))).unwrap();
        sim.digest()
    };
    assert_ne!(digest(1), digest(2));
    assert_eq!(digest(1), digest(1));
}

#[test]
fn every_nanosecond_is_accounted_for() {
    for (name, cpus) in [("flat-4", 4), ("xeon-e5-2650v4-2s", 48)] {
        let (_, accounting) = run_mixed(name, us(1_500));
        assert_eq!(accounting.elapsed, us(1_500));
        assert_eq!(accounting.cpus.len(), cpus);
        assert!(accounting.cpus.iter().all(|account| account.total() == accounting.elapsed));
        let total = accounting.total();
        assert!(total.of(Activity::Work) > total.scheduler(), "{name}: {total:?}");
        assert!(total.of(Activity::Idle) < us(100).times(cpus as u64), "{name}: {total:?}");
    }
}

#[test]
fn accounts_may_be_looked_at_at_any_time() {
    let mut sim = mixed(machine("xeon-e5-2650v4-2s"), us(100));
    let mut before = sim.accounting();
    for step in 1..300 {
        sim.run_until(Time::ZERO.after(us(100)).after(ns(37 * step))).unwrap();
        let after = sim.accounting();
        for (then, now) in before.cpus.iter().zip(&after.cpus) {
            assert!(Activity::all().all(|activity| now.of(activity) >= then.of(activity)));
        }
        before = after;
    }
}

#[test]
fn weights_are_kept_with_costs() {
    let mut sim = mixed(machine("flat-16"), us(50_000));
    let stats = sim.handle().stats();
    let run = |name: &str| stats.groups.iter().find(|group| group.name == name).unwrap().run.as_secs_f64();
    let ratio = run("heavy") / run("light");
    assert!((2.8..3.2).contains(&ratio), "{ratio}");
    sim.stop().unwrap();
}

#[test]
fn one_cpu_and_three_run() {
    for cpus in [1, 3] {
        let text = include_str!("../../../machines/flat-4.toml")
            .replace("cores_per_cache = 4", &format!("cores_per_cache = {cpus}"));
        let mut sim = mixed(Machine::parse("few.toml", &text).unwrap(), us(3_000));
        let idle = sim.accounting().total().of(Activity::Idle);
        assert!(idle < us(50).times(cpus), "{cpus} CPUs: {idle:?}");
        sim.stop().unwrap();
    }
}

/// Tasks that compute 2.5 µs and sleep 53 µs, one per CPU.
fn sleepers(name: &str, length: Span) -> Simulation {
    let mut sim = start(machine(name));
    let cpus = sim.accounting().cpus.len();
    let group = sim.handle().group("sleepers").build().unwrap();
    sim.with(|_| {
        for _ in 0..cpus {
            drop(group.spawn(async {
                loop {
                    api::compute(Duration::from_nanos(2_500));
                    api::sleep(Duration::from_micros(53)).await;
                }
            }));
        }
    });
    sim.run_until(Time::ZERO.after(length)).unwrap();
    sim
}

#[test]
fn a_large_machine_runs_and_stops() {
    for (name, length) in [("spr-224", us(100)), ("big-1024", us(10))] {
        let mut sim = sleepers(name, length);
        assert!(sim.handle().stats().total(|cpu| cpu.polls) > 0, "{name}");
        sim.stop().unwrap();
    }
}

#[test]
fn a_task_that_computes_takes_as_long_as_it_says() {
    let mut sim = start(machine("flat-4"));
    let took = sim.block_on(async {
        let handle = Handle::current();
        let task = handle.spawn(async {
            let began = api::now();
            api::compute(Duration::from_micros(700));
            let inside = api::now().since(began);
            api::yield_now().await;
            (inside, api::now().since(began))
        });
        task.await.unwrap()
    });
    let (inside, after) = took.unwrap();
    assert!((us(700)..us(701)).contains(&inside), "{inside:?}");
    assert!((us(700)..us(706)).contains(&after), "{after:?}");
}

/// What a task that runs 10 ms and then wakes another, and one that comes 2 ms later, take.
fn long_run(preemption: Preemption) -> (Span, Span) {
    let text = include_str!("../../../machines/flat-4.toml").replace("cores_per_cache = 4", "cores_per_cache = 1");
    let machine = Machine::parse("one.toml", &text).unwrap();
    let mut sim = Simulation::new(Config { preemption, ..Config::new(machine) }).unwrap();
    let handle = sim.handle();
    let (long, short) = (handle.group("long").build().unwrap(), handle.group("short").build().unwrap());
    let ended: Arc<Mutex<Vec<Span>>> = Arc::default();
    let (first, second) = (Arc::clone(&ended), Arc::clone(&ended));
    sim.with(|_| {
        drop(long.spawn(async move {
            api::run(Duration::from_millis(10)).await;
            first.lock().unwrap().push(api::now().since(Time::ZERO));
        }));
    });
    sim.at(Time::ZERO.after(us(2_000)), move |_| {
        drop(short.spawn(async move {
            api::run(Duration::from_micros(100)).await;
            second.lock().unwrap().push(api::now().since(Time::ZERO));
        }));
    });
    sim.run_until(Time::ZERO.after(us(20_000))).unwrap();
    let mut ended = ended.lock().unwrap().clone();
    ended.sort();
    (ended[0], ended[1])
}

#[test]
fn ticks_preempt_only_where_they_are_to() {
    let (first, second) = long_run(Preemption::BetweenPolls);
    assert!((us(10_000)..us(10_100)).contains(&first) && (us(10_100)..us(10_250)).contains(&second));
    let (first, second) = long_run(Preemption::AtTicks);
    assert!((us(2_100)..us(3_300)).contains(&first), "the short one waits for a tick: {first:?}");
    assert!((us(10_100)..us(10_250)).contains(&second), "{second:?}");
}

#[test]
fn what_a_task_does_after_it_ran_happens_after_it() {
    let mut sim = start(machine("flat-4"));
    let took = sim.block_on(async {
        let (sender, receiver) = futures::channel::oneshot::channel();
        let handle = Handle::current();
        drop(handle.spawn(async move {
            api::run(Duration::from_millis(3)).await;
            sender.send(()).unwrap();
        }));
        let began = api::now();
        let task = handle.spawn(async move {
            receiver.await.unwrap();
            api::now().since(began)
        });
        task.await.unwrap()
    });
    assert!((us(3_000)..us(3_050)).contains(&took.unwrap()));
}

#[test]
fn a_busy_sibling_slows_work_down() {
    let text = |numbering: &str| {
        let text = include_str!("../../../machines/flat-4.toml");
        let text = text.replace("cores_per_cache = 4", "cores_per_cache = 1").replace("threads-last", numbering);
        text.replace("threads_per_core = 1", "threads_per_core = 2") + "\n[work]\nbeside_busy_sibling_percent = 50\n"
    };
    let work = |tasks| {
        let mut sim = start(Machine::parse("smt.toml", &text("threads-last")).unwrap());
        let group = sim.handle().group("g").build().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        sim.with(|_| {
            for _ in 0..tasks {
                let done = Arc::clone(&done);
                drop(group.spawn(async move {
                    loop {
                        api::compute(Duration::from_micros(100));
                        api::yield_now().await;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }));
            }
        });
        sim.run_until(Time::ZERO.after(us(20_000))).unwrap();
        done.load(Ordering::Relaxed)
    };
    let (one, two) = (work(1), work(2));
    assert!((185..=200).contains(&one), "{one}");
    assert!((185..=205).contains(&two), "{two}");
}

#[test]
fn what_other_programs_take_is_nobodys_work() {
    let text = include_str!("../../../machines/flat-4.toml").to_owned() + "\n[work]\ngot_permille = 900\n";
    let mut sim = start(Machine::parse("guest.toml", &text).unwrap());
    let group = sim.handle().group("g").build().unwrap();
    sim.with(|_| spin_in(&group, 4, us(100)));
    sim.run_until(Time::ZERO.after(us(100_000))).unwrap();
    let total = sim.accounting().total();
    let taken = total.of(Activity::Taken).as_secs_f64() / total.total().as_secs_f64();
    assert!((0.09..0.101).contains(&taken), "{taken}");
    let stats = sim.handle().stats();
    let charged = stats.groups.iter().find(|group| group.name == "g").unwrap().run;
    assert!(charged.as_secs_f64() < total.total().as_secs_f64() * 0.92, "{charged:?}");
}

#[test]
fn a_future_may_hold_a_mutex_while_it_wakes() {
    // As some event libraries do: a waker is called under a lock that the woken task takes first of all.
    let shared: Arc<Mutex<(u64, Vec<Waker>)>> = Arc::default();
    let mut sim = start(machine("flat-16"));
    let group = sim.handle().group("g").build().unwrap();
    sim.with(|_| {
        for _ in 0..32 {
            let shared = Arc::clone(&shared);
            drop(group.spawn(std::future::poll_fn(move |cx| {
                let mut inside = shared.lock().unwrap();
                inside.0 += 1;
                let others = std::mem::take(&mut inside.1);
                api::compute(Duration::from_micros(2));
                others.iter().for_each(Waker::wake_by_ref);
                inside.1.push(cx.waker().clone());
                Poll::<()>::Pending
            })));
        }
    });
    let waker = Arc::clone(&shared);
    sim.at(Time::ZERO.after(us(500)), move |_| waker.lock().unwrap().1.iter().for_each(Waker::wake_by_ref));
    sim.run_until(Time::ZERO.after(us(1_000))).unwrap();
    assert!(shared.lock().unwrap().0 >= 32);
    sim.stop().unwrap();
}

#[test]
fn two_machines_and_a_runtime_on_threads_live_together() {
    let runtime = evenkeel::Runtime::builder().workers(2).build().unwrap();
    let on_threads = runtime.spawn(async {
        for _ in 0..100 {
            evenkeel::yield_now().await;
        }
        7_u32
    });
    let alone = run_mixed("flat-16", us(1_000)).0;
    let mut one = mixed(machine("flat-16"), us(500));
    let mut other = mixed(machine("flat-4"), us(300));
    one.run_until(Time::ZERO.after(us(800))).unwrap();
    other.run_until(Time::ZERO.after(us(600))).unwrap();
    one.run_until(Time::ZERO.after(us(1_000))).unwrap();
    one.stop().unwrap();
    assert_eq!(one.digest(), alone);
    // A task of one machine waits for one of the other.
    let (sender, receiver) = futures::channel::oneshot::channel();
    let task = other.with(|handle| handle.spawn(async move { receiver.await.unwrap() }));
    let mut third = start(machine("flat-4"));
    third.block_on(async move { sender.send(3_u32).unwrap() }).unwrap();
    assert_eq!(other.block_on(task).unwrap().unwrap(), 3);
    assert_eq!(runtime.block_on(on_threads).unwrap(), 7);
}

#[test]
fn arrivals_come_at_their_times() {
    let mut sim = start(machine("flat-4"));
    let seen: Arc<Mutex<Vec<Span>>> = Arc::default();
    for turn in 1..=5 {
        let seen = Arc::clone(&seen);
        let planned = Time::ZERO.after(us(100 * turn));
        sim.at(planned, move |handle| {
            drop(handle.spawn(async move { seen.lock().unwrap().push(api::now().since(planned)) }));
        });
    }
    sim.run_until(Time::ZERO.after(us(1_000))).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    // Kick, delivery and idle exit.
    assert!(seen.iter().all(|late| (us(2)..us(10)).contains(late)), "{seen:?}");
}

#[test]
fn a_check_that_fails_is_a_value() {
    let mut sim = mixed(machine("flat-4"), us(10));
    sim.check_every(us(100), |handle, now| {
        let polls = handle.stats().total(|cpu| cpu.polls);
        if now < Time::ZERO.after(us(500)) || polls == 0 { Ok(()) } else { Err(format!("{polls} polls are too many")) }
    });
    let failure = sim.run_until(Time::ZERO.after(us(2_000))).unwrap_err();
    let Failure::Check { at, message } = &failure else { panic!("{failure}") };
    assert_eq!(*at, Time::ZERO.after(us(510)));
    assert!(message.ends_with("are too many"));
    assert_eq!(sim.run_until(Time::ZERO.after(us(3_000))), Err(failure));
}

#[test]
fn nothing_left_to_happen_is_a_value() {
    let mut sim = start(machine("flat-4"));
    let failure = sim.block_on(std::future::pending::<()>()).unwrap_err();
    assert!(matches!(failure, Failure::Deadlock { .. }), "{failure}");
}

#[test]
fn a_panic_of_a_task_is_its_own() {
    let mut sim = start(machine("flat-4"));
    let task = sim.with(|handle| handle.spawn(async { panic!("this panic is meant to be") }));
    assert!(sim.block_on(task).unwrap().is_err());
    assert_eq!(sim.block_on(async { 5 }).unwrap(), 5);
}

#[test]
fn tasks_that_sleep_are_dropped_when_the_machine_stops() {
    struct Counted(Arc<AtomicU64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let mut sim = start(machine("flat-16"));
    sim.with(|handle| {
        for turn in 0..100 {
            let counted = Counted(Arc::clone(&dropped));
            drop(handle.spawn(async move {
                let _counted = counted;
                api::sleep(Duration::from_millis(turn)).await;
                api::sleep(Duration::MAX).await;
            }));
        }
    });
    sim.run_until(Time::ZERO.after(us(20_000))).unwrap();
    drop(sim);
    assert_eq!(dropped.load(Ordering::Relaxed), 100);
}

#[test]
fn locks_are_waited_for_of_either_kind() {
    for kind in [LockKind::Fifo, LockKind::Barging] {
        let mut machine = machine("flat-64");
        machine.lock = kind;
        let mut sim = start(machine);
        // Outsiders and thieves all want the queue of CPU 0.
        sim.with(|handle| {
            handle.switches().set("claim", "block").unwrap();
            for _ in 0..400 {
                drop(handle.spawn(async { api::compute(Duration::from_nanos(300)) }));
            }
        });
        sim.run_until(Time::ZERO.after(us(200))).unwrap();
        let stat = sim.lock_stat();
        let waits: u64 = stat.sites.iter().map(|(_, site)| site.waits.count).sum();
        let contended = sim.handle().stats().total(|cpu| cpu.contended);
        assert!(waits > 0 && contended > 0, "{kind:?}: {stat:?}");
        assert_eq!(stat.waited_for.iter().map(|(_, _, count)| count).sum::<u64>(), waits, "{kind:?}");
        let wait: Span = stat.sites.iter().map(|(_, site)| site.waits.total).fold(Span::ZERO, Span::plus);
        assert!(sim.accounting().total().of(Activity::LockWait) >= wait, "{kind:?}");
        sim.stop().unwrap();
    }
}

#[test]
fn tries_that_fail_are_counted_with_what_they_cost() {
    let mut sim = start(machine("flat-64"));
    sim.with(|handle| {
        handle.switches().set("claim", "try-victim").unwrap();
        for _ in 0..400 {
            drop(handle.spawn(async { api::compute(Duration::from_nanos(300)) }));
        }
    });
    sim.run_until(Time::ZERO.after(us(200))).unwrap();
    let stat = sim.lock_stat();
    let failed: Vec<_> = stat.sites.iter().filter(|(_, site)| site.failed_tries.count > 0).collect();
    let count: u64 = failed.iter().map(|(_, site)| site.failed_tries.count).sum();
    assert_eq!(count, sim.handle().stats().total(|cpu| cpu.failed_tries));
    assert!(failed.iter().any(|(site, stat)| *site == Site::Search && stat.failed_tries.total > Span::ZERO));
}

#[test]
fn the_record_tells_each_wake_and_dispatch() {
    let mut sim = start(machine("flat-4"));
    sim.keep_records();
    let task = sim.with(|handle| {
        handle.spawn(async {
            for _ in 0..10 {
                api::sleep(Duration::from_micros(10)).await;
            }
        })
    });
    sim.block_on(task).unwrap().unwrap();
    let count = |kind| sim.records().iter().filter(|record| record.kind == kind).count();
    assert_eq!((count(RecordKind::Spawn), count(RecordKind::Wake)), (1, 10));
    assert_eq!(count(RecordKind::Dispatch), 11);
    assert_eq!(sim.digest().count, sim.records().len() as u64);
    let mut last = [Time::ZERO; 4];
    for record in sim.records().iter().filter(|record| record.cpu != CpuId::OUTSIDE) {
        let last = &mut last[record.cpu.index()];
        assert!(*last <= record.at, "{record:?}");
        *last = record.at;
    }
}

#[test]
fn a_group_that_wakes_on_all_cpus_at_once_has_saved_nothing_up() {
    let mut sim = start(machine("flat-64"));
    let cpus = 64;
    let groups: Vec<_> = ["one", "two", "on-off"].map(|name| sim.handle().group(name).build().unwrap()).into();
    let period = Duration::from_millis(10);
    let work: Arc<Mutex<Vec<u64>>> = Arc::default();
    sim.with(|_| {
        spin_in(&groups[0], cpus, us(50));
        spin_in(&groups[1], cpus, us(50));
        for _ in 0..cpus {
            let work = Arc::clone(&work);
            drop(groups[2].spawn(on_in_every_other(period, work)));
        }
    });
    sim.run_until(Time::ZERO.after(Span::from_millis(300))).unwrap();
    sim.stop().unwrap();
    // A third of the machine while it is on. Its tasks that wait when the off time begins have a poll each after it.
    let due = cpus as u64 * 10_000 / 3;
    let work = work.lock().unwrap();
    assert!(work.len() >= 15, "{} periods", work.len());
    for (number, &work) in work.iter().enumerate().skip(1) {
        assert!((due * 8 / 10..due * 14 / 10).contains(&work), "period {number}: {work} us, due {due} us");
    }
}

/// Computes during every other period, and adds up by period what all such tasks did, in us.
async fn on_in_every_other(period: Duration, work: Arc<Mutex<Vec<u64>>>) {
    loop {
        api::run(Duration::from_micros(50)).await;
        let now = Duration::from(api::now().since(Time::ZERO));
        let number = (now.as_nanos() / (period * 2).as_nanos()) as usize;
        {
            let mut work = work.lock().unwrap();
            if work.len() <= number {
                work.resize(number + 1, 0);
            }
            work[number] += 50;
        }
        let on = period * 2 * u32::try_from(number).unwrap();
        if now - on >= period {
            api::sleep(on + period * 2 - now).await;
        } else {
            api::yield_now().await;
        }
    }
}
