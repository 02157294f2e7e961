//! The inbox of a CPU: anybody pushes tasks, whoever holds the CPU's queue lock takes them all.
//!
//! A stack of tasks linked through their cells, in one shared word. The page beside this file (`inbox.md`) has the
//! protocol with its argument; `tests/loom_inbox.rs` checks it.
//!
//! Knows nothing of run queues, groups, or of who is to be kicked.
//!
//! # Invariants
//! - B1: a task that was pushed is taken exactly once, or handed back to who pushed it if the inbox was closed.
//! - B2: tasks of one `take_all` come out in the order in which they went in.
//! - B3: after `close`, nothing gets in.

use crate::host::{At, LineClass, Shared};
use evenkeel_core::balance::InboxHint;
use std::marker::PhantomData;
use std::ptr::NonNull;
#[expect(clippy::disallowed_types, reason = "the link of a task's cell, ordered by the word of the inbox")]
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering;

/// Something that can be linked into an inbox.
///
/// # Safety
/// `from_raw(into_raw(x))` must give back `x`; the pointer must be aligned to at least 4 bytes and stay valid, with
/// `link_of` usable, from `into_raw` until `from_raw`.
pub unsafe trait Linked: Sized + Send {
    /// Gives up the value for a pointer.
    fn into_raw(self) -> NonNull<()>;
    /// Takes the value back.
    ///
    /// # Safety
    /// `raw` must come from `into_raw`, and be taken back once.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
    /// The link inside the value.
    fn link(&self) -> &Link;
}

/// The place in a task's cell that names the next one in an inbox.
#[expect(clippy::disallowed_types, reason = "the link of a task's cell, ordered by the word of the inbox")]
#[derive(Debug, Default)]
pub struct Link(AtomicPtr<()>);

/// Set beside the pointer: the inbox holds more than one task.
const MANY: u64 = 1;
/// The inbox takes no more.
const CLOSED: u64 = 2;
const BITS: u64 = MANY | CLOSED;

/// A many-producer inbox in one shared word.
///
/// | bits | field | set by | cleared by |
/// |------|-------|--------|------------|
/// | 0 | more than one task | a push onto a task | `take_all` |
/// | 1 | closed | `close` | never |
/// | 2.. | the task pushed last | a push | `take_all` |
#[derive(Debug)]
pub struct Inbox<S: Shared, T: Linked> {
    head: S,
    /// Pushes from outside: see [`Inbox::count_outside`].
    outside: S,
    holds: PhantomData<T>,
}

/// How a push went.
#[derive(Debug)]
#[must_use]
pub enum Pushed<T> {
    /// The inbox was empty.
    First,
    /// It held something already.
    More,
    /// It is closed: here is the task back.
    Closed(T),
}

impl<S: Shared, T: Linked> Default for Inbox<S, T> {
    fn default() -> Self {
        Inbox { head: S::of(LineClass::Inbox, 0), outside: S::of(LineClass::Inbox, 0), holds: PhantomData }
    }
}

impl<S: Shared, T: Linked> Inbox<S, T> {
    /// Pushes a task. The caller must not touch it afterwards: another CPU may have run and freed it.
    pub fn push(&self, at: At, task: T) -> Pushed<T> {
        let link: *const Link = task.link();
        let raw = task.into_raw();
        let own = raw.as_ptr().expose_provenance() as u64;
        debug_assert_eq!(own & BITS, 0, "a task's cell is aligned");
        let mut head = self.head.load(at, Ordering::Relaxed);
        // Ends: a failed exchange means that another push or take went through.
        loop {
            if head & CLOSED != 0 {
                // SAFETY: `raw` is from `into_raw` above, and was not published.
                return Pushed::Closed(unsafe { T::from_raw(raw) });
            }
            // SAFETY: the task is still ours: it is published only by the exchange below, so its cell, with the link
            // in it, is alive.
            unsafe { &*link }.0.store(pointer_of(head), Ordering::Relaxed);
            let new = own | if head == 0 { 0 } else { MANY };
            // ORDER B: Release pairs with the Acquire of `take_all`: who takes the task sees its link and its cell.
            match self.head.compare_exchange(at, head, new, Ordering::Release) {
                Ok(0) => return Pushed::First,
                Ok(_) => return Pushed::More,
                Err(held) => head = held,
            }
        }
    }

    /// Takes all tasks, in the order in which they came. Call with the queue lock held, so that nobody finds both the
    /// inbox and the queue without a task that is on its way.
    pub fn take_all(&self, at: At) -> Batch<T> {
        if self.head.load(at, Ordering::Relaxed) & !BITS == 0 {
            return Batch { next: std::ptr::null_mut(), holds: PhantomData };
        }
        // ORDER B: Acquire pairs with the Release of `push`. Only the pointer and MANY are cleared.
        let head = self.head.fetch_and(at, CLOSED, Ordering::Acquire);
        Batch { next: reverse::<T>(pointer_of(head)), holds: PhantomData }
    }

    /// Refuses further pushes and returns what was left.
    pub fn close(&self, at: At) -> Batch<T> {
        self.head.fetch_or(at, CLOSED, Ordering::Relaxed);
        self.take_all(at)
    }

    /// Counts a push by a thread that does not drive this CPU. One that drives none has no line of its own to count on,
    /// but has just got this one.
    pub fn count_outside(&self, at: At) {
        self.outside.fetch_add(at, 1, Ordering::Relaxed);
    }

    /// How many such pushes were counted.
    pub fn outside(&self, at: At) -> u64 {
        self.outside.load(at, Ordering::Relaxed)
    }

    /// What it holds, as far as a passer-by can tell.
    pub fn hint(&self, at: At) -> InboxHint {
        let head = self.head.load(at, Ordering::Relaxed);
        match (head & !BITS, head & MANY) {
            (0, _) => InboxHint::Empty,
            (_, 0) => InboxHint::One,
            _ => InboxHint::Many,
        }
    }
}

impl<S: Shared, T: Linked> Drop for Inbox<S, T> {
    fn drop(&mut self) {
        drop(self.close(At::outside(crate::host::Site::Stop)));
    }
}

/// Tasks in the order in which they came. What is not taken out of it is dropped with it.
#[derive(Debug)]
pub struct Batch<T: Linked> {
    next: *mut (),
    holds: PhantomData<T>,
}

impl<T: Linked> Iterator for Batch<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let raw = NonNull::new(self.next)?;
        // SAFETY: `raw` came from `into_raw`, and this batch alone has the list that it is in.
        let task = unsafe { T::from_raw(raw) };
        self.next = task.link().0.load(Ordering::Relaxed);
        Some(task)
    }
}

impl<T: Linked> Drop for Batch<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// The stack gives the newest first: turns a list around in place.
fn reverse<T: Linked>(head: *mut ()) -> *mut () {
    let (mut done, mut rest) = (std::ptr::null_mut(), head);
    while let Some(raw) = NonNull::new(rest) {
        // SAFETY: `raw` came from `into_raw` in `push`; the caller took the whole stack, so this is the only taker.
        let task = unsafe { T::from_raw(raw) };
        rest = task.link().0.load(Ordering::Relaxed);
        task.link().0.store(done, Ordering::Relaxed);
        done = task.into_raw().as_ptr();
    }
    done
}

fn pointer_of(head: u64) -> *mut () {
    #[expect(clippy::cast_possible_truncation, reason = "it was a pointer of this machine")]
    std::ptr::with_exposed_provenance_mut((head & !BITS) as usize)
}
