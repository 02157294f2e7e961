//! Counts what the tasks of each group do: runnable tasks over time, work, done units, responses.
//!
//! Every thread counts in a shard of its own, so that counting costs no shared line; readers add
//! the shards up. Knows nothing of programs and runtimes.
//!
//! # Invariants
//! - M1: only the thread that owns a shard writes to its cells.
//! - M2: `runnable` and `since` of a cell change together.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use super::latest::Latest;
use crate::moment::{Moment, RunClock, nanos};
use crate::scenario::GroupIndex;

/// Responses are recorded in this unit; finer would only make the histograms larger.
const RESPONSE_UNIT: Duration = Duration::from_nanos(100);

/// Digits that a recorded response keeps.
const RESPONSE_DIGITS: u8 = 3;

/// More tasks than this are not spawned by arrivals or by other tasks: they would only show how
/// much memory the machine has.
pub(crate) const TASKS_MAX: i64 = 2_000_000;

/// How many tasks became runnable less how many ceased to be, and the sum of the moments at which
/// they did, signed alike and wrapping: so the integral over time up to T is `T * tasks - moments`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Runnable {
    tasks: i64,
    moments: u64,
}

impl Runnable {
    fn read(latest: &Latest) -> Runnable {
        let (tasks, moments) = latest.read();
        Runnable { tasks: tasks.cast_signed(), moments }
    }
}

/// One thread's counts of one group.
#[derive(Debug, Default)]
struct Cell {
    /// `tasks` and `moments` of [`Runnable`].
    runnable: Latest,
    work: AtomicU64,
    released: AtomicU64,
    done: AtomicU64,
    unfinished: AtomicU64,
    live: AtomicI64,
}

#[derive(Debug)]
struct Shard {
    owner: ThreadId,
    cells: CachePadded<Box<[Cell]>>,
    responses: Mutex<Vec<Option<Histogram<u64>>>>,
}

/// The responses of one group, in units of a tenth of a microsecond.
#[derive(Debug, Clone)]
pub(crate) struct Responses(Histogram<u64>);

impl Responses {
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The response time in us that `quantile` of the requests did not exceed; `None` without any.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| micros(self.0.value_at_quantile(quantile)))
    }

    pub(crate) fn max_us(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| micros(self.0.max()))
    }

    pub(crate) fn empty() -> Responses {
        Responses(histogram())
    }

    pub(crate) fn record(&mut self, response: Duration) {
        record(&mut self.0, response);
    }
}

impl FromIterator<Duration> for Responses {
    fn from_iter<I: IntoIterator<Item = Duration>>(all: I) -> Responses {
        let mut responses = Responses::empty();
        all.into_iter().for_each(|response| responses.record(response));
        responses
    }
}

fn micros(units: u64) -> f64 {
    units as f64 * RESPONSE_UNIT.as_secs_f64() * 1e6
}

fn histogram() -> Histogram<u64> {
    Histogram::new(RESPONSE_DIGITS).expect("the number of digits is a legal constant")
}

fn record(histogram: &mut Histogram<u64>, response: Duration) {
    let units = nanos(response) / nanos(RESPONSE_UNIT);
    // Can't fail: the histogram resizes itself.
    let _always_fits = histogram.record(units.max(1));
}

/// Counts of one group, of all threads together, since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    runnable: Runnable,
    work: u64,
    released: u64,
    pub(crate) done: u64,
    pub(crate) unfinished: u64,
    live: i64,
}

impl Totals {
    pub(crate) fn work(&self) -> Duration {
        Duration::from_nanos(self.work)
    }

    /// Work of requests that arrived, as far as it was planned.
    pub(crate) fn released(&self) -> Duration {
        Duration::from_nanos(self.released)
    }

    /// Tasks that have been spawned and are not over.
    pub(crate) fn live(&self) -> i64 {
        self.live
    }

    /// Runnable tasks on average between `before`, taken at `from`, and these totals, taken at `to`.
    pub(crate) fn mean_runnable(&self, to: Moment, before: &Totals, from: Moment) -> f64 {
        let area = |totals: &Totals, at: Moment| {
            totals.runnable.tasks.cast_unsigned().wrapping_mul(at.nanos()).wrapping_sub(totals.runnable.moments)
        };
        let span = to.since(from).as_secs_f64() * 1e9;
        if span <= 0.0 {
            return self.runnable.tasks.max(0) as f64;
        }
        // Events between the reading of the clock and of the counters can make it slightly negative.
        (area(self, to).wrapping_sub(area(before, from)).cast_signed() as f64 / span).max(0.0)
    }
}

/// Which moments are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) from: Moment,
    pub(crate) to: Moment,
}

impl Measured {
    fn contains(&self, moment: Moment) -> bool {
        self.from <= moment && moment <= self.to
    }
}

/// What happens to a group, for who follows a run change by change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// A task of it is runnable.
    Ready,
    /// A task of it is no longer runnable.
    Blocked,
    /// So much work arrived for it.
    Released(Duration),
    /// A task of it begins to compute for so long.
    Begins(Duration),
}

/// Is told of each change in a run in virtual time.
pub(crate) trait Watcher: fmt::Debug + Send + Sync {
    /// Something happens at `at`; not always told in the order of moments.
    fn note(&self, at: Moment, group: GroupIndex, change: Change);
}

/// What there is in virtual time beside the counts.
#[derive(Debug)]
struct Virtual {
    watcher: Arc<dyn Watcher>,
    /// Tasks of all groups: a loop that spawns may do so for as long as it likes without time passing.
    live: AtomicI64,
}

/// The counts of one run.
#[derive(Debug)]
pub(crate) struct Meter {
    id: u64,
    clock: RunClock,
    groups: usize,
    shards: Mutex<Vec<Arc<Shard>>>,
    measured: OnceLock<Measured>,
    crowded: AtomicBool,
    watched: Option<Virtual>,
}

thread_local! {
    /// The shard of this thread, and the meter it belongs to.
    static MINE: RefCell<Option<(u64, Arc<Shard>)>> = const { RefCell::new(None) };
}

impl Meter {
    /// Counts a run in virtual time, of whose changes `watcher` is told.
    pub(crate) fn watched(groups: usize, clock: RunClock, watcher: Arc<dyn Watcher>) -> Meter {
        Meter { watched: Some(Virtual { watcher, live: AtomicI64::new(0) }), ..Meter::new(groups, clock) }
    }

    /// Counts a run whose time `clock` tells.
    pub(crate) fn new(groups: usize, clock: RunClock) -> Meter {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Meter {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            clock,
            groups,
            shards: Mutex::default(),
            measured: OnceLock::new(),
            crowded: AtomicBool::new(false),
            watched: None,
        }
    }

    pub(crate) fn clock(&self) -> &RunClock {
        &self.clock
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Says which moments are measured; before, nothing is.
    pub(crate) fn measure(&self, measured: Measured) {
        let _only_the_first_counts = self.measured.set(measured);
    }

    /// A task was spawned.
    pub(crate) fn born(&self, group: GroupIndex, at: Moment) {
        self.cell(group, |cell| {
            cell.live.store(cell.live.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            change(&cell.runnable, 1, at);
        });
        if let Some(watched) = &self.watched {
            let live = watched.live.fetch_add(1, Ordering::Relaxed);
            if live >= TASKS_MAX {
                self.set_crowded(true);
            }
            watched.watcher.note(at, group, Change::Ready);
        }
    }

    /// A task, which was runnable, is over.
    pub(crate) fn gone(&self, group: GroupIndex, at: Moment) {
        self.cell(group, |cell| {
            cell.live.store(cell.live.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            change(&cell.runnable, -1, at);
        });
        if let Some(watched) = &self.watched {
            watched.live.fetch_sub(1, Ordering::Relaxed);
            watched.watcher.note(at, group, Change::Blocked);
        }
    }

    /// A task became runnable.
    pub(crate) fn ready(&self, group: GroupIndex, at: Moment) {
        self.cell(group, |cell| change(&cell.runnable, 1, at));
        self.note(at, group, Change::Ready);
    }

    /// A task began to sleep or wait.
    pub(crate) fn blocked(&self, group: GroupIndex, at: Moment) {
        self.cell(group, |cell| change(&cell.runnable, -1, at));
        self.note(at, group, Change::Blocked);
    }

    /// A piece of computing begins: told where time is virtual.
    pub(crate) fn begins(&self, group: GroupIndex, at: Moment, piece: Duration) {
        self.note(at, group, Change::Begins(piece));
    }

    fn note(&self, at: Moment, group: GroupIndex, change: Change) {
        if let Some(watched) = &self.watched {
            watched.watcher.note(at, group, change);
        }
    }

    /// A piece of computing was completed.
    pub(crate) fn worked(&self, group: GroupIndex, work: Duration) {
        self.cell(group, |cell| add(&cell.work, nanos(work)));
    }

    /// A request with this much work to do arrived.
    pub(crate) fn released(&self, group: GroupIndex, work: Duration) {
        self.cell(group, |cell| add(&cell.released, nanos(work)));
        if let Some(watched) = &self.watched {
            watched.watcher.note(self.now(), group, Change::Released(work));
        }
    }

    /// A unit came to its end.
    pub(crate) fn done(&self, group: GroupIndex, planned: Moment, at: Moment) {
        self.cell(group, |cell| add(&cell.done, 1));
        if self.measured.get().is_some_and(|measured| measured.contains(planned) && measured.contains(at)) {
            self.respond(group, at.since(planned));
        }
    }

    /// A request was dropped before its end: its response would have been at least its age when
    /// the measurement ended.
    pub(crate) fn unfinished(&self, group: GroupIndex, planned: Moment) {
        let Some(measured) = self.measured.get() else { return };
        if measured.contains(planned) {
            self.cell(group, |cell| add(&cell.unfinished, 1));
            self.respond(group, measured.to.since(planned));
        }
    }

    /// Whether `at` lies after everything that is measured.
    pub(crate) fn is_over(&self, at: Moment) -> bool {
        self.measured.get().is_some_and(|measured| at > measured.to)
    }

    /// Whether there are so many tasks that no more should be spawned.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_crowded(&self, crowded: bool) {
        self.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Adds up what all threads counted so far into `totals`, one entry a group.
    pub(crate) fn totals(&self, totals: &mut Vec<Totals>) {
        totals.clear();
        totals.resize(self.groups, Totals::default());
        for shard in self.shards().iter() {
            for (total, cell) in totals.iter_mut().zip(shard.cells.iter()) {
                let runnable = Runnable::read(&cell.runnable);
                total.runnable.tasks += runnable.tasks;
                total.runnable.moments = total.runnable.moments.wrapping_add(runnable.moments);
                total.work += cell.work.load(Ordering::Relaxed);
                total.released += cell.released.load(Ordering::Relaxed);
                total.done += cell.done.load(Ordering::Relaxed);
                total.unfinished += cell.unfinished.load(Ordering::Relaxed);
                total.live += cell.live.load(Ordering::Relaxed);
            }
        }
    }

    /// The responses of every group.
    pub(crate) fn responses(&self) -> Vec<Responses> {
        let mut all: Vec<Responses> = (0..self.groups).map(|_| Responses::empty()).collect();
        for shard in self.shards().iter() {
            for (sum, one) in all.iter_mut().zip(lock(&shard.responses).iter()) {
                if let Some(one) = one {
                    // Can't fail: both resize themselves.
                    let _always_fits = sum.0.add(one);
                }
            }
        }
        all
    }

    fn respond(&self, group: GroupIndex, response: Duration) {
        self.shard(|shard| {
            let mut responses = lock(&shard.responses);
            record(responses[group.0].get_or_insert_with(histogram), response);
        });
    }

    fn cell(&self, group: GroupIndex, count: impl FnOnce(&Cell)) {
        self.shard(|shard| count(&shard.cells[group.0]));
    }

    fn shard(&self, count: impl FnOnce(&Shard)) {
        // A thread that is past its thread-locals only drops tasks of a run that is over.
        let _over = MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            match &*mine {
                Some((id, shard)) if *id == self.id => count(shard),
                _ => count(&mine.insert((self.id, self.shard_of_thread())).1),
            }
        });
    }

    /// The calling thread's, which it may have had before it counted for another meter.
    #[cold]
    fn shard_of_thread(&self) -> Arc<Shard> {
        let owner = std::thread::current().id();
        if let Some(shard) = self.shards().iter().find(|shard| shard.owner == owner) {
            return Arc::clone(shard);
        }
        let shard = Arc::new(Shard {
            owner,
            cells: CachePadded::new((0..self.groups).map(|_| Cell::default()).collect()),
            responses: Mutex::new(vec![None; self.groups]),
        });
        self.shards().push(Arc::clone(&shard));
        shard
    }

    fn shards(&self) -> MutexGuard<'_, Vec<Arc<Shard>>> {
        lock(&self.shards)
    }
}

/// What a mutex guards here stays valid when a holder panics: every change is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to a counter that no other thread writes (M1), so without a locked instruction.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn change(latest: &Latest, by: i64, at: Moment) {
    let Runnable { tasks, moments } = Runnable::read(latest);
    let moments = if by > 0 { moments.wrapping_add(at.nanos()) } else { moments.wrapping_sub(at.nanos()) };
    latest.write((tasks + by).cast_unsigned(), moments);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupIndex = GroupIndex(0);

    fn at(micros: u64) -> Moment {
        Moment::from_nanos(micros * 1000)
    }

    fn totals(meter: &Meter) -> Totals {
        let mut totals = Vec::new();
        meter.totals(&mut totals);
        totals[0]
    }

    #[test]
    fn runnable_tasks_are_integrated_over_time() {
        let meter = Meter::new(1, RunClock::start());
        let before = totals(&meter);
        meter.born(GROUP, at(100));
        meter.born(GROUP, at(200));
        meter.blocked(GROUP, at(500));
        meter.ready(GROUP, at(700));
        meter.gone(GROUP, at(900));
        let after = totals(&meter);
        // 2 from 200 to 500 and from 700 to 900, 1 from 100 to 200, 500 to 700 and 900 to 1000.
        let expected = (2.0 * 500.0 + 400.0) / 1000.0;
        assert!((after.mean_runnable(at(1000), &before, at(0)) - expected).abs() < 1e-9);
        assert!((after.mean_runnable(at(3000), &after, at(2000)) - 1.0).abs() < 1e-9);
        assert_eq!(after.live(), 1);
    }

    #[test]
    fn threads_count_together() {
        let meter = Meter::new(1, RunClock::start());
        let threads = 4u64;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        meter.born(GROUP, at(1));
                        meter.worked(GROUP, Duration::from_nanos(3));
                        meter.gone(GROUP, at(2));
                        meter.done(GROUP, at(1), at(2));
                    }
                });
            }
        });
        let totals = totals(&meter);
        assert_eq!((totals.done, totals.live()), (threads * 1000, 0));
        assert_eq!(totals.work(), Duration::from_nanos(3 * 1000 * threads));
        let mean = totals.mean_runnable(at(2), &Totals::default(), at(0));
        assert!((mean - 2000.0).abs() < 1e-6, "4000 tasks were there half of the time, not {mean}");
    }

    #[test]
    fn only_measured_requests_respond_and_unfinished_ones_count_with_their_age() {
        let meter = Meter::new(1, RunClock::start());
        meter.done(GROUP, at(0), at(1));
        meter.measure(Measured { from: at(10), to: at(100) });
        meter.done(GROUP, at(5), at(20));
        meter.done(GROUP, at(20), at(24));
        meter.unfinished(GROUP, at(90));
        meter.unfinished(GROUP, at(101));
        let responses = meter.responses().remove(0);
        assert_eq!(responses.count(), 2);
        assert_eq!(responses.quantile_us(0.5), Some(4.0));
        assert_eq!(responses.max_us(), Some(10.0));
        assert_eq!((totals(&meter).done, totals(&meter).unfinished), (3, 1));
    }
}
