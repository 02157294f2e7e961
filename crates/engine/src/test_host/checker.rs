//! Watches one step of one CPU for what a look at a single moment can't tell: I5.
//!
//! Knows nothing of events.

use super::Virtual;
use crate::machine::{Machine, Raises};
use evenkeel_core::CpuId;

/// What was seen before the step.
#[derive(Debug, Default)]
pub(super) struct Checker {
    before: Raises,
}

impl Checker {
    pub(super) fn before(&mut self, machine: &Machine<Virtual>, cpu: CpuId) {
        self.before = machine.raises(cpu);
    }

    pub(super) fn after(&self, machine: &Machine<Virtual>, cpu: CpuId) {
        machine.check();
        machine.check_raises(cpu, &self.before);
    }
}
