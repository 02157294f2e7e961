//! Cache lines: who has which, and what it takes to get one.
//!
//! A line has a last writer, and readers that have a copy. Reading without a copy, or writing while somebody else has one,
//! means a transfer, from the nearest of the last writer and the last reader that is known; one transfer at a time per line,
//! others queue. Reads of a line of which copies are out already follow each other faster. First touch counts as a transfer within the node.
//!
//! Knows nothing of what is in a line. Lines have no place in memory: a cache never runs full.

use crate::machine::{Distance, Machine};
use evenkeel_core::{CpuId, Span, Time};
use evenkeel_engine::host::LineClass;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// A line of this world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineId(pub(super) u32);

/// What is done to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
    /// An atomic read-modify-write.
    Modify,
}

#[derive(Debug)]
struct Line {
    class: LineClass,
    writer: Option<CpuId>,
    reader: Option<CpuId>,
    /// Whether any copy is out beside the writer's.
    is_shared: bool,
    /// When the transfer under way ends.
    free_at: Time,
}

/// What a transfer takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Transfer {
    /// Waiting for the line's other transfers.
    pub(super) queued: Span,
    /// The transfer itself.
    pub(super) moved: Span,
}

#[derive(Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    /// Who has a copy: `words` words per line, one bit per CPU and one for the outside.
    copies: Vec<u64>,
    words: usize,
    outside: usize,
    by_block: HashMap<usize, LineId, FxBuildHasher>,
}

impl Lines {
    pub(super) fn new(cpus: usize) -> Lines {
        Lines {
            lines: Vec::new(),
            copies: Vec::new(),
            words: (cpus + 1).div_ceil(64),
            outside: cpus,
            by_block: HashMap::default(),
        }
    }

    /// A line that nobody has touched.
    pub(super) fn add(&mut self, class: LineClass) -> LineId {
        let id = LineId(u32::try_from(self.lines.len()).expect("there are fewer than 2^32 lines"));
        self.lines.push(Line { class, writer: None, reader: None, is_shared: false, free_at: Time::ZERO });
        self.copies.resize(self.copies.len() + self.words, 0);
        id
    }

    /// The line of a block of memory: the same for all words in it. Which number it gets depends on the order of first
    /// touches alone.
    pub(super) fn of_block(&mut self, block: usize, class: LineClass) -> LineId {
        if let Some(line) = self.by_block.get(&block) {
            return *line;
        }
        let line = self.add(class);
        self.by_block.insert(block, line);
        line
    }

    /// What its words are of.
    pub(super) fn class(&self, line: LineId) -> LineClass {
        self.lines[line.0 as usize].class
    }

    fn bit(&self, line: LineId, who: CpuId) -> (usize, u64) {
        let index = if who == CpuId::OUTSIDE { self.outside } else { who.index() };
        (line.0 as usize * self.words + index / 64, 1 << (index % 64))
    }

    /// Whether it takes no transfer.
    pub(super) fn is_hit(&self, line: LineId, who: CpuId, access: Access) -> bool {
        let state = &self.lines[line.0 as usize];
        match access {
            Access::Read => {
                let (word, bit) = self.bit(line, who);
                state.writer == Some(who) || self.copies[word] & bit != 0
            }
            Access::Write | Access::Modify => state.writer == Some(who) && !state.is_shared,
        }
    }

    /// Gets the line for `who`, who asks at `now` and does not have it.
    pub(super) fn fetch(&mut self, machine: &Machine, line: LineId, who: CpuId, access: Access, now: Time) -> Transfer {
        let state = &mut self.lines[line.0 as usize];
        let others = [state.writer, state.reader].into_iter().flatten().filter(|other| *other != who);
        let distance = others.map(|other| machine.topology.distance(who, other)).min().unwrap_or(Distance::Node);
        let moved = machine.transfer[distance as usize];
        let begin = state.free_at.max(now);
        // The cache serves reads of a clean line one after the other, but long before the last one has arrived.
        let is_clean = state.is_shared && access == Access::Read;
        state.free_at = begin.after(if is_clean { machine.shared_read } else { moved });
        self.give(line, who, access);
        Transfer { queued: begin.since(now), moved }
    }

    /// The line is with `who` now.
    pub(super) fn give(&mut self, line: LineId, who: CpuId, access: Access) {
        let (word, bit) = self.bit(line, who);
        let state = &mut self.lines[line.0 as usize];
        match access {
            Access::Read => {
                (state.reader, state.is_shared) = (Some(who), true);
                self.copies[word] |= bit;
            }
            Access::Write | Access::Modify => {
                if state.is_shared {
                    let first = line.0 as usize * self.words;
                    self.copies[first..first + self.words].fill(0);
                }
                (state.writer, state.reader, state.is_shared) = (Some(who), None, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(index: u32) -> CpuId {
        CpuId::new(index)
    }

    fn xeon() -> Machine {
        Machine::named("xeon-e5-2650v4-2s").unwrap()
    }

    #[test]
    fn a_writer_has_its_line_until_somebody_reads_it() {
        let machine = xeon();
        let mut lines = Lines::new(48);
        let line = lines.add(LineClass::Other);
        let _ = lines.fetch(&machine, line, cpu(0), Access::Write, Time::ZERO);
        assert!(lines.is_hit(line, cpu(0), Access::Modify) && lines.is_hit(line, cpu(0), Access::Read));
        assert!(!lines.is_hit(line, cpu(2), Access::Read));
        let _ = lines.fetch(&machine, line, cpu(2), Access::Read, Time::from_nanos(1_000));
        assert!(lines.is_hit(line, cpu(2), Access::Read) && lines.is_hit(line, cpu(0), Access::Read));
        assert!(!lines.is_hit(line, cpu(0), Access::Write) && !lines.is_hit(line, cpu(2), Access::Write));
    }

    #[test]
    fn far_costs_more_than_near() {
        let machine = xeon();
        let mut lines = Lines::new(48);
        let line = lines.add(LineClass::Other);
        let mut now = Time::ZERO;
        let mut moved = |who: u32, access| {
            now = now.after(Span::from_micros(1));
            lines.fetch(&machine, line, cpu(who), access, now).moved.as_nanos()
        };
        let _ = moved(0, Access::Write);
        assert_eq!(moved(24, Access::Write), 8);
        assert_eq!(moved(2, Access::Write), 42);
        assert_eq!(moved(1, Access::Read), 120);
        // CPU 1 is nearer than the writer.
        assert_eq!(moved(3, Access::Read), 42);
    }

    #[test]
    fn one_transfer_at_a_time_per_line() {
        let machine = xeon();
        let mut lines = Lines::new(48);
        let (line, other) = (lines.add(LineClass::Other), lines.add(LineClass::Other));
        let _ = lines.fetch(&machine, line, cpu(0), Access::Write, Time::ZERO);
        let _ = lines.fetch(&machine, other, cpu(0), Access::Write, Time::ZERO);
        let at = Time::from_nanos(10_000);
        assert_eq!(lines.fetch(&machine, line, cpu(2), Access::Modify, at).queued, Span::ZERO);
        assert_eq!(lines.fetch(&machine, line, cpu(4), Access::Modify, at).queued, Span::from_nanos(42));
        assert_eq!(lines.fetch(&machine, line, cpu(6), Access::Modify, at).queued, Span::from_nanos(84));
        assert_eq!(lines.fetch(&machine, other, cpu(6), Access::Modify, at).queued, Span::ZERO);
    }

    #[test]
    fn readers_of_a_clean_line_follow_each_other_fast() {
        let machine = xeon();
        let mut lines = Lines::new(48);
        let line = lines.add(LineClass::Other);
        let _ = lines.fetch(&machine, line, cpu(0), Access::Write, Time::ZERO);
        let at = Time::from_nanos(10_000);
        let mut queued = |who| lines.fetch(&machine, line, cpu(who), Access::Read, at).queued.as_nanos();
        // The first one gets it from the writer.
        assert_eq!([queued(2), queued(4), queued(6)], [0, 42, 42 + machine.shared_read.as_nanos()]);
    }

    #[test]
    fn the_words_of_a_block_share_a_line() {
        let mut lines = Lines::new(1_024);
        let one = lines.of_block(7, LineClass::Other);
        assert_eq!(lines.of_block(7, LineClass::Other), one);
        assert_ne!(lines.of_block(8, LineClass::Other), one);
        assert!(!lines.is_hit(one, CpuId::OUTSIDE, Access::Read));
        lines.give(one, CpuId::OUTSIDE, Access::Read);
        assert!(lines.is_hit(one, CpuId::OUTSIDE, Access::Read) && !lines.is_hit(one, cpu(1_023), Access::Read));
    }
}
