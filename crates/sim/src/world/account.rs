//! What a CPU's time goes to, to the nanosecond.
//!
//! Knows nothing of how time passes.
//!
//! # Invariants
//! - V3: the parts of an account sum to the time that its CPU has spent.

use crate::faults::FaultKind;
use evenkeel_core::{Span, Time};
use evenkeel_engine::host::{Site, Sites};
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use std::fmt;

/// What a scheduler does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Function {
    /// What the engine does at a site: its accesses, its locks, its queue operations.
    Engine(Site),
    /// Switching to a task.
    Switch,
    /// Handling a tick.
    Tick,
    /// Kicking another CPU.
    Kick,
    /// Going idle.
    Park,
    /// Coming back from idle.
    IdleExit,
    /// Looking at the clock.
    Clock,
    /// Setting the timer of a CPU that parks, and being interrupted by it.
    Timer,
}

/// What a CPU's time can go to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Activity {
    /// The work that tasks declare.
    Work,
    /// Scheduler work.
    Scheduler(Function),
    /// Waiting for a lock.
    LockWait,
    /// Parked.
    Idle,
    /// Other programs have the processor: see [`crate::machine::Machine::got_permille`].
    Taken,
    /// Nothing, because of a fault: a stall, or a kick that is late. A late tick costs nobody time.
    Lost(FaultKind),
}

const OTHERS: [Activity; 15] = [
    Activity::Work,
    Activity::LockWait,
    Activity::Idle,
    Activity::Taken,
    Activity::Lost(FaultKind::Stall),
    Activity::Lost(FaultKind::HolderOff),
    Activity::Lost(FaultKind::LateKick),
    Activity::Lost(FaultKind::LateTick),
    Activity::Scheduler(Function::Switch),
    Activity::Scheduler(Function::Tick),
    Activity::Scheduler(Function::Kick),
    Activity::Scheduler(Function::Park),
    Activity::Scheduler(Function::IdleExit),
    Activity::Scheduler(Function::Clock),
    Activity::Scheduler(Function::Timer),
];

const ACTIVITIES: usize = OTHERS.len() + Site::ALL.len();

impl Activity {
    /// Every activity there is.
    pub fn all() -> impl Iterator<Item = Activity> {
        let sites = Site::ALL.into_iter().map(|site| Activity::Scheduler(Function::Engine(site)));
        OTHERS.into_iter().chain(sites)
    }

    const fn index(self) -> usize {
        match self {
            Activity::Work => 0,
            Activity::LockWait => 1,
            Activity::Idle => 2,
            Activity::Taken => 3,
            Activity::Lost(kind) => 4 + kind as usize,
            Activity::Scheduler(Function::Switch) => 8,
            Activity::Scheduler(Function::Tick) => 9,
            Activity::Scheduler(Function::Kick) => 10,
            Activity::Scheduler(Function::Park) => 11,
            Activity::Scheduler(Function::IdleExit) => 12,
            Activity::Scheduler(Function::Clock) => 13,
            Activity::Scheduler(Function::Timer) => 14,
            Activity::Scheduler(Function::Engine(site)) => OTHERS.len() + site as usize,
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Work => f.write_str("work"),
            Activity::LockWait => f.write_str("lock wait"),
            Activity::Idle => f.write_str("idle"),
            Activity::Taken => f.write_str("taken by other programs"),
            Activity::Lost(FaultKind::Stall) => f.write_str("stalled"),
            Activity::Lost(FaultKind::HolderOff) => f.write_str("stalled with a lock"),
            Activity::Lost(FaultKind::LateKick) => f.write_str("late kicks"),
            Activity::Lost(FaultKind::LateTick) => f.write_str("late ticks"),
            Activity::Scheduler(Function::Engine(site)) => f.write_str(site.name()),
            Activity::Scheduler(Function::Switch) => f.write_str("switching"),
            Activity::Scheduler(Function::Tick) => f.write_str("ticks"),
            Activity::Scheduler(Function::Kick) => f.write_str("kicking"),
            Activity::Scheduler(Function::Park) => f.write_str("going idle"),
            Activity::Scheduler(Function::IdleExit) => f.write_str("idle exit"),
            Activity::Scheduler(Function::Clock) => f.write_str("clock"),
            Activity::Scheduler(Function::Timer) => f.write_str("timer interrupts"),
        }
    }
}

/// What time goes to, as part of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it goes to itself.
    pub activity: Activity,
    /// The places in the engine that had it done: those that the activity is a callee of.
    pub within: Sites,
}

impl From<Activity> for Frame {
    /// Part of nothing.
    fn from(activity: Activity) -> Frame {
        Frame { activity, within: Sites::NONE }
    }
}

impl Frame {
    /// Whether the time counts for an activity with its callees.
    pub fn is_part_of(self, activity: Activity) -> bool {
        let is_within = match activity {
            Activity::Scheduler(Function::Engine(site)) => self.within.contains(site),
            _ => false,
        };
        self.activity == activity || is_within
    }

    /// As one number, which is hashed fast.
    fn key(self) -> u32 {
        let activity = u32::try_from(self.activity.index()).expect("there are few activities");
        activity << 16 | u32::from(self.within.bits())
    }
}

/// What one CPU's time went to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    activities: [Span; ACTIVITIES],
    /// The same time, by what it was part of. Nothing depends on the order.
    frames: HashMap<u32, (Frame, Span), FxBuildHasher>,
}

impl Default for Account {
    fn default() -> Self {
        Account { activities: [Span::ZERO; ACTIVITIES], frames: HashMap::default() }
    }
}

impl Account {
    /// The time that went to one activity.
    pub fn of(&self, activity: Activity) -> Span {
        self.activities[activity.index()]
    }

    /// The time that went to one activity, with all that was done as part of it.
    pub fn with_callees(&self, activity: Activity) -> Span {
        let parts = self.frames.values().filter(|(frame, _)| frame.is_part_of(activity));
        parts.map(|(_, span)| *span).fold(Span::ZERO, Span::plus)
    }

    /// The time by frame, in a fixed order. Sums to the total.
    pub fn frames(&self) -> Vec<(Frame, Span)> {
        let mut frames: Vec<_> = self.frames.values().copied().collect();
        frames.sort_by_key(|(frame, _)| frame.key());
        frames
    }

    /// The time that went to the scheduler.
    pub fn scheduler(&self) -> Span {
        let functions = Activity::all().filter(|activity| matches!(activity, Activity::Scheduler(_)));
        functions.map(|activity| self.of(activity)).fold(Span::ZERO, Span::plus)
    }

    /// All of it.
    pub fn total(&self) -> Span {
        self.activities.iter().copied().fold(Span::ZERO, Span::plus)
    }

    /// What went to each activity since `before`.
    #[must_use]
    pub fn since(&self, before: &Account) -> Account {
        let then = |key| before.frames.get(key).map_or(Span::ZERO, |(_, span)| *span);
        let frames = self.frames.iter().map(|(key, (frame, span))| (*key, (*frame, span.minus(then(key)))));
        Account {
            activities: std::array::from_fn(|index| self.activities[index].minus(before.activities[index])),
            frames: frames.filter(|(_, (_, span))| *span > Span::ZERO).collect(),
        }
    }

    /// The sum of two.
    #[must_use]
    pub fn plus(&self, other: &Account) -> Account {
        let mut sum = self.clone();
        other.frames.values().for_each(|(frame, span)| sum.add(*frame, *span));
        sum
    }

    fn add(&mut self, frame: Frame, span: Span) {
        let activity = &mut self.activities[frame.activity.index()];
        *activity = activity.plus(span);
        let part = &mut self.frames.entry(frame.key()).or_insert((frame, Span::ZERO)).1;
        *part = part.plus(span);
    }

    /// V3, with what is part of what too.
    fn assert_sums_to(&self, elapsed: Span) {
        assert_eq!(self.total(), elapsed, "V3: a CPU's time is not accounted for: {self:?}");
        let frames = self.frames.values().map(|(_, span)| *span).fold(Span::ZERO, Span::plus);
        assert_eq!(frames, elapsed, "V3: what a CPU's time was part of is not accounted for: {self:?}");
    }
}

/// What every CPU's time went to, from the beginning of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accounting {
    /// The time that has passed.
    pub elapsed: Span,
    /// One account per CPU; each sums to `elapsed`.
    pub cpus: Vec<Account>,
}

impl Accounting {
    /// The sum over all CPUs.
    pub fn total(&self) -> Account {
        self.cpus.iter().fold(Account::default(), |sum, account| sum.plus(account))
    }
}

/// The books of one CPU: an account, and what it has spent ahead of the time that others have reached.
#[derive(Debug, Default)]
pub(super) struct Books {
    account: Account,
    /// In the order in which it was spent; not in the account yet.
    ahead: Vec<(Frame, Span)>,
}

impl Books {
    /// Books time that this CPU has spent before anybody else could notice.
    pub(super) fn book(&mut self, frame: Frame, span: Span) {
        match self.ahead.last_mut() {
            Some((last, sum)) if *last == frame => *sum = sum.plus(span),
            _ => self.ahead.push((frame, span)),
        }
    }

    /// All that was booked has passed.
    pub(super) fn catch_up(&mut self) {
        for (frame, span) in self.ahead.drain(..) {
            self.account.add(frame, span);
        }
    }

    /// What has gone to an activity, including what is ahead.
    pub(super) fn of(&self, activity: Activity) -> Span {
        let ahead = self.ahead.iter().filter(|(frame, _)| frame.activity == activity).map(|(_, span)| *span);
        ahead.fold(self.account.of(activity), Span::plus)
    }

    /// The account at `now`: of what is ahead, only what fits. `waits` is what the CPU has waited for after that.
    ///
    /// # Panics
    /// V3: if it does not sum to `now`.
    pub(super) fn at(&self, now: Time, waits: impl IntoIterator<Item = (Frame, Span)>) -> Account {
        let mut account = self.account.clone();
        let elapsed = now.since(Time::ZERO);
        for (frame, span) in &self.ahead {
            let left = elapsed.minus(account.total());
            account.add(*frame, left.min(*span));
        }
        for (frame, span) in waits {
            account.add(frame, span);
        }
        account.assert_sums_to(elapsed);
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_activity_has_a_place_of_its_own() {
        let indices: Vec<_> = Activity::all().map(Activity::index).collect();
        assert_eq!(indices, (0..ACTIVITIES).collect::<Vec<_>>());
    }

    #[test]
    fn no_two_activities_have_one_name() {
        let names: std::collections::BTreeSet<_> = Activity::all().map(|activity| activity.to_string()).collect();
        assert_eq!(names.len(), ACTIVITIES);
    }

    #[test]
    fn what_is_ahead_is_cut_at_now() {
        let mut books = Books::default();
        books.book(Activity::Work.into(), Span::from_nanos(10));
        books.catch_up();
        books.book(Activity::Work.into(), Span::from_nanos(5));
        books.book(Activity::LockWait.into(), Span::from_nanos(5));
        let account = books.at(Time::from_nanos(17), []);
        assert_eq!(account.of(Activity::Work), Span::from_nanos(15));
        assert_eq!(account.of(Activity::LockWait), Span::from_nanos(2));
    }

    #[test]
    #[should_panic(expected = "V3")]
    fn time_that_nobody_booked_is_noticed() {
        let mut books = Books::default();
        books.book(Activity::Work.into(), Span::from_nanos(10));
        let _ = books.at(Time::from_nanos(11), []);
    }

    #[test]
    fn callees_count_for_all_that_they_are_part_of() {
        let at = |site| Activity::Scheduler(Function::Engine(site));
        let mut account = Account::default();
        account.add(at(Site::Dispatch).into(), Span::from_nanos(1));
        let within = Sites::NONE.with(Site::Dispatch).with(Site::LookAround);
        account.add(Frame { activity: at(Site::Publish), within }, Span::from_nanos(10));
        account.add(
            Frame { activity: Activity::LockWait, within: Sites::NONE.with(Site::Dispatch) },
            Span::from_nanos(100),
        );
        let whole =
            [Site::Dispatch, Site::LookAround, Site::Publish, Site::Search].map(|site| account.with_callees(at(site)));
        assert_eq!(whole.map(Span::as_nanos), [111, 10, 10, 0]);
        assert_eq!(account.with_callees(Activity::LockWait).as_nanos(), 100);
        assert_eq!(account.of(at(Site::Dispatch)).as_nanos(), 1);
        assert_eq!(account.plus(&account).since(&account), account);
    }
}
