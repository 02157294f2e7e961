//! What a simulated machine is made of: where its CPUs are, and what everything costs.
//!
//! Read from a file (docs/machines.md), from a preset, which is such a file, or from the topology of this computer.
//!
//! Knows nothing of how costs are paid.

mod check;
mod presets;
mod raw;
mod source;
mod sysfs;
#[cfg(test)]
mod tests;
mod topology;

pub use presets::PRESETS;
pub use source::MachineError;
pub use topology::{CPUS_MAX, Distance, Numbering, Place, Shape, Topology};

use evenkeel_core::Span;
use serde::Deserialize;
use source::{Source, Wrong};
use std::path::Path;

/// A machine, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The name that it was asked for by.
    pub name: String,
    /// Where its CPUs are.
    pub topology: Topology,
    /// What it costs to get a cache line that another CPU has, by [`Distance`].
    pub transfer: [Span; Distance::COUNT],
    /// How many reads of lines that other CPUs have go on at a time, if nothing comes between them: the second and later
    /// ones of a row take this fraction of a transfer.
    pub reads_overlap: u64,
    /// For how long a read of a line that others only read keeps the next reader waiting.
    pub shared_read: Span,
    /// What everything else costs.
    pub costs: Costs,
    /// Who gets a lock that is waited for.
    pub lock: LockKind,
    /// What a long idle time costs on waking.
    pub deep_idle: Option<DeepIdle>,
    /// What interrupts work periodically.
    pub tick: Option<Tick>,
    /// How fast work is while the other thread of the core is busy, in percent of a core of its own.
    pub beside_busy_sibling_percent: u64,
    /// How much of a processor a busy thread really gets, in thousandths: other programs take the rest.
    pub got_permille: u64,
}

/// What operations cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// A read or write of a line that the CPU has.
    pub hit: Span,
    /// An atomic read-modify-write, or a fence, on top of getting the line.
    pub atomic: Span,
    /// A look at the clock.
    pub clock_read: Span,
    /// What is done to a run queue while its lock is held, beside accesses to shared words: the look at what waits there,
    /// and each task or timer that is put in or taken out.
    pub queue_operation: Span,
    /// From the pick of a task to its first instruction.
    pub switch: Span,
    /// To the CPU that kicks.
    pub kick: Span,
    /// From the kick to the CPU that is kicked.
    pub kick_delivery: Span,
    /// From the decision to park until the CPU is idle.
    pub park: Span,
    /// To a CPU that parks until a time.
    pub timer_set: Span,
    /// To a CPU that its timer wakes, before [`Costs::idle_exit`].
    pub timer_fire: Span,
    /// Taking and releasing a lock that is free, beside getting its line.
    pub lock: Span,
    /// From the release of a lock to the next waiter's first instruction under it, beside getting its line.
    pub handover: Span,
    /// From the kick's arrival, or the timer, to the first instruction of a CPU that was idle.
    pub idle_exit: Span,
}

/// Who gets a lock that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Who has waited longest: the release hands it over.
    Fifo,
    /// Whoever comes first once it is free, so that a waiter may find it taken again.
    Barging,
}

/// A CPU that was idle for long wakes up more slowly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeepIdle {
    /// For how long.
    pub after: Span,
    /// What it then costs instead of [`Costs::idle_exit`].
    pub exit: Span,
}

/// What interrupts work periodically.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// How often.
    pub period: Span,
    /// For how long.
    pub handler: Span,
}

impl Machine {
    /// The machine that `name` stands for: `host`, a preset ([`PRESETS`]), or the path of a file.
    ///
    /// # Errors
    /// If there is no such machine, or its file is wrong.
    pub fn named(name: &str) -> Result<Machine, MachineError> {
        if name == "host" {
            return Machine::of_host(Path::new("/sys"));
        }
        if let Some((_, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
            return Machine::parse(&format!("{name}.toml"), text);
        }
        if !name.contains(['/', '.']) {
            let presets: Vec<_> = PRESETS.iter().map(|(preset, _)| *preset).collect();
            let known = presets.join(", ");
            return Err(MachineError(format!(
                "no machine `{name}`, expected host, {known}, or the path of a file such as ./{name}.toml"
            )));
        }
        Machine::read(Path::new(name))
    }

    /// The machine that a file describes.
    ///
    /// # Errors
    /// If it can't be read, or is wrong: `FILE:LINE: …`.
    pub fn read(path: &Path) -> Result<Machine, MachineError> {
        Machine::of_source(&Source::read(path)?)
    }

    /// The machine that the text of a file describes.
    ///
    /// # Errors
    /// If it is wrong: `FILE:LINE: …`.
    pub fn parse(file: &str, text: &str) -> Result<Machine, MachineError> {
        Machine::of_source(&Source { file: file.to_owned(), text: text.to_owned() })
    }

    /// This computer's CPUs as `/sys` tells, with the costs of the preset `flat-4`: estimates until they are measured.
    ///
    /// # Errors
    /// If `root` doesn't look like `/sys`.
    pub fn of_host(root: &Path) -> Result<Machine, MachineError> {
        let topology = sysfs::topology(root)?;
        Ok(Machine { name: "host".to_owned(), topology, ..Machine::parse("flat-4.toml", presets::FLAT_4)? })
    }

    fn of_source(source: &Source) -> Result<Machine, MachineError> {
        let raw: raw::Machine = toml::from_str(&source.text).map_err(|error| {
            source.error(&Wrong { span: error.span().unwrap_or(0..0), message: error.message().to_owned() })
        })?;
        let stem = Path::new(&source.file).file_stem();
        let name = stem.map_or_else(|| source.file.clone(), |stem| stem.to_string_lossy().into_owned());
        check::machine(&name, &raw).map_err(|wrong| source.error(&wrong))
    }

    /// How many CPUs it has.
    pub fn cpus(&self) -> usize {
        self.topology.cpus()
    }
}
