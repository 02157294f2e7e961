//! Ids of CPUs, groups and masks. Small integers: they index tables that their owners keep.
//!
//! Knows nothing of those tables.

use core::fmt;

/// A CPU: one execution slot owned by the engine, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(u32);

impl CpuId {
    /// Stands for "no CPU of this machine": an access made from a thread outside it.
    pub const OUTSIDE: CpuId = CpuId(u32::MAX);

    /// The CPU with this index.
    pub const fn new(index: u32) -> Self {
        CpuId(index)
    }

    /// Its index, from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its index as a small integer.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == CpuId::OUTSIDE { f.write_str("outside") } else { write!(f, "{}", self.0) }
    }
}

/// A group, unique among the groups that are alive in one machine. Ids are reused after a group has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(u32);

impl GroupId {
    /// The group in this place of the machine's table.
    pub const fn new(index: u32) -> Self {
        GroupId(index)
    }

    /// Its place in the machine's table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its place as a small integer.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A mask that a machine has been given, unique in that machine. It keeps its id as long as the machine exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MaskId(u32);

impl MaskId {
    /// The mask of all CPUs.
    pub const ALL: MaskId = MaskId(0);

    /// The mask in this place of the machine's table.
    pub const fn new(index: u32) -> Self {
        MaskId(index)
    }

    /// Its place in the machine's table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its place as a small integer.
    pub const fn get(self) -> u32 {
        self.0
    }
}
