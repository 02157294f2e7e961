//! Groups as users see them.
//!
//! Knows nothing of clocks.

use crate::context;
use crate::group::{GroupPort, Limit};
use crate::machine::{AnyMachine, OpenGroupError, make_group};
use crate::masks::CpusError;
use crate::table::Admission;
use crate::task::{self, JoinHandle, Reason};
use evenkeel_core::{CpuMask, GroupId, MaskId, Weight, WeightOutOfRange};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// Tasks that share one weight. Cheap to clone; ends with its last handle and task.
///
/// Runtimes divide CPU time between groups that have runnable tasks, by weight, on all their CPUs together.
#[derive(Clone)]
pub struct Group {
    port: Arc<GroupPort>,
}

/// Makes a [`Group`]: see [`super::Handle::group`].
#[derive(Debug)]
#[must_use = "call build()"]
pub struct GroupBuilder {
    machine: Arc<dyn AnyMachine>,
    name: String,
    weight: u32,
    limit: Limit,
    cpus: Option<CpuMask>,
}

impl GroupBuilder {
    pub(super) fn new(machine: Arc<dyn AnyMachine>, name: String) -> Self {
        GroupBuilder { machine, name, weight: Weight::DEFAULT.get(), limit: Limit::None, cpus: None }
    }

    /// Its share relative to other groups, 1 to 10,000. The default is 100.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// At most so many tasks at a time; more are refused. No limit by default.
    pub fn max_tasks(mut self, most: usize) -> Self {
        self.limit = Limit::Tasks(most as u64);
        self
    }

    /// Its tasks run on these CPUs only: numbers of workers on threads, from 0, and of simulated CPUs on a simulated
    /// machine. All CPUs by default. Cannot be changed later.
    ///
    /// A worker's thread runs where the operating system lets it, unless it is pinned: a mask names workers, not
    /// processors.
    pub fn cpus(mut self, cpus: CpuMask) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Makes the group.
    ///
    /// # Errors
    /// If the weight is out of range, the mask is empty or names a CPU that the runtime doesn't have, the runtime is
    /// stopping, there are millions of groups, or tens of thousands of different masks.
    pub fn build(self) -> Result<Group, GroupError> {
        let weight = Weight::new(self.weight).map_err(GroupError::Weight)?;
        let port = make_group(&self.machine, &self.name, weight, self.limit, self.cpus.as_ref());
        let port = port.map_err(|error| match error {
            OpenGroupError::Stopping => GroupError::Stopping,
            OpenGroupError::TableFull => GroupError::TooMany,
            OpenGroupError::Cpus(error) => GroupError::Cpus(error),
        })?;
        Ok(Group { port })
    }
}

/// Why a group could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GroupError {
    /// The weight is out of range.
    Weight(WeightOutOfRange),
    /// The runtime is stopping.
    Stopping,
    /// The runtime has as many groups as it can.
    TooMany,
    /// Its tasks could not run on these CPUs.
    Cpus(CpusError),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Weight(error) => error.fmt(f),
            GroupError::Stopping => f.write_str("the runtime is stopping"),
            GroupError::TooMany => f.write_str("the runtime has as many groups as it can"),
            GroupError::Cpus(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GroupError {}

/// Why a task was not spawned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// The group has as many tasks as it may have: see [`GroupBuilder::max_tasks`].
    Full,
    /// The runtime is stopping.
    Stopping,
    /// It could not run on these CPUs: see [`Group::spawn_on`].
    Cpus(CpusError),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::Full => f.write_str("the group has reached max_tasks"),
            SpawnError::Stopping => f.write_str("the runtime is stopping"),
            SpawnError::Cpus(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SpawnError {}

impl Group {
    pub(super) fn of(port: Arc<GroupPort>) -> Self {
        Group { port }
    }

    /// Spawns a task into this group. What the task spawns by itself joins the same group.
    ///
    /// If the group is full or the runtime stopping, the future is dropped and the handle resolves to an error.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn(future).unwrap_or_else(refused)
    }

    /// Spawns a task into this group that runs on these CPUs only, of those that the group may use.
    ///
    /// The mask is the task's alone: what it spawns by itself may run wherever the group may.
    ///
    /// If the group is full, the runtime stopping, or there is no such CPU, the future is dropped and the handle resolves
    /// to an error: see [`JoinError::has_no_cpu`](super::JoinError::has_no_cpu).
    pub fn spawn_on<F>(&self, cpus: &CpuMask, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_on(cpus, future).unwrap_or_else(refused)
    }

    /// Spawns a task into this group, or says why not.
    ///
    /// # Errors
    /// If the group is full or the runtime stopping. The future is dropped.
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.launch(self.port.node().mask(), future)
    }

    /// Spawns a task into this group that runs on these CPUs only, or says why not: see [`Group::spawn_on`].
    ///
    /// # Errors
    /// If the mask is empty, names a CPU that the runtime doesn't have, or none that the group may use; if the group is full
    /// or the runtime stopping. The future is dropped.
    pub fn try_spawn_on<F>(&self, cpus: &CpuMask, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let machine = self.port.machine();
        let mask = machine.mask_within(cpus, self.port.node().mask()).map_err(SpawnError::Cpus)?;
        self.launch(mask, future)
    }

    fn launch<F>(&self, mask: MaskId, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self.port.machine().admit(self.port.node()) {
            Admission::Admitted => {}
            Admission::Full => return Err(SpawnError::Full),
            Admission::Stopping => return Err(SpawnError::Stopping),
        }
        let (runnable, handle) = task::create(self.near_port(), mask, future);
        task::launch(&self.port, runnable);
        Ok(handle)
    }

    /// The port that counts on the calling CPU, if the caller drives one.
    fn near_port(&self) -> Arc<GroupPort> {
        let near = context::with(|current| {
            let (_, seat) = current?.seat_in(&self.port)?;
            Some(seat.port_of(self.port.node()))
        });
        near.unwrap_or_else(|| Arc::clone(&self.port))
    }

    /// Its name. Names may repeat.
    pub fn name(&self) -> &str {
        self.port.node().name()
    }

    /// Its id, unique among the groups alive in its runtime.
    pub fn id(&self) -> GroupId {
        self.port.id()
    }

    /// The CPUs that its tasks may use.
    pub fn cpus(&self) -> CpuMask {
        self.port.machine().cpus_of(self.port.node().mask())
    }

    /// Its weight.
    pub fn weight(&self) -> u32 {
        self.port.machine().weight(self.id()).get()
    }

    /// Changes its weight, from the next pick on. What it has received so far stays as it was charged.
    ///
    /// # Errors
    /// If the weight is not 1 to 10,000.
    pub fn set_weight(&self, weight: u32) -> Result<(), WeightOutOfRange> {
        self.port.machine().set_weight(self.id(), Weight::new(weight)?);
        Ok(())
    }
}

/// The handle of a task that was not spawned.
fn refused<T>(error: SpawnError) -> JoinHandle<T> {
    JoinHandle::refused(match error {
        SpawnError::Full => Reason::Full,
        SpawnError::Stopping => Reason::Cancelled,
        SpawnError::Cpus(error) => Reason::Cpus(error),
    })
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("weight", &self.weight())
            .finish()
    }
}
