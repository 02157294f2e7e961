//! The published deadline of a CPU: see `src/deadline.rs`.

mod model;

use evenkeel_core::{Span, Time};
use evenkeel_engine::deadline::Deadline;
use evenkeel_engine::host::{At, Shared};
use model::{Arc, Locked, Word, at, explore, fence, race, role};
use std::sync::atomic::Ordering::{self, Relaxed};

const EARLY: u64 = 10;
const LATE: u64 = 20;

/// A word that is written by swaps. Loom takes the order of a plain store and an exchange for open, even where the
/// exchange has read what the store replaced; real words have one order of all writes.
struct Exchanged(Word);

impl Shared for Exchanged {
    fn new(value: u64) -> Self {
        Exchanged(Word::new(value))
    }

    fn load(&self, at: At, order: Ordering) -> u64 {
        self.0.load(at, order)
    }

    fn store(&self, at: At, value: u64, order: Ordering) {
        self.0.swap(at, value, order);
    }

    fn swap(&self, at: At, value: u64, order: Ordering) -> u64 {
        self.0.swap(at, value, order)
    }

    fn fetch_add(&self, at: At, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(at, value, order)
    }

    fn fetch_or(&self, at: At, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_or(at, bits, order)
    }

    fn fetch_and(&self, at: At, bits: u64, order: Ordering) -> u64 {
        self.0.fetch_and(at, bits, order)
    }

    fn compare_exchange(&self, at: At, current: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(at, current, new, order)
    }
}

/// One CPU's timers. An inbox is a set of bits, one per timer.
struct World {
    inbox: Word,
    published: Deadline<Exchanged>,
    heap: Locked<u64>,
}

fn time(nanos: u64) -> Time {
    Time::ZERO.after(Span::from_nanos(nanos))
}

fn world() -> Arc<World> {
    Arc::new(World { inbox: Word::new(0), published: Deadline::default(), heap: Locked::new(0) })
}

/// A thread outside arms a timer, in the order of `arm_timer`.
fn arm(world: &World, bit: u64, deadline: u64) {
    world.inbox.fetch_or(at(9), bit, Relaxed);
    fence();
    world.published.lower(at(9), time(deadline));
}

/// Who holds the queue lock takes the inbox in and publishes, in the order of `serve_timers`.
fn serve(world: &World, cpu: usize) {
    let mut heap = world.heap.lock();
    loop {
        *heap |= world.inbox.swap(at(cpu), 0, Relaxed);
        world.published.set(at(cpu), next(*heap));
        fence();
        if world.inbox.load(at(cpu), Relaxed) == 0 {
            return;
        }
    }
}

fn next(heap: u64) -> Time {
    match heap {
        0 => Time::NEVER,
        2 => time(LATE),
        _ => time(EARLY),
    }
}

/// M1, as other CPUs rely on it. The owner looks at the inbox too.
fn check(world: &World) {
    let heap = *world.heap.lock();
    let (inbox, published) = (world.inbox.load(at(0), Relaxed), world.published.read(at(0)));
    assert!(published <= next(heap | inbox), "M1: {published:?} is published, heap {heap:b}, inbox {inbox:b}");
}

#[test]
fn a_later_deadline_hides_no_earlier_one() {
    explore(|| {
        let world = world();
        // The early one is in the inbox but not published yet, as a timer that a poll has armed.
        world.inbox.fetch_or(at(0), 1, Relaxed);
        race([role(&world, |world| arm(world, 2, LATE)), role(&world, |world| serve(world, 0))]);
        check(&world);
    });
}

#[test]
fn a_deadline_is_published_once_it_is_armed() {
    explore(|| {
        let world = world();
        // One timer has fired: what is published is about to be overwritten.
        world.published.lower(at(0), time(EARLY));
        race([role(&world, |world| arm(world, 2, LATE)), role(&world, |world| serve(world, 0))]);
        check(&world);
    });
}

#[test]
fn two_that_arm_and_one_that_serves() {
    explore(|| {
        let world = world();
        race([
            role(&world, |world| arm(world, 1, EARLY)),
            role(&world, |world| arm(world, 2, LATE)),
            role(&world, |world| serve(world, 0)),
        ]);
        check(&world);
    });
}
