//! Parking of one CPU: see `src/idle.md`.

mod model;

use evenkeel_engine::host::Shared;
use evenkeel_engine::idle::{Claimed, KickReason, ParkWord, Roused};
use model::{Arc, Word, at, explore, fence, race, role};
use std::sync::atomic::Ordering::Relaxed;

/// CPU 0 parks, others push to it.
struct World {
    word: ParkWord<Word>,
    inbox: Word,
    /// Kicks that were claimed.
    kicks: Word,
    /// What a kicker did before it claimed, for the owner to see.
    note: Word,
}

fn world() -> Arc<World> {
    Arc::new(World { word: ParkWord::default(), inbox: Word::new(0), kicks: Word::new(0), note: Word::new(0) })
}

fn push(world: &World, cpu: usize) {
    world.inbox.fetch_add(at(cpu), 1, Relaxed);
    fence();
    if world.word.claim(at(cpu), KickReason::Inbox) == Claimed::Kick {
        world.kicks.fetch_add(at(cpu), 1, Relaxed);
    }
}

/// Parks, unless the last look finds something: then it goes on. Whether it has parked.
fn park(world: &World) -> bool {
    world.word.announce(at(0));
    fence();
    if world.inbox.load(at(0), Relaxed) == 0 {
        return true;
    }
    let _ = world.word.resume(at(0));
    false
}

#[test]
fn a_push_is_seen_or_kicks() {
    explore(|| {
        let world = world();
        race([
            role(&world, |world| push(world, 1)),
            role(&world, |world| {
                if park(world) {
                    world.note.store(at(0), 1, Relaxed);
                }
            }),
        ]);
        let has_parked = world.note.load(at(0), Relaxed) == 1;
        if has_parked {
            assert_eq!(world.kicks.load(at(0), Relaxed), 1, "P1: parked beside a task, and nobody kicks");
            assert_eq!(world.word.resume(at(0)), Roused::ByKick(KickReason::Inbox));
        }
    });
}

#[test]
fn one_kick_per_park() {
    explore(|| {
        let world = world();
        world.word.announce(at(0));
        race([role(&world, |world| push(world, 1)), role(&world, |world| push(world, 2))]);
        assert_eq!(world.kicks.load(at(0), Relaxed), 1, "P2");
        assert_ne!(world.word.resume(at(0)), Roused::ByTime, "P2: a claim is not lost");
        assert_eq!(world.word.resume(at(0)), Roused::ByTime, "P2: nor seen twice");
    });
}

#[test]
fn a_park_that_ends_by_time_still_sees_a_claim() {
    explore(|| {
        let world = world();
        world.word.announce(at(0));
        race([
            role(&world, |world| {
                world.note.store(at(1), 1, Relaxed);
                if world.word.claim(at(1), KickReason::Search) == Claimed::Kick {
                    world.kicks.fetch_add(at(1), 1, Relaxed);
                }
            }),
            role(&world, |world| match world.word.resume(at(0)) {
                // What the kicker did before is seen: it has counted a search on behalf of this CPU.
                Roused::ByKick(KickReason::Search) => {
                    assert_eq!(world.note.load(at(0), Relaxed), 1, "P2");
                    world.inbox.store(at(0), 1, Relaxed);
                }
                Roused::ByTime => {}
                Roused::ByKick(KickReason::Inbox | KickReason::Masked) => panic!("nobody gave that reason"),
            }),
        ]);
        let seen = world.inbox.load(at(0), Relaxed);
        assert_eq!(world.kicks.load(at(0), Relaxed), seen, "P2: a claim that succeeded is seen, and no other");
    });
}
