//! Who drives a CPU: see `src/ownership.md`.

mod model;

use evenkeel_engine::ownership::Ownership;
use model::{Arc, UnsafeCell, Word, at, explore, race, role};

struct World {
    owner: Ownership<Word>,
    /// What belongs to the owner: loom tells of any two accesses that are not ordered.
    terms: UnsafeCell<u64>,
}

// SAFETY: `terms` is accessed only while the CPU is owned, which is what the model checks.
unsafe impl Sync for World {}

fn world() -> Arc<World> {
    Arc::new(World { owner: Ownership::default(), terms: UnsafeCell::new(0) })
}

/// Claims, uses what belongs to the owner, and releases. Whether it got the CPU.
fn serve(world: &World, cpu: usize) -> bool {
    let Some(epoch) = world.owner.claim(at(cpu)) else { return false };
    assert!(world.owner.is_held_by(at(cpu), epoch), "O1");
    // SAFETY: this thread owns the CPU.
    world.terms.with_mut(|terms| unsafe { *terms += 1 });
    assert!(world.owner.is_held_by(at(cpu), epoch), "O1");
    world.owner.release(at(cpu), epoch);
    assert!(!world.owner.is_held_by(at(cpu), epoch), "O2");
    true
}

#[test]
fn one_owner_at_a_time_and_it_sees_what_the_last_one_did() {
    explore(|| {
        let world = world();
        race([
            role(&world, |world| {
                serve(world, 0);
            }),
            role(&world, |world| {
                serve(world, 1);
                serve(world, 1);
            }),
        ]);
        assert!(serve(&world, 0), "a CPU that was released can be claimed");
        // SAFETY: the other threads have ended.
        let terms = world.terms.with(|terms| unsafe { *terms });
        assert!((2..=4).contains(&terms));
    });
}

#[test]
fn an_epoch_that_is_over_is_never_held_again() {
    explore(|| {
        let world = world();
        let over = world.owner.claim(at(0)).unwrap();
        world.owner.release(at(0), over);
        race([
            role(&world, |world| {
                serve(world, 0);
            }),
            role(&world, move |world| assert!(!world.owner.is_held_by(at(1), over), "O2")),
        ]);
    });
}
