//! What the locks of the run queues cost, by place in the engine.
//!
//! Knows nothing of how locks work.

use evenkeel_core::Span;
use evenkeel_engine::host::Site;
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
    /// Takes that waited, and how long.
    pub waits: Times,
    /// How long it was held.
    pub holds: Times,
    /// Tries that found it held, and what they cost.
    pub failed_tries: Times,
    /// Transfers of lines of shared words, waiting for them included.
    pub transfers: Times,
    /// Transfers that had to wait for another transfer of the same line, and how long.
    pub queued_transfers: Times,
}

/// What the locks of all run queues cost. One class of locks so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockStat {
    /// By the place that took the lock.
    pub sites: Vec<(Site, SiteLockStat)>,
    /// How often which place waited for which.
    pub waited_for: Vec<(Site, Site, u64)>,
}

/// Collects it.
#[derive(Debug, Default)]
pub(super) struct Collector {
    sites: [Option<(Site, SiteLockStat)>; Site::Check as usize + 1],
    waited_for: BTreeMap<(usize, usize), (Site, Site, u64)>,
}

impl Collector {
    pub(super) fn site(&mut self, site: Site) -> &mut SiteLockStat {
        &mut self.sites[site as usize].get_or_insert((site, SiteLockStat::default())).1
    }

    pub(super) fn waited_for(&mut self, waiter: Site, holder: Site) {
        self.waited_for.entry((waiter as usize, holder as usize)).or_insert((waiter, holder, 0)).2 += 1;
    }

    pub(super) fn stat(&self) -> LockStat {
        LockStat {
            sites: self.sites.iter().flatten().copied().collect(),
            waited_for: self.waited_for.values().copied().collect(),
        }
    }
}
