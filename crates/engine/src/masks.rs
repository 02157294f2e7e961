//! The machine's table of masks: the sets of CPUs that groups and tasks were given, each once.
//!
//! A mask is never forgotten, so whoever has an id looks it up without a lock or a count. The map from sets to ids is behind
//! a lock, which is taken when a group is made, or a task is spawned with a mask of its own.
//!
//! Knows nothing of what waits where, nor of what a level means (`machine::clocks`).

use crate::host::{At, Host, Shared};
use crate::machine::Level;
use crate::table::{FIRST_CHUNK, place_of};
use crossbeam_utils::CachePadded;
use evenkeel_core::{CpuId, CpuMask, MaskId};
#[expect(
    clippy::disallowed_types,
    reason = "taken when a group or a masked task is made: no scheduling path takes it"
)]
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Chunks of the table; each is twice as large as the one before.
const CHUNKS: usize = 10;

/// The most masks that a machine remembers: what fits into the chunks (`place_of`), less the place of that of all CPUs.
const MASKS_MAX: usize = FIRST_CHUNK * ((1 << CHUNKS) - 1) - 1;

/// Why a mask was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CpusError {
    /// There is no CPU in it.
    Empty,
    /// It names a CPU that the runtime doesn't have.
    NoSuchCpu {
        /// The CPU with the largest number in the mask.
        cpu: CpuId,
        /// How many CPUs the runtime has: their numbers begin with 0.
        cpus: usize,
    },
    /// The task's mask and its group's have no CPU in common.
    Disjoint,
    /// The runtime was given as many different masks as it can remember.
    TooMany,
}

impl fmt::Display for CpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpusError::Empty => f.write_str("the mask has no CPU"),
            CpusError::NoSuchCpu { cpu, cpus: 1 } => write!(f, "the mask names CPU {cpu}: the runtime has only CPU 0"),
            CpusError::NoSuchCpu { cpu, cpus } => {
                write!(f, "the mask names CPU {cpu}: the runtime has CPUs 0 to {}", cpus - 1)
            }
            CpusError::Disjoint => f.write_str("the masks of the task and of its group have no CPU in common"),
            CpusError::TooMany => write!(f, "the runtime was given {MASKS_MAX} different masks, which is all it can"),
        }
    }
}

impl std::error::Error for CpusError {}

/// One mask other than that of all CPUs.
pub(crate) struct MaskRow<H: Host> {
    mask: CpuMask,
    cpus: CpuBits,
    /// Where groups of this mask start.
    pub(crate) level: CachePadded<Level<H>>,
    /// Counts tasks that were put on a CPU for want of a better reason.
    turn: CachePadded<H::Shared>,
}

/// Places for rows, each written once.
type Chunk<H> = Box<[OnceLock<MaskRow<H>>]>;

pub(crate) struct Masks<H: Host> {
    chunks: [OnceLock<Chunk<H>>; CHUNKS],
    cpus: usize,
    #[expect(
        clippy::disallowed_types,
        reason = "taken when a group or a masked task is made: no scheduling path takes it"
    )]
    ids: Mutex<BTreeMap<CpuMask, MaskId>>,
    /// Groups alive that have a mask.
    groups: H::Shared,
}

impl<H: Host> Masks<H> {
    /// An empty table for a machine of `cpus` CPUs.
    #[expect(
        clippy::disallowed_types,
        reason = "taken when a group or a masked task is made: no scheduling path takes it"
    )]
    pub(crate) fn new(cpus: usize) -> Self {
        let chunks = [const { OnceLock::new() }; CHUNKS];
        Masks { chunks, cpus, ids: Mutex::default(), groups: H::Shared::new(0) }
    }

    /// The id of a mask, which is remembered from here on.
    pub(crate) fn intern(&self, mask: &CpuMask) -> Result<MaskId, CpusError> {
        let last = mask.last().ok_or(CpusError::Empty)?;
        if last.index() >= self.cpus {
            return Err(CpusError::NoSuchCpu { cpu: last, cpus: self.cpus });
        }
        if mask.len() == self.cpus {
            return Ok(MaskId::ALL);
        }
        let mut ids = self.ids.lock();
        if let Some(id) = ids.get(mask) {
            return Ok(*id);
        }
        // The first place stands for all CPUs, and has no row.
        let index = ids.len() + 1;
        let (chunk, place) = place_of(index);
        let rows = self.chunks.get(chunk).ok_or(CpusError::TooMany)?;
        let rows = rows.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| OnceLock::new()).collect());
        rows[place].get_or_init(|| MaskRow::new(mask.clone(), self.cpus));
        let id = MaskId::new(u32::try_from(index).map_err(|_| CpusError::TooMany)?);
        ids.insert(mask.clone(), id);
        Ok(id)
    }

    /// The id of what is left of `mask` within that of a group.
    pub(crate) fn intern_within(&self, mask: &CpuMask, group: MaskId) -> Result<MaskId, CpusError> {
        if group == MaskId::ALL {
            return self.intern(mask);
        }
        // What is wrong with it by itself is said first.
        self.intern(mask)?;
        let within = self.row(group).mask.intersection(mask);
        if within.is_empty() { Err(CpusError::Disjoint) } else { self.intern(&within) }
    }

    /// The row of a mask other than [`MaskId::ALL`].
    pub(crate) fn row(&self, id: MaskId) -> &MaskRow<H> {
        let (chunk, place) = place_of(id.index());
        let rows = self.chunks[chunk].get().expect("the id of a mask that was given");
        rows[place].get().expect("the id of a mask that was given")
    }

    /// Whether a task of this mask may run on `cpu`.
    pub(crate) fn allows(&self, id: MaskId, cpu: CpuId) -> bool {
        id == MaskId::ALL || self.row(id).cpus.contains(cpu)
    }

    /// The CPUs of a mask.
    pub(crate) fn mask(&self, id: MaskId) -> CpuMask {
        if id == MaskId::ALL {
            let last = u32::try_from(self.cpus - 1).expect("a machine has fewer than 2^32 CPUs");
            return CpuMask::range(0, last);
        }
        self.row(id).mask.clone()
    }

    /// A group of this mask begins.
    pub(crate) fn add_group(&self, at: At, id: MaskId) {
        if id != MaskId::ALL {
            self.groups.fetch_add(at, 1, Relaxed);
        }
    }

    /// A group of this mask has ended.
    pub(crate) fn remove_group(&self, at: At, id: MaskId) {
        if id != MaskId::ALL {
            self.groups.fetch_sub(at, 1, Relaxed);
        }
    }

    /// Whether any mask was ever given.
    pub(crate) fn has_any(&self) -> bool {
        self.chunks[0].get().is_some()
    }

    /// Whether any group alive has a mask.
    pub(crate) fn are_in_use(&self, at: At) -> bool {
        self.groups.load(at, Relaxed) != 0
    }
}

impl<H: Host> MaskRow<H> {
    fn new(mask: CpuMask, cpus: usize) -> Self {
        let mut bits = CpuBits::default();
        mask.iter().for_each(|cpu| bits.insert(cpu, cpus));
        MaskRow { mask, cpus: bits, level: CachePadded::new(Level::new()), turn: CachePadded::new(H::Shared::new(0)) }
    }

    pub(crate) fn bits(&self) -> &CpuBits {
        &self.cpus
    }

    /// Its CPUs one after the other, so that what may run on any of them is spread.
    pub(crate) fn next_in_turn(&self, at: At) -> CpuId {
        let turn = self.turn.fetch_add(at, 1, Relaxed);
        let count = self.cpus.len() as u64;
        let place = usize::try_from(turn % count).unwrap_or(0);
        self.cpus.iter().nth(place).expect("a mask has a CPU")
    }
}

/// CPUs of one machine, a bit each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuBits(Vec<u64>);

impl CpuBits {
    /// Adds a CPU of a machine that has `cpus`.
    pub(crate) fn insert(&mut self, cpu: CpuId, cpus: usize) {
        self.0.resize(cpus.div_ceil(64), 0);
        self.0[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }

    pub(crate) fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.0.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.index() % 64));
        }
    }

    pub(crate) fn contains(&self, cpu: CpuId) -> bool {
        self.0.get(cpu.index() / 64).is_some_and(|word| word >> (cpu.index() % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Sets the word of the CPUs from `64 * index` on, and returns what it was.
    pub(crate) fn set_word(&mut self, index: usize, word: u64) -> u64 {
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        std::mem::replace(&mut self.0[index], word)
    }

    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// How many words have been set.
    pub(crate) fn words(&self) -> usize {
        self.0.len()
    }

    /// Adds all of `other`.
    pub(crate) fn add(&mut self, other: &CpuBits) {
        other.0.iter().enumerate().for_each(|(index, word)| self.add_word(index, *word));
    }

    /// Adds those of the CPUs from `64 * index` on.
    pub(crate) fn add_word(&mut self, index: usize, word: u64) {
        let held = self.word(index);
        self.set_word(index, held | word);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (left != 0).then(|| {
                    left &= left - 1;
                    CpuId::new(u32::try_from(index * 64).expect("a machine has fewer than 2^32 CPUs") + bit)
                })
            })
        })
    }
}
