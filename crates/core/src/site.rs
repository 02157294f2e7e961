//! The places of the scheduler where locks are taken, lines are touched and time goes: what reports list.
//!
//! Pure names. Knows nothing of what is done there.

/// Where in the engine an access to shared memory or a lock comes from: what a `lock_stat` of it would list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Site {
    /// The pick of the next task, and what ends a poll.
    Dispatch,
    /// A task becomes runnable.
    Wake,
    /// The charge of a group's clock, before and after a slice.
    Charge,
    /// A group that becomes runnable is brought up to the level.
    Raise,
    /// Publishing what waits on a CPU.
    Publish,
    /// An idle CPU looks for work.
    Search,
    /// A CPU looks, at the end of a slice, for a group that is behind.
    LookAround,
    /// Tasks are moved from one CPU to another.
    Pull,
    /// A CPU parks or is kicked.
    Park,
    /// Timers are armed or fired.
    Timer,
    /// A call from inside a poll asks who owns the CPU.
    Owner,
    /// Groups are made, ended, or changed.
    Group,
    /// Counting.
    Count,
    /// The machine stops.
    Stop,
    /// Checks of debug builds, which a host that models costs lets pass for nothing: so that debug and release agree.
    Check,
}

impl Site {
    /// All of them, in the order of their numbers.
    pub const ALL: [Site; Site::Check as usize + 1] = [
        Site::Dispatch,
        Site::Wake,
        Site::Charge,
        Site::Raise,
        Site::Publish,
        Site::Search,
        Site::LookAround,
        Site::Pull,
        Site::Park,
        Site::Timer,
        Site::Owner,
        Site::Group,
        Site::Count,
        Site::Stop,
        Site::Check,
    ];

    /// What reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Site::Dispatch => "dispatch",
            Site::Wake => "wake",
            Site::Charge => "charge",
            Site::Raise => "raise",
            Site::Publish => "publish",
            Site::Search => "search",
            Site::LookAround => "look_around",
            Site::Pull => "pull",
            Site::Park => "park",
            Site::Timer => "timer",
            Site::Owner => "owner",
            Site::Group => "group",
            Site::Count => "count",
            Site::Stop => "stop",
            Site::Check => "check",
        }
    }
}

/// A set of sites.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sites(u16);

impl Sites {
    /// None.
    pub const NONE: Sites = Sites(0);

    /// These, and `site`.
    #[must_use]
    pub const fn with(self, site: Site) -> Sites {
        Sites(self.0 | 1 << site as u16)
    }

    /// Whether `site` is among them.
    pub const fn contains(self, site: Site) -> bool {
        self.0 & 1 << site as u16 != 0
    }

    /// As bits: that of a site has its number.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_have_places_and_names_of_their_own() {
        for (index, site) in Site::ALL.into_iter().enumerate() {
            assert_eq!(site as usize, index);
            assert_eq!(Site::ALL.iter().filter(|other| other.name() == site.name()).count(), 1, "{site:?}");
        }
    }
}
