//! How long tasks waited to run, in the form of bcc's `runqlat`.
//!
//! Powers of two of 1,024 ns, which the heading calls microseconds: so that each of the engine's finer buckets falls into
//! one, and no count is guessed.
//!
//! Knows nothing of tasks.

use std::fmt::Write;

use evenkeel::{Histogram, Span, Stats};
use serde::Serialize;

/// In all, and by group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) total: Bins,
    pub(crate) groups: Vec<GroupBins>,
}

/// One group's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GroupBins {
    pub(crate) group: String,
    #[serde(flatten)]
    pub(crate) bins: Bins,
}

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Bins {
    /// How many waits there were.
    pub(crate) count: u64,
    /// From the shortest on, without a gap.
    pub(crate) usecs: Vec<Bin>,
}

/// Waits of `from` to `to`, both included, in units of 1,024 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Bin {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: u64,
}

/// A unit, as a power of two of nanoseconds.
const UNIT_BITS: u32 = 10;

/// The engine's last bucket has no end: it is counted where it begins.
const LONGEST: Span = Span::from_nanos((1 << 37) - 1);

/// The longest bar.
const STARS: u64 = 40;

impl Report {
    /// Between two looks. Groups trail by up to one slice: what they have counted last is not in it yet.
    pub(crate) fn new(before: &Stats, after: &Stats) -> Report {
        let all = |stats: &Stats| {
            let mut sum = Histogram::default();
            stats.cpus.iter().for_each(|cpu| sum.merge(&cpu.wait));
            sum
        };
        let groups = after.groups.iter().map(|group| {
            let then = before.groups.iter().find(|then| then.id == group.id);
            let bins = Bins::since(&group.wait, then.map(|then| &then.wait));
            GroupBins { group: group.name.clone(), bins }
        });
        let groups = groups.filter(|group| group.bins.count > 0).collect();
        Report { total: Bins::since(&all(after), Some(&all(before))), groups }
    }
}

impl Bins {
    fn since(now: &Histogram, before: Option<&Histogram>) -> Bins {
        let mut counts: Vec<u64> = Vec::new();
        for (edge, count) in now.buckets() {
            let then = before.into_iter().flat_map(Histogram::buckets).find(|(known, _)| *known == edge);
            let count = count.saturating_sub(then.map_or(0, |(_, count)| count));
            let bin = bin_of(edge);
            if count > 0 {
                counts.resize(counts.len().max(bin + 1), 0);
                counts[bin] += count;
            }
        }
        let bin = |(bin, count): (usize, &u64)| Bin {
            from: if bin == 0 { 0 } else { 1 << bin },
            to: (2 << bin) - 1,
            count: *count,
        };
        Bins { count: counts.iter().sum(), usecs: counts.iter().enumerate().map(bin).collect() }
    }
}

fn bin_of(edge: Span) -> usize {
    let units = edge.min(LONGEST).as_nanos() >> UNIT_BITS;
    units.max(1).ilog2() as usize
}

/// As text.
pub(crate) fn text(report: &Report) -> String {
    let mut text = bins(&report.total);
    for group in &report.groups {
        // Writing to a string can't fail.
        let _infallible = write!(text, "\ngroup = {}\n{}", group.group, bins(&group.bins));
    }
    text
}

fn bins(bins: &Bins) -> String {
    let mut text = format!("     {:<19} : count     distribution\n", "usecs");
    let most = bins.usecs.iter().map(|bin| bin.count).max().unwrap_or(0);
    for bin in &bins.usecs {
        let stars = usize::try_from(u128::from(bin.count) * u128::from(STARS) / u128::from(most.max(1)));
        let bar = "*".repeat(stars.unwrap_or(0));
        let _infallible = writeln!(text, "{:>10} -> {:<10} : {:<8} |{bar:<40}|", bin.from, bin.to, bin.count);
    }
    text
}
