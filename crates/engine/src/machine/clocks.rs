//! The sharing rule: reserve and settle, raise, level.
//!
//! One clock per group, shared by all CPUs: service received anywhere, divided by weight. Charging a turn at its end
//! would let all CPUs pick the same group at once, so what turns of the group usually take, a slice at most, is *reserved*
//! at the pick and *settled* at the end. A group that
//! becomes runnable while none of it waits anywhere is *raised* to the *level*, the smallest clock that waits, less a
//! credit: sleep earns no more than that, and a debt stays.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng 1996) with a clock shared by all CPUs; decision 0001 has what was
//! tried instead.
//!
//! Knows nothing of queues. Clocks are accessed relaxed: a race (two raises, a raise beside a settlement) errs by about
//! one slice.
//!
//! # Invariants
//! - I2: charges settled × weight = time run, up to one unit per settlement, while the weight did not change.
//! - I3: a clock decreases only by a settlement, by at most what was reserved: a slice at most.
//! - I5: a group with something waiting is not raised.

use super::Machine;
use crate::host::{At, Event, Host, Shared, Site};
use evenkeel_core::{GroupId, Span, Time, Vspan, Vtime, Weight};
use std::sync::atomic::Ordering::Relaxed;

/// How old the level may be. A millisecond is a slice: clocks do not move by more than that meanwhile.
const LEVEL_AGE_MAX: Span = Span::from_millis(1);

/// A lead over the level that no group can have earned: the clocks have wrapped around while it slept.
const LEAD_MAX: i64 = i64::MAX / 4;

/// A settlement moves the average length of a group's turns by this part of the difference. Guess: a group that begins
/// to use whole slices is taken for one within some turns.
const TURN_MEMORY: u64 = 4;

/// How far below the level a group may start, in slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credit {
    /// On wake and spawn: one slice, so that its clock is not past that of who runs, and cuts that slice.
    Wake,
    /// When a running task is requeued: three slices, so that a group which had to wait keeps what it is owed. The
    /// simulations of decision 0001: none costs 25 % in trees, eight starve a pinned neighbor.
    Requeue,
}

impl Credit {
    const fn slices(self) -> u64 {
        match self {
            Credit::Wake => 1,
            Credit::Requeue => 3,
        }
    }
}

/// The smallest clock that waits anywhere below one parent, and when it was looked up, in ns.
pub(crate) struct Level<H: Host> {
    clock: H::Shared,
    refreshed: H::Shared,
}

impl<H: Host> Level<H> {
    pub(crate) fn new() -> Self {
        Level { clock: H::Shared::new(0), refreshed: H::Shared::new(0) }
    }
}

/// What a pick reserved of a group's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reservation {
    pub(crate) group: GroupId,
    /// The weight that it was made with; the settlement uses the same.
    weight: Weight,
    amount: Vspan,
    /// The clock before it.
    pub(crate) picked: Vtime,
}

/// An access that only debug builds make.
fn check_at(at: At) -> At {
    At { site: Site::Check, ..at }
}

impl<H: Host> Machine<H> {
    fn charge_at(at: At) -> At {
        At { site: Site::Charge, ..at }
    }

    /// Charges in advance what a turn of the group usually takes: a slice at most.
    pub(crate) fn reserve(&self, at: At, group: GroupId) -> Reservation {
        let at = Self::charge_at(at);
        let row = self.table.row(group);
        let weight = row.weight(at);
        let amount = self.usual_turn(at, group);
        if cfg!(debug_assertions) {
            row.line.reserved.fetch_add(check_at(at), amount.units(), Relaxed);
        }
        let picked = Vtime::from_bits(row.line.clock.fetch_add(at, amount.units(), Relaxed));
        let largest = &self.cpu(at.cpu).poll.picked_max;
        if Vtime::from_bits(largest.load(at, Relaxed)).is_before(picked) {
            largest.store(at, picked.bits(), Relaxed);
        }
        Reservation { group, weight, amount, picked }
    }

    /// What a turn of the group usually costs it, a slice at most.
    pub(super) fn usual_turn(&self, at: At, group: GroupId) -> Vspan {
        let row = self.table.row(group);
        let turn = Span::from_nanos(row.line.turn.load(at, Relaxed));
        self.reserved_amount(turn.min(self.config.slice), row.weight(at))
    }

    pub(super) fn reserved_amount(&self, turn: Span, weight: Weight) -> Vspan {
        match self.config.charging {
            super::Charging::ReserveAndSettle => Vspan::of(turn, weight),
            #[cfg(feature = "test-host")]
            super::Charging::AtEnd => Vspan::ZERO,
        }
    }

    /// Corrects a reservation to what was used.
    pub(crate) fn settle(&self, at: At, reservation: &Reservation, used: Span) {
        let at = Self::charge_at(at);
        let charge = Vspan::of(used, reservation.weight);
        let line = &self.table.row(reservation.group).line;
        let difference = charge.units().wrapping_sub(reservation.amount.units());
        let before = Vtime::from_bits(line.clock.fetch_add(at, difference, Relaxed));
        let after = Vtime::from_bits(before.bits().wrapping_add(difference));
        if H::OBSERVES {
            self.host.observe(at, Event::Clock(reservation.group, after));
        }
        // Relaxed and not an exchange: CPUs that settle at once may lose one of the moves.
        let turn = line.turn.load(at, Relaxed);
        line.turn.store(at, turn - turn / TURN_MEMORY + used.as_nanos() / TURN_MEMORY, Relaxed);
        if cfg!(debug_assertions) {
            let fell = before.ahead_of(after);
            let most = reservation.amount.units();
            assert!(fell <= 0 || fell.unsigned_abs() <= most, "I3: a clock fell by {fell} units of {most} reserved");
            line.reserved.fetch_sub(check_at(at), reservation.amount.units(), Relaxed);
            line.charged.fetch_add(check_at(at), charge.units(), Relaxed);
            line.settlements.fetch_add(check_at(at), 1, Relaxed);
        }
    }

    /// Raises a group that has nothing waiting anywhere to the level less a credit. Call before it is enqueued.
    pub(crate) fn raise(&self, at: At, group: GroupId, now: Time, credit: Credit) {
        let at = At { site: Site::Raise, ..at };
        let row = self.table.row(group);
        // I5: its claim is real.
        if row.line.waiting_cpus.load(at, Relaxed) != 0 {
            return;
        }
        let level = self.level(at, now);
        let floor = level.minus(Vspan::of(self.config.slice, row.weight(at)).times(credit.slices()));
        let mut held = row.line.clock.load(at, Relaxed);
        // Ends: a failed exchange means that another charge or raise went through.
        loop {
            let lead = Vtime::from_bits(held).ahead_of(floor);
            if (0..LEAD_MAX).contains(&lead) {
                return;
            }
            match row.line.clock.compare_exchange(at, held, floor.bits(), Relaxed) {
                Ok(_) => {
                    if H::OBSERVES {
                        self.host.observe(at, Event::Clock(group, floor));
                    }
                    debug_assert!(!(0..LEAD_MAX).contains(&lead), "I3: a raise took {lead} units from a clock");
                    if cfg!(debug_assertions) {
                        row.line.raises.fetch_add(check_at(at), 1, Relaxed);
                    }
                    return;
                }
                Err(changed) => held = changed,
            }
        }
    }

    /// Where a group that becomes runnable starts: the smallest clock that waits, at most a millisecond ago.
    fn level(&self, at: At, now: Time) -> Vtime {
        let refreshed = self.level.refreshed.load(at, Relaxed);
        let stamp = now.as_nanos().max(1);
        let is_old = refreshed == 0 || now.since(Time::from_nanos(refreshed)) >= LEVEL_AGE_MAX;
        // One refreshes; everyone else uses the old value meanwhile.
        if is_old && self.level.refreshed.compare_exchange(at, refreshed, stamp, Relaxed).is_ok() {
            let level = self.smallest_waiting(at);
            // All groups may run everywhere, so the level never falls.
            let held = Vtime::from_bits(self.level.clock.load(at, Relaxed));
            self.level.clock.store(at, held.max(level).bits(), Relaxed);
        }
        Vtime::from_bits(self.level.clock.load(at, Relaxed))
    }

    /// The smallest clock published by any CPU; if nothing waits, the largest that was ever picked.
    fn smallest_waiting(&self, at: At) -> Vtime {
        let smallest = self.cpus.iter().filter_map(|cpu| cpu.waiting.read(at).smallest);
        let least = smallest.map(|smallest| smallest.clock).reduce(Vtime::min);
        let picked = || self.cpus.iter().map(|cpu| Vtime::from_bits(cpu.poll.picked_max.load(at, Relaxed)));
        least.or_else(|| picked().reduce(Vtime::max)).unwrap_or_default()
    }

    /// Lets the clocks of groups start elsewhere than at zero. Before the first group is made.
    #[cfg(feature = "test-host")]
    pub(crate) fn start_clocks_at(&self, start: Vtime) {
        let at = At::outside(Site::Group);
        self.level.clock.store(at, start.bits(), Relaxed);
        self.cpus.iter().for_each(|cpu| cpu.poll.picked_max.store(at, start.bits(), Relaxed));
    }

    /// The clock of a group that is new: as if it woke now.
    pub(crate) fn start_clock(&self, at: At, weight: Weight) -> Vtime {
        let level = Vtime::from_bits(self.level.clock.load(at, Relaxed));
        level.minus(Vspan::of(self.config.slice, weight).times(Credit::Wake.slices()))
    }
}
