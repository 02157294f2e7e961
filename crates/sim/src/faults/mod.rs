//! What can be made to go wrong in a simulated machine, how often, and for how long. All of it is off by default.
//!
//! Read from a text such as `stall=100us@50/s,kick=exp:20us@5%` (docs/faults.md).
//!
//! Knows nothing of how faults happen.

mod parse;

pub use parse::FaultError;

use evenkeel_core::Span;
use std::fmt;

/// What is to go wrong. By default nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// CPUs stall: one does nothing for a while, whatever it was doing.
    pub(crate) stall: Option<Stalls>,
    /// Who takes the lock of a run queue loses its processor while it holds it.
    pub(crate) holder: Option<Delays>,
    /// A kick arrives late.
    pub(crate) kick: Option<Delays>,
    /// A tick comes late.
    pub(crate) tick: Option<Delays>,
}

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// A CPU does nothing for a while.
    Stall,
    /// A CPU that holds the lock of a run queue does nothing for a while.
    HolderOff,
    /// A kick arrives late.
    LateKick,
    /// A tick comes late.
    LateTick,
}

/// Something that happens to every CPU at a rate, at times that know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stalls {
    pub(crate) length: Length,
    /// Per second and CPU.
    pub(crate) rate: u32,
}

/// Something that happens at some occasions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Delays {
    pub(crate) length: Length,
    pub(crate) chance: Chance,
}

/// How long something takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Length {
    pub(crate) mean: Span,
    pub(crate) spread: Spread,
}

/// How lengths differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spread {
    /// Not at all.
    Fixed,
    /// Many short ones and few long ones: exponentially distributed.
    Exponential,
}

/// How likely something is, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chance(pub(crate) u32);

impl Chance {
    /// As likely as can be.
    pub(crate) const CERTAIN: Chance = Chance(1_000_000);
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults { stall: None, holder: None, kick: None, tick: None };

    /// Whether nothing is to go wrong.
    pub fn is_none(&self) -> bool {
        *self == Faults::NONE
    }

    /// Both these faults and `others`.
    ///
    /// # Errors
    /// If both have faults of one kind.
    pub fn and(self, others: Faults) -> Result<Faults, FaultError> {
        Ok(Faults {
            stall: parse::either(FaultKind::Stall, self.stall, others.stall)?,
            holder: parse::either(FaultKind::HolderOff, self.holder, others.holder)?,
            kick: parse::either(FaultKind::LateKick, self.kick, others.kick)?,
            tick: parse::either(FaultKind::LateTick, self.tick, others.tick)?,
        })
    }
}

impl FaultKind {
    /// Every kind there is.
    pub const ALL: [FaultKind; 4] = [FaultKind::Stall, FaultKind::HolderOff, FaultKind::LateKick, FaultKind::LateTick];

    /// Its name in the text of [`Faults`].
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Stall => "stall",
            FaultKind::HolderOff => "holder",
            FaultKind::LateKick => "kick",
            FaultKind::LateTick => "tick",
        }
    }
}

/// The text that reads back as these faults.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FaultKind::name;
        let stall = self.stall.map(|stall| format!("{}={}@{}/s", name(FaultKind::Stall), stall.length, stall.rate));
        let delays =
            [(FaultKind::HolderOff, self.holder), (FaultKind::LateKick, self.kick), (FaultKind::LateTick, self.tick)];
        let delays = delays.into_iter().filter_map(|(kind, delays)| {
            delays.map(|delays| format!("{}={}@{}", name(kind), delays.length, delays.chance))
        });
        let all: Vec<_> = stall.into_iter().chain(delays).collect();
        f.write_str(&all.join(","))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.mean.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let (unit, name) = units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit)).unwrap_or((1, "ns"));
        let prefix = if self.spread == Spread::Exponential { "exp:" } else { "" };
        write!(f, "{prefix}{}{name}", nanos / unit)
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}
