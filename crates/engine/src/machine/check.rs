//! Checks of the invariants by recomputation. Only where nothing moves meanwhile: the single-threaded host, tests.
//!
//! Knows nothing of how the figures came about.

use super::{Machine, MachinePhase};
use crate::host::{At, Host, Shared, Site};
use evenkeel_core::{GroupId, Span, Vspan, Weight};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

impl<H: Host> Machine<H> {
    /// Recomputes I1 (`waiting_cpus`), I2 (charges against time run) and I4 (stored keys), and panics with the number of
    /// one that does not hold. Call when no CPU is inside [`crate::Driver::step`].
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        let at = At::outside(Site::Count);
        if self.machine_phase(at) != MachinePhase::Running {
            return;
        }
        self.check_waiting(at);
        self.check_charges(at);
        self.check_keys(at);
    }

    fn check_waiting(&self, at: At) {
        let mut counted: BTreeMap<GroupId, u64> = BTreeMap::new();
        for cpu in &self.cpus {
            for group in self.lock(at, cpu.id).fair.counted() {
                *counted.entry(group).or_default() += 1;
            }
        }
        for group in self.table.alive(at) {
            let waiting = self.table.row(group).line.waiting_cpus.load(at, Relaxed);
            let expected = counted.get(&group).copied().unwrap_or(0);
            assert_eq!(waiting, expected, "I1: waiting_cpus of group {group}");
        }
    }

    fn check_charges(&self, at: At) {
        for stats in self.table.stats(at) {
            let line = &self.table.row(stats.id).line;
            if !cfg!(debug_assertions) || line.weight_changes.load(at, Relaxed) > 0 {
                continue;
            }
            let unpublished: Span = self.unpublished(at, stats.id);
            let run = Vspan::of(stats.run.plus(unpublished), stats.weight).units();
            let charged = line.charged.load(at, Relaxed);
            let slack = line.settlements.load(at, Relaxed) + 1;
            assert!(run.abs_diff(charged) <= slack, "I2: group {} was charged {charged} units for {run}", stats.id);
        }
    }

    /// Time of the group that its CPUs have not added to its row yet.
    fn unpublished(&self, at: At, group: GroupId) -> Span {
        let run = self.cpus.iter().map(|cpu| {
            let queue = self.lock(at, cpu.id);
            queue.fair.find(group).map_or(Span::ZERO, |slot| queue.fair.payload(slot).tally.run)
        });
        run.fold(Span::ZERO, Span::plus)
    }

    fn check_keys(&self, at: At) {
        let cpus = self.cpus.len() as u64;
        for cpu in &self.cpus {
            for (group, key) in self.lock(at, cpu.id).fair.stored_keys() {
                let row = self.table.row(group);
                if row.line.weight_changes.load(at, Relaxed) > 0 {
                    continue;
                }
                let weight: Weight = row.weight(at);
                let slack = Vspan::of(self.config.slice, weight).times(cpus);
                assert!(!row.clock(at).plus(slack).is_before(key), "I4: a key of group {group} is too far ahead");
            }
        }
    }
}
