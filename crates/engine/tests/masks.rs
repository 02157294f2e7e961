//! CPU masks: a task is polled only where it may run (I6), whatever wakes it and whoever pulls it, and no CPU is parked
//! beside a task that waits and may run there.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::disallowed_types, reason = "a test keeps its own books, beside the engine's words and locks")]

mod common;

use common::{at_ms, ms, us};
use evenkeel_core::{CpuId, CpuMask, Span, Time};
use evenkeel_engine::api::{
    CpusError, Group, GroupError, Handle, SpawnError, compute, current_cpu, sleep, spawn, yield_now,
};
use evenkeel_engine::test_host::{TestConfig, TestMachine};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

fn cpu(index: u32) -> CpuId {
    CpuId::new(index)
}

fn mask(text: &str) -> CpuMask {
    text.parse().unwrap()
}

/// Where the polls of a program's tasks were.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<BTreeSet<CpuId>>>);

impl Places {
    fn note(&self) {
        self.0.lock().insert(current_cpu().unwrap());
    }

    fn seen(&self) -> String {
        self.0.lock().iter().copied().collect::<CpuMask>().to_string()
    }

    async fn hog(self) {
        loop {
            self.note();
            compute(us(50).into());
            yield_now().await;
        }
    }
}

#[test]
fn masks_that_can_not_be_are_refused() {
    let machine = TestMachine::new(TestConfig::flat(4));
    let handle = machine.handle();
    let build = |cpus: CpuMask| handle.group("g").cpus(cpus).build().map(|group| group.cpus().to_string());
    assert_eq!(build(CpuMask::empty()), Err(GroupError::Cpus(CpusError::Empty)));
    assert_eq!(build(mask("2-4")), Err(GroupError::Cpus(CpusError::NoSuchCpu { cpu: cpu(4), cpus: 4 })));
    assert_eq!(build(mask("0-3")), Ok("0-3".to_owned()));
    assert_eq!(build(mask("1,3")), Ok("1,3".to_owned()));
    let group = handle.group("g").cpus(mask("1,3")).build().unwrap();
    let on = |cpus: &str| group.try_spawn_on(&mask(cpus), async {}).map(drop);
    assert_eq!(on("0,2").unwrap_err(), SpawnError::Cpus(CpusError::Disjoint));
    assert_eq!(on("4").unwrap_err(), SpawnError::Cpus(CpusError::NoSuchCpu { cpu: cpu(4), cpus: 4 }));
    let refused = group.try_spawn_on(&CpuMask::empty(), async {}).map(drop);
    assert_eq!(refused.unwrap_err(), SpawnError::Cpus(CpusError::Empty));
    assert!(on("0-1").is_ok());
    assert_eq!(handle.default_group().cpus().to_string(), "0-3");
}

#[test]
fn a_machine_remembers_tens_of_thousands_of_masks_and_then_refuses() {
    let machine = TestMachine::new(TestConfig::flat(20));
    let group = machine.handle().default_group();
    let of = |bits: u32| (0..20).filter(|bit| bits >> bit & 1 == 1).map(CpuId::new).collect::<CpuMask>();
    let made = (1..1 << 17).map(|bits| group.try_spawn_on(&of(bits), async {}).map(drop));
    let refused: Vec<_> = made.filter_map(Result::err).collect();
    assert_eq!(refused.len(), (1 << 17) - 1 - 65_471);
    assert!(refused.iter().all(|error| *error == SpawnError::Cpus(CpusError::TooMany)));
    assert!(group.try_spawn_on(&of(1), async {}).is_ok(), "one that is known");
    assert!(group.try_spawn(async {}).is_ok());
}

#[test]
fn tasks_run_on_all_cpus_of_their_mask_and_on_no_other() {
    for (own, expected) in [(None, "1,3-4"), (Some("2-4"), "3-4"), (Some("3,5"), "3")] {
        let mut machine = TestMachine::new(TestConfig::flat(6));
        let group = machine.handle().group("masked").cpus(mask("1,3-4")).build().unwrap();
        let places = Places::default();
        for _ in 0..6 {
            drop(match own {
                Some(own) => group.spawn_on(&mask(own), places.clone().hog()),
                None => group.spawn(places.clone().hog()),
            });
        }
        machine.run_until(at_ms(100)).unwrap();
        assert_eq!(places.seen(), expected);
        assert_eq!(machine.idle_while_waiting().total, Span::ZERO);
    }
}

#[test]
fn what_a_task_spawns_may_run_wherever_its_group_may() {
    let mut machine = TestMachine::new(TestConfig::flat(4));
    let group = machine.handle().group("masked").cpus(mask("1-3")).build().unwrap();
    let places = Places::default();
    let children = places.clone();
    let parent = group.spawn_on(&mask("2"), async move {
        assert_eq!(current_cpu(), Some(cpu(2)));
        for _ in 0..9 {
            drop(spawn(children.clone().hog()));
        }
        yield_now().await;
        assert_eq!(current_cpu(), Some(cpu(2)));
    });
    assert!(machine.block_on(parent).unwrap().is_ok());
    machine.run_until(machine.now().after(ms(100))).unwrap();
    assert_eq!(places.seen(), "1-3");
    assert_eq!(current_cpu(), None, "outside a task");
}

#[test]
fn a_wake_goes_to_the_cpu_of_before_and_to_another_one_if_that_is_busy() {
    let mut machine = TestMachine::new(TestConfig::flat(4));
    let handle = machine.handle();
    let places = Places::default();
    let seen = places.clone();
    // Its timer is on its own CPU; the wake comes from there.
    let sleeper = handle.default_group().spawn_on(&mask("2-3"), async move {
        for _ in 0..10 {
            sleep(us(500).into()).await;
            seen.note();
        }
    });
    assert!(machine.block_on(sleeper).unwrap().is_ok());
    assert_eq!(places.0.lock().len(), 1, "nothing makes it move: {}", places.seen());
    let busy = *places.0.lock().first().unwrap();
    let other = if busy == cpu(2) { cpu(3) } else { cpu(2) };
    drop(handle.default_group().spawn_on(&busy.into(), async {
        loop {
            compute(ms(1).into());
            yield_now().await;
        }
    }));
    machine.run_until(machine.now().after(ms(5))).unwrap();
    let moved = handle.default_group().spawn_on(&mask("2-3"), async {
        sleep(us(500).into()).await;
        current_cpu()
    });
    assert_eq!(machine.block_on(moved).unwrap().unwrap(), Some(other));
}

#[test]
fn a_burst_from_outside_wakes_every_cpu_of_its_mask_and_no_more_than_that() {
    for caches in [vec![0; 8], vec![0, 0, 1, 1, 2, 2, 3, 3]] {
        let mut config = TestConfig::flat(8);
        config.machine.caches = caches;
        config.kick_latency = us(5);
        let mut machine = TestMachine::new(config);
        let group = machine.handle().group("masked").cpus(mask("1,4-6")).build().unwrap();
        machine.run_until(at_ms(1)).unwrap();
        machine.at(at_ms(2), move |_| (0..400).for_each(|_| drop(group.spawn(async { compute(us(100).into()) }))));
        machine.run_until(at_ms(2).after(us(100 * 100 + 200))).unwrap();
        let stats = machine.handle().stats();
        assert_eq!(stats.total(|cpu| cpu.polls), 400, "4 CPUs do 400 tasks of 100 us in 10 ms and a little");
        for cpu in [0, 2, 3, 7] {
            assert_eq!((stats.cpus[cpu].polls, stats.cpus[cpu].wakes), (0, 0), "CPU {cpu}");
        }
    }
}

#[test]
fn who_may_not_run_what_waits_stays_parked() {
    let mut machine = TestMachine::new(TestConfig::flat(4));
    let group = machine.handle().group("masked").cpus(mask("0-1")).build().unwrap();
    for _ in 0..20 {
        drop(group.spawn(Places::default().hog()));
    }
    machine.run_until(at_ms(10)).unwrap();
    let parks = |machine: &TestMachine| machine.handle().stats().cpus[2..].iter().map(|cpu| cpu.wakes).sum::<u64>();
    let before = parks(&machine);
    machine.run_until(at_ms(110)).unwrap();
    assert_eq!(parks(&machine), before, "nobody kicks them for what they may not run");
    assert_eq!(machine.idle_while_waiting().total, Span::ZERO);
}

/// What may wait beside a parked CPU in a test of long polls: a kick, and what a task alone in an inbox is left to its CPU.
const SOON: Span = us(100);

/// A task that says when and where it was polled first.
async fn polled_at(polled: Arc<Mutex<Vec<(Time, CpuId)>>>) {
    polled.lock().push((evenkeel_engine::api::now(), current_cpu().unwrap()));
    compute(ms(5).into());
}

/// Four CPUs of which the first is busy for 20 ms from 10 ms on, with `first` in that poll; the last keeps the watch, so
/// that the others are woken by kicks only. Where and when what `first` spawned was polled.
fn beside_a_long_poll(
    first: impl FnOnce(&Group, &Arc<Mutex<Vec<(Time, CpuId)>>>) + Send + 'static,
) -> Vec<(Span, CpuId)> {
    let mut machine = TestMachine::new(TestConfig::flat(4));
    let group = machine.handle().group("masked").cpus(mask("0-2")).build().unwrap();
    let polled = Arc::default();
    let (of, seen) = (group.clone(), Arc::clone(&polled));
    machine.at(at_ms(10), move |_| {
        let task = async move {
            first(&of, &seen);
            compute(ms(20).into());
        };
        drop(group.spawn_on(&mask("0"), task));
    });
    machine.run_until(at_ms(40)).unwrap();
    let polled = polled.lock();
    polled.iter().map(|(time, cpu)| (time.since(at_ms(10)), *cpu)).collect()
}

#[test]
fn what_is_spawned_in_a_long_poll_is_fetched_by_who_may_run_it() {
    let polled = beside_a_long_poll(|group, polled| {
        for _ in 0..2 {
            drop(group.spawn_on(&mask("0-2"), polled_at(Arc::clone(polled))));
        }
    });
    assert_eq!(polled.len(), 2);
    assert!(polled.iter().all(|(after, cpu)| *after <= SOON && [1, 2].map(CpuId::new).contains(cpu)), "{polled:?}");
}

#[test]
fn who_is_kicked_for_one_task_passes_on_that_there_is_another() {
    // One kick is made for both; who fetches the first kicks for the second, which it could not run itself.
    let polled = beside_a_long_poll(|group, polled| {
        for cpus in ["0-1", "0,2", "0,2"] {
            drop(group.spawn_on(&mask(cpus), polled_at(Arc::clone(polled))));
        }
    });
    assert!(polled.len() >= 2 && polled.iter().take(2).all(|(after, _)| *after <= SOON), "{polled:?}");
}

#[test]
fn a_task_that_is_displaced_goes_on_where_else_it_may() {
    // CPU 0 serves a task that may also run on CPU 1, until one comes that may run there only.
    for other in ["1", "2"] {
        let mut machine = TestMachine::new(TestConfig::flat(4));
        let group = machine.handle().group("displaced").weight(1).build().unwrap();
        let heavy = machine.handle().group("heavy").weight(10_000).build().unwrap();
        let (places, later) = (Places::default(), Places::default());
        let seen = places.clone();
        machine.set_home(cpu(0));
        drop(group.spawn_on(&mask(&format!("0,{other}")), seen.hog()));
        machine.run_until(at_ms(20)).unwrap();
        assert_eq!(places.seen(), "0");
        drop(heavy.spawn_on(&mask("0"), async {
            compute(ms(50).into());
        }));
        machine.run_until(at_ms(22)).unwrap();
        drop(group.spawn_on(&mask("3"), later.hog()));
        machine.run_until(at_ms(30)).unwrap();
        assert_eq!(places.seen(), mask(&format!("0,{other}")).to_string());
        assert!(machine.idle_while_waiting().longest <= SOON, "{:?}", machine.idle_while_waiting());
    }
}

#[test]
fn a_task_for_everybody_is_seen_behind_those_that_are_not() {
    // The queue of CPU 0 is never empty: two tasks are pinned there. What comes to it and may run elsewhere is fetched all
    // the same.
    let mut machine = TestMachine::new(TestConfig::flat(3));
    let group = machine.handle().group("pinned").build().unwrap();
    (0..2).for_each(|_| drop(group.spawn_on(&mask("0"), Places::default().hog())));
    machine.run_until(at_ms(10)).unwrap();
    let places = Places::default();
    let seen = places.clone();
    let spawner = group.spawn_on(&mask("0"), async move {
        for _ in 0..2 {
            drop(spawn(seen.clone().hog()));
        }
    });
    assert!(machine.block_on(spawner).unwrap().is_ok());
    machine.run_until(at_ms(50)).unwrap();
    assert!(machine.idle_while_waiting().longest <= SOON.plus(us(50)), "{:?}", machine.idle_while_waiting());
    let seen = places.0.lock();
    assert!([1, 2].map(CpuId::new).iter().all(|cpu| seen.contains(cpu)), "{seen:?}");
}

#[test]
fn a_stopping_machine_drops_masked_tasks_in_every_state() {
    struct CountsDrop(Arc<AtomicUsize>);
    impl Drop for CountsDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let mut machine = TestMachine::new(TestConfig::flat(3));
    let handle = machine.handle();
    let group = handle.group("masked").cpus(mask("1-2")).build().unwrap();
    let task = |wait: Span| {
        let guard = CountsDrop(Arc::clone(&drops));
        async move {
            let _guard = guard;
            sleep(wait.into()).await;
            Places::default().hog().await;
        }
    };
    for _ in 0..5 {
        // Queued or running, asleep, and pinned.
        drop(group.spawn(task(Span::ZERO)));
        drop(group.spawn(task(ms(1_000))));
        drop(group.spawn_on(&mask("2"), task(Span::ZERO)));
    }
    machine.run_until(at_ms(20)).unwrap();
    // In an inbox.
    drop(group.spawn_on(&mask("1"), task(Span::ZERO)));
    drop(machine);
    assert_eq!(drops.load(Ordering::Relaxed), 16);
}

/// What a task of the property does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Act {
    Compute(u16),
    Yield,
    Sleep(u16),
    /// Until somebody wakes it.
    Wait,
    /// A task with a mask of its own, if that leaves it a CPU.
    SpawnOn(u8),
    WakeOther(u8),
}

/// What a thread outside does.
#[derive(Clone, Debug)]
enum Op {
    /// Into a group, with a mask of its own or without.
    Spawn(u8, Option<u8>, Vec<Act>),
    Wake(u8),
    Pass(u16),
    Home(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0u16..1_500).prop_map(Act::Compute),
        2 => (5_000u16..20_000).prop_map(Act::Compute),
        2 => Just(Act::Yield),
        2 => (0u16..3_000).prop_map(Act::Sleep),
        2 => Just(Act::Wait),
        1 => any::<u8>().prop_map(Act::SpawnOn),
        2 => any::<u8>().prop_map(Act::WakeOther),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let acts = proptest::collection::vec(act(), 0..8);
    prop_oneof![
        6 => (any::<u8>(), prop::option::of(any::<u8>()), acts).prop_map(|(group, own, acts)| Op::Spawn(group, own, acts)),
        3 => any::<u8>().prop_map(Op::Wake),
        5 => (0u16..2_000).prop_map(Op::Pass),
        1 => any::<u8>().prop_map(Op::Home),
    ]
}

#[derive(Clone, Default)]
struct World {
    waiting: Arc<Mutex<VecDeque<Waker>>>,
    /// Polls outside a mask, which are to be none.
    strays: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    spawned: Arc<AtomicUsize>,
}

impl World {
    fn wake(&self, which: u8) {
        let waker = {
            let mut waiting = self.waiting.lock();
            let count = waiting.len();
            (count > 0).then(|| waiting.remove(usize::from(which) % count)).flatten()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn look(&self, mask: &CpuMask) {
        if !current_cpu().is_some_and(|cpu| mask.contains(cpu)) {
            self.strays.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spawns into `group`, with a mask of its own if that leaves a CPU, and without otherwise.
    fn spawn(&self, group: &Group, own: Option<CpuMask>, acts: Vec<Act>) {
        let within = own.map(|own| own.intersection(&group.cpus())).filter(|cpus| !cpus.is_empty());
        let mask = within.clone().unwrap_or_else(|| group.cpus());
        let task = self.clone().run(mask, group.clone(), acts);
        self.spawned.fetch_add(1, Ordering::Relaxed);
        drop(match within {
            Some(within) => group.spawn_on(&within, task),
            None => group.spawn(task),
        });
    }

    async fn run(self, mask: CpuMask, group: Group, acts: Vec<Act>) {
        self.look(&mask);
        for act in acts {
            match act {
                Act::Compute(micros) => {
                    compute(us(u64::from(micros)).into());
                    // What comes after is there for others from the beginning of its poll: not of this one.
                    yield_now().await;
                }
                Act::Yield => yield_now().await,
                Act::Sleep(micros) => sleep(us(u64::from(micros)).into()).await,
                Act::Wait => self.wait().await,
                Act::SpawnOn(bits) => {
                    self.spawn(&group, Some(bits_of(bits)), vec![Act::Compute(100), Act::Yield, Act::Compute(100)]);
                }
                Act::WakeOther(which) => self.wake(which),
            }
            self.look(&mask);
        }
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    async fn wait(&self) {
        let mut is_registered = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut is_registered, true) {
                return Poll::Ready(());
            }
            self.waiting.lock().push_back(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

fn bits_of(bits: u8) -> CpuMask {
    (0..8).filter(|bit| bits >> bit & 1 == 1).map(CpuId::new).collect()
}

/// The machine of the property: some CPUs in some caches, and groups of some masks.
struct Case {
    config: TestConfig,
    masks: Vec<CpuMask>,
}

fn case(cpus: u32, caches: usize, seed: u64, masks: &[u8]) -> Case {
    let mut config = TestConfig::flat(cpus as usize);
    config.machine.caches = (0..cpus as usize).map(|cpu| cpu % caches).collect();
    config.machine.seed = seed;
    config.kick_latency = us(seed % 7);
    config.check_every = 1;
    let all = CpuMask::range(0, cpus - 1);
    let masks = masks.iter().map(|bits| bits_of(*bits).intersection(&all)).filter(|mask| !mask.is_empty());
    Case { config, masks: masks.chain([all.clone()]).collect() }
}

fn run(case: Case, ops: Vec<Op>) -> World {
    let world = World::default();
    let cpus = u32::try_from(case.config.machine.caches.len()).unwrap();
    let mut machine = TestMachine::new(case.config);
    let group = |(index, mask): (usize, &CpuMask)| {
        let handle: Handle = machine.handle();
        handle.group(format!("{index}")).cpus(mask.clone()).build().unwrap()
    };
    let groups: Vec<_> = case.masks.iter().enumerate().map(group).collect();
    let mut time = Time::ZERO;
    for op in ops {
        match op {
            Op::Pass(micros) => {
                time = time.after(us(u64::from(micros)));
                machine.run_until(time).unwrap();
            }
            Op::Home(of) => machine.set_home(cpu(u32::from(of) % cpus)),
            Op::Wake(which) => {
                let world = world.clone();
                machine.at(time, move |_| world.wake(which));
            }
            Op::Spawn(which, own, acts) => {
                let group = groups[usize::from(which) % groups.len()].clone();
                let world = world.clone();
                machine.at(time, move |_| world.spawn(&group, own.map(bits_of), acts));
            }
        }
    }
    // Who waits for somebody is woken until nobody is left.
    for _ in 0..1_000 {
        if world.done.load(Ordering::Relaxed) == world.spawned.load(Ordering::Relaxed) {
            break;
        }
        let all = world.clone();
        machine.at(time, move |_| (0..=255).for_each(|_| all.wake(0)));
        time = time.after(ms(40));
        machine.run_until(time).unwrap();
    }
    machine.check();
    assert_eq!(machine.handle().load().waiting, 0, "what could run has run");
    let idle = machine.idle_while_waiting();
    // What is in an inbox when its CPU begins a long poll is found by who keeps the watch; that takes a period at most, far
    // less than what such a poll takes.
    assert!(idle.longest <= ms(2), "a CPU was parked beside what it might have run: {idle:?}");
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn whatever_the_masks_nobody_runs_outside_them_and_nobody_is_left(
        cpus in 1u32..=8,
        caches in 1usize..=3,
        seed in any::<u64>(),
        masks in proptest::collection::vec(any::<u8>(), 0..4),
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let world = run(case(cpus, caches, seed, &masks), ops);
        prop_assert_eq!(world.strays.load(Ordering::Relaxed), 0, "I6");
        prop_assert_eq!(world.done.load(Ordering::Relaxed), world.spawned.load(Ordering::Relaxed));
    }
}
