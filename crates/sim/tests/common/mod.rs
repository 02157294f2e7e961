//! Short words for tests.

use evenkeel_core::Span;
use evenkeel_engine::api::{self, Group};
use evenkeel_sim::machine::Machine;

#[allow(dead_code, reason = "each test program uses some")]
pub(crate) fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

#[allow(dead_code, reason = "each test program uses some")]
pub(crate) fn ns(nanos: u64) -> Span {
    Span::from_nanos(nanos)
}

#[allow(dead_code, reason = "each test program uses some")]
pub(crate) fn machine(name: &str) -> Machine {
    Machine::named(name).unwrap()
}

/// Spawns tasks that compute for ever, giving way after each piece.
#[allow(dead_code, reason = "each test program uses some")]
pub(crate) fn spin_in(group: &Group, tasks: usize, piece: Span) {
    for _ in 0..tasks {
        drop(group.spawn(async move {
            loop {
                api::compute(piece.into());
                api::yield_now().await;
            }
        }));
    }
}
