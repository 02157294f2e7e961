//! How faults happen: drawn from streams of their own, and counted.
//!
//! Stalls come to the whole machine at times without memory, each to a CPU drawn evenly. Those that have come are looked at
//! when somebody is about to act, so that a machine on which nothing will happen stays one.
//!
//! Knows nothing of what the delays are for.

use super::lock_stat::Times;
use super::{Cpu, Phase, World};
use crate::faults::{Chance, Delays, FaultKind, Faults, Length, Spread, Stalls};
use crate::world::account::{Activity, Frame};
use crate::world::events::{Record, RecordKind};
use evenkeel_core::{CpuId, Purpose, Seed, Span, Time};

/// What faults have done so far: how often each happened, and how long they were made to last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultStat([Times; FaultKind::ALL.len()]);

impl FaultStat {
    /// How often one kind happened, and for how long. For late kicks and ticks the delays, whatever they made anybody lose;
    /// what was lost is in the accounts: [`Activity::Lost`].
    pub fn of(&self, kind: FaultKind) -> Times {
        self.0[kind as usize]
    }
}

/// The faults of one world.
#[derive(Debug)]
pub(super) struct State {
    faults: Faults,
    cpus: u32,
    /// When the next CPU stalls.
    next_stall: Time,
    streams: [fastrand::Rng; FaultKind::ALL.len()],
    stat: FaultStat,
    /// A fault has taken a CPU's processor away, so that what it had is not what passed.
    takes_processor: bool,
}

/// −ln of a number drawn evenly from 0 to 1, in units of 2^-32. Integers only: the same on every computer.
fn exponential(draw: u64) -> u64 {
    let draw = draw | 1;
    let zeros = draw.leading_zeros();
    // A number from 1 to 2 in units of 2^-63, whose binary logarithm is found digit by digit: squaring doubles it.
    let mut mantissa = draw << zeros;
    let mut fraction = 0_u64;
    for _ in 0..32 {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let digit = u32::from(square >> 127 == 1);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the square is below 2^128, and below 2^127 without the digit"
        )]
        let next = (square >> (63 + digit)) as u64;
        mantissa = next;
        fraction = fraction << 1 | u64::from(digit);
    }
    let log2 = u64::from(63 - zeros) << 32 | fraction;
    let minus_log2 = (64_u64 << 32) - log2;
    // The natural logarithm of 2, in units of 2^-32.
    const LN_2: u128 = 2_977_044_472;
    u64::try_from((u128::from(minus_log2) * LN_2) >> 32).unwrap_or(u64::MAX)
}

/// `mean` × a number in units of 2^-32.
fn scaled(mean: u128, factor: u64) -> Span {
    Span::from_nanos(u64::try_from((mean * u128::from(factor)) >> 32).unwrap_or(u64::MAX))
}

impl Length {
    fn draw(self, random: &mut fastrand::Rng) -> Span {
        match self.spread {
            Spread::Fixed => self.mean,
            Spread::Exponential => scaled(u128::from(self.mean.as_nanos()), exponential(random.u64(..))),
        }
    }
}

impl Stalls {
    /// From one to the next, of any of these CPUs. Never zero, so that time moves on.
    fn gap(self, cpus: u32, random: &mut fastrand::Rng) -> Span {
        let factor = exponential(random.u64(..));
        let nanos = u128::from(factor) * 1_000_000_000 / (u128::from(self.rate) * u128::from(cpus));
        Span::from_nanos(u64::try_from(nanos >> 32).unwrap_or(u64::MAX).max(1))
    }
}

impl State {
    pub(super) fn new(faults: Faults, seed: Seed, cpus: usize) -> State {
        let stream = |purpose| fastrand::Rng::with_seed(seed.stream(purpose, 0));
        let streams = FaultKind::ALL.map(|kind| match kind {
            FaultKind::Stall => stream(Purpose::Stall),
            FaultKind::HolderOff => stream(Purpose::HolderOff),
            FaultKind::LateKick => stream(Purpose::LateKick),
            FaultKind::LateTick => stream(Purpose::LateTick),
        });
        let mut state = State {
            faults: Faults::NONE,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            next_stall: Time::NEVER,
            streams,
            stat: FaultStat::default(),
            takes_processor: false,
        };
        state.set(faults, Time::ZERO);
        state
    }

    /// From `now` on, these faults happen.
    fn set(&mut self, faults: Faults, now: Time) {
        let cpus = self.cpus;
        if faults.stall != self.faults.stall {
            let stream = &mut self.streams[FaultKind::Stall as usize];
            self.next_stall = faults.stall.map_or(Time::NEVER, |stalls| now.after(stalls.gap(cpus, stream)));
        }
        self.faults = faults;
    }

    pub(super) fn next_stall(&self) -> Time {
        self.next_stall
    }

    pub(super) fn takes_processor(&self) -> bool {
        self.takes_processor
    }

    pub(super) fn stat(&self) -> FaultStat {
        self.stat
    }

    /// The stall that is next: which CPU, and how long.
    fn take_stall(&mut self) -> Option<(CpuId, Span)> {
        let stalls = self.faults.stall?;
        let stream = &mut self.streams[FaultKind::Stall as usize];
        let cpu = CpuId::new(stream.u32(0..self.cpus));
        let length = stalls.length.draw(stream);
        self.next_stall = self.next_stall.after(stalls.gap(self.cpus, stream));
        Some((cpu, length))
    }

    fn count(&mut self, kind: FaultKind, length: Span) {
        self.takes_processor |= matches!(kind, FaultKind::Stall | FaultKind::HolderOff);
        self.stat.0[kind as usize].add(length);
    }

    /// How late something is that may be. Draws if it may, and only then.
    pub(super) fn delay(&mut self, kind: FaultKind) -> Span {
        let delays: Option<Delays> = match kind {
            FaultKind::Stall => None,
            FaultKind::HolderOff => self.faults.holder,
            FaultKind::LateKick => self.faults.kick,
            FaultKind::LateTick => self.faults.tick,
        };
        let Some(delays) = delays else { return Span::ZERO };
        let stream = &mut self.streams[kind as usize];
        if stream.u32(0..Chance::CERTAIN.0) >= delays.chance.0 {
            return Span::ZERO;
        }
        let length = delays.length.draw(stream);
        self.count(kind, length);
        length
    }
}

impl Cpu {
    /// What it has waited for until `now`: for what it waits for, and then for what is late.
    pub(super) fn waits(&self, now: Time) -> [(Frame, Span); 3] {
        let (frame, since) = match self.phase {
            Phase::Runs => (Activity::Idle.into(), now),
            Phase::WaitsForLock { since } => (Frame { activity: Activity::LockWait, within: self.last_in }, since),
            Phase::Idle { since } => (Activity::Idle.into(), since),
            Phase::Ended => (Activity::Idle.into(), self.local),
        };
        let (wanted, called) = match self.phase {
            Phase::WaitsForLock { .. } | Phase::Idle { .. } => (self.wanted.max(since).min(now), self.called.min(now)),
            Phase::Runs | Phase::Ended => (now, now),
        };
        [
            (frame, wanted.since(since)),
            (Activity::Lost(FaultKind::LateKick).into(), called.since(wanted)),
            (Activity::Lost(FaultKind::Stall).into(), now.since(called)),
        ]
    }
}

impl World {
    /// From here on, these faults happen.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        if self.now < Time::NEVER {
            self.stall_until(self.now);
        }
        self.faults.set(faults, self.now);
    }

    pub(crate) fn fault_stat(&self) -> FaultStat {
        self.faults.stat()
    }

    /// All stalls that come until `end` have come. Ends: each is followed by a later one.
    pub(super) fn stall_until(&mut self, end: Time) {
        while self.faults.next_stall() <= end {
            self.stall();
        }
    }

    /// The next stall comes.
    pub(super) fn stall(&mut self) {
        let at = self.faults.next_stall();
        let Some((cpu, length)) = self.faults.take_stall() else { return };
        let is_acting = self.acting == Some(cpu);
        let state = &mut self.cpus[cpu.index()];
        if state.phase == Phase::Ended {
            return;
        }
        self.faults.count(FaultKind::Stall, length);
        // Stalls of one CPU that overlap are one.
        let end = at.after(length);
        let more = end.since(at.max(state.stalled_until));
        state.stalled_until = state.stalled_until.max(end);
        let mut seen_at = at;
        if state.phase == Phase::Runs {
            seen_at = at.max(state.local);
            state.local = state.local.after(more);
            state.books.book(Activity::Lost(FaultKind::Stall).into(), more);
            if !is_acting {
                self.agenda.set(cpu.index(), state.local);
            }
        } else if state.called < Time::NEVER {
            self.agenda.set(cpu.index(), state.called.max(state.stalled_until));
        }
        self.stream.add(Record { at: seen_at, cpu, kind: RecordKind::Stall, a: micros(length), b: 0 });
    }

    /// The acting CPU has taken the lock of a run queue, and may lose its processor.
    pub(super) fn may_lose_holder(&mut self) {
        if self.acting.is_some_and(|cpu| cpu != CpuId::OUTSIDE) {
            let length = self.faults.delay(FaultKind::HolderOff);
            if length > Span::ZERO {
                self.record(RecordKind::HolderOff, micros(length), 0);
                self.spend(Activity::Lost(FaultKind::HolderOff), self.place(), length);
            }
        }
    }
}

/// For a record: whole microseconds.
fn micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: f64 = 4_294_967_296.0;

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
    fn the_logarithm_is_one() {
        for draw in [1, 2, 3, 1 << 32, u64::MAX / 3, 1 << 63, u64::MAX / 10 * 9, u64::MAX] {
            let wanted = -((draw | 1) as f64 / 18_446_744_073_709_551_616.0).ln();
            let found = exponential(draw) as f64 / ONE;
            assert!((wanted - found).abs() < 1e-8 * wanted.max(1.0), "{draw}: {found}, not {wanted}");
        }
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
    fn exponential_lengths_have_their_mean_and_their_tail() {
        let mut random = fastrand::Rng::with_seed(1);
        let length = Length { mean: Span::from_micros(100), spread: Spread::Exponential };
        let draws: Vec<_> = (0..100_000).map(|_| length.draw(&mut random).as_nanos()).collect();
        let mean = draws.iter().sum::<u64>() as f64 / 100_000.0;
        assert!((99_000.0..101_000.0).contains(&mean), "{mean}");
        // e^-2 of them are longer than twice the mean.
        let long = draws.iter().filter(|nanos| **nanos > 200_000).count();
        assert!((13_200..13_900).contains(&long), "{long}");
    }

    fn delays(text: &str, kind: FaultKind, before: impl Fn(&mut State)) -> Vec<Span> {
        let mut state = State::new(text.parse().unwrap(), Seed::new(3), 4);
        before(&mut state);
        (0..200).map(|_| state.delay(kind)).collect()
    }

    #[test]
    fn draws_of_one_kind_shift_no_other() {
        let alone = delays("kick=exp:20us@30%", FaultKind::LateKick, |_| {});
        let text = "stall=1us@100/s,kick=exp:20us@30%,tick=exp:5us@50%,holder=exp:9us@70%";
        let beside = delays(text, FaultKind::LateKick, |state| {
            for _ in 0..77 {
                let _ = (state.delay(FaultKind::LateTick), state.delay(FaultKind::HolderOff), state.take_stall());
            }
        });
        assert_eq!(alone, beside);
        assert_ne!(alone, delays("tick=exp:20us@30%", FaultKind::LateTick, |_| {}));
    }

    #[test]
    fn chances_are_kept() {
        let hits =
            |text: &str| delays(text, FaultKind::LateTick, |_| {}).iter().filter(|span| **span > Span::ZERO).count();
        assert_eq!((hits("tick=1us@100%"), hits("kick=1us@100%")), (200, 0));
        assert!((80..120).contains(&hits("tick=1us@50%")));
    }
}
