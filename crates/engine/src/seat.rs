//! What only the thread that drives a CPU touches, from inside a poll too.
//!
//! Knows nothing of other CPUs. Every use from inside a poll is preceded by the check of [`crate::ownership`]
//! (`Current::seat`).

use crate::group::{GroupNode, GroupPort};
use crate::ownership::Epoch;
use crate::task::{Runnable, TaskRef};
use evenkeel_core::{CpuId, Time};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

/// Ports kept per CPU: a spawn counts on its own CPU's port of the group. Guess: more groups than one slice meets.
const PORTS: usize = 16;

/// Calls of the runtime's own primitives between two looks at the clock within one poll. Guess, of the order of
/// tokio's budget per poll.
const CALLS_PER_LOOK: u32 = 32;

/// The driver's side of a CPU.
pub(crate) struct Seat {
    cpu: CpuId,
    epoch: Epoch,
    /// The task in its poll, which was woken meanwhile (or has yielded): runnable once the poll is over.
    requeue: Cell<Option<Runnable>>,
    /// The task in its poll, if it suspended for the first time. Several, if a poll polls by hand.
    suspended: RefCell<Vec<TaskRef>>,
    ports: RefCell<[Option<Arc<GroupPort>>; PORTS]>,
    /// The port of the group whose slice this is.
    running: RefCell<Option<Arc<GroupPort>>>,
    pub(crate) slice_end: Cell<Time>,
    /// Tasks that were left waiting here when the current poll began.
    pub(crate) left_waiting: Cell<usize>,
    /// Whether polls here are short on average, so that a kick may be put off.
    pub(crate) is_brisk: Cell<bool>,
    calls: Cell<u32>,
    /// The task in its poll is to go on at once: it has declared work, which is done by then.
    goes_on: Cell<bool>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("cpu", &self.cpu).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Seat {
    pub(crate) fn new(cpu: CpuId, epoch: Epoch) -> Self {
        Seat {
            cpu,
            epoch,
            requeue: Cell::new(None),
            suspended: RefCell::default(),
            ports: RefCell::default(),
            running: RefCell::default(),
            slice_end: Cell::new(Time::ZERO),
            left_waiting: Cell::new(0),
            is_brisk: Cell::new(true),
            calls: Cell::new(0),
            goes_on: Cell::new(false),
        }
    }

    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The task in its poll becomes runnable again. At most once per poll: the cell calls when its poll has ended.
    pub(crate) fn requeue(&self, runnable: Runnable) {
        let before = self.requeue.replace(Some(runnable));
        assert!(before.is_none(), "a poll requeued two tasks");
    }

    pub(crate) fn take_requeue(&self) -> Option<Runnable> {
        self.requeue.take()
    }

    pub(crate) fn register(&self, task: TaskRef) {
        self.suspended.borrow_mut().push(task);
    }

    pub(crate) fn take_suspended(&self) -> Option<TaskRef> {
        self.suspended.borrow_mut().pop()
    }

    /// The task in its poll has declared work and is to go on when it is done.
    pub(crate) fn note_goes_on(&self) {
        self.goes_on.set(true);
    }

    /// Whether the task whose poll has returned is to go on.
    pub(crate) fn take_goes_on(&self) -> bool {
        self.goes_on.take()
    }

    /// Counts a call of a primitive; whether it is time to look at the clock.
    pub(crate) fn counts_call(&self) -> bool {
        self.calls.set(self.calls.get().wrapping_add(1));
        self.calls.get().is_multiple_of(CALLS_PER_LOOK)
    }

    /// This CPU's port of a group.
    pub(crate) fn port_of(&self, node: &Arc<GroupNode>) -> Arc<GroupPort> {
        let place = node.id().index() % PORTS;
        let mut ports = self.ports.borrow_mut();
        match &ports[place] {
            Some(port) if Arc::ptr_eq(port.node(), node) => Arc::clone(port),
            _ => {
                let port = GroupPort::new(Arc::clone(node));
                ports[place] = Some(Arc::clone(&port));
                port
            }
        }
    }

    /// Lets go of the ports that nothing else uses, so that their groups can end.
    pub(crate) fn prune_ports(&self) {
        for port in self.ports.borrow_mut().iter_mut() {
            if port.as_ref().is_some_and(|port| Arc::strong_count(port) == 1) {
                *port = None;
            }
        }
    }

    /// Lets go of all ports: a CPU that parks must not keep a group whose tasks end elsewhere meanwhile.
    pub(crate) fn clear_ports(&self) {
        self.ports.borrow_mut().iter_mut().for_each(|port| *port = None);
    }

    /// The port of the group that runs here: what a spawn inherits.
    pub(crate) fn running(&self) -> Option<Arc<GroupPort>> {
        self.running.borrow().clone()
    }

    pub(crate) fn set_running(&self, port: Option<Arc<GroupPort>>) {
        *self.running.borrow_mut() = port;
    }
}
