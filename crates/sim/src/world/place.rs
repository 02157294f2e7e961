//! Where the world that runs on this thread is, and which of its lines and locks a word or a lock is.
//!
//! Knows nothing of what happens in a world.

use super::World;
use super::line::LineId;
use super::locks::{LockId, LockState};
use evenkeel_engine::host::LineClass;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static CURRENT: RefCell<Option<Box<World>>> = const { RefCell::new(None) };
}

/// Calls `f` with the world that runs on this thread. `None` if none does.
pub(crate) fn with<R>(f: impl FnOnce(&mut World) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow_mut().as_deref_mut().map(f)).ok().flatten()
}

/// Calls `f` with the world of this id, if it is the one that runs.
pub(crate) fn with_mine<R>(id: u32, f: impl FnOnce(&mut World) -> R) -> Option<R> {
    with(|world| (world.id == id).then(|| f(world))).flatten()
}

/// A world that runs on this thread, until dropped; then the one that ran before does again.
#[derive(Debug)]
pub(crate) struct Enter<'a> {
    home: &'a mut Option<Box<World>>,
    before: Option<Box<World>>,
}

impl<'a> Enter<'a> {
    /// Enters the world in `home`, to which it returns.
    pub(crate) fn new(home: &'a mut Option<Box<World>>) -> Enter<'a> {
        let world = home.take();
        let before = CURRENT.with(|current| current.replace(world));
        Enter { home, before }
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        let before = self.before.take();
        *self.home = CURRENT.with(|current| current.replace(before));
    }
}

/// Which line or lock something is: found out at its first use, in the order of first uses, so that it depends on no
/// address. Its class before; then the id of its world, above its number.
#[derive(Debug)]
pub(crate) struct Tag(AtomicU64);

impl Tag {
    /// Of a word or a lock whose line is of this class.
    pub(crate) fn new(class: LineClass) -> Tag {
        Tag(AtomicU64::new(class as u64))
    }

    fn resolve(&self, world: &mut World, make: impl FnOnce(&mut World, LineClass) -> u32) -> Option<u32> {
        let tag = self.0.load(Ordering::Relaxed);
        if tag >> 32 == 0 {
            let class = usize::try_from(tag).ok().and_then(|class| LineClass::ALL.get(class).copied());
            let number = make(world, class.unwrap_or_default());
            self.0.store(u64::from(world.id) << 32 | u64::from(number), Ordering::Relaxed);
            return Some(number);
        }
        #[expect(clippy::cast_possible_truncation, reason = "the number is the lower half")]
        let number = tag as u32;
        (tag >> 32 == u64::from(world.id)).then_some(number)
    }

    /// The line of the word with this tag, in this block of memory. `None` if it is another world's.
    pub(super) fn line(&self, world: &mut World, block: usize) -> Option<LineId> {
        self.resolve(world, |world, class| world.lines.of_block(block, class).0).map(LineId)
    }

    /// The lock with this tag. `None` if it is another world's.
    pub(super) fn lock(&self, world: &mut World) -> Option<LockId> {
        let make = |world: &mut World, class| {
            let line = world.lines.add(class);
            world.locks.push(LockState::new(line));
            u32::try_from(world.locks.len() - 1).expect("there are fewer than 2^32 locks")
        };
        self.resolve(world, make).map(LockId)
    }
}
