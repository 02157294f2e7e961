//! The sharing rule: reserve and settle, raise, level.
//!
//! One clock per group, shared by all CPUs: service received anywhere, divided by weight. Charging a turn at its end
//! would let all CPUs pick the same group at once, so what turns of the group usually take, a slice at most, is *reserved*
//! at the pick and *settled* at the end; a turn that takes longer reserves more. A group that
//! becomes runnable while none of it waits anywhere is *raised* to the *level*, the smallest clock that waits on the CPUs of
//! its mask, less a credit: sleep earns no more than that, and a debt stays. One level for each mask that groups have: who
//! has CPUs of its own runs ahead, and must not carry along those who share theirs (decision 0008).
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
use crate::cpu::Cpu;
use crate::host::{At, Event, Host, LineClass, Shared, Site};
use evenkeel_core::{CpuId, GroupId, MaskId, Span, Time, Vspan, Vtime, Weight};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How old the level may be. A millisecond is a slice: clocks do not move by more than that meanwhile.
const LEVEL_AGE_MAX: Span = Span::from_millis(1);

/// A lead over the level that no group can have earned: the clocks have wrapped around while it slept.
const LEAD_MAX: i64 = i64::MAX / 4;

/// A settlement moves the average length of a group's turns by this part of the difference. Guess: a group that begins
/// to use whole slices is taken for one within some turns.
const TURN_MEMORY: u64 = 4;

/// A turn below this part of a slice may go without a reservation. Guess: that many of them are one more slice of error.
const SHORT_TURNS: u64 = 16;

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

/// The smallest clock that waits on the CPUs of one mask, below one parent, and when it was looked up, in ns.
pub(crate) struct Level<H: Host> {
    clock: H::Shared,
    refreshed: H::Shared,
}

impl<H: Host> Level<H> {
    pub(crate) fn new() -> Self {
        Level { clock: H::Shared::of(LineClass::Level, 0), refreshed: H::Shared::of(LineClass::Level, 0) }
    }
}

/// What a pick reserved of a group's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reservation {
    pub(crate) group: GroupId,
    /// The weight that it was made with; the settlement uses the same.
    weight: Weight,
    amount: Vspan,
    /// How long the turn may take before the amount is too little.
    pub(crate) lasts: Span,
}

/// An access that only debug builds make.
fn check_at(at: At) -> At {
    at.within(Site::Check)
}

impl<H: Host> Machine<H> {
    fn charge_at(at: At) -> At {
        at.within(Site::Charge)
    }

    /// Charges in advance what a turn of the group usually takes: a slice at most.
    pub(crate) fn reserve(&self, at: At, group: GroupId) -> Reservation {
        let at = Self::charge_at(at);
        let row = self.table.row(group);
        let weight = row.weight(at);
        let (amount, lasts) = self.usual_turn(at, group);
        if cfg!(debug_assertions) {
            row.line.reserved.fetch_add(check_at(at), amount.units(), Relaxed);
        }
        let picked = match amount {
            Vspan::ZERO => row.clock(at),
            _ => Vtime::from_bits(row.line.clock.fetch_add(at, amount.units(), Relaxed)),
        };
        let largest = &self.cpu(at.cpu).poll.picked_max;
        if Vtime::from_bits(largest.load(at, Relaxed)).is_before(picked) {
            largest.store(at, picked.bits(), Relaxed);
        }
        Reservation { group, weight, amount, lasts }
    }

    /// Reserves a whole slice for a turn that takes longer than was reserved. A group whose turns are short on average and
    /// now and then long would otherwise be picked by all CPUs at once. Not while nothing of it waits, so that nobody can
    /// pick it: then who wakes meanwhile would have to wait for what nobody has received. Ask again after `next`.
    pub(crate) fn reserve_slice(&self, at: At, reservation: &mut Reservation, next: Span) {
        let at = Self::charge_at(at);
        let line = &self.table.row(reservation.group).line;
        if line.waiting_cpus.load(at, Relaxed) == 0 {
            reservation.lasts = next;
            return;
        }
        let amount = self.reserved_amount(self.config.slice, reservation.weight);
        let missing = amount.units().saturating_sub(reservation.amount.units());
        if cfg!(debug_assertions) {
            line.reserved.fetch_add(check_at(at), missing, Relaxed);
        }
        let before = Vtime::from_bits(line.clock.fetch_add(at, missing, Relaxed));
        if H::OBSERVES {
            let after = Vtime::from_bits(before.bits().wrapping_add(missing));
            self.host.observe(at, Event::Clock(reservation.group, after));
        }
        *reservation = Reservation { amount, lasts: Span::MAX, ..*reservation };
    }

    /// What a turn of the group usually costs it, a slice at most, and how long that lasts. Nothing if it is so short that
    /// turns of it on all CPUs at once would not make a slice: then a second charge per turn is worse than what it corrects.
    pub(super) fn usual_turn(&self, at: At, group: GroupId) -> (Vspan, Span) {
        let row = self.table.row(group);
        let turn = Span::from_nanos(row.line.turn.load(at, Relaxed)).min(self.config.slice);
        match turn > self.short_turn() {
            true => (self.reserved_amount(turn, row.weight(at)), turn),
            false => (Vspan::ZERO, self.short_turn()),
        }
    }

    fn short_turn(&self) -> Span {
        let parts = (self.cpu_count() as u64).max(SHORT_TURNS);
        Span::from_nanos(self.config.slice.as_nanos() / parts)
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
    pub(crate) fn raise(&self, at: At, group: GroupId, mask: MaskId, now: Time, credit: Credit) {
        let at = at.within(Site::Raise);
        let row = self.table.row(group);
        #[cfg(feature = "test-host")]
        if self.config.raising == super::Raising::NotAtRequeue && credit == Credit::Requeue {
            return;
        }
        // I5: its claim is real.
        if row.line.waiting_cpus.load(at, Relaxed) != 0 {
            return;
        }
        let level = self.level(at, mask, now);
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

    /// Where a group of this mask that becomes runnable starts: the smallest clock that waits on the CPUs of the mask, at
    /// most a millisecond ago.
    ///
    /// Whoever finds the level too old looks for itself. If one looked and the others went on with the old value, a group that
    /// wakes on many CPUs at once after a pause would be raised to where the level was before the pause; and the one that
    /// looks would find that clock waiting, and take it for the level.
    fn level(&self, at: At, mask: MaskId, now: Time) -> Vtime {
        #[cfg(feature = "test-host")]
        if self.config.raising == super::Raising::ToLargestPicked {
            return self.largest_picked(at);
        }
        let level = self.level_of(mask);
        // ORDER L1: pairs with the store below. Who sees that the level is fresh sees the fresh level.
        let refreshed = level.refreshed.load(at, Acquire);
        let held = Vtime::from_bits(level.clock.load(at, Relaxed));
        if refreshed != 0 && now.since(Time::from_nanos(refreshed)) < LEVEL_AGE_MAX {
            return held;
        }
        let smallest = self.smallest_waiting(at, mask);
        // While all groups may run everywhere, the level never falls. With masks it may: who comes back to wait here may
        // be far behind those who waited meanwhile, having had less to run on. Of two that look at a time the later one to
        // store may have seen less: by as much as clocks moved during a look.
        let fresh = if self.masks.are_in_use(at) { smallest } else { held.max(smallest) };
        level.clock.store(at, fresh.bits(), Relaxed);
        // ORDER L1.
        level.refreshed.store(at, now.as_nanos().max(1), Release);
        fresh
    }

    fn level_of(&self, mask: MaskId) -> &Level<H> {
        if mask == MaskId::ALL { &self.level } else { &self.masks.row(mask).level }
    }

    /// The smallest clock, by now, of the groups that the CPUs of a mask publish as their smallest; if nothing waits there,
    /// the largest that was ever picked anywhere: a group that was alone there is raised too, at its next requeue.
    fn smallest_waiting(&self, at: At, mask: MaskId) -> Vtime {
        let least = if mask == MaskId::ALL {
            self.least_of(at, self.cpus.iter())
        } else {
            self.least_of(at, self.masks.row(mask).bits().iter().map(|cpu| self.cpu(cpu)))
        };
        least.unwrap_or_else(|| self.largest_picked(at))
    }

    /// The published clocks would do for a few CPUs: they are as old as the slices there, which on many CPUs is dozens of
    /// slices' worth of service.
    fn least_of<'a>(&self, at: At, cpus: impl Iterator<Item = &'a Cpu<H>>) -> Option<Vtime> {
        let smallest = cpus.filter_map(|cpu| cpu.waiting.read(at).smallest);
        smallest.map(|smallest| self.table.row(smallest.group).clock(at)).reduce(Vtime::min)
    }

    fn largest_picked(&self, at: At) -> Vtime {
        let picked = self.cpus.iter().map(|cpu| Vtime::from_bits(cpu.poll.picked_max.load(at, Relaxed)));
        picked.reduce(Vtime::max).unwrap_or_default()
    }

    /// Lets the clocks of groups start elsewhere than at zero. Before the first group is made.
    #[cfg(feature = "test-host")]
    pub(crate) fn start_clocks_at(&self, start: Vtime) {
        let at = At::outside(Site::Group);
        self.level.clock.store(at, start.bits(), Relaxed);
        self.cpus.iter().for_each(|cpu| cpu.poll.picked_max.store(at, start.bits(), Relaxed));
    }

    /// The clock of a group that is new: as if it woke now.
    pub(crate) fn start_clock(&self, at: At, weight: Weight, mask: MaskId) -> Vtime {
        // Without masks an old level will do: it is never past the present one, and the first enqueue raises.
        let level = if mask != MaskId::ALL || self.masks.are_in_use(at) {
            self.level(at, mask, self.host.now(CpuId::OUTSIDE))
        } else {
            Vtime::from_bits(self.level.clock.load(at, Relaxed))
        };
        level.minus(Vspan::of(self.config.slice, weight).times(Credit::Wake.slices()))
    }
}
