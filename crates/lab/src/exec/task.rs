//! One task of a scenario: its program carried out as a future.
//!
//! Knows nothing of arrivals; they are planned elsewhere and given as moments.
//!
//! # Invariants
//! - T1: every task that is born is gone exactly once, on whatever path its future is dropped.
//! - T2: a task looks at the stop flags after every computing of at most [`CHUNK`], after every
//!   pause and at every round of a loop; so no run waits for a backlog.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::meter::Meter;
use super::readiness::blocking;
use super::{Computing, Spawner};
use crate::moment::Moment;
use crate::scenario::{GroupIndex, NEST_MAX, Op, Program, Scenario, SpawnOp, Time};

/// Work is counted, and the stop flags are looked at, after at most this much computing.
const CHUNK: Duration = Duration::from_millis(1);

/// What all tasks of a run share.
#[derive(Debug)]
pub(crate) struct Common<S> {
    spawner: S,
    meter: Arc<Meter>,
    signals: Box<[Semaphore]>,
    locks: Box<[Semaphore]>,
    over: AtomicBool,
}

impl<S: Spawner> Common<S> {
    pub(crate) fn new(scenario: &Scenario, spawner: S, meter: Arc<Meter>) -> Arc<Common<S>> {
        let semaphores = |count, permits| (0..count).map(|_| Semaphore::new(permits)).collect();
        Arc::new(Common {
            spawner,
            meter,
            signals: semaphores(scenario.signals, 0),
            locks: semaphores(scenario.locks, 1),
            over: AtomicBool::new(false),
        })
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Tells every task to end at its next look.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Starts the tasks of one task set.
#[derive(Debug)]
pub(crate) struct Starter<S> {
    common: Arc<Common<S>>,
    group: GroupIndex,
    program: Arc<Program>,
    stopped: Arc<AtomicBool>,
    /// Seeds of this set's tasks are drawn from here.
    rng: fastrand::Rng,
}

impl<S: Spawner> Starter<S> {
    pub(crate) fn new(
        common: &Arc<Common<S>>,
        group: GroupIndex,
        program: &Arc<Program>,
        rng: fastrand::Rng,
    ) -> Starter<S> {
        Starter { common: Arc::clone(common), group, program: Arc::clone(program), stopped: Arc::default(), rng }
    }

    /// Starts a task that stands for itself. Its end is a done unit.
    pub(crate) fn task(&mut self, at: Moment) {
        let task = self.new_task(Unit::Task { planned: at });
        drop(self.common.spawner.spawn(self.group, task.play()));
    }

    /// Starts a request that was planned for `at`.
    pub(crate) fn request(&mut self, at: Moment) {
        let task = self.new_task(Unit::Request { planned: at });
        if self.program.only_computes()
            && let Some(work) = self.program.planned_work(task.rng.clone())
        {
            self.common.meter.released(self.group, work);
        }
        drop(self.common.spawner.spawn(self.group, task.play()));
    }

    /// Starts a client that spawns one request after the other.
    pub(crate) fn client(&mut self, think: Option<Time>, at: Moment) {
        let client = Client { task: self.new_task(Unit::Helper), think };
        drop(self.common.spawner.spawn(self.group, client.play(at)));
    }

    /// Ends clients and tasks that stand for themselves; requests are served to their end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn new_task(&mut self, unit: Unit) -> Task<S> {
        let stopped = match unit {
            Unit::Request { .. } => None,
            Unit::Task { .. } | Unit::Helper => Some(Arc::clone(&self.stopped)),
        };
        let rng = self.rng.fork();
        Task::born(Arc::clone(&self.common), self.group, Arc::clone(&self.program), unit, stopped, rng)
    }
}

/// What a task counts as when it is over.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// A unit, but nobody waits for it: dropped before its end, it counts as nothing.
    Task { planned: Moment },
    /// A unit that somebody waits for.
    Request { planned: Moment },
    /// No unit: a client, or spawned by a unit.
    Helper,
}

/// Why a task must not go on.
struct Stopped;

struct Task<S: Spawner> {
    common: Arc<Common<S>>,
    group: GroupIndex,
    program: Arc<Program>,
    stopped: Option<Arc<AtomicBool>>,
    rng: fastrand::Rng,
    /// Locks it holds, in the order they were taken.
    held: Vec<usize>,
    unit: Unit,
    ended: Option<Moment>,
}

impl<S: Spawner> Task<S> {
    fn born(
        common: Arc<Common<S>>,
        group: GroupIndex,
        program: Arc<Program>,
        unit: Unit,
        stopped: Option<Arc<AtomicBool>>,
        rng: fastrand::Rng,
    ) -> Task<S> {
        common.meter.born(group, common.meter.now());
        Task { common, group, program, stopped, rng, held: Vec::new(), unit, ended: None }
    }

    /// Runs the program; resolves to the moment at which it ended.
    async fn play(mut self) -> Moment {
        let went = self.program().await;
        let now = self.common.meter.now();
        if went.is_ok() {
            self.ended = Some(now);
        }
        now
    }

    async fn program(&mut self) -> Result<(), Stopped> {
        let program = Arc::clone(&self.program);
        // Rounds left of each loop; endless ones count nothing.
        let mut left = [None; NEST_MAX];
        let mut at = 0;
        // Rounds since time must have passed.
        let mut timeless = 0;
        self.look()?;
        while let Some(op) = program.ops().get(at) {
            at += 1;
            match op {
                Op::Run(time) => {
                    if self.run(time).await? {
                        timeless = 0;
                    }
                }
                Op::Yield => {
                    timeless = 0;
                    S::yield_now().await;
                    self.look()?;
                }
                Op::Begin { slot, times } => left[*slot] = *times,
                Op::End { slot, body } => {
                    self.look()?;
                    timeless += 1;
                    if S::TIMELESS_ROUNDS.is_some_and(|most| timeless > most) {
                        S::pass().await;
                        timeless = 0;
                    }
                    if another_round(&mut left[*slot]) {
                        at = *body;
                    }
                }
                Op::Sleep(_) | Op::Wait(_) | Op::Lock(_) => self.block(op).await?,
                Op::Notify(signal) => self.common.signals[*signal].add_permits(1),
                Op::Unlock(lock) => self.unlock(*lock),
                Op::Spawn(spawn) => self.spawn(spawn),
                Op::Exit => break,
            }
        }
        Ok(())
    }

    fn look(&self) -> Result<(), Stopped> {
        let set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if set(&self.common.over) || self.stopped.as_deref().is_some_and(set) {
            return Err(Stopped);
        }
        Ok(())
    }

    /// Whether there was anything to compute.
    async fn run(&mut self, time: &Time) -> Result<bool, Stopped> {
        let whole = time.draw(&mut self.rng);
        let mut left = whole;
        while !left.is_zero() {
            let chunk = left.min(CHUNK);
            S::compute(Computing { span: chunk, group: self.group, meter: &self.common.meter }).await;
            self.look()?;
            left -= chunk;
        }
        Ok(!whole.is_zero())
    }

    async fn block(&mut self, op: &Op) -> Result<(), Stopped> {
        let (meter, group) = (&self.common.meter, self.group);
        match op {
            Op::Sleep(time) => {
                let span = time.draw(&mut self.rng);
                blocking(meter, group, S::sleep(span)).await;
            }
            Op::Wait(signal) => take(meter, group, &self.common.signals[*signal]).await,
            Op::Lock(lock) => {
                take(meter, group, &self.common.locks[*lock]).await;
                self.held.push(*lock);
            }
            _ => {}
        }
        self.look()
    }

    fn unlock(&mut self, lock: usize) {
        self.held.retain(|&held| held != lock);
        self.common.locks[lock].add_permits(1);
    }

    fn spawn(&mut self, spawn: &SpawnOp) {
        let group = spawn.group.unwrap_or(self.group);
        for _ in 0..spawn.count {
            if self.common.meter.is_crowded() {
                return;
            }
            let (common, program) = (Arc::clone(&self.common), Arc::clone(&spawn.program));
            let task = Task::born(common, group, program, Unit::Helper, self.stopped.clone(), self.rng.fork());
            drop(self.common.spawner.spawn(group, boxed(task)));
        }
    }
}

impl<S: Spawner> Drop for Task<S> {
    fn drop(&mut self) {
        let meter = &self.common.meter;
        for &lock in &self.held {
            self.common.locks[lock].add_permits(1);
        }
        meter.gone(self.group, self.ended.unwrap_or_else(|| meter.now()));
        match (self.unit, self.ended) {
            (Unit::Request { planned }, Some(ended)) if meter.is_over(ended) => meter.unfinished(self.group, planned),
            (Unit::Task { planned } | Unit::Request { planned }, Some(ended)) => meter.done(self.group, planned, ended),
            (Unit::Request { planned }, None) => meter.unfinished(self.group, planned),
            (Unit::Task { .. }, None) | (Unit::Helper, _) => {}
        }
    }
}

/// Hides the type of a spawned task, which contains itself.
fn boxed<S: Spawner>(task: Task<S>) -> Pin<Box<dyn Future<Output = Moment> + Send>> {
    Box::pin(task.play())
}

async fn take(meter: &Arc<Meter>, group: GroupIndex, semaphore: &Semaphore) {
    // Semaphores of a run are never closed.
    if let Ok(permit) = blocking(meter, group, semaphore.acquire()).await {
        permit.forget();
    }
}

/// Counts one round down; `None` is endless.
fn another_round(left: &mut Option<u32>) -> bool {
    match left {
        None => true,
        Some(left) => {
            *left -= 1;
            *left > 0
        }
    }
}

/// Sends one request after the other, each when it has the answer and has thought about it.
struct Client<S: Spawner> {
    task: Task<S>,
    think: Option<Time>,
}

impl<S: Spawner> Client<S> {
    async fn play(mut self, first: Moment) -> Moment {
        let mut planned = first;
        while self.task.look().is_ok() {
            let Some(ended) = self.request(planned).await else { break };
            planned = match self.think {
                None => ended,
                Some(think) => self.think(think, ended).await,
            };
        }
        self.task.common.meter.now()
    }

    async fn request(&mut self, planned: Moment) -> Option<Moment> {
        let common = &self.task.common;
        let (group, program) = (self.task.group, Arc::clone(&self.task.program));
        let unit = Unit::Request { planned };
        let request = Task::born(Arc::clone(common), group, program, unit, None, self.task.rng.fork());
        let join = common.spawner.spawn(group, request.play());
        blocking(&common.meter, group, join).await
    }

    /// The next request is planned for the end of this, however late the client is woken.
    async fn think(&mut self, think: Time, ended: Moment) -> Moment {
        let planned = ended.plus(think.draw(&mut self.task.rng));
        let meter = &self.task.common.meter;
        let left = planned.since(meter.now());
        if !left.is_zero() {
            blocking(meter, self.task.group, S::sleep(left)).await;
        }
        planned
    }
}
