//! What waits in a queue and few may run: who is told, and who passes it on. See `src/idle.md`.
//!
//! In each model it waits on CPU 0, which is in a poll that does not end. CPU 3 may not run it; it is parked and keeps the
//! watch, so that the others look at CPUs only that show as loaded.

mod model;

use evenkeel_core::CpuId;
use evenkeel_engine::host::Shared;
use evenkeel_engine::idle::{Claimed, Counted, Domain, KickReason, ParkWord, Place, Roused, Scope, Searcher, Watch};
use model::{Arc, Word, at, cpu_id, explore, fence, race, role};
use std::sync::atomic::Ordering::Relaxed;

const CPUS: usize = 4;

struct World {
    domain: Domain<Word>,
    watch: Watch<Word>,
    words: [ParkWord<Word>; CPUS],
    /// A bit for each CPU that may run something that waits in the queue of CPU 0.
    masked_for: Word,
    kicked: [Word; CPUS],
    /// Whether CPU 1 sleeps after the race.
    is_asleep: Word,
    /// What is in the inbox of CPU 1, and what waits in its queue.
    inbox: Word,
    length: Word,
}

fn place(bit: usize) -> Place {
    Place { domain: 0, bit }
}

/// CPU 3 keeps the watch, and these are parked too.
fn world(parked: &[usize]) -> World {
    let world = World {
        domain: Domain::new((0..CPUS).map(cpu_id).collect()),
        watch: Watch::default(),
        words: std::array::from_fn(|_| ParkWord::default()),
        masked_for: Word::new(0),
        kicked: std::array::from_fn(|_| Word::new(0)),
        is_asleep: Word::new(0),
        inbox: Word::new(0),
        length: Word::new(0),
    };
    for cpu in parked.iter().copied().chain([3]) {
        world.domain.enter_park(at(cpu), place(cpu), &world.words[cpu], Counted::Not, fence);
    }
    assert_eq!(world.watch.take(at(3), cpu_id(3)), Claimed::Kick);
    world
}

impl World {
    /// As `kick_allowed`.
    fn kick_allowed(&self, cpu: usize, allowed: u64) {
        let is_allowed = |cpu: CpuId| allowed >> cpu.index() & 1 == 1;
        if !self.domain.has_parked(at(cpu)) {
            return;
        }
        self.domain.show_loaded(at(cpu), place(0), fence);
        let claimed = self.domain.claim_allowed(at(cpu), 0, is_allowed, |cpu| &self.words[cpu.index()]);
        if let Searcher::Kick(kicked) = claimed {
            self.kicked[kicked.index()].store(at(cpu), 1, Relaxed);
        }
    }

    /// As `publish_masked`, `note_empty` and `spread_news`, by whoever holds the lock of CPU 0.
    fn show_masked(&self, allowed: u64) {
        let before = self.masked_for.swap(at(0), allowed, Relaxed);
        if allowed == 0 {
            let _ = self.domain.hide_loaded(at(0), place(0), fence);
        }
        let news = allowed & !before;
        if news != 0 {
            fence();
            self.domain.show_loaded(at(0), place(0), fence);
            self.kick_allowed(0, news);
        }
    }

    /// As `wake_up`. Whether the CPU was kicked for something that few may run.
    fn wake_up(&self, cpu: usize) -> bool {
        let roused = self.domain.leave_park(at(cpu), place(cpu), &self.words[cpu]);
        roused == Roused::ByKick(KickReason::Masked)
    }

    /// For whom CPU 0 shows something, as another CPU sees it.
    fn seen_by(&self, cpu: usize) -> u64 {
        let shows = self.domain.in_scope(at(cpu), Scope::Loaded, 0).any(|cpu| cpu == cpu_id(0));
        if shows { self.masked_for.load(at(cpu), Relaxed) } else { 0 }
    }

    /// As `pass_on`, after a fence.
    fn pass_on(&self, cpu: usize) {
        let allowed = self.seen_by(cpu);
        if allowed != 0 {
            self.kick_allowed(cpu, allowed);
        }
    }

    /// As `park` of a CPU that is not counted, and may owe a look. If it sees something for itself, it goes on.
    fn park(&self, cpu: usize, owes_look: bool) {
        self.domain.enter_park(at(cpu), place(cpu), &self.words[cpu], Counted::Not, fence);
        if self.seen_by(cpu) >> cpu & 1 == 1 {
            return;
        }
        if owes_look {
            self.pass_on(cpu);
        }
        self.is_asleep.store(at(cpu), 1, Relaxed);
    }

    /// As `end_idling` of a CPU that has found work of its own, and then a poll that does not end.
    fn run(&self, cpu: usize, owes_look: bool) {
        fence();
        if owes_look {
            self.pass_on(cpu);
        }
    }

    /// As `pull_work` of a CPU that takes in the inbox of CPU 1, and may run nothing of it; then `hand_back` and `rouse`.
    fn take_in(&self) {
        let came = self.inbox.swap(at(2), 0, Relaxed);
        self.length.store(at(2), came, Relaxed);
        fence();
        if self.words[1].claim(at(2), KickReason::Inbox) == Claimed::Kick {
            self.kicked[1].store(at(2), 1, Relaxed);
        }
    }

    /// As `park` of CPU 1, of which only its own inbox and queue matter here.
    fn park_alone(&self) {
        self.domain.enter_park(at(1), place(1), &self.words[1], Counted::Not, fence);
        let has_own = self.inbox.load(at(1), Relaxed) != 0 || self.length.load(at(1), Relaxed) != 0;
        if !has_own {
            self.is_asleep.store(at(1), 1, Relaxed);
        }
    }

    fn was_kicked(&self, cpu: usize) -> bool {
        self.kicked[cpu].load(at(0), Relaxed) == 1
    }

    fn sleeps(&self) -> bool {
        self.is_asleep.load(at(0), Relaxed) == 1
    }
}

#[test]
fn what_few_may_run_is_seen_by_a_cpu_that_parks_or_kicks_it() {
    explore(|| {
        let world = world(&[]);
        // Somebody searches who may not run it: that is no reason not to kick.
        world.domain.begin_search(at(2));
        let world = Arc::new(world);
        race([role(&world, |world| world.show_masked(0b10)), role(&world, |world| world.park(1, false))]);
        let is_lost = world.sleeps() && !world.was_kicked(1);
        assert!(!is_lost, "P1: something waits that CPU 1 may run, and it sleeps");
    });
}

#[test]
fn who_was_kicked_for_what_few_may_run_passes_it_on_when_it_is_gone() {
    for then_parks in [false, true] {
        explore(move || {
            let world = world(&[1, 2]);
            world.show_masked(0b110);
            assert!(world.was_kicked(1) && !world.was_kicked(2), "one kick is enough");
            let world = Arc::new(world);
            race([
                // CPU 0 runs that itself, and leaves one waiting that CPU 1 may not run: nobody is new to it.
                role(&world, |world| world.show_masked(0b100)),
                role(&world, move |world| {
                    let owes_look = world.wake_up(1);
                    assert!(owes_look, "P6");
                    if then_parks { world.park(1, owes_look) } else { world.run(1, owes_look) }
                }),
            ]);
            // Unless it saw what it might have run itself: then it goes on, and owes the look as before.
            let goes_on = then_parks && !world.sleeps();
            assert!(goes_on || world.was_kicked(2), "P6: something waits that CPU 2 may run, and it sleeps");
        });
    }
}

#[test]
fn who_relies_on_a_kick_that_is_under_way_is_passed_on() {
    for then_parks in [false, true] {
        explore(move || {
            let world = world(&[1, 2]);
            // CPU 1 is kicked for something that is gone before it comes.
            world.show_masked(0b10);
            world.show_masked(0);
            let world = Arc::new(world);
            race([
                role(&world, |world| world.show_masked(0b110)),
                role(&world, move |world| {
                    let owes_look = world.wake_up(1);
                    if then_parks { world.park(1, owes_look) } else { world.run(1, owes_look) }
                }),
            ]);
            // CPU 1 goes on if it saw something, and then passes the rest on; so it does if it was kicked once more.
            let goes_on = then_parks && !world.sleeps();
            let is_roused = world.words[1].resume(at(1)) == Roused::ByKick(KickReason::Masked);
            let is_lost = !world.was_kicked(2) && !goes_on && !is_roused;
            assert!(!is_lost, "P6: something waits that CPU 2 may run, and it sleeps");
        });
    }
}

#[test]
fn a_cpu_whose_inbox_was_taken_in_while_it_parked_is_roused() {
    explore(|| {
        let world = world(&[]);
        world.inbox.store(at(0), 1, Relaxed);
        let world = Arc::new(world);
        race([role(&world, World::take_in), role(&world, World::park_alone)]);
        let is_lost = world.sleeps() && !world.was_kicked(1);
        assert!(!is_lost, "P6: what only CPU 1 may run waits there, and it sleeps");
    });
}
