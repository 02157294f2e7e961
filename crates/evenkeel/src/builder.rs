//! How a runtime is made.
//!
//! Knows nothing of what runs on it.

use crate::affinity::{self, AffinityError, Caches, Pin, PinPlan};
use crate::available;
use crate::runtime::Runtime;
use evenkeel_core::Span;
use evenkeel_core::switches::{Claim, Switch};
use evenkeel_engine::{Charging, Config, Raising, SLICE_DEFAULT};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Makes a [`Runtime`]: see [`Runtime::builder`].
#[derive(Clone, Debug)]
#[must_use = "call build()"]
pub struct Builder {
    hooks: Hooks,
    workers: Option<usize>,
    name: String,
    pin: Pin,
    slice: Duration,
    seed: u64,
    claim: Claim,
    stack_size: Option<usize>,
}

/// A slice shorter than this would be spent on switching.
const SLICE_MIN: Duration = Duration::from_micros(10);
/// A slice longer than this is nobody's idea of sharing.
const SLICE_MAX: Duration = Duration::from_secs(1);

impl Default for Builder {
    fn default() -> Self {
        Builder {
            hooks: Hooks::default(),
            workers: None,
            name: "evenkeel".to_owned(),
            pin: Pin::Off,
            slice: SLICE_DEFAULT.into(),
            seed: 1,
            claim: Claim::default(),
            stack_size: None,
        }
    }
}

impl Builder {
    /// How many worker threads, and so CPUs, there are.
    ///
    /// By default `EVENKEEL_WORKERS` if that is set, otherwise as many as the process may really use: the smaller of its
    /// affinity mask and the tightest CPU quota of its cgroup and their ancestors, rounded up.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// What worker threads are called, followed by a number. The default is `evenkeel`. Linux shows 15 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Whether worker threads are tied to processors. Off by default.
    pub fn pin(mut self, pin: Pin) -> Self {
        self.pin = pin;
        self
    }

    /// How long a group runs on a CPU before the pick is made anew: 10 µs to 1 s; 1 ms by default.
    pub fn slice(mut self, slice: Duration) -> Self {
        self.slice = slice;
        self
    }

    /// From which random choices are drawn: which CPUs are looked at first. On threads a run does not repeat all the same.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The switch `claim` at the start: see [`crate::Switches`].
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claim = claim;
        self
    }

    /// The stack of each worker thread, in bytes. By default what the standard library gives to threads.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Calls `hook` on each worker thread before its first task: to enter another runtime's context, to name the thread
    /// to a profiler. If it panics, the process ends.
    pub fn on_thread_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Hook(Arc::new(hook)));
        self
    }

    /// Calls `hook` on each worker thread after its last task. If it panics, the process ends.
    pub fn on_thread_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Hook(Arc::new(hook)));
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// If a setting is out of range, `EVENKEEL_WORKERS` holds no number, or the system refuses a thread or a pinning. No
    /// thread is left behind then.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let workers = self.worker_count()?;
        if !(SLICE_MIN..=SLICE_MAX).contains(&self.slice) {
            return Err(BuildError::Slice(self.slice));
        }
        if self.name.contains('\0') {
            return Err(BuildError::Name);
        }
        let plan = match self.pin {
            Pin::Off => None,
            pin => PinPlan::new(pin, &affinity::allowed()?, &Caches::of_this_machine())?,
        };
        let caches = caches_of(plan.as_ref(), workers)?;
        let config = Config {
            caches,
            slice: Span::from(self.slice),
            seed: self.seed,
            charging: Charging::default(),
            raising: Raising::default(),
        };
        let runtime = Runtime::start(config, &self.name, self.stack_size, plan.as_ref(), &self.hooks)?;
        let claim = Switch::Claim(self.claim);
        let set = runtime.switches().set(claim.name(), claim.value());
        debug_assert!(set.is_ok(), "a switch has its own value");
        Ok(runtime)
    }

    fn worker_count(&self) -> Result<usize, BuildError> {
        let asked = match self.workers {
            Some(workers) => Some(workers),
            None => available::workers_from_environment()?,
        };
        match asked {
            Some(workers) if (1..=available::WORKERS_MAX).contains(&workers) => Ok(workers),
            Some(workers) => Err(BuildError::Workers(workers)),
            None => Ok(available::cpus().workers()),
        }
    }
}

/// What a user wants done on worker threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    start: Option<Hook>,
    stop: Option<Hook>,
}

#[derive(Clone)]
struct Hook(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Hooks {
    /// The calling thread begins as a worker.
    pub(crate) fn start(&self) {
        self.start.iter().for_each(|hook| (hook.0)());
    }

    /// The calling thread has been a worker.
    pub(crate) fn stop(&self) {
        self.stop.iter().for_each(|hook| (hook.0)());
    }
}

/// The last-level cache of each worker, by the first of the processors that share it. Threads that are not pinned have
/// no cache of their own: all count as one.
fn caches_of(plan: Option<&PinPlan>, workers: usize) -> Result<Vec<usize>, AffinityError> {
    let Some(plan) = plan else { return Ok(vec![0; workers]) };
    let caches = Caches::of_this_machine();
    let cache_of = |worker: usize| {
        let cpu = plan.cpus_of(worker).iter().next().ok_or(AffinityError::NoCpu)?;
        // `pin = cpu` works without knowing the caches.
        let sharing = caches.sharing_last_level(cpu).ok();
        Ok(sharing.and_then(|cpus| cpus.iter().next()).map_or(0, |first| first.0 as usize))
    };
    (0..workers).map(cache_of).collect()
}

/// Why a runtime could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of workers is out of range.
    Workers(usize),
    /// The slice is out of range.
    Slice(Duration),
    /// The name holds a NUL character.
    Name,
    /// `EVENKEEL_WORKERS` holds no number of workers.
    Environment(available::WorkersVariableError),
    /// The threads could not be pinned.
    Pin(AffinityError),
    /// The system refused a thread.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Workers(workers) => {
                write!(f, "{workers} workers: expected 1 to {}", available::WORKERS_MAX)
            }
            BuildError::Slice(slice) => write!(f, "a slice of {slice:?}: expected {SLICE_MIN:?} to {SLICE_MAX:?}"),
            BuildError::Name => f.write_str("the name of the workers holds a NUL character"),
            BuildError::Environment(error) => error.fmt(f),
            BuildError::Pin(error) => write!(f, "workers can't be pinned: {error}"),
            BuildError::Thread(error) => write!(f, "a worker thread can't be started: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Environment(error) => Some(error),
            BuildError::Pin(error) => Some(error),
            BuildError::Thread(error) => Some(error),
            BuildError::Workers(_) | BuildError::Slice(_) | BuildError::Name => None,
        }
    }
}

impl From<AffinityError> for BuildError {
    fn from(error: AffinityError) -> Self {
        BuildError::Pin(error)
    }
}

impl From<available::WorkersVariableError> for BuildError {
    fn from(error: available::WorkersVariableError) -> Self {
        BuildError::Environment(error)
    }
}
