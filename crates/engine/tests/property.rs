//! Arbitrary interleavings of what users can do, on one to four CPUs: invariants I1 to I5 are recomputed after each step,
//! and every future is dropped exactly once.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::disallowed_types, reason = "a test keeps its own books, beside the engine's words and locks")]

mod common;

use common::us;
use evenkeel_core::{Span, Time};
use evenkeel_engine::api::{Group, Handle, JoinHandle, compute, sleep, yield_now};
use evenkeel_engine::test_host::{TestConfig, TestMachine};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

/// What a task does, one after the other; then it ends.
#[derive(Clone, Copy, Debug)]
enum Act {
    Compute(u16),
    Yield,
    Sleep(u16),
    /// Until somebody wakes it.
    Wait,
    Spawn,
    /// Wakes a task that waits.
    WakeOther(u8),
}

/// What a thread outside does.
#[derive(Clone, Debug)]
enum Op {
    Spawn(u8, Vec<Act>),
    Wake(u8),
    Abort(u8),
    Weight(u8, u32),
    NewGroup(u32),
    DropGroup(u8),
    /// Microseconds pass.
    Pass(u16),
    Home(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0u16..3_000).prop_map(Act::Compute),
        2 => Just(Act::Yield),
        2 => (0u16..3_000).prop_map(Act::Sleep),
        2 => Just(Act::Wait),
        1 => Just(Act::Spawn),
        1 => any::<u8>().prop_map(Act::WakeOther),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (any::<u8>(), proptest::collection::vec(act(), 0..8)).prop_map(|(group, acts)| Op::Spawn(group, acts)),
        3 => any::<u8>().prop_map(Op::Wake),
        2 => any::<u8>().prop_map(Op::Abort),
        1 => (any::<u8>(), 1u32..=10_000).prop_map(|(group, weight)| Op::Weight(group, weight)),
        1 => (1u32..=10_000).prop_map(Op::NewGroup),
        1 => any::<u8>().prop_map(Op::DropGroup),
        6 => (0u16..2_000).prop_map(Op::Pass),
        1 => any::<u8>().prop_map(Op::Home),
    ]
}

#[derive(Clone, Default)]
struct World {
    waiting: Arc<Mutex<VecDeque<Waker>>>,
    /// How often the future of each task was dropped.
    drops: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
}

struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
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

    fn task(&self, acts: Vec<Act>) -> impl Future<Output = ()> + Send + 'static {
        let drops = Arc::new(AtomicUsize::new(0));
        self.drops.lock().push(Arc::clone(&drops));
        let guard = CountsDrop(drops);
        let world = self.clone();
        async move {
            let _guard = guard;
            for act in acts {
                match act {
                    Act::Compute(micros) => compute(us(u64::from(micros)).into()),
                    Act::Yield => yield_now().await,
                    Act::Sleep(micros) => sleep(us(u64::from(micros)).into()).await,
                    Act::Wait => world.wait().await,
                    Act::Spawn => drop(evenkeel_engine::api::spawn(world.task(vec![Act::Compute(100), Act::Wait]))),
                    Act::WakeOther(which) => world.wake(which),
                }
            }
        }
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

struct Outside {
    handle: Handle,
    groups: Vec<Group>,
    tasks: Vec<JoinHandle<()>>,
    world: World,
}

impl Outside {
    fn group(&self, which: u8) -> Option<&Group> {
        (!self.groups.is_empty()).then(|| &self.groups[usize::from(which) % self.groups.len()])
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Spawn(which, acts) => {
                let task = self.world.task(acts);
                let spawned = self.group(which).map_or_else(|| self.handle.default_group(), Group::clone).spawn(task);
                self.tasks.push(spawned);
            }
            Op::Wake(which) => self.world.wake(which),
            Op::Abort(which) if !self.tasks.is_empty() => {
                let which = usize::from(which) % self.tasks.len();
                self.tasks.swap_remove(which).abort();
            }
            Op::Weight(which, weight) => {
                if let Some(group) = self.group(which) {
                    group.set_weight(weight).unwrap();
                }
            }
            Op::NewGroup(weight) => {
                let name = format!("{}", self.groups.len());
                self.groups.push(self.handle.group(name).weight(weight).build().unwrap());
            }
            Op::DropGroup(which) if !self.groups.is_empty() => {
                drop(self.groups.swap_remove(usize::from(which) % self.groups.len()));
            }
            Op::Abort(_) | Op::DropGroup(_) | Op::Pass(_) | Op::Home(_) => {}
        }
    }
}

/// Runs the operations, then lets the tasks end that can, then stops.
fn run(cpus: usize, seed: u64, ops: Vec<Op>) -> World {
    let world = World::default();
    let mut config = TestConfig::flat(cpus);
    config.machine.seed = seed;
    config.kick_latency = us(seed % 7);
    let mut machine = TestMachine::new(config);
    let outside = Outside { handle: machine.handle(), groups: Vec::new(), tasks: Vec::new(), world: world.clone() };
    let outside = Arc::new(Mutex::new(outside));
    let mut time = Time::ZERO;
    for op in ops {
        match op {
            Op::Pass(micros) => {
                time = time.after(us(u64::from(micros)));
                machine.run_until(time).unwrap();
            }
            Op::Home(cpu) => machine.set_home(evenkeel_core::CpuId::new(u32::from(cpu) % u32::try_from(cpus).unwrap())),
            op => {
                let outside = Arc::clone(&outside);
                machine.at(time, move |_| outside.lock().act(op));
            }
        }
    }
    machine.run_until(time.after(Span::from_millis(1_000))).unwrap();
    machine.check();
    assert_eq!(machine.handle().load().waiting, 0, "what could run has run");
    drop(machine);
    world.waiting.lock().drain(..).for_each(Waker::wake);
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn whatever_users_do_the_invariants_hold(
        cpus in 1usize..=4,
        seed in any::<u64>(),
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let world = run(cpus, seed, ops);
        for (task, drops) in world.drops.lock().iter().enumerate() {
            prop_assert_eq!(drops.load(Ordering::Relaxed), 1, "the future of task {}", task);
        }
    }
}
