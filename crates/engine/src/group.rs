//! The handles of a group: what users hold, what tasks hold, and what ends a group.
//!
//! A group lives as long as anything refers to it: a [`Group`], or a task through its [`GroupPort`]. Tasks spawned on
//! different CPUs refer to different ports, each counting references on a line of its own; the ports refer to the node.
//!
//! Knows nothing of clocks: those are in the machine's table, under the group's id.

use crate::machine::AnyMachine;
use evenkeel_core::{GroupId, MaskId};
use std::fmt;
use std::sync::Arc;

/// One group, while it lives.
pub(crate) struct GroupNode {
    machine: Arc<dyn AnyMachine>,
    id: GroupId,
    name: Box<str>,
    limit: Limit,
    mask: MaskId,
}

/// Whether the tasks of a group are counted against a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Any number of tasks; they are not counted.
    None,
    /// At most so many tasks at a time.
    Tasks(u64),
}

impl GroupNode {
    pub(crate) fn new(machine: Arc<dyn AnyMachine>, id: GroupId, name: Box<str>, limit: Limit, mask: MaskId) -> Self {
        GroupNode { machine, id, name, limit, mask }
    }

    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// Where its tasks may run, unless they have a mask of their own within it.
    pub(crate) fn mask(&self) -> MaskId {
        self.mask
    }
}

impl fmt::Debug for GroupNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupNode").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for GroupNode {
    fn drop(&mut self) {
        self.machine.close_group(self.id);
    }
}

/// A share of the references to a group: one per CPU that spawns into it, and one per handle made outside.
#[derive(Debug)]
pub(crate) struct GroupPort {
    node: Arc<GroupNode>,
}

impl GroupPort {
    pub(crate) fn new(node: Arc<GroupNode>) -> Arc<Self> {
        Arc::new(GroupPort { node })
    }

    pub(crate) fn node(&self) -> &Arc<GroupNode> {
        &self.node
    }

    pub(crate) fn machine(&self) -> &Arc<dyn AnyMachine> {
        &self.node.machine
    }

    pub(crate) fn id(&self) -> GroupId {
        self.node.id
    }

    /// A task of the group has ended.
    pub(crate) fn retire(&self) {
        if self.node.limit != Limit::None {
            self.machine().retire(self.id());
        }
    }
}
