//! Who searches, who keeps the watch, who is kicked: see `src/idle.md`.
//!
//! In each model CPU 0 is in a poll that does not end, so that what waits there has to be fetched by another. After the
//! race nobody moves any more but those who were kicked: if something waits and all the others sleep, it is lost.

mod model;

use evenkeel_core::CpuId;
use evenkeel_engine::host::Shared;
use evenkeel_engine::idle::{Claimed, Domain, KickReason, ParkWord, Place, Roused, Searcher};
use model::{Arc, Word, at, cpu_id, explore, fence, race, role};
use std::sync::atomic::Ordering::Relaxed;

const CPUS: usize = 4;

struct World {
    domain: Domain<Word>,
    words: [ParkWord<Word>; CPUS],
    /// Tasks that wait on each CPU, as the others see it.
    waiting: [Word; CPUS],
    /// A bit for each CPU that may run something that waits in the queue of CPU 0, and not everybody may.
    masked_for: Word,
    /// Tasks in the inbox of CPU 0, where a model tells the two apart.
    inbox: Word,
    kicked: [Word; CPUS],
}

fn world() -> World {
    World {
        domain: Domain::new((0..CPUS).map(cpu_id).collect()),
        words: std::array::from_fn(|_| ParkWord::default()),
        waiting: std::array::from_fn(|_| Word::new(0)),
        masked_for: Word::new(0),
        inbox: Word::new(0),
        kicked: std::array::from_fn(|_| Word::new(0)),
    }
}

fn place(bit: usize) -> Place {
    Place { domain: 0, bit }
}

impl World {
    /// As `kick_searcher`.
    fn kick_searcher(&self, cpu: usize) {
        let word_of = |cpu: CpuId| &self.words[cpu.index()];
        if let Searcher::Kick(kicked) = self.domain.claim_searcher(at(cpu), 0, word_of, fence) {
            self.kicked[kicked.index()].store(at(cpu), 1, Relaxed);
        }
    }

    /// As `wake_on_seat` with a watch that is not relied on.
    fn push(&self, cpu: usize) {
        self.waiting[cpu].fetch_add(at(cpu), 1, Relaxed);
        fence();
        self.kick_searcher(cpu);
    }

    /// As `wake_on_seat` for a task that waits alone.
    fn push_lone(&self, cpu: usize) {
        self.waiting[cpu].fetch_add(at(cpu), 1, Relaxed);
        fence();
        if !self.domain.is_watched(at(cpu)) {
            self.kick_searcher(cpu);
        }
    }

    /// As `kick_allowed`.
    fn kick_allowed(&self, cpu: usize, allowed: u64) {
        let is_allowed = |cpu: CpuId| allowed >> cpu.index() & 1 == 1;
        let claimed = self.domain.claim_allowed(at(cpu), 0, is_allowed, |cpu| &self.words[cpu.index()]);
        if let Searcher::Kick(kicked) = claimed {
            self.kicked[kicked.index()].store(at(cpu), 1, Relaxed);
        }
    }

    /// As `publish_masked` and `spread_news`, by whoever holds the lock of CPU 0.
    fn show_masked(&self, allowed: u64) {
        let before = self.masked_for.swap(at(0), allowed, Relaxed);
        let news = allowed & !before;
        if news != 0 {
            fence();
            self.kick_allowed(0, news);
        }
    }

    /// As `wake_up`, for a CPU that may have been kicked for something that few may run. Whether it was.
    fn wake_up(&self, cpu: usize) -> bool {
        let roused = self.domain.leave_park(at(cpu), place(cpu), &self.words[cpu]);
        roused == Roused::ByKick(KickReason::Masked)
    }

    /// As `pass_on`, after a fence.
    fn pass_on(&self, cpu: usize) {
        let allowed = self.masked_for.load(at(cpu), Relaxed);
        if allowed != 0 {
            self.kick_allowed(cpu, allowed);
        }
    }

    /// As `park` of a CPU that is not counted, and may owe a look. Whether it has parked.
    fn park_owing(&self, cpu: usize, owes_look: bool) -> bool {
        self.domain.begin_search(at(cpu));
        self.domain.enter_park(at(cpu), place(cpu), &self.words[cpu], fence);
        if self.masked_for.load(at(cpu), Relaxed) >> cpu & 1 == 1 {
            return false;
        }
        if owes_look {
            self.pass_on(cpu);
        }
        true
    }

    /// The look at everything.
    fn has_work(&self, cpu: usize) -> bool {
        let waits = |word: &Word| word.load(at(cpu), Relaxed) > 0;
        self.waiting.iter().any(waits) || waits(&self.inbox)
    }

    /// Takes one waiting task.
    fn steal(&self, cpu: usize) -> bool {
        self.waiting.iter().chain([&self.inbox]).any(|word| {
            let held = word.load(at(cpu), Relaxed);
            held > 0 && word.compare_exchange(at(cpu), held, held - 1, Relaxed).is_ok()
        })
    }

    /// As `end_idling`, and then a poll that does not end.
    fn run(&self, cpu: usize) {
        fence();
        if self.has_work(cpu) {
            self.kick_searcher(cpu);
        }
    }

    /// One search of a CPU that is counted, as `go_idle` and `park`.
    fn search_and_park(&self, cpu: usize) -> Idled {
        if self.steal(cpu) {
            self.domain.end_search(at(cpu));
            self.run(cpu);
            return Idled::Runs;
        }
        self.domain.enter_park(at(cpu), place(cpu), &self.words[cpu], fence);
        if self.has_work(cpu) { Idled::SawWork } else { Idled::Parked }
    }

    /// Parks a CPU before the race.
    fn park(&self, cpu: usize) {
        self.domain.begin_search(at(cpu));
        self.domain.enter_park(at(cpu), place(cpu), &self.words[cpu], fence);
    }

    fn was_kicked(&self, cpu: usize) -> bool {
        self.kicked[cpu].load(at(0), Relaxed) == 1
    }

    /// After the race.
    fn check(&self, sleepers: &[usize]) {
        let is_asleep = sleepers.iter().all(|cpu| !self.was_kicked(*cpu));
        assert!(!(self.has_work(0) && is_asleep), "P1, P3, P4: a task waits, and all of {sleepers:?} sleep");
        // Whoever was kicked to search was counted; nobody else still is.
        let searches = (0..CPUS).filter(|cpu| {
            let roused = self.words[*cpu].resume(at(*cpu));
            roused == Roused::ByKick(KickReason::Search)
        });
        let searches = searches.count();
        (0..searches).for_each(|_| self.domain.end_search(at(0)));
        assert!(!self.domain.is_searched(at(0)), "P3: a search is counted that nobody makes");
    }
}

#[derive(PartialEq, Eq)]
enum Idled {
    Runs,
    /// Its last look saw work: it will search again.
    SawWork,
    Parked,
}

#[test]
fn a_push_beside_a_searcher_that_parks_is_not_lost() {
    explore(|| {
        let world = Arc::new(world());
        world.domain.begin_search(at(1));
        let parked = Arc::new(Word::new(0));
        let has_parked = Arc::clone(&parked);
        race([
            role(&world, |world| world.push(0)),
            role(&world, move |world| {
                if world.search_and_park(1) == Idled::Parked {
                    has_parked.store(at(1), 1, Relaxed);
                }
            }),
        ]);
        if parked.load(at(0), Relaxed) == 1 {
            world.check(&[1]);
        }
    });
}

#[test]
fn a_push_that_relies_on_a_searcher_who_finds_other_work_is_not_lost() {
    explore(|| {
        let world = world();
        world.park(2);
        world.waiting[3].store(at(3), 1, Relaxed);
        world.domain.begin_search(at(1));
        let world = Arc::new(world);
        race([
            role(&world, |world| world.push(0)),
            role(&world, |world| {
                if world.search_and_park(1) == Idled::SawWork {
                    let _ = world.domain.leave_park(at(1), place(1), &world.words[1]);
                    // It will search again.
                    world.kicked[2].store(at(1), 1, Relaxed);
                }
            }),
        ]);
        world.check(&[2]);
    });
}

#[test]
fn a_kicker_that_finds_nobody_leaves_no_push_behind() {
    explore(|| {
        let world = world();
        // CPU 2 shows that it parks, but has been claimed for its inbox, and runs for long.
        world.park(2);
        assert_eq!(world.words[2].claim(at(0), KickReason::Inbox), Claimed::Kick);
        world.domain.begin_search(at(1));
        let world = Arc::new(world);
        let parked = Arc::new(Word::new(0));
        let has_parked = Arc::clone(&parked);
        race([
            // Counts itself as searching on behalf of nobody, for a task that CPU 1 has already taken.
            role(&world, |world| world.kick_searcher(3)),
            role(&world, |world| world.push(0)),
            role(&world, move |world| {
                if world.search_and_park(1) == Idled::Parked {
                    has_parked.store(at(1), 1, Relaxed);
                }
            }),
        ]);
        if parked.load(at(0), Relaxed) == 1 {
            let is_lost = world.has_work(0) && !world.was_kicked(1);
            assert!(!is_lost, "P3: a task waits on CPU 0, and CPU 1 sleeps");
        }
    });
}

#[test]
fn two_pushers_kick_one_searcher() {
    explore(|| {
        let world = world();
        world.park(1);
        world.park(2);
        let world = Arc::new(world);
        race([role(&world, |world| world.push(0)), role(&world, |world| world.push(3))]);
        let kicks = [1, 2].into_iter().filter(|cpu| world.was_kicked(*cpu)).count();
        assert_eq!(kicks, 1, "one search at a time: the second pusher relies on it");
        world.check(&[1, 2]);
    });
}

#[test]
fn a_kick_that_is_put_off_is_seen_by_the_keeper_who_leaves() {
    explore(|| {
        let world = world();
        world.park(2);
        world.park(1);
        assert_eq!(world.domain.take_watch(at(1), cpu_id(1)), Claimed::Kick);
        let world = Arc::new(world);
        race([
            role(&world, |world| world.push_lone(0)),
            // As `wake_up`, and then work of its own.
            role(&world, |world| {
                let roused = world.domain.leave_park(at(1), place(1), &world.words[1]);
                world.domain.leave_watch(at(1));
                if roused == Roused::ByKick(KickReason::Search) {
                    world.domain.end_search(at(1));
                }
                world.run(1);
            }),
        ]);
        world.check(&[2]);
    });
}

#[test]
fn a_cpu_that_parks_as_the_keeper_leaves_does_not_sleep_unwatched() {
    explore(|| {
        let world = world();
        world.park(1);
        assert_eq!(world.domain.take_watch(at(1), cpu_id(1)), Claimed::Kick);
        // A task alone on CPU 0: nothing that a CPU which parks takes for work yet, but to be watched.
        world.inbox.store(at(0), 1, Relaxed);
        world.domain.begin_search(at(2));
        let world = Arc::new(world);
        let keeps = Arc::new(Word::new(0));
        let takes = Arc::clone(&keeps);
        race([
            role(&world, move |world| {
                world.domain.enter_park(at(2), place(2), &world.words[2], fence);
                if world.domain.take_watch(at(2), cpu_id(2)) == Claimed::Kick {
                    takes.store(at(2), 1, Relaxed);
                }
            }),
            role(&world, |world| {
                let _ = world.domain.leave_park(at(1), place(1), &world.words[1]);
                world.domain.leave_watch(at(1));
                fence();
                if !world.domain.is_watched(at(1)) {
                    world.kick_searcher(1);
                }
            }),
        ]);
        let is_watched = keeps.load(at(0), Relaxed) == 1 || world.was_kicked(2);
        assert!(is_watched, "P4: CPU 2 sleeps, CPU 1 runs, and nobody watches CPU 0");
    });
}

#[test]
fn tasks_on_their_way_into_a_queue_are_not_lost() {
    explore(|| {
        let world = world();
        world.inbox.store(at(0), 2, Relaxed);
        // Its pusher has relied on CPU 1, which searches.
        world.domain.begin_search(at(1));
        let world = Arc::new(world);
        let parked = Arc::new(Word::new(0));
        let has_parked = Arc::clone(&parked);
        race([
            // As `dispatch`: takes the inbox in, polls one, shows the other.
            role(&world, |world| {
                if world.inbox.swap(at(0), 0, Relaxed) == 2 {
                    world.waiting[0].store(at(0), 1, Relaxed);
                    fence();
                    world.kick_searcher(0);
                }
            }),
            role(&world, move |world| {
                if world.search_and_park(1) == Idled::Parked {
                    has_parked.store(at(1), 1, Relaxed);
                }
            }),
        ]);
        if parked.load(at(0), Relaxed) == 1 {
            world.check(&[1]);
        }
    });
}

#[test]
fn what_few_may_run_is_seen_by_a_cpu_that_parks_or_kicks_it() {
    explore(|| {
        let world = Arc::new(world());
        // Somebody searches who may not run it: that is no reason not to kick.
        world.domain.begin_search(at(3));
        let parked = Arc::new(Word::new(0));
        let has_parked = Arc::clone(&parked);
        race([
            role(&world, |world| world.show_masked(0b10)),
            role(&world, move |world| has_parked.store(at(1), u64::from(world.park_owing(1, false)), Relaxed)),
        ]);
        let is_lost = parked.load(at(0), Relaxed) == 1 && !world.was_kicked(1);
        assert!(!is_lost, "P1: something waits that CPU 1 may run, and it sleeps");
    });
}

#[test]
fn who_was_kicked_for_what_few_may_run_passes_it_on_when_it_is_gone() {
    for then_parks in [false, true] {
        explore(move || {
            let world = world();
            world.park(1);
            world.park(2);
            // Kicks CPU 1.
            world.show_masked(0b110);
            let world = Arc::new(world);
            let sleeps = Arc::new(Word::new(0));
            let is_asleep = Arc::clone(&sleeps);
            race([
                // CPU 0 runs that itself, and leaves one waiting that CPU 1 may not run: nobody is new to it.
                role(&world, |world| world.show_masked(0b100)),
                role(&world, move |world| {
                    let owes_look = world.wake_up(1);
                    assert!(owes_look, "P5");
                    if then_parks {
                        is_asleep.store(at(1), u64::from(world.park_owing(1, owes_look)), Relaxed);
                    } else {
                        // It has found work of its own.
                        fence();
                        world.pass_on(1);
                    }
                }),
            ]);
            // Unless it saw what it might have run itself: then it goes on, and owes the look as before.
            let goes_on = then_parks && sleeps.load(at(0), Relaxed) == 0;
            assert!(goes_on || world.was_kicked(2), "P5: something waits that CPU 2 may run, and it sleeps");
        });
    }
}

#[test]
fn who_relies_on_a_kick_that_is_under_way_is_passed_on() {
    for then_parks in [false, true] {
        explore(move || {
            let world = world();
            world.park(1);
            world.park(2);
            // CPU 1 is kicked for something that is gone before it comes.
            world.show_masked(0b10);
            world.show_masked(0);
            let world = Arc::new(world);
            let parked = Arc::new(Word::new(0));
            let has_parked = Arc::clone(&parked);
            race([
                role(&world, |world| world.show_masked(0b110)),
                role(&world, move |world| {
                    let owes_look = world.wake_up(1);
                    if then_parks {
                        has_parked.store(at(1), u64::from(world.park_owing(1, owes_look)), Relaxed);
                    } else if owes_look {
                        fence();
                        world.pass_on(1);
                    }
                }),
            ]);
            // CPU 1 goes on if it saw something, and then it passes the rest on; if it sleeps, it was kicked again.
            let is_awake = then_parks && parked.load(at(0), Relaxed) == 0;
            let is_roused = world.words[1].resume(at(1)) == Roused::ByKick(KickReason::Masked);
            let is_lost = !world.was_kicked(2) && !is_awake && !is_roused;
            assert!(!is_lost, "P5: something waits that CPU 2 may run, and it sleeps");
        });
    }
}
