//! What a benchmark needs of a runtime, and tokio's answer.
//!
//! Knows nothing of the benchmarks. Channels and signals are not part of it: both targets use those of
//! `tokio::sync`, so that a difference is one of the runtimes.

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::str::FromStr;

use super::error::BenchError;
use super::size::Size;

/// The name of the target that stands above the line of every ratio.
pub(super) const OURS: &str = "evenkeel";

/// A runtime that benchmarks run on. Dropping it ends its workers.
pub(super) trait Rt: Sized + 'static {
    /// The name in tables and files.
    const NAME: &'static str;

    /// Why a task has no result.
    type Lost: fmt::Display + Send;

    /// A spawned task; detaches when dropped.
    type Join<T: Send + 'static>: Future<Output = Result<T, Self::Lost>> + Send + 'static;

    /// A new runtime with the workers and switches of `setup`.
    fn build(setup: &Setup) -> Result<Self, BenchError>;

    /// Runs `future` on the calling thread.
    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// Spawns from outside.
    fn spawn_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Spawns from inside a task.
    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Gives way to the other tasks.
    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// A runtime with groups.
pub(super) trait Grouped: Rt {
    /// A cheap handle of a group.
    type Group: Send + Sync + 'static;

    /// A new group of the default weight.
    fn group(&self, name: String) -> Result<Self::Group, BenchError>;

    /// Spawns into a group, from inside a task.
    fn spawn_in<F>(group: &Self::Group, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;
}

/// How every runtime of an invocation is built, and how much each benchmark does on it.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) workers: NonZeroUsize,
    pub(super) switches: Vec<Switch>,
    pub(super) size: Size,
}

/// A feature switch of Evenkeel and its value, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(super) name: String,
    pub(super) value: String,
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err("expected SWITCH=VALUE, for example claim=try-victim".to_owned()),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.value)
    }
}

/// tokio's multi-thread runtime.
#[derive(Debug)]
pub(super) struct Tokio(tokio::runtime::Runtime);

impl Rt for Tokio {
    const NAME: &'static str = "tokio";

    type Lost = tokio::task::JoinError;
    type Join<T: Send + 'static> = tokio::task::JoinHandle<T>;

    fn build(setup: &Setup) -> Result<Self, BenchError> {
        // With its timers on, as everybody has them.
        let built =
            tokio::runtime::Builder::new_multi_thread().worker_threads(setup.workers.get()).enable_all().build();
        built.map(Self).map_err(|why| BenchError::Build { on: Self::NAME, why: why.to_string() })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(future)
    }

    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_a_name_and_a_value() {
        let switch: Switch = "claim=try-victim".parse().unwrap();
        assert_eq!(switch, Switch { name: "claim".to_owned(), value: "try-victim".to_owned() });
        assert_eq!(switch.to_string(), "claim=try-victim");
    }

    #[test]
    fn half_a_switch_is_refused() {
        for text in ["claim", "claim=", "=block", ""] {
            assert!(text.parse::<Switch>().is_err(), "{text:?} was accepted");
        }
    }
}
