//! Many CPUs: tasks, locks, wake, steal, balance. Generic over the [`host::Host`] that carries it out.
//!
//! Knows nothing of threads, of the time of day, or of how a CPU parks. Has no global state but what `context`
//! keeps per thread; two machines can run in one process. Draws no entropy that was not seeded.
//!
//! # Where to start
//! - `driver`: what a CPU does with its time, step by step.
//! - `machine`: what happens when a task becomes runnable; the sharing rule is in `machine/clocks.rs`.
//! - [`inbox`], [`idle`], [`ownership`], [`deadline`]: the lock-free pieces, each with a page beside it.
//! - [`host`]: the seam.
//! - [`api`]: what users call.
//!
//! # Invariants
//! - I1: a group's `waiting_cpus` is the number of CPUs on which it has a task queued.
//! - I2: what a group was charged, times its weight, is the time that it ran, up to one unit per settlement, while its
//!   weight did not change.
//! - I3: a clock decreases only by a settlement, by at most what was reserved: a slice at most.
//! - I4: a stored key of a lazy queue exceeds the clock by at most one slice per CPU that runs the group.
//! - I5: a group with something waiting is not raised.
//! - I6: a task is polled only on CPUs of its mask.
//! - C1: a task is in exactly one place: running, in an inbox, queued, on its way, suspended, or gone.
//! - C2: no lock is held across user code, and no call from inside a poll, a waker or a destructor takes that of a queue.

pub mod api;
mod context;
mod cpu;
pub mod deadline;
mod driver;
mod group;
pub mod host;
pub mod idle;
pub mod inbox;
mod lock_count;
mod machine;
mod masked;
mod masks;
pub mod ownership;
mod seat;
mod table;
mod task;
#[cfg(feature = "test-host")]
pub mod test_host;
mod timer;
mod words;

pub use driver::{Driver, Step};
pub use machine::{Charging, Config, Machine, Raising, SLICE_DEFAULT};
