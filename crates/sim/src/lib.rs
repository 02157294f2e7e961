//! A simulated machine of 1 to 1,024 CPUs in virtual time, which runs the unchanged engine and unchanged tasks.
//!
//! One fiber per CPU, all on one OS thread. Time passes only at cost points: locks, lines of shared words, queue
//! operations, looks at the clock, context switches, kicks, parking, ticks, and the work that tasks declare. So a run is a
//! function of the code, the machine and the seed, and every nanosecond of every CPU is accounted for.
//!
//! Knows nothing of threads, of the time of day, of scenarios or of reports.
//!
//! # Where to start
//! - [`Simulation`]: what runs.
//! - [`machine`]: what it runs on, read from a file.
//! - `world`: virtual time, and who acts next.
//! - `host`: what the engine is lent.
//! - `fiber`: the only file that switches stacks.
//!
//! # Invariants
//! - V1: CPUs act in the order of virtual time; ties in the order in which they were made.
//! - V2: no fiber switch inside a poll, a waker or a destructor of a user: costs met there are paid when it returns.
//! - V3: what a CPU's time went to sums to the time that has passed, to the nanosecond.
//! - V4: no suspended fiber is dropped: a machine that stops lets all of them return. One that failed leaks them.

mod fiber;
mod here;
mod host;
pub mod machine;
mod run;
mod world;

pub use here::{Here, here};
pub use run::{Config, Digest, Failure, Simulation, Speed, StartError};
pub use world::Preemption;
pub use world::account::{Account, Accounting, Activity, Function};
pub use world::events::{Record, RecordKind};
pub use world::lock_stat::{LockStat, SiteLockStat, Times};
