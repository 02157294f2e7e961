//! What the locks of the run queues and the lines of shared words cost, by place in the engine.
//!
//! Knows nothing of how locks work.

use evenkeel_core::Span;
use evenkeel_engine::host::{LineClass, Site};
use std::collections::BTreeMap;

/// How often, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// The shortest.
    pub min: Span,
    /// The longest.
    pub max: Span,
    /// All together.
    pub total: Span,
}

impl Times {
    pub(super) fn add(&mut self, span: Span) {
        self.min = if self.count == 0 { span } else { self.min.min(span) };
        self.max = self.max.max(span);
        self.total = self.total.plus(span);
        self.count += 1;
    }
}

/// What one place in the engine did with locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SiteLockStat {
    /// Takes, whether with or without waiting.
    pub acquisitions: u64,
    /// Takes from another CPU than the one that had it last.
    pub bounces: u64,
    /// Waits for a lock that another CPU had last.
    pub contention_bounces: u64,
    /// Takes that waited, and how long.
    pub waits: Times,
    /// How long it was held.
    pub holds: Times,
    /// Tries that found it held, and what they cost.
    pub failed_tries: Times,
}

/// What one place in the engine did with lines of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineStat {
    /// Times that a line had to come from elsewhere, waiting for it included.
    pub transfers: Times,
    /// Those that had to wait for another transfer of the same line, and how long.
    pub queued: Times,
}

/// What the locks of all run queues cost, one class of locks so far, and what lines did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockStat {
    /// By the place that took the lock.
    pub sites: Vec<(Site, SiteLockStat)>,
    /// How often which place waited for which.
    pub waited_for: Vec<(Site, Site, u64)>,
    /// How often which place failed to take a lock that which one had.
    pub failed_for: Vec<(Site, Site, u64)>,
    /// By class of lines, and by the place that asked for them.
    pub lines: Vec<(LineClass, Site, LineStat)>,
}

impl LockStat {
    /// The sum over all places of one of their counts.
    pub fn total(&self, count: impl Fn(&SiteLockStat) -> u64) -> u64 {
        self.sites.iter().map(|(_, stat)| count(stat)).sum()
    }
}

/// Collects it.
#[derive(Debug)]
pub(super) struct Collector {
    sites: [Option<(Site, SiteLockStat)>; Site::ALL.len()],
    waited_for: Pairs,
    failed_for: Pairs,
    /// A place for each class of lines and each place in the engine.
    lines: Vec<LineStat>,
}

impl Default for Collector {
    fn default() -> Self {
        Collector {
            sites: [None; Site::ALL.len()],
            waited_for: Pairs::default(),
            failed_for: Pairs::default(),
            lines: vec![LineStat::default(); LineClass::ALL.len() * Site::ALL.len()],
        }
    }
}

/// How often which place met which.
#[derive(Debug, Default)]
struct Pairs(BTreeMap<(usize, usize), (Site, Site, u64)>);

impl Pairs {
    fn count(&mut self, one: Site, other: Site) {
        self.0.entry((one as usize, other as usize)).or_insert((one, other, 0)).2 += 1;
    }

    fn list(&self) -> Vec<(Site, Site, u64)> {
        self.0.values().copied().collect()
    }
}

impl Collector {
    pub(super) fn site(&mut self, site: Site) -> &mut SiteLockStat {
        &mut self.sites[site as usize].get_or_insert((site, SiteLockStat::default())).1
    }

    pub(super) fn waited_for(&mut self, waiter: Site, holder: Site) {
        self.waited_for.count(waiter, holder);
    }

    pub(super) fn failed_for(&mut self, trier: Site, holder: Site) {
        self.failed_for.count(trier, holder);
    }

    /// A line of a class came from elsewhere: how long that took, and how much of it was waiting.
    pub(super) fn transfer(&mut self, class: LineClass, site: Site, whole: Span, queued: Span) {
        let stat = &mut self.lines[class as usize * Site::ALL.len() + site as usize];
        stat.transfers.add(whole);
        if queued > Span::ZERO {
            stat.queued.add(queued);
        }
    }

    pub(super) fn stat(&self) -> LockStat {
        let places = LineClass::ALL.into_iter().flat_map(|class| Site::ALL.map(|site| (class, site)));
        LockStat {
            sites: self.sites.iter().flatten().copied().collect(),
            waited_for: self.waited_for.list(),
            failed_for: self.failed_for.list(),
            lines: places
                .zip(&self.lines)
                .filter(|(_, stat)| stat.transfers.count > 0)
                .map(|((class, site), stat)| (class, site, *stat))
                .collect(),
        }
    }
}
