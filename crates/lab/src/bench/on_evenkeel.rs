//! Evenkeel's answer to what a benchmark needs of a runtime.

use std::future::Future;

use evenkeel::{Group, JoinError, JoinHandle, Runtime};

use super::error::BenchError;
use super::target::{Grouped, OURS, Rt, Setup};

/// Evenkeel on threads.
pub(super) struct Evenkeel(Runtime);

impl Rt for Evenkeel {
    const NAME: &'static str = OURS;

    type Lost = JoinError;
    type Join<T: Send + 'static> = JoinHandle<T>;

    fn build(setup: &Setup) -> Result<Self, BenchError> {
        let built = Runtime::builder().workers(setup.workers.get()).name("bench").build();
        let rt = built.map_err(|why| BenchError::Build { on: Self::NAME, why: why.to_string() })?;
        for switch in &setup.switches {
            rt.switches()
                .set(&switch.name, &switch.value)
                .map_err(|why| BenchError::Switch { switch: switch.to_string(), why: why.to_string() })?;
        }
        Ok(Self(rt))
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
        evenkeel::spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        evenkeel::yield_now()
    }
}

impl Grouped for Evenkeel {
    type Group = Group;

    fn group(&self, name: String) -> Result<Self::Group, BenchError> {
        self.0.group(name).build().map_err(|why| BenchError::Build { on: Self::NAME, why: why.to_string() })
    }

    fn spawn_in<F>(group: &Self::Group, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        group.spawn(future)
    }
}
