//! Groups as users see them.
//!
//! Knows nothing of clocks.

use crate::context;
use crate::group::{GroupPort, Limit};
use crate::machine::{AnyMachine, OpenGroupError, make_group};
use crate::table::Admission;
use crate::task::{self, JoinHandle, Reason};
use evenkeel_core::{GroupId, Weight, WeightOutOfRange};
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
}

impl GroupBuilder {
    pub(super) fn new(machine: Arc<dyn AnyMachine>, name: String) -> Self {
        GroupBuilder { machine, name, weight: Weight::DEFAULT.get(), limit: Limit::None }
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

    /// Makes the group.
    ///
    /// # Errors
    /// If the weight is out of range, the runtime is stopping, or there are millions of groups.
    pub fn build(self) -> Result<Group, GroupError> {
        let weight = Weight::new(self.weight).map_err(GroupError::Weight)?;
        let port = make_group(&self.machine, &self.name, weight, self.limit).map_err(|error| match error {
            OpenGroupError::Stopping => GroupError::Stopping,
            OpenGroupError::TableFull => GroupError::TooMany,
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
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Weight(error) => error.fmt(f),
            GroupError::Stopping => f.write_str("the runtime is stopping"),
            GroupError::TooMany => f.write_str("the runtime has as many groups as it can"),
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
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpawnError::Full => "the group has reached max_tasks",
            SpawnError::Stopping => "the runtime is stopping",
        })
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
        self.try_spawn(future).unwrap_or_else(|error| {
            JoinHandle::refused(match error {
                SpawnError::Full => Reason::Full,
                SpawnError::Stopping => Reason::Cancelled,
            })
        })
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
        match self.port.machine().admit(self.port.node()) {
            Admission::Admitted => {}
            Admission::Full => return Err(SpawnError::Full),
            Admission::Stopping => return Err(SpawnError::Stopping),
        }
        let (runnable, handle) = task::create(self.near_port(), future);
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

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("weight", &self.weight())
            .finish()
    }
}
