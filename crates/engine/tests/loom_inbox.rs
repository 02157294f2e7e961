//! The inbox of a CPU: see `src/inbox.md`.

mod model;

use evenkeel_core::balance::InboxHint;
use evenkeel_engine::host::Shared;
use evenkeel_engine::idle::{Claimed, Counted, Domain, KickReason, ParkWord, Place, Searcher};
use evenkeel_engine::inbox::{Inbox, Link, Linked, Pushed};
use model::{Arc, Locked, UnsafeCell, Word, at, cpu_id, explore, fence, race, role};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

/// A task. Its number is written and read without any order of its own: loom tells if the inbox gives it none.
struct Task(Box<Cell>);

struct Cell {
    link: Link,
    number: UnsafeCell<u64>,
    /// Counts the tasks that are alive.
    _alive: std::sync::Arc<()>,
}

// SAFETY: who has the task has it alone; that the inbox hands it over in order is what the model checks.
unsafe impl Send for Task {}
// SAFETY: as above.
unsafe impl Sync for Task {}

// SAFETY: the pointer is that of a box, which holds words; `from_raw` makes the same box of it.
unsafe impl Linked for Task {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller passes what `into_raw` gave, once.
        Task(unsafe { Box::from_raw(raw.cast().as_ptr()) })
    }

    fn link(&self) -> &Link {
        &self.0.link
    }
}

fn task(number: u64, alive: &std::sync::Arc<()>) -> Task {
    let _alive = std::sync::Arc::clone(alive);
    let task = Task(Box::new(Cell { link: Link::default(), number: UnsafeCell::new(0), _alive }));
    // SAFETY: nobody else has the task yet.
    task.0.number.with_mut(|place| unsafe { *place = number });
    task
}

fn number(task: &Task) -> u64 {
    // SAFETY: this thread has the task alone.
    task.0.number.with(|place| unsafe { *place })
}

#[derive(Default)]
struct World {
    inbox: Inbox<Word, Task>,
    /// What was taken, under the queue lock.
    queue: Locked<Vec<u64>>,
    refused: Locked<Vec<u64>>,
    alive: std::sync::Arc<()>,
}

fn push(world: &World, cpu: usize, number_of: u64) {
    if let Pushed::Closed(task) = world.inbox.push(at(cpu), task(number_of, &world.alive)) {
        world.refused.lock().push(number(&task));
    }
}

fn take(world: &World, cpu: usize) {
    let mut queue = world.queue.lock();
    queue.extend(world.inbox.take_all(at(cpu)).map(|task| number(&task)));
}

/// All numbers that came out in some way, sorted.
fn all(world: &World) -> Vec<u64> {
    let mut all = world.queue.lock().clone();
    all.extend(world.refused.lock().iter());
    all.sort_unstable();
    all
}

#[test]
fn each_task_is_taken_once_by_owner_or_thief() {
    explore(|| {
        let world = Arc::new(World::default());
        race([
            role(&world, |world| push(world, 1, 1)),
            role(&world, |world| {
                push(world, 2, 2);
                take(world, 2);
            }),
            role(&world, |world| take(world, 0)),
        ]);
        take(&world, 0);
        assert_eq!(all(&world), [1, 2], "B1");
    });
}

#[test]
fn tasks_of_one_pusher_come_out_in_order() {
    explore(|| {
        let world = Arc::new(World::default());
        race([
            role(&world, |world| {
                push(world, 1, 1);
                push(world, 1, 2);
                push(world, 1, 3);
            }),
            role(&world, |world| take(world, 0)),
        ]);
        take(&world, 0);
        assert_eq!(*world.queue.lock(), [1, 2, 3], "B2");
    });
}

#[test]
fn nothing_gets_into_a_closed_inbox_and_nothing_is_lost() {
    explore(|| {
        let world = Arc::new(World::default());
        race([
            role(&world, |world| push(world, 1, 1)),
            role(&world, |world| push(world, 2, 2)),
            role(&world, |world| {
                let left = world.inbox.close(at(0));
                world.queue.lock().extend(left.map(|task| number(&task)));
            }),
        ]);
        assert_eq!(world.inbox.hint(at(0)), InboxHint::Empty, "B3");
        assert_eq!(all(&world), [1, 2], "B1");
    });
}

#[test]
fn what_a_batch_or_an_inbox_holds_is_dropped_with_it() {
    explore(|| {
        let world = Arc::new(World::default());
        push(&world, 0, 1);
        push(&world, 0, 2);
        let mut batch = world.inbox.take_all(at(0));
        assert_eq!(batch.next().map(|task| number(&task)), Some(1));
        drop(batch);
        push(&world, 0, 3);
        let alive = std::sync::Arc::clone(&world.alive);
        drop(world);
        assert_eq!(std::sync::Arc::strong_count(&alive), 1, "B1: tasks were leaked");
    });
}

/// CPU 0, which is to be pushed to, drained by CPU 1, and parks; CPU 2 is parked from the start.
struct Machine {
    world: World,
    /// How many tasks the queue of CPU 0 shows.
    length: Word,
    words: [ParkWord<Word>; 3],
    domain: Domain<Word>,
    kicked: [Word; 3],
    has_parked: Word,
}

fn machine() -> Arc<Machine> {
    let machine = Machine {
        world: World::default(),
        length: Word::new(0),
        words: std::array::from_fn(|_| ParkWord::default()),
        domain: Domain::new((0..3).map(cpu_id).collect()),
        kicked: std::array::from_fn(|_| Word::new(0)),
        has_parked: Word::new(0),
    };
    machine.domain.begin_search(at(2));
    machine.domain.enter_park(at(2), place(2), &machine.words[2], Counted::AsSearcher, fence);
    Arc::new(machine)
}

fn place(bit: usize) -> Place {
    Place { domain: 0, bit }
}

impl Machine {
    fn kick_searcher(&self, cpu: usize) {
        let word_of = |cpu: evenkeel_core::CpuId| &self.words[cpu.index()];
        if let Searcher::Kick(cpu) = self.domain.claim_searcher(at(cpu), 0, word_of, fence) {
            self.kicked[cpu.index()].store(at(9), 1, Relaxed);
        }
    }
}

/// The order of `wake_from_outside`.
fn push_from_outside(machine: &Machine) {
    push(&machine.world, 9, 1);
    fence();
    match machine.words[0].claim(at(9), KickReason::Inbox) {
        Claimed::Kick => machine.kicked[0].store(at(9), 1, Relaxed),
        Claimed::No => machine.kick_searcher(9),
    }
}

/// A CPU that looks around takes the inbox of CPU 0 into the queue of CPU 0, and leaves it there: the order of
/// `rescue` and `leave_queue`.
fn rescue(machine: &Machine) {
    let mut queue = machine.world.queue.lock();
    let showed = machine.length.load(at(1), Relaxed);
    queue.extend(machine.world.inbox.take_all(at(1)).map(|task| number(&task)));
    machine.length.store(at(1), queue.len() as u64, Relaxed);
    let is_news = showed == 0 && !queue.is_empty();
    drop(queue);
    if is_news {
        fence();
        machine.kick_searcher(1);
    }
}

/// CPU 0 has found its queue empty, and parks.
fn park(machine: &Machine) {
    machine.domain.begin_search(at(0));
    machine.domain.enter_park(at(0), place(0), &machine.words[0], Counted::AsSearcher, fence);
    let has_own = machine.world.inbox.hint(at(0)) != InboxHint::Empty || machine.length.load(at(0), Relaxed) > 0;
    if !has_own {
        machine.has_parked.store(at(0), 1, Relaxed);
    }
}

#[test]
fn a_task_is_not_lost_between_push_drain_by_a_thief_and_park() {
    explore(|| {
        let machine = machine();
        race([role(&machine, push_from_outside), role(&machine, rescue), role(&machine, park)]);
        let is_awake = |cpu: usize| machine.kicked[cpu].load(at(9), Relaxed) == 1;
        let has_parked = machine.has_parked.load(at(9), Relaxed) == 1;
        assert!(!has_parked || is_awake(0) || is_awake(2), "P1: a task waits, and everybody sleeps");
    });
}
