//! Checks of the invariants by recomputation. Only where nothing moves meanwhile: the single-threaded host, tests.
//!
//! I3, and that a reservation is settled once, are asserted where clocks are written (`clocks`).
//!
//! Knows nothing of how the figures came about.

use super::{Machine, MachinePhase};
use crate::host::{At, Host, Shared, Site};
#[cfg(feature = "test-host")]
use evenkeel_core::CpuId;
use evenkeel_core::{GroupId, MaskId, Span, Vspan, Weight};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

impl<H: Host> Machine<H> {
    /// Recomputes I1 (`waiting_cpus`), I2 (charges against time run, reservations against who runs), I4 (stored keys), I6
    /// (where tasks with masks wait) and what is shown of these (K1, K2), and panics with the number of one that does not
    /// hold. Call when no CPU is inside [`crate::Driver::step`].
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
        self.check_reservations(at);
        self.check_keys(at);
        self.check_masks(at);
    }

    /// Nothing waits where it may not run: there it would be polled.
    fn check_masks(&self, at: At) {
        for cpu in &self.cpus {
            let queue = self.lock(at, cpu.id);
            queue.masked.check(cpu.id, &self.masks);
            let mut masked: BTreeMap<MaskId, usize> = BTreeMap::new();
            for (share, common, lanes) in queue.fair.contents() {
                let all = lanes.into_iter().chain([(share.mask, common)]).filter(|(_, count)| *count > 0);
                for (mask, count) in all {
                    assert!(self.masks.allows(mask, cpu.id), "I6: a task waits on CPU {}, not of its mask", cpu.id);
                    *masked.entry(mask).or_default() += count;
                }
            }
            masked.remove(&MaskId::ALL);
            let counted: BTreeMap<MaskId, usize> = queue.masked.counts().iter().copied().collect();
            assert_eq!(counted, masked, "K1: what waits on CPU {}", cpu.id);
        }
    }

    fn check_waiting(&self, at: At) {
        let mut counted: BTreeMap<GroupId, u64> = BTreeMap::new();
        for cpu in &self.cpus {
            let queue = self.lock(at, cpu.id);
            let reported: Vec<_> = queue.fair.counted().collect();
            let queued: Vec<_> = queue.fair.queued().collect();
            assert_eq!(reported, queued, "I1: what CPU {} has reported as waiting", cpu.id);
            queued.into_iter().for_each(|group| *counted.entry(group).or_default() += 1);
        }
        for group in self.table.alive(at) {
            let waiting = self.table.row(group).line.waiting_cpus.load(at, Relaxed);
            let expected = counted.get(&group).copied().unwrap_or(0);
            assert_eq!(waiting, expected, "I1: waiting_cpus of group {group}");
        }
    }

    fn check_charges(&self, at: At) {
        for group in self.table.alive(at) {
            let row = self.table.row(group);
            let line = &row.line;
            if !cfg!(debug_assertions) || line.weight_changes.load(at, Relaxed) > 0 {
                continue;
            }
            let published = Span::from_nanos(row.line.run.load(at, Relaxed));
            let run = Vspan::of(published.plus(self.unpublished(at, group)), row.weight(at)).units();
            let charged = line.charged.load(at, Relaxed);
            let slack = line.settlements.load(at, Relaxed) + 1;
            assert!(run.abs_diff(charged) <= slack, "I2: group {group} was charged {charged} units for {run}");
        }
    }

    /// Reserved and not settled: a slice at most for each CPU that runs the group, nothing if none does.
    fn check_reservations(&self, at: At) {
        let mut running: BTreeMap<GroupId, u64> = BTreeMap::new();
        for cpu in &self.cpus {
            if let Some(group) = self.lock(at, cpu.id).running {
                *running.entry(group).or_default() += 1;
            }
        }
        for group in self.table.alive(at) {
            let line = &self.table.row(group).line;
            if !cfg!(debug_assertions) || line.weight_changes.load(at, Relaxed) > 0 {
                continue;
            }
            let slices = running.get(&group).copied().unwrap_or(0);
            let weight = self.table.row(group).weight(at);
            let most = self.reserved_amount(self.config.slice, weight).times(slices).units();
            let reserved = line.reserved.load(at, Relaxed);
            assert!(
                reserved <= most,
                "I2: {reserved} reserved and not settled of group {group}, which runs on {slices} CPUs"
            );
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

/// How often each group was raised, and on how many CPUs beside one it had tasks waiting.
#[cfg(feature = "test-host")]
#[derive(Debug, Default)]
pub(crate) struct Raises(BTreeMap<GroupId, RaisesOfGroup>);

#[cfg(feature = "test-host")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct RaisesOfGroup {
    raises: u64,
    waiting_elsewhere: usize,
}

#[cfg(feature = "test-host")]
impl<H: Host> Machine<H> {
    /// For [`Machine::check_raises`], before a step of `cpu`.
    pub(crate) fn raises(&self, cpu: CpuId) -> Raises {
        let at = At::outside(Site::Count);
        let mut groups: BTreeMap<GroupId, RaisesOfGroup> = BTreeMap::new();
        for other in self.cpus.iter().filter(|other| other.id != cpu) {
            let queue = self.lock(at, other.id);
            for group in queue.fair.queued() {
                groups.entry(group).or_default().waiting_elsewhere += 1;
            }
        }
        for (group, of) in &mut groups {
            of.raises = self.table.row(*group).line.raises.load(at, Relaxed);
        }
        Raises(groups)
    }

    /// After a step of `cpu`: a group that waited on other CPUs all the while was not raised (I5). Which of them it
    /// waited on is not asked for: a step takes tasks from others or gives them, never both for one group.
    ///
    /// # Panics
    /// If one was.
    pub(crate) fn check_raises(&self, cpu: CpuId, before: &Raises) {
        let after = self.raises(cpu);
        for (group, was) in &before.0 {
            let Some(is) = after.0.get(group) else { continue };
            assert_eq!(was.raises, is.raises, "I5: group {group} was raised while it waited elsewhere");
        }
    }
}
