//! Policy: owned data and pure functions from which the engine builds a scheduler.
//!
//! Knows nothing of atomics, locks, the time of day, threads, or of any CPU but the one whose data it is
//! handed. Everything that changes on its own (a group's clock, the time) comes in as an argument.
//!
//! # Where to start
//! - [`time`], [`weight`], [`vtime`]: the units. No bare integer crosses a function boundary.
//! - [`fair_queue`]: the run queue of one CPU.
//! - [`mask`]: sets of CPUs.
//! - [`balance`]: what a look at another CPU leads to.
//! - [`random`]: how one seed becomes many streams.
//! - [`switches`], [`stats`], [`histogram`]: what can be set and what is counted.
//!
//! # Invariants
//! - Q1: a group is among a queue's waiting groups exactly if tasks of it, or of a descendant, wait there.
//! - Q2: the order is total: clock, then group id.
//! - Q3: `pick` returns a group with the smallest clock, up to the staleness that I4 allows.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod balance;
pub mod fair_queue;
pub mod histogram;
pub mod ids;
pub mod mask;
pub mod random;
pub mod site;
pub mod stats;
pub mod switches;
pub mod time;
pub mod vtime;
pub mod weight;

pub use ids::{CpuId, GroupId, MaskId};
pub use mask::{CpuMask, CpuMaskError};
pub use random::{Purpose, Seed};
pub use time::{Span, Time};
pub use vtime::{Vspan, Vtime};
pub use weight::{Weight, WeightOutOfRange};
