//! What a CPU's time goes to, to the nanosecond.
//!
//! Knows nothing of how time passes.
//!
//! # Invariants
//! - V3: the parts of an account sum to the time that its CPU has spent.

use crate::faults::FaultKind;
use evenkeel_core::{Span, Time};
use evenkeel_engine::host::Site;
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

const SITES: [Site; Site::Check as usize + 1] = [
    Site::Dispatch,
    Site::Wake,
    Site::Charge,
    Site::Raise,
    Site::Publish,
    Site::Search,
    Site::LookAround,
    Site::Pull,
    Site::Park,
    Site::Timer,
    Site::Owner,
    Site::Group,
    Site::Count,
    Site::Stop,
    Site::Check,
];

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

const ACTIVITIES: usize = OTHERS.len() + SITES.len();

impl Activity {
    /// Every activity there is.
    pub fn all() -> impl Iterator<Item = Activity> {
        let sites = SITES.into_iter().map(|site| Activity::Scheduler(Function::Engine(site)));
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
            Activity::Scheduler(Function::Engine(site)) => write!(f, "{}", format!("{site:?}").to_lowercase()),
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

/// What one CPU's time went to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account([Span; ACTIVITIES]);

impl Default for Account {
    fn default() -> Self {
        Account([Span::ZERO; ACTIVITIES])
    }
}

impl Account {
    /// The time that went to one activity.
    pub fn of(&self, activity: Activity) -> Span {
        self.0[activity.index()]
    }

    /// The time that went to the scheduler.
    pub fn scheduler(&self) -> Span {
        let functions = Activity::all().filter(|activity| matches!(activity, Activity::Scheduler(_)));
        functions.map(|activity| self.of(activity)).fold(Span::ZERO, Span::plus)
    }

    /// All of it.
    pub fn total(&self) -> Span {
        self.0.iter().copied().fold(Span::ZERO, Span::plus)
    }

    /// What went to each activity since `before`.
    #[must_use]
    pub fn since(&self, before: &Account) -> Account {
        Account(std::array::from_fn(|index| self.0[index].minus(before.0[index])))
    }

    /// The sum of two.
    #[must_use]
    pub fn plus(&self, other: &Account) -> Account {
        Account(std::array::from_fn(|index| self.0[index].plus(other.0[index])))
    }

    fn add(&mut self, activity: Activity, span: Span) {
        self.0[activity.index()] = self.0[activity.index()].plus(span);
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
    ahead: Vec<(Activity, Span)>,
}

impl Books {
    /// Books time that this CPU has spent before anybody else could notice.
    pub(super) fn book(&mut self, activity: Activity, span: Span) {
        match self.ahead.last_mut() {
            Some((last, sum)) if *last == activity => *sum = sum.plus(span),
            _ => self.ahead.push((activity, span)),
        }
    }

    /// All that was booked has passed.
    pub(super) fn catch_up(&mut self) {
        for (activity, span) in self.ahead.drain(..) {
            self.account.add(activity, span);
        }
    }

    /// What has gone to an activity, including what is ahead.
    pub(super) fn of(&self, activity: Activity) -> Span {
        let ahead = self.ahead.iter().filter(|(other, _)| *other == activity).map(|(_, span)| *span);
        ahead.fold(self.account.of(activity), Span::plus)
    }

    /// The account at `now`: of what is ahead, only what fits. `waits` is what the CPU has waited for after that.
    ///
    /// # Panics
    /// V3: if it does not sum to `now`.
    pub(super) fn at(&self, now: Time, waits: impl IntoIterator<Item = (Activity, Span)>) -> Account {
        let mut account = self.account.clone();
        let elapsed = now.since(Time::ZERO);
        for (activity, span) in &self.ahead {
            let left = elapsed.minus(account.total());
            account.add(*activity, left.min(*span));
        }
        for (activity, span) in waits {
            account.add(activity, span);
        }
        assert_eq!(account.total(), elapsed, "V3: a CPU's time is not accounted for: {account:?}");
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
        books.book(Activity::Work, Span::from_nanos(10));
        books.catch_up();
        books.book(Activity::Work, Span::from_nanos(5));
        books.book(Activity::LockWait, Span::from_nanos(5));
        let account = books.at(Time::from_nanos(17), []);
        assert_eq!(account.of(Activity::Work), Span::from_nanos(15));
        assert_eq!(account.of(Activity::LockWait), Span::from_nanos(2));
    }

    #[test]
    #[should_panic(expected = "V3")]
    fn time_that_nobody_booked_is_noticed() {
        let mut books = Books::default();
        books.book(Activity::Work, Span::from_nanos(10));
        let _ = books.at(Time::from_nanos(11), []);
    }
}
