//! Who searches, who keeps the watch, who is kicked: see `src/idle.md`.
//!
//! In each model CPU 0 is in a poll that does not end, so that what waits there has to be fetched by another. After the
//! race nobody moves any more but those who were kicked: if something waits and all the others sleep, it is lost.

mod model;

use evenkeel_core::CpuId;
use evenkeel_engine::host::Shared;
use evenkeel_engine::idle::{Claimed, Counted, Domain, KickReason, ParkWord, Place, Scope, Searcher, Watch};
use model::{Arc, Word, at, cpu_id, explore, explore_within, fence, race, role};
use std::sync::atomic::Ordering::Relaxed;

const CPUS: usize = 4;

struct World {
    domain: Domain<Word>,
    watch: Watch<Word>,
    words: [ParkWord<Word>; CPUS],
    /// Tasks that wait on each CPU, as the others see it.
    waiting: [Word; CPUS],
    /// Tasks in the inbox of CPU 0, where a model tells the two apart.
    inbox: Word,
    kicked: [Word; CPUS],
}

fn world() -> World {
    World {
        domain: Domain::new((0..CPUS).map(cpu_id).collect()),
        watch: Watch::default(),
        words: std::array::from_fn(|_| ParkWord::default()),
        waiting: std::array::from_fn(|_| Word::new(0)),
        inbox: Word::new(0),
        kicked: std::array::from_fn(|_| Word::new(0)),
    }
}

fn place(bit: usize) -> Place {
    Place { domain: 0, bit }
}

impl World {
    /// As `kick_searcher`, by a CPU for something that waits on it.
    fn kick_searcher(&self, cpu: usize) {
        self.kick_searcher_for(cpu, cpu);
    }

    /// As `kick_searcher`, by a CPU for something that waits on another.
    fn kick_searcher_for(&self, cpu: usize, of: usize) {
        if !self.domain.has_parked(at(cpu)) {
            return;
        }
        self.domain.show_loaded(at(cpu), place(of), fence);
        let word_of = |cpu: CpuId| &self.words[cpu.index()];
        if let Searcher::Kick(kicked) = self.domain.claim_searcher(at(cpu), 0, word_of, fence) {
            self.kicked[kicked.index()].store(at(cpu), 1, Relaxed);
        }
    }

    /// As `wake_on_seat` with a watch that is not relied on.
    fn push(&self, cpu: usize) {
        self.push_to(cpu, cpu);
    }

    /// As `wake_from_outside` to a CPU that runs.
    fn push_to(&self, cpu: usize, of: usize) {
        self.waiting[of].fetch_add(at(cpu), 1, Relaxed);
        fence();
        self.kick_searcher_for(cpu, of);
    }

    /// As `wake_on_seat` for a task that waits alone.
    fn push_lone(&self, cpu: usize) {
        self.waiting[cpu].fetch_add(at(cpu), 1, Relaxed);
        fence();
        if !self.watch.is_kept(at(cpu)) {
            self.kick_searcher(cpu);
        }
    }

    /// As `note_empty`.
    fn note_empty(&self, cpu: usize, of: usize) {
        if self.domain.hide_loaded(at(cpu), place(of), fence) && self.waits_on(cpu, of) {
            self.kick_searcher_for(cpu, of);
        }
    }

    fn waits_on(&self, cpu: usize, of: usize) -> bool {
        let waits = |word: &Word| word.load(at(cpu), Relaxed) > 0;
        waits(&self.waiting[of]) || (of == 0 && waits(&self.inbox))
    }

    /// Whether anything waits.
    fn has_work(&self, cpu: usize) -> bool {
        (0..CPUS).any(|of| self.waits_on(cpu, of))
    }

    /// As `search_scope` of a CPU that has not left the watch.
    fn scope(&self, cpu: usize) -> Scope {
        if self.domain.has_parked(at(cpu)) { Scope::Loaded } else { Scope::Running }
    }

    /// As `survey`, to the last.
    fn sees_work(&self, cpu: usize, scope: Scope) -> bool {
        let mut sees = false;
        for of in self.domain.in_scope(at(cpu), scope, 0) {
            if self.waits_on(cpu, of.index()) {
                self.domain.show_loaded(at(cpu), place(of.index()), fence);
                sees = true;
            }
        }
        sees
    }

    /// Takes one waiting task.
    fn steal(&self, cpu: usize, scope: Scope) -> bool {
        self.domain.in_scope(at(cpu), scope, 0).any(|of| {
            let inbox = (of.index() == 0).then_some(&self.inbox);
            std::iter::once(&self.waiting[of.index()]).chain(inbox).any(|word| {
                let held = word.load(at(cpu), Relaxed);
                let is_taken = held > 0 && word.compare_exchange(at(cpu), held, held - 1, Relaxed).is_ok();
                if is_taken && held == 1 {
                    self.note_empty(cpu, of.index());
                }
                is_taken
            })
        })
    }

    /// As `end_idling`, and then a poll that does not end.
    fn run(&self, cpu: usize, has_left_watch: bool) {
        fence();
        let is_covered = !has_left_watch && self.watch.is_kept(at(cpu));
        let scope = if is_covered { Scope::Loaded } else { Scope::Running };
        if self.domain.has_parked(at(cpu)) && self.sees_work(cpu, scope) {
            self.kick_searcher(cpu);
        }
    }

    /// One search of a CPU that is counted, as `go_idle` and `park`.
    fn search_and_park(&self, cpu: usize) -> Idled {
        if self.steal(cpu, self.scope(cpu)) {
            self.domain.end_search(at(cpu));
            self.run(cpu, false);
            return Idled::Runs;
        }
        self.enter_park(cpu, Counted::AsSearcher);
        self.last_look(cpu)
    }

    /// As `park`, after the fence.
    fn last_look(&self, cpu: usize) -> Idled {
        let takes_watch = !self.watch.is_kept(at(cpu))
            && self.domain.has_running(at(cpu), Some(cpu))
            && self.watch.take(at(cpu), cpu_id(cpu)) == Claimed::Kick;
        let scope = if takes_watch { Scope::Running } else { Scope::Loaded };
        let sees_work = self.sees_work(cpu, scope);
        match sees_work && !self.domain.is_crowded(at(cpu)) {
            true if takes_watch => Idled::SawWorkOnWatch,
            true => Idled::SawWork,
            false => Idled::Parked,
        }
    }

    fn enter_park(&self, cpu: usize, counted: Counted) {
        self.domain.enter_park(at(cpu), place(cpu), &self.words[cpu], counted, fence);
    }

    /// Parks a CPU before the race.
    fn park(&self, cpu: usize) {
        self.enter_park(cpu, Counted::Not);
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
            roused == evenkeel_engine::idle::Roused::ByKick(KickReason::Search)
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
    /// The same, and it has to leave the watch.
    SawWorkOnWatch,
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
        assert_eq!(world.watch.take(at(2), cpu_id(2)), Claimed::Kick);
        world.waiting[3].store(at(3), 1, Relaxed);
        world.domain.show_loaded(at(3), place(3), fence);
        world.domain.begin_search(at(1));
        let world = Arc::new(world);
        race([
            role(&world, |world| world.push(0)),
            role(&world, |world| {
                let idled = world.search_and_park(1);
                if idled != Idled::Runs && idled != Idled::Parked {
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
    explore_within(2, || {
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
        assert_eq!(world.watch.take(at(1), cpu_id(1)), Claimed::Kick);
        let world = Arc::new(world);
        race([
            role(&world, |world| world.push_lone(0)),
            // As `wake_up`, and then work of its own.
            role(&world, |world| {
                let roused = world.domain.leave_park(at(1), place(1), &world.words[1]);
                world.watch.leave(at(1));
                if roused == evenkeel_engine::idle::Roused::ByKick(KickReason::Search) {
                    world.domain.end_search(at(1));
                }
                world.run(1, true);
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
        assert_eq!(world.watch.take(at(1), cpu_id(1)), Claimed::Kick);
        // A task alone on CPU 0: nothing that a CPU which parks takes for work yet, but to be watched.
        world.inbox.store(at(0), 1, Relaxed);
        world.domain.begin_search(at(2));
        let world = Arc::new(world);
        let keeps = Arc::new(Word::new(0));
        let takes = Arc::clone(&keeps);
        race([
            role(&world, move |world| {
                world.enter_park(2, Counted::AsSearcher);
                if world.watch.take(at(2), cpu_id(2)) == Claimed::Kick {
                    takes.store(at(2), 1, Relaxed);
                }
            }),
            role(&world, |world| {
                let _ = world.domain.leave_park(at(1), place(1), &world.words[1]);
                world.watch.leave(at(1));
                fence();
                if !world.watch.is_kept(at(1)) {
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
fn a_bit_that_is_cleared_beside_a_push_is_set_again() {
    explore_within(2, || {
        let world = world();
        world.park(2);
        assert_eq!(world.watch.take(at(2), cpu_id(2)), Claimed::Kick);
        // Left over: what it was set for has been taken.
        world.domain.show_loaded(at(0), place(0), fence);
        world.domain.begin_search(at(1));
        let world = Arc::new(world);
        let parked = Arc::new(Word::new(0));
        let has_parked = Arc::clone(&parked);
        race([
            role(&world, |world| world.push_to(3, 0)),
            role(&world, |world| world.note_empty(0, 0)),
            role(&world, move |world| {
                if world.search_and_park(1) == Idled::Parked {
                    has_parked.store(at(1), 1, Relaxed);
                }
            }),
        ]);
        if parked.load(at(0), Relaxed) == 1 {
            world.check(&[1, 2]);
        }
    });
}

#[test]
fn a_push_that_shows_no_bit_is_seen_by_the_keeper_who_leaves() {
    explore_within(2, || {
        let world = world();
        world.park(1);
        assert_eq!(world.watch.take(at(1), cpu_id(1)), Claimed::Kick);
        let world = Arc::new(world);
        let parked = Arc::new(Word::new(0));
        let has_parked = Arc::clone(&parked);
        race([
            role(&world, |world| world.push(0)),
            role(&world, |world| {
                let roused = world.domain.leave_park(at(1), place(1), &world.words[1]);
                world.watch.leave(at(1));
                if roused == evenkeel_engine::idle::Roused::ByKick(KickReason::Search) {
                    world.domain.end_search(at(1));
                }
                world.run(1, true);
            }),
            // Has seen no bit, and so was not counted.
            role(&world, move |world| {
                world.enter_park(2, Counted::Not);
                if world.last_look(2) == Idled::Parked {
                    has_parked.store(at(2), 1, Relaxed);
                }
            }),
        ]);
        if parked.load(at(0), Relaxed) == 1 {
            world.check(&[2]);
        }
    });
}

#[test]
fn work_that_is_left_to_a_crowd_is_not_lost() {
    explore_within(2, || {
        let world = world();
        world.waiting[0].store(at(0), 2, Relaxed);
        // Two of four are a crowd.
        world.domain.begin_search(at(1));
        world.domain.begin_search(at(2));
        let world = Arc::new(world);
        let parked: [_; CPUS] = std::array::from_fn(|_| Arc::new(Word::new(0)));
        let searcher = |cpu: usize| {
            let has_parked = Arc::clone(&parked[cpu]);
            role(&world, move |world| {
                if world.search_and_park(cpu) == Idled::Parked {
                    has_parked.store(at(cpu), 1, Relaxed);
                }
            })
        };
        let has_parked = Arc::clone(&parked[3]);
        race([
            searcher(1),
            searcher(2),
            role(&world, move |world| {
                world.enter_park(3, Counted::Not);
                if world.last_look(3) == Idled::Parked {
                    has_parked.store(at(3), 1, Relaxed);
                }
            }),
        ]);
        let sleepers: Vec<_> = (1..CPUS).filter(|cpu| parked[*cpu].load(at(0), Relaxed) == 1).collect();
        if sleepers.len() == CPUS - 1 {
            world.check(&sleepers);
        }
    });
}
