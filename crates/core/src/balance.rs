//! What a look at another CPU's published figures leads to. Pure functions of snapshots.
//!
//! Knows nothing of how the figures are published, of locks, or of what happens after the decision.

use crate::{GroupId, Span, Time, Vspan, Vtime, Weight};

/// The group with the smallest clock that waits on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Smallest {
    /// Which group.
    pub group: GroupId,
    /// Its clock when it was published: it may have moved since.
    pub clock: Vtime,
}

/// What a CPU publishes of its run queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// The most deserving group that waits there.
    pub smallest: Option<Smallest>,
    /// How many tasks wait there.
    pub length: usize,
}

/// Why a CPU pulls from another at the end of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PullReason {
    /// Its most deserving group is behind ours by more than a slice.
    Behind,
    /// At least two more tasks wait there than here, and its most deserving group is not ahead of ours.
    Longer,
    /// It does not come to what waits there, and its most deserving group is not ahead of ours.
    Stuck,
}

/// How soon a CPU comes to what waits on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Its poll is within a slice, as far as one can see.
    Going,
    /// It has been in one poll for longer than a slice.
    Stuck,
}

/// What a CPU sees of another one that it looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// What waits there.
    pub waiting: Waiting,
    /// How soon it comes to that.
    pub progress: Progress,
}

/// What to do about a CPU that was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Look {
    /// Leave it alone.
    Leave,
    /// Pull a task of its most deserving group.
    Pull(PullReason),
}

/// Decides the fairness pull ("look around"): `clock` is the current clock of the smallest that waits there, read again,
/// since the published one may be old.
///
/// Two CPUs that run one group never find each other behind. So a task of that group that waits on a stuck CPU is pulled
/// for being stuck, or it would wait for the end of the poll.
pub fn look(mine: &Waiting, theirs: &Neighbor, clock: Vtime, slice: Span, weight: Weight) -> Look {
    let (Some(my), Some(_)) = (mine.smallest, theirs.waiting.smallest) else {
        return Look::Leave;
    };
    if clock.plus(Vspan::of(slice, weight)).is_before(my.clock) {
        return Look::Pull(PullReason::Behind);
    }
    if my.clock.is_before(clock) {
        return Look::Leave;
    }
    if theirs.progress == Progress::Stuck {
        return Look::Pull(PullReason::Stuck);
    }
    if theirs.waiting.length >= mine.length + 2 {
        return Look::Pull(PullReason::Longer);
    }
    Look::Leave
}

/// What an inbox holds, as far as a passer-by can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InboxHint {
    /// Nothing.
    Empty,
    /// One task.
    One,
    /// Two tasks or more.
    Many,
}

impl InboxHint {
    /// The number of tasks that it surely holds.
    pub const fn at_least(self) -> usize {
        match self {
            InboxHint::Empty => 0,
            InboxHint::One => 1,
            InboxHint::Many => 2,
        }
    }
}

/// What a CPU that looks for work sees of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// Tasks in its run queue.
    pub queued: usize,
    /// Its inbox.
    pub inbox: InboxHint,
    /// The earliest deadline of its timers.
    pub timer: Time,
    /// When its current poll began; `None` if it is not in a poll.
    pub poll_began: Option<Time>,
    /// Whether it is parked.
    pub is_parked: bool,
}

/// What a CPU that looks for work makes of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Appraisal {
    /// Nothing to be had.
    Nothing,
    /// Something waits there.
    Work,
    /// Something may have to be taken from there at this time, unless its owner comes first.
    Later(Time),
}

/// How long a single task in an inbox is left to the CPU that it was given to: a wake at the end of a poll is served
/// sooner by its own CPU than by one that must be kicked. The bound of design 3.2.
pub const HAND_OFF: Span = Span::from_micros(50);

/// Judges a CPU from outside it. A task alone in an inbox belongs to the owner's next pick, unless the owner is
/// in a poll that lasts longer than [`HAND_OFF`]; a timer belongs to the owner unless it is late by that much.
pub fn appraise(prospect: &Prospect, now: Time) -> Appraisal {
    if prospect.queued > 0 || prospect.inbox == InboxHint::Many {
        return Appraisal::Work;
    }
    let lone = match (prospect.inbox, prospect.poll_began) {
        (InboxHint::Empty, _) => Time::NEVER,
        (_, Some(began)) => began.after(HAND_OFF),
        (_, None) => now.after(HAND_OFF),
    };
    // A parked CPU keeps its own timers.
    let timer = if prospect.is_parked { Time::NEVER } else { prospect.timer.after(HAND_OFF) };
    match lone.min(timer) {
        Time::NEVER => Appraisal::Nothing,
        due if due <= now => Appraisal::Work,
        due => Appraisal::Later(due),
    }
}

/// The most tasks that one pull moves while it holds a victim's lock: bounded work under a lock.
pub const PULL_MAX: usize = 32;

/// How many of `waiting` tasks of one group an idle CPU takes: half of them, at least one, at most [`PULL_MAX`].
pub const fn pull_count(waiting: usize) -> usize {
    let half = waiting.div_ceil(2);
    if half > PULL_MAX { PULL_MAX } else { half }
}

/// How many tasks of one group a look around takes: one, or half of what that CPU has more than this one. A burst that
/// was put on one CPU then spreads in a few slices, not one task at a time, while its place in the queue is at stake.
pub const fn look_count(mine: &Waiting, theirs: &Waiting) -> usize {
    let half = theirs.length.saturating_sub(mine.length) / 2;
    match half {
        0 => 1,
        half if half > PULL_MAX => PULL_MAX,
        half => half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Span = Span::from_millis(1);

    fn waiting(clock: Span, length: usize) -> Waiting {
        let clock = Vtime::ZERO.plus(Vspan::of(clock, Weight::MIN));
        Waiting { smallest: Some(Smallest { group: GroupId::new(1), clock }), length }
    }

    fn look_at(mine: Waiting, theirs: Waiting) -> Look {
        look_at_one(mine, theirs, Progress::Going)
    }

    fn look_at_one(mine: Waiting, waiting: Waiting, progress: Progress) -> Look {
        look(&mine, &Neighbor { waiting, progress }, waiting.smallest.unwrap().clock, SLICE, Weight::MIN)
    }

    #[test]
    fn a_stuck_cpu_is_pulled_from_unless_its_group_is_ahead() {
        let mine = waiting(Span::from_millis(10), 1);
        let stuck = |clock| look_at_one(mine, waiting(clock, 1), Progress::Stuck);
        assert_eq!(stuck(Span::from_millis(10)), Look::Pull(PullReason::Stuck));
        assert_eq!(stuck(Span::from_millis(11)), Look::Leave);
    }

    #[test]
    fn a_group_behind_by_more_than_a_slice_is_pulled() {
        let mine = waiting(Span::from_millis(10), 1);
        assert_eq!(look_at(mine, waiting(Span::from_millis(8), 1)), Look::Pull(PullReason::Behind));
        assert_eq!(look_at(mine, waiting(Span::from_millis(9), 1)), Look::Leave);
    }

    #[test]
    fn a_longer_queue_is_pulled_from_only_if_its_group_is_not_ahead() {
        let mine = waiting(Span::from_millis(10), 1);
        assert_eq!(look_at(mine, waiting(Span::from_millis(10), 3)), Look::Pull(PullReason::Longer));
        assert_eq!(look_at(mine, waiting(Span::from_millis(10), 2)), Look::Leave);
        assert_eq!(look_at(mine, waiting(Span::from_millis(11), 3)), Look::Leave);
    }

    #[test]
    fn a_stale_published_clock_leads_to_nothing() {
        let mine = waiting(Span::from_millis(10), 1);
        let theirs = Neighbor { waiting: waiting(Span::ZERO, 1), progress: Progress::Going };
        assert_eq!(look(&mine, &theirs, mine.smallest.unwrap().clock, SLICE, Weight::MIN), Look::Leave);
    }

    #[test]
    fn a_look_around_takes_half_of_the_difference() {
        let of = |length| waiting(Span::ZERO, length);
        let counts =
            [(5, 1), (5, 5), (5, 7), (5, 10), (0, 1_000)].map(|(mine, theirs)| look_count(&of(mine), &of(theirs)));
        assert_eq!(counts, [1, 1, 1, 2, PULL_MAX]);
    }

    fn prospect() -> Prospect {
        Prospect {
            queued: 0,
            inbox: InboxHint::Empty,
            timer: Time::NEVER,
            poll_began: Some(Time::ZERO),
            is_parked: false,
        }
    }

    #[test]
    fn a_lone_wake_is_left_to_its_cpu_for_a_while() {
        let lone = Prospect { inbox: InboxHint::One, ..prospect() };
        let early = Time::from_nanos(10_000);
        assert_eq!(appraise(&lone, early), Appraisal::Later(Time::ZERO.after(HAND_OFF)));
        assert_eq!(appraise(&lone, Time::ZERO.after(HAND_OFF)), Appraisal::Work);
        assert_eq!(appraise(&Prospect { inbox: InboxHint::Many, ..prospect() }, early), Appraisal::Work);
    }

    #[test]
    fn an_overdue_timer_of_a_busy_cpu_is_work() {
        let due = Time::from_nanos(1_000_000);
        let timer = Prospect { timer: due, ..prospect() };
        assert_eq!(appraise(&timer, Time::ZERO), Appraisal::Later(due.after(HAND_OFF)));
        assert_eq!(appraise(&timer, due.after(HAND_OFF)), Appraisal::Work);
        assert_eq!(appraise(&Prospect { is_parked: true, ..timer }, due.after(SLICE)), Appraisal::Nothing);
    }

    #[test]
    fn a_pull_takes_half_and_never_more_than_the_bound() {
        assert_eq!([0, 1, 2, 3, 10, 64, 1000].map(pull_count), [0, 1, 1, 2, 5, 32, 32]);
    }
}
