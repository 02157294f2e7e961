//! Evenkeel on a simulated machine, in virtual time.
//!
//! Knows nothing of when anything is due: who drives the run does.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel::{CpuMask, Group, JoinHandle, Stats};
use evenkeel_core::Time;
use evenkeel_sim::machine::Machine;
use evenkeel_sim::{
    Accounting, Activity, Config, Digest, FaultKind, Faults, LockStat, Preemption, Record, Simulation, Speed, Times,
};

use super::threads::{counters, group_counters, prepare, switches};
use super::{Counters, Counts, GroupCounters, Setup};
use crate::exec::{Computing, Deed, Spawner};
use crate::failure::Failure;
use crate::judge::SLICE;
use crate::moment::Moment;
use crate::scenario::{GroupIndex, Preempt};

/// A loop in which nothing is computed goes round at most this often before time passes.
const TIMELESS_ROUNDS: u32 = 100;

/// What so many rounds take. An estimate: 100 ns are what taking and giving back a permit takes on a processor of today.
const ROUNDS_TAKE: Duration = Duration::from_nanos(TIMELESS_ROUNDS as u64 * 100);

/// A simulated machine with the groups of a scenario.
#[derive(Debug)]
pub(crate) struct Sim {
    simulation: Simulation,
    machine: Machine,
    groups: Arc<[Group]>,
}

/// What a machine has counted until some moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) accounting: Accounting,
    pub(crate) lock_stat: LockStat,
}

impl Snapshot {
    /// The moment, by the machine's time.
    pub(crate) fn at(&self) -> Time {
        Time::ZERO.after(self.accounting.elapsed)
    }
}

/// What was seen of a run on a simulated machine, for reports and traces.
#[derive(Debug, Clone)]
pub(crate) struct SimSeen {
    pub(crate) machine: Machine,
    /// When the measurement began.
    pub(crate) before: Snapshot,
    /// When it ended.
    pub(crate) after: Snapshot,
    /// Every event until then, if they were kept.
    pub(crate) records: Vec<Record>,
    /// Events of the measurement that came after those: more than are kept.
    pub(crate) left_out: u64,
    /// Of all events until then.
    pub(crate) digest: Digest,
    pub(crate) speed: Speed,
    /// The names of groups by the ids that records have.
    pub(crate) group_names: Vec<(u32, String)>,
}

impl Sim {
    /// A machine at time zero.
    pub(crate) fn build(machine: &Machine, preempt: Preempt, faults: Faults, setup: Setup<'_>) -> Result<Sim, Failure> {
        let preemption = match preempt {
            Preempt::Polls => Preemption::BetweenPolls,
            Preempt::Ticks => Preemption::AtTicks,
        };
        let config =
            Config { slice: SLICE.into(), seed: setup.seed, preemption, faults, ..Config::new(machine.clone()) };
        let simulation = Simulation::new(config).map_err(|error| Failure::Internal(error.to_string()))?;
        let groups = prepare(&simulation.handle(), setup)?;
        Ok(Sim { simulation, machine: machine.clone(), groups })
    }

    pub(crate) fn spawner(&self) -> SimSpawner {
        SimSpawner { groups: Arc::clone(&self.groups) }
    }

    /// The CPUs of the machine.
    pub(crate) fn cpus(&self) -> usize {
        self.machine.cpus()
    }

    /// How often ticks come, if there are any.
    pub(crate) fn tick_period(&self) -> Option<Duration> {
        self.machine.tick.map(|tick| tick.period.into())
    }

    /// From here on, keeps events until there are `max`.
    pub(crate) fn keep_records(&mut self, max: usize) {
        self.simulation.keep_records_up_to(max);
    }

    /// The events kept since this was last asked.
    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        self.simulation.take_records()
    }

    /// The name of the group that has this id in records.
    pub(crate) fn group_name(&self, id: u32) -> Option<String> {
        self.groups.iter().find(|group| group.id().get() == id).map(|group| group.name().to_owned())
    }

    /// Of all events so far.
    pub(crate) fn digest(&self) -> Digest {
        self.simulation.digest()
    }

    /// Starts what is there from the beginning, at no cost.
    pub(crate) fn start(&mut self, start: impl FnOnce()) {
        self.simulation.with(|_| start());
    }

    /// Plans what the outside does when it is due.
    pub(crate) fn plan(&mut self, deed: Deed, act: impl FnOnce(Deed) + 'static) {
        self.simulation.at(deed.due.time(), move |_| act(deed));
    }

    /// Lets everything happen until `moment`.
    pub(crate) fn run_until(&mut self, moment: Moment) -> Result<(), Failure> {
        self.simulation.run_until(moment.time()).map_err(failed)
    }

    /// Stops the machine; every task is dropped.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        self.simulation.stop().map_err(failed)
    }

    /// The time of the machine.
    pub(crate) fn now(&self) -> Moment {
        Moment::of(self.simulation.now())
    }

    /// What it has counted so far. Locks and lines are counted anew from here on.
    pub(crate) fn begin_measurement(&mut self) -> Snapshot {
        let before = self.snapshot();
        self.simulation.clear_lock_stat();
        before
    }

    /// What it has counted so far.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { accounting: self.simulation.accounting(), lock_stat: self.simulation.lock_stat() }
    }

    /// What there is to see at the end of the measurement, which began at `before`.
    pub(crate) fn seen(&self, before: Snapshot, records: Vec<Record>) -> SimSeen {
        let group_names = self.groups.iter().map(|group| (group.id().get(), group.name().to_owned()));
        SimSeen {
            machine: self.machine.clone(),
            before,
            after: self.snapshot(),
            records,
            left_out: self.simulation.left_out(),
            digest: self.digest(),
            speed: self.simulation.speed(),
            group_names: group_names.collect(),
        }
    }
}

fn failed(failure: evenkeel_sim::Failure) -> Failure {
    Failure::Simulation(failure.to_string())
}

impl Counts for Sim {
    fn stats(&self) -> Option<Stats> {
        Some(self.simulation.handle().stats())
    }

    fn counters(&self) -> Counters {
        counters(&self.simulation.handle().stats())
    }

    fn idle_while_waiting(&self) -> Option<usize> {
        Some(self.simulation.handle().load().idle_while_waiting)
    }

    fn group_counters(&self) -> Vec<GroupCounters> {
        group_counters(&self.simulation.handle().stats(), &self.groups)
    }

    fn switches(&self) -> Vec<(String, String)> {
        switches(&self.simulation.handle().switches())
    }

    fn notes(&self) -> Vec<String> {
        let stat = self.simulation.fault_stat();
        let happened = FaultKind::ALL.map(|kind| (kind, stat.of(kind)));
        let happened = happened.iter().filter(|(_, times)| times.count > 0);
        let note = |(kind, times): &(FaultKind, Times)| {
            format!("fault `{}` happened {} times, for {:?} in all", kind.name(), times.count, times.total)
        };
        happened.map(note).collect()
    }

    /// All that was neither idle, nor taken by other programs, nor lost to faults.
    fn cpu_time(&self) -> Duration {
        let total = self.simulation.accounting().total();
        let off = [Activity::Idle, Activity::Taken].into_iter().chain(FaultKind::ALL.map(Activity::Lost));
        off.fold(total.total(), |rest, activity| rest.minus(total.of(activity))).into()
    }
}

/// Spawns into the groups of one machine.
#[derive(Clone)]
pub(crate) struct SimSpawner {
    groups: Arc<[Group]>,
}

impl fmt::Debug for SimSpawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimSpawner").field("groups", &self.groups.len()).finish()
    }
}

impl Spawner for SimSpawner {
    type Join = SimJoin;

    fn spawn<F>(&self, group: GroupIndex, task: F) -> SimJoin
    where
        F: Future<Output = Moment> + Send + 'static,
    {
        SimJoin(self.groups[group.0].spawn(task))
    }

    fn spawn_on<F>(&self, group: GroupIndex, cpus: &CpuMask, task: F) -> SimJoin
    where
        F: Future<Output = Moment> + Send + 'static,
    {
        SimJoin(self.groups[group.0].spawn_on(cpus, task))
    }

    async fn compute(computing: Computing<'_>) {
        let mut run = pin!(evenkeel::run(computing.span));
        // Each poll means that the piece which the one before it has begun is done.
        let mut piece = Duration::ZERO;
        poll_fn(|context| {
            if !piece.is_zero() {
                computing.done(piece);
            }
            // Before the poll: what that declares counts as passed from then on.
            let (at, before) = (computing.meter.now(), run.left());
            let polled = run.as_mut().poll(context);
            piece = before - run.left();
            if !piece.is_zero() {
                computing.begins(at, piece);
            }
            polled
        })
        .await;
    }

    const TIMELESS_ROUNDS: Option<u32> = Some(TIMELESS_ROUNDS);

    fn pass() -> impl Future<Output = ()> + Send {
        evenkeel::run(ROUNDS_TAKE)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        evenkeel::yield_now()
    }

    fn sleep(span: Duration) -> impl Future<Output = ()> + Send {
        evenkeel::sleep(span)
    }
}

/// Awaits a task.
#[derive(Debug)]
pub(crate) struct SimJoin(JoinHandle<Moment>);

impl Future for SimJoin {
    type Output = Option<Moment>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Moment>> {
        Pin::new(&mut self.0).poll(context).map(Result::ok)
    }
}
