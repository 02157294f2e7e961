//! Evenkeel on real threads.
//!
//! Knows nothing of roles: here a group is a group.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel::{Group, GroupId, GroupStats, Handle, JoinHandle, Runtime, Stats, Switches};

use super::{Counters, Counts, GroupCounters, Setup, Target, compute_here};
use crate::exec::{Computing, Spawner};
use crate::failure::Failure;
use crate::judge::SLICE;
use crate::moment::Moment;
use crate::scenario::{GroupDef, GroupIndex};

/// Polls that are under way when a run is over end within this, or their threads are left behind.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// An Evenkeel runtime with the groups of a scenario.
#[derive(Debug)]
pub(crate) struct Threads {
    runtime: Runtime,
    groups: Arc<[Group]>,
}

impl Target for Threads {
    type Spawner = ThreadsSpawner;

    fn build(setup: Setup<'_>) -> Result<Threads, Failure> {
        let runtime = Runtime::builder()
            .workers(setup.workers)
            .name("evenkeel")
            .slice(SLICE)
            .seed(setup.seed)
            .build()
            .map_err(|error| Failure::Internal(format!("can't start an Evenkeel runtime: {error}")))?;
        let groups = prepare(&runtime.handle(), setup)?;
        Ok(Threads { runtime, groups })
    }

    fn spawner(&self) -> ThreadsSpawner {
        ThreadsSpawner { groups: Arc::clone(&self.groups) }
    }

    fn stop(self) {
        self.runtime.shutdown_timeout(STOP_PATIENCE);
    }
}

impl Counts for Threads {
    fn counters(&self) -> Counters {
        counters(&self.runtime.stats())
    }

    fn idle_while_waiting(&self) -> Option<usize> {
        let load = self.runtime.load();
        Some(load.parked.min(load.waiting))
    }

    fn group_counters(&self) -> Vec<GroupCounters> {
        group_counters(&self.runtime.stats(), &self.groups)
    }

    fn switches(&self) -> Vec<(String, String)> {
        switches(&self.runtime.switches())
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Sets the switches and makes the groups of a scenario, on whatever host.
pub(super) fn prepare(handle: &Handle, setup: Setup<'_>) -> Result<Arc<[Group]>, Failure> {
    for (name, value) in setup.switches {
        set(&handle.switches(), name, value)?;
    }
    let group = |def: &GroupDef| {
        let group = handle.group(def.name.as_str()).weight(def.weight).build();
        group.map_err(|error| Failure::Internal(format!("can't make the group `{}`: {error}", def.name)))
    };
    setup.groups.iter().map(group).collect()
}

/// What an Evenkeel runtime has counted, on whatever host.
pub(super) fn counters(stats: &Stats) -> Counters {
    Counters {
        wakes: Some(stats.total(|cpu| cpu.wakes)),
        empty_wakes: Some(stats.total(|cpu| cpu.empty_wakes)),
        steals: Some(stats.total(|cpu| cpu.steals)),
        contended: Some(stats.total(|cpu| cpu.contended)),
        failed_tries: Some(stats.total(|cpu| cpu.failed_tries)),
    }
}

/// What it has counted for each group.
pub(super) fn group_counters(stats: &Stats, groups: &[Group]) -> Vec<GroupCounters> {
    let by_id: BTreeMap<GroupId, &GroupStats> = stats.groups.iter().map(|stats| (stats.id, stats)).collect();
    let counters = |group: &Group| by_id.get(&group.id()).map_or_else(GroupCounters::default, |stats| counted(stats));
    groups.iter().map(counters).collect()
}

/// Its switches and their values.
pub(super) fn switches(switches: &Switches) -> Vec<(String, String)> {
    switches.list().into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn counted(stats: &GroupStats) -> GroupCounters {
    let buckets = stats.wait.buckets().map(|(edge, count)| (Duration::from_nanos(edge.as_nanos()), count));
    GroupCounters { waits: Some(buckets.collect()), charged: Some(Duration::from_nanos(stats.run.as_nanos())) }
}

/// Fails if a switch or its value doesn't exist, before anything has been run.
pub(crate) fn check_switches(switches: &[(String, String)]) -> Result<(), Failure> {
    let runtime = Runtime::builder().workers(1).build();
    let runtime = runtime.map_err(|error| Failure::Internal(format!("can't start an Evenkeel runtime: {error}")))?;
    switches.iter().try_for_each(|(name, value)| set(&runtime.switches(), name, value))
}

fn set(switches: &Switches, name: &str, value: &str) -> Result<(), Failure> {
    switches.set(name, value).map_err(|error| Failure::Input(format!("--set {name}={value}: {error}")))
}

/// Spawns into the groups of one runtime.
#[derive(Debug, Clone)]
pub(crate) struct ThreadsSpawner {
    groups: Arc<[Group]>,
}

impl Spawner for ThreadsSpawner {
    type Join = ThreadsJoin;

    fn spawn<F>(&self, group: GroupIndex, task: F) -> ThreadsJoin
    where
        F: Future<Output = Moment> + Send + 'static,
    {
        ThreadsJoin(self.groups[group.0].spawn(task))
    }

    fn compute(computing: Computing<'_>) -> impl Future<Output = ()> + Send {
        compute_here(computing)
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
pub(crate) struct ThreadsJoin(JoinHandle<Moment>);

impl Future for ThreadsJoin {
    type Output = Option<Moment>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Moment>> {
        Pin::new(&mut self.0).poll(context).map(Result::ok)
    }
}
