//! CPU masks where steps of the scheduler really interleave: nobody runs outside a mask, and nobody waits for a poll to end
//! beside a parked CPU that could run it.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, us};
use evenkeel_core::{CpuId, CpuMask, Span, Time};
use evenkeel_engine::api::{self, Group, Handle};
use evenkeel_sim::{Config, Simulation};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long the polls on CPU 0 are.
const LONG: Span = Span::from_millis(20);

/// The longest that a task may wait beside a parked CPU: the watch's period, and what a kick or two take.
const SOON: Span = Span::from_micros(2_500);

#[derive(Clone, Default)]
struct Seen {
    strays: Arc<AtomicUsize>,
    ran: Arc<AtomicUsize>,
}

impl Seen {
    fn look(&self, cpus: &CpuMask) {
        let is_in = api::current_cpu().is_some_and(|cpu| cpus.contains(cpu));
        self.strays.fetch_add(usize::from(!is_in), Ordering::Relaxed);
    }

    /// A short task within `cpus`, which sleeps in between so that timers wake it too.
    async fn short(self, cpus: CpuMask, work: Span, pause: Span) {
        for _ in 0..2 {
            self.look(&cpus);
            api::run(work.into()).await;
            api::sleep(pause.into()).await;
        }
        self.look(&cpus);
        self.ran.fetch_add(1, Ordering::Relaxed);
    }
}

/// A short task: the bits of its mask, of CPUs 1 to 3 and perhaps 0, or none; how long it computes and pauses.
#[derive(Clone, Copy, Debug)]
struct Short {
    bits: Option<u8>,
    work: u16,
    pause: u16,
}

fn short() -> impl Strategy<Value = Short> {
    let bits = prop::option::of((1u8..8, any::<bool>()).prop_map(|(bits, zero)| bits << 1 | u8::from(zero)));
    (bits, 1u16..60, 1u16..200).prop_map(|(bits, work, pause)| Short { bits, work, pause })
}

fn spawn(group: &Group, seen: &Seen, short: Short) {
    let of = |bits: u8| (0..4).filter(|bit| bits >> bit & 1 == 1).map(CpuId::new).collect::<CpuMask>();
    let cpus = short.bits.map_or_else(|| group.cpus(), of);
    let (work, pause) = (us(u64::from(short.work)), us(u64::from(short.pause)));
    let task = seen.clone().short(cpus.clone(), work, pause);
    drop(if short.bits.is_some() { group.spawn_on(&cpus, task) } else { group.spawn(task) });
}

/// Two tasks that only CPU 0 may run, in long polls; after each they spawn short tasks, as a thread outside does.
fn run(seed: u64, name: &str, inside: Vec<Vec<Short>>, outside: Vec<(u16, Short)>) -> (Seen, usize, Span) {
    let mut config = Config::new(machine(name));
    config.seed = seed;
    let mut sim = Simulation::new(config).unwrap();
    let handle: Handle = sim.handle();
    let long = handle.group("long").weight(1).build().unwrap();
    let group = handle.group("short").weight(10_000).build().unwrap();
    let seen = Seen::default();
    let expected = inside.iter().map(Vec::len).sum::<usize>() + outside.len();
    let polls = inside.len() as u64;
    sim.with(|_| {
        let (shorts, seen) = (group.clone(), seen.clone());
        drop(long.spawn_on(&CpuMask::range(0, 0), async move {
            for batch in inside {
                batch.into_iter().for_each(|short| spawn(&shorts, &seen, short));
                api::run(LONG.into()).await;
                api::yield_now().await;
            }
        }));
        drop(long.spawn_on(&CpuMask::range(0, 0), async {
            loop {
                api::run(LONG.into()).await;
                api::yield_now().await;
            }
        }));
    });
    for (at, short) in outside {
        let (group, seen) = (group.clone(), seen.clone());
        sim.at(Time::ZERO.after(us(u64::from(at))), move |_| spawn(&group, &seen, short));
    }
    sim.run_until(Time::ZERO.after(LONG.times(2 * polls + 4))).unwrap();
    let stats = handle.stats();
    let wait = stats.groups.iter().find(|stats| stats.id == group.id()).map(|stats| stats.wait.quantile_upper(1_000));
    sim.stop().unwrap();
    (seen, expected, wait.unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nobody_waits_for_a_long_poll_beside_a_parked_cpu_of_his_mask(
        seed in any::<u64>(),
        name in prop_oneof![Just("flat-4"), Just("flat-16")],
        inside in proptest::collection::vec(proptest::collection::vec(short(), 0..6), 1..8),
        outside in proptest::collection::vec((any::<u16>(), short()), 0..40),
    ) {
        let (seen, expected, wait) = run(seed, name, inside, outside);
        prop_assert_eq!(seen.strays.load(Ordering::Relaxed), 0, "I6");
        prop_assert_eq!(seen.ran.load(Ordering::Relaxed), expected);
        prop_assert!(wait <= SOON, "a task waited for {:?}", wait);
    }
}
