//! One tokio runtime, or one per role.
//!
//! Knows nothing of weights: tokio has none, and that is the comparison.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tokio::runtime::{Builder, Handle, Runtime};
use ::tokio::task::JoinHandle;

use super::{Counters, Counts, GroupCounters, Setup, Target, compute_here};
use crate::exec::{Computing, Spawner};
use crate::failure::Failure;
use crate::moment::Moment;
use crate::os;
use crate::scenario::{GroupDef, GroupIndex, On, Role};

/// Polls that are under way when a run is over end within this, or their threads are left behind.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// One or two tokio runtimes.
#[derive(Debug)]
pub(crate) struct Tokio {
    runtimes: Vec<Runtime>,
    handles: Arc<[Handle]>,
    nice_refused: Arc<AtomicBool>,
}

impl Target for Tokio {
    type Spawner = TokioSpawner;

    fn build(setup: Setup<'_>) -> Result<Tokio, Failure> {
        let nice_refused = Arc::new(AtomicBool::new(false));
        let mut runtimes = Vec::new();
        let mut slots = vec![0; setup.groups.len()];
        for part in parts(setup.on) {
            let members = |group: &GroupDef| part.role.is_none_or(|role| role == group.role);
            if !setup.groups.iter().any(members) {
                continue;
            }
            for (slot, _) in slots.iter_mut().zip(setup.groups).filter(|(_, group)| members(group)) {
                *slot = runtimes.len();
            }
            runtimes.push(start(part, setup.workers, &nice_refused)?);
        }
        let handles = slots.iter().map(|&slot| runtimes[slot].handle().clone()).collect();
        Ok(Tokio { runtimes, handles, nice_refused })
    }

    fn spawner(&self) -> TokioSpawner {
        TokioSpawner { handles: Arc::clone(&self.handles) }
    }

    fn stop(self) {
        for runtime in self.runtimes {
            runtime.shutdown_timeout(STOP_PATIENCE);
        }
    }
}

impl Counts for Tokio {
    fn counters(&self) -> Counters {
        let parks = |runtime: &Runtime| {
            let metrics = runtime.metrics();
            (0..metrics.num_workers()).map(|worker| metrics.worker_park_count(worker)).sum::<u64>()
        };
        // Every park but the current one ended with a wake. The other counts are unstable interfaces.
        Counters { wakes: Some(self.runtimes.iter().map(parks).sum()), ..Counters::default() }
    }

    fn idle_while_waiting(&self) -> Option<usize> {
        None
    }

    fn group_counters(&self) -> Vec<GroupCounters> {
        vec![GroupCounters::default(); self.handles.len()]
    }

    fn switches(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn notes(&self) -> Vec<String> {
        let refused = self.nice_refused.load(Ordering::Relaxed);
        refused.then(|| "the system refused nice 19 for the batch threads".to_owned()).into_iter().collect()
    }
}

/// One runtime of a target.
#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    /// The groups it is for; `None` for all.
    role: Option<Role>,
    nice: Nice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nice {
    Zero,
    Lowest,
}

fn parts(on: On) -> Vec<Part> {
    let interactive = Part { name: "tokio-fore", role: Some(Role::Interactive), nice: Nice::Zero };
    let batch = |nice| Part { name: "tokio-batch", role: Some(Role::Batch), nice };
    match on {
        On::Tokio | On::Threads | On::Sim => vec![Part { name: "tokio", role: None, nice: Nice::Zero }],
        On::TokioSplit => vec![interactive, batch(Nice::Zero)],
        On::TokioSplitNice => vec![interactive, batch(Nice::Lowest)],
    }
}

fn start(part: Part, workers: usize, nice_refused: &Arc<AtomicBool>) -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).thread_name(part.name).enable_time();
    if part.nice == Nice::Lowest {
        let refused = Arc::clone(nice_refused);
        builder.on_thread_start(move || {
            if os::become_nice().is_err() {
                refused.store(true, Ordering::Relaxed);
            }
        });
    }
    builder.build().map_err(|error| Failure::Internal(format!("can't start a tokio runtime: {error}")))
}

/// Spawns on the runtime of a group's role.
#[derive(Debug, Clone)]
pub(crate) struct TokioSpawner {
    handles: Arc<[Handle]>,
}

impl Spawner for TokioSpawner {
    type Join = TokioJoin;

    fn spawn<F>(&self, group: GroupIndex, task: F) -> TokioJoin
    where
        F: Future<Output = Moment> + Send + 'static,
    {
        TokioJoin(self.handles[group.0].spawn(task))
    }

    fn compute(computing: Computing<'_>) -> impl Future<Output = ()> + Send {
        compute_here(computing)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        ::tokio::task::yield_now()
    }

    fn sleep(span: Duration) -> impl Future<Output = ()> + Send {
        ::tokio::time::sleep(span)
    }
}

/// Awaits a task.
#[derive(Debug)]
pub(crate) struct TokioJoin(JoinHandle<Moment>);

impl Future for TokioJoin {
    type Output = Option<Moment>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Moment>> {
        Pin::new(&mut self.0).poll(context).map(Result::ok)
    }
}
