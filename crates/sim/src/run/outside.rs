//! What the outside of a machine is going to do, and when.
//!
//! Knows nothing of the machine.

use crate::world;
use evenkeel_core::{Span, Time};
use evenkeel_engine::api::Handle;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// Something that the outside does.
pub(super) enum Act {
    Script(Box<dyn FnOnce(&Handle)>),
    Check { period: Span, check: Check },
}

type Check = Box<dyn FnMut(&Handle, Time) -> Result<(), String>>;

pub(super) struct Outside {
    /// By time, then in the order in which they were planned.
    plans: BTreeMap<(Time, u32), Act>,
    sequence: u32,
    pub(super) waker: Arc<OutsideWaker>,
}

impl Outside {
    /// That of the world with this id.
    pub(super) fn new(id: u32) -> Outside {
        let waker = OutsideWaker { id, is_woken: AtomicBool::new(false), is_elsewhere: AtomicBool::new(false) };
        Outside { plans: BTreeMap::new(), sequence: 0, waker: Arc::new(waker) }
    }

    pub(super) fn plan(&mut self, at: Time, act: Act) {
        self.sequence += 1;
        self.plans.insert((at, self.sequence), act);
    }

    pub(super) fn forget_plans(&mut self) {
        self.plans.clear();
    }

    /// What is due at `now`, with its number.
    pub(super) fn due(&mut self, now: Time) -> Option<(u32, Act)> {
        let first = self.plans.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, number), act) = first.remove_entry();
        Some((number, act))
    }

    /// When the next plan is due.
    pub(super) fn next(&self) -> Time {
        self.plans.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    /// Whether there is anything to do at all.
    pub(super) fn has_next(&self) -> bool {
        !self.plans.is_empty() || self.waker.is_woken()
    }
}

/// Wakes the future that the outside polls.
#[derive(Debug)]
pub(super) struct OutsideWaker {
    id: u32,
    is_woken: AtomicBool,
    /// The wake came while the world did not run.
    is_elsewhere: AtomicBool,
}

impl OutsideWaker {
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::Acquire)
    }

    pub(super) fn was_woken_elsewhere(&self) -> bool {
        self.is_elsewhere.load(Ordering::Relaxed) && self.is_elsewhere.swap(false, Ordering::Acquire)
    }
}

impl Wake for OutsideWaker {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if world::with_mine(self.id, world::World::call_outside).is_none() {
            self.is_elsewhere.store(true, Ordering::Release);
        }
    }
}
