//! A multi-core task runtime that shares CPUs between *groups* of tasks, by weight.
//!
//! One group per tenant, query or request class: a burst of one leaves the others their share, and an idle share is
//! used by whoever has work.
//!
//! ```
//! let runtime = evenkeel::Runtime::builder().workers(2).build()?;
//! let batch = runtime.group("batch").weight(1).build()?;
//! let quiet = runtime.group("quiet").weight(10).build()?;
//!
//! let sum = batch.spawn(async { (1..=1_000u64).sum::<u64>() });
//! let answer = quiet.spawn(async { 42 });
//! let (sum, answer) = runtime.block_on(async { (sum.await, answer.await) });
//! assert_eq!((sum?, answer?), (500_500, 42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Tasks are futures, polled by worker threads. A task runs until it awaits something that is not ready; a long
//! computation should call [`checkpoint`] in its loops. Resources of other runtimes (channels, sockets) work, but do not
//! yield by themselves on these threads.
//!
//! This crate is the engine's host on threads: workers, parking, time, affinity. It knows nothing of how tasks are shared
//! out; the crate `evenkeel-engine` decides that, on any host.

pub mod affinity;
pub mod available;
mod block_on;
mod builder;
mod clock;
#[cfg(test)]
mod fixture;
mod runtime;
mod threads;
pub mod work;

pub use affinity::Pin;
pub use builder::{BuildError, Builder};
pub use evenkeel_core::histogram::Histogram;
pub use evenkeel_core::site::Site;
pub use evenkeel_core::switches::Claim;
pub use evenkeel_core::{CpuId, CpuMask, CpuMaskError, GroupId, Span, Time, Weight, WeightOutOfRange};
pub use evenkeel_engine::api::{
    Checkpoint, CpuStats, CpusError, Elapsed, Group, GroupBuilder, GroupError, GroupStats, Handle, JoinError,
    JoinHandle, Load, LockStats, NoRuntime, Run, Sleep, SpawnError, Stats, SwitchError, Switches, Timeout, YieldNow,
    checkpoint, compute, current_cpu, now, run, sleep, sleep_until, spawn, timeout, yield_now,
};
pub use runtime::Runtime;
