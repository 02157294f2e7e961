//! Which of the machine's CPUs the threads of this process may use, and pinning a thread to some of them.
//!
//! Knows nothing of the engine's CPUs, of worker threads or of cgroup quotas.
//!
//! # Invariants
//! - A1: no thread is ever pinned outside the affinity mask that the process had when it was read: a [`PinPlan`] can
//!   only be made from that mask, and only a plan can pin.
//! - A2: every set in a plan holds at least one CPU.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How worker threads are tied to the machine's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pin {
    /// Not at all: the operating system places them.
    #[default]
    Off,
    /// Each worker to the CPUs that share the last-level cache of its CPU.
    Llc,
    /// Each worker to one CPU.
    Cpu,
}

impl Pin {
    /// The name used in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Llc => "llc",
            Self::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pin {
    type Err = UnknownPin;

    fn from_str(text: &str) -> Result<Self, UnknownPin> {
        [Self::Off, Self::Llc, Self::Cpu]
            .into_iter()
            .find(|pin| pin.name() == text)
            .ok_or_else(|| UnknownPin(text.to_owned()))
    }
}

/// A text that names no way of pinning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPin(String);

impl fmt::Display for UnknownPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pin = {:?}: expected off, llc or cpu", self.0)
    }
}

impl std::error::Error for UnknownPin {}

/// The operating system's number of one of the machine's CPUs. Not the engine's index of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineCpu(pub u32);

impl fmt::Display for MachineCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of the machine's CPUs, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineCpus(Vec<MachineCpu>);

impl MachineCpus {
    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: MachineCpu) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = MachineCpu> + '_ {
        self.0.iter().copied()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.iter().filter(|cpu| other.contains(*cpu)).collect())
    }

    /// Parses the kernel's list form, such as `0-3,8,10-11`.
    fn from_list(text: &str) -> Option<Self> {
        text.trim()
            .split(',')
            .map(parse_range)
            .collect::<Option<Vec<_>>>()
            .map(|ranges| ranges.into_iter().flatten().map(MachineCpu).collect())
    }
}

impl FromIterator<MachineCpu> for MachineCpus {
    fn from_iter<I: IntoIterator<Item = MachineCpu>>(cpus: I) -> Self {
        let mut cpus: Vec<_> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

/// The kernel's list form, such as `0-3,8,10-11`.
impl fmt::Display for MachineCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|left, right| left.0.checked_add(1) == Some(right.0)) {
            match run {
                [] => {}
                [only] => write!(f, "{separator}{only}")?,
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// No machine has a CPU with a higher number; a list that names one is garbage, and would cost memory to expand. The
/// kernel's own limit is 8,192 CPUs on the largest architectures.
const CPU_NUMBER_MAX: u32 = 1 << 16;

fn parse_range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last <= CPU_NUMBER_MAX).then_some(first..=last)
}

/// The CPUs that the calling thread may run on: what it and the threads it starts were given by the operating system,
/// by a cpuset or by `taskset`.
///
/// # Errors
///
/// [`AffinityError::Unreadable`] if the system can't tell.
pub fn allowed() -> Result<MachineCpus, AffinityError> {
    sys::allowed().map_err(AffinityError::Unreadable)
}

/// Which CPUs each worker is pinned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinPlan {
    allowed: MachineCpus,
    sets: Vec<MachineCpus>,
}

impl PinPlan {
    /// Plans for CPUs out of `allowed`, taken in turn; more workers than CPUs share them. `None` with [`Pin::Off`].
    ///
    /// # Errors
    ///
    /// [`AffinityError::NoCpu`] if `allowed` is empty, [`AffinityError::NoCache`] if the caches can't be read.
    pub fn new(pin: Pin, allowed: &MachineCpus, caches: &Caches) -> Result<Option<Self>, AffinityError> {
        let sets: Vec<MachineCpus> = match pin {
            Pin::Off => return Ok(None),
            Pin::Cpu => allowed.iter().map(|cpu| MachineCpus(vec![cpu])).collect(),
            Pin::Llc => {
                let shared = |cpu| caches.sharing_last_level(cpu);
                allowed.iter().map(shared).collect::<Result<_, _>>()?
            }
        };
        if sets.is_empty() {
            return Err(AffinityError::NoCpu);
        }
        let sets = sets.iter().map(|set| set.intersection(allowed)).collect();
        Ok(Some(Self { allowed: allowed.clone(), sets }))
    }

    /// The CPUs of a worker: never empty, never outside the mask that the plan was made from.
    pub fn cpus_of(&self, worker: usize) -> &MachineCpus {
        let set = &self.sets[worker % self.sets.len()];
        assert!(!set.is_empty(), "A2: worker {worker} has no CPU out of {}", self.allowed);
        set
    }

    /// Pins the calling thread, which is the one of `worker`.
    ///
    /// # Errors
    ///
    /// [`AffinityError::Refused`] if the system refuses, for instance because a cpuset has shrunk since.
    pub fn pin_current_thread(&self, worker: usize) -> Result<(), AffinityError> {
        let cpus = self.cpus_of(worker);
        sys::pin_current_thread(cpus).map_err(|error| AffinityError::Refused { cpus: cpus.clone(), error })
    }
}

/// What the machine says of its caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caches {
    sys_root: PathBuf,
}

impl Caches {
    /// Of the machine this runs on.
    pub fn of_this_machine() -> Self {
        Self::under("/sys")
    }

    /// Read from a tree that is laid out as `/sys` is.
    pub fn under(sys_root: impl Into<PathBuf>) -> Self {
        Self { sys_root: sys_root.into() }
    }

    /// The CPUs that share the last-level cache of `cpu`, itself among them.
    ///
    /// # Errors
    ///
    /// [`AffinityError::NoCache`] if the system lists no data cache for this CPU.
    pub fn sharing_last_level(&self, cpu: MachineCpu) -> Result<MachineCpus, AffinityError> {
        let folder = self.sys_root.join(format!("devices/system/cpu/cpu{cpu}/cache"));
        let no_cache = || AffinityError::NoCache { cpu, folder: folder.clone() };
        let entries = std::fs::read_dir(&folder).map_err(|_| no_cache())?;
        let caches = entries.filter_map(|entry| Cache::read(&entry.ok()?.path()));
        let last = caches.max_by_key(|cache| cache.level).ok_or_else(no_cache)?;
        if !last.shared_by.contains(cpu) {
            return Err(no_cache());
        }
        Ok(last.shared_by)
    }
}

struct Cache {
    level: u32,
    shared_by: MachineCpus,
}

impl Cache {
    /// `None` for instruction caches, and for what isn't a cache's folder or can't be read.
    fn read(folder: &Path) -> Option<Self> {
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        if text("type")?.trim() == "Instruction" {
            return None;
        }
        let level = text("level")?.trim().parse().ok()?;
        let shared_by = MachineCpus::from_list(&text("shared_cpu_list")?)?;
        Some(Self { level, shared_by })
    }
}

/// Why CPUs could not be found out, or a thread not be pinned.
#[derive(Debug)]
#[non_exhaustive]
pub enum AffinityError {
    /// The affinity mask could not be read.
    Unreadable(io::Error),
    /// The mask to plan for holds no CPU.
    NoCpu,
    /// The system lists no usable last-level cache for a CPU.
    NoCache {
        /// The CPU asked about.
        cpu: MachineCpu,
        /// Where its caches should be listed.
        folder: PathBuf,
    },
    /// The system refused to pin a thread.
    Refused {
        /// To which CPUs.
        cpus: MachineCpus,
        /// What it said.
        error: io::Error,
    },
}

impl fmt::Display for AffinityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "the affinity mask can't be read: {error}"),
            Self::NoCpu => f.write_str("there is no CPU to pin to"),
            Self::NoCache { cpu, folder } => {
                write!(f, "pin = llc: no last-level cache of CPU {cpu} in {}", folder.display())
            }
            Self::Refused { cpus, error } => {
                write!(f, "a thread can't be pinned to CPUs {cpus}: {error}")
            }
        }
    }
}

impl std::error::Error for AffinityError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(error) | Self::Refused { error, .. } => Some(error),
            Self::NoCpu | Self::NoCache { .. } => None,
        }
    }
}

#[cfg(target_os = "linux")]
mod sys {
    use super::{CPU_NUMBER_MAX, MachineCpu, MachineCpus};
    use std::io;

    type Word = libc::c_ulong;

    /// Enough for 1,024 CPUs, which is what the C library's fixed set holds.
    const WORDS_FIRST: usize = 1024 / Word::BITS as usize;
    const WORDS_MAX: usize = CPU_NUMBER_MAX as usize / Word::BITS as usize;

    pub(super) fn allowed() -> io::Result<MachineCpus> {
        let mut mask: Vec<Word> = vec![0; WORDS_FIRST];
        // Ends: the mask doubles up to a maximum.
        loop {
            // SAFETY: the pointer is to `mask`, which is as many bytes long as the call is told, is exclusively
            // borrowed for it, and holds plain integers, for which every bit pattern is valid. Thread 0 is the caller.
            let status = unsafe { libc::sched_getaffinity(0, size_of_val(&mask[..]), mask.as_mut_ptr().cast()) };
            if status == 0 {
                return Ok(cpus_in(&mask));
            }
            let error = io::Error::last_os_error();
            // The kernel answers so when it knows of more CPUs than the mask has room for.
            if error.raw_os_error() != Some(libc::EINVAL) || mask.len() >= WORDS_MAX {
                return Err(error);
            }
            mask = vec![0; mask.len() * 2];
        }
    }

    pub(super) fn pin_current_thread(cpus: &MachineCpus) -> io::Result<()> {
        let mask = mask_of(cpus);
        // SAFETY: the pointer is to `mask`, which is as many bytes long as the call is told and is only read. Thread 0
        // is the caller.
        let status = unsafe { libc::sched_setaffinity(0, size_of_val(&mask[..]), mask.as_ptr().cast()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn cpus_in(mask: &[Word]) -> MachineCpus {
        let bits = (0..).zip(mask).flat_map(|(index, word)| {
            (0..Word::BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * Word::BITS + bit)
        });
        bits.map(MachineCpu).collect()
    }

    fn mask_of(cpus: &MachineCpus) -> Vec<Word> {
        let mut mask: Vec<Word> = vec![0; WORDS_FIRST];
        for MachineCpu(number) in cpus.iter() {
            let index = (number / Word::BITS) as usize;
            if index >= mask.len() {
                mask.resize(index + 1, 0);
            }
            mask[index] |= 1 << (number % Word::BITS);
        }
        mask
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn mask_keeps_cpus_beyond_the_fixed_size() {
            let cpus: MachineCpus = [0, 63, 64, 1023, 1024, 4095].into_iter().map(MachineCpu).collect();
            assert_eq!(cpus_in(&mask_of(&cpus)), cpus);
            assert_eq!(mask_of(&MachineCpus::default()).len(), WORDS_FIRST);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    use super::{MachineCpu, MachineCpus};
    use std::io;

    /// There is no mask to ask for: as many CPUs as the standard library counts, numbered from zero.
    pub(super) fn allowed() -> io::Result<MachineCpus> {
        let count = u32::try_from(std::thread::available_parallelism()?.get()).unwrap_or(u32::MAX);
        Ok((0..count).map(MachineCpu).collect())
    }

    pub(super) fn pin_current_thread(_cpus: &MachineCpus) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    fn cpus(numbers: &[u32]) -> MachineCpus {
        numbers.iter().copied().map(MachineCpu).collect()
    }

    /// Four CPUs below two last-level caches, and an instruction cache that claims to be the largest.
    fn two_caches() -> Tree {
        let tree = Tree::new();
        for cpu in 0..4 {
            let folder = format!("devices/system/cpu/cpu{cpu}/cache");
            let pair = if cpu < 2 { "0-1\n" } else { "2,3\n" };
            let own = format!("{cpu}\n");
            let rows = [("1", "Data", own.as_str()), ("9", "Instruction", "0-3\n"), ("2", "Unified", pair)];
            for (index, (level, kind, shared)) in rows.into_iter().enumerate() {
                tree.file(format!("{folder}/index{index}/level"), &format!("{level}\n"));
                tree.file(format!("{folder}/index{index}/type"), &format!("{kind}\n"));
                tree.file(format!("{folder}/index{index}/shared_cpu_list"), shared);
            }
            tree.file(format!("{folder}/uevent"), "");
        }
        tree
    }

    #[test]
    fn list_form_is_read_and_written() {
        for text in ["0", "0-3", "0-3,8,10-11", "5,7,9"] {
            assert_eq!(MachineCpus::from_list(text).unwrap().to_string(), text);
        }
        assert_eq!(MachineCpus::from_list("3,1-2,2\n").unwrap(), cpus(&[1, 2, 3]));
        assert_eq!(MachineCpus::default().to_string(), "");
        for garbage in ["", "a", "3-1", "1-", "0-4000000000", "-1", "1,,2"] {
            assert_eq!(MachineCpus::from_list(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn last_level_cache_is_the_highest_that_holds_data() {
        let tree = two_caches();
        let caches = Caches::under(tree.root());
        assert_eq!(caches.sharing_last_level(MachineCpu(1)).unwrap(), cpus(&[0, 1]));
        assert_eq!(caches.sharing_last_level(MachineCpu(2)).unwrap(), cpus(&[2, 3]));
    }

    #[test]
    fn missing_or_garbled_caches_are_an_error_that_names_the_cpu() {
        let tree = two_caches();
        tree.file("devices/system/cpu/cpu8/cache/index0/level", "high");
        tree.file("devices/system/cpu/cpu8/cache/index0/type", "Unified");
        tree.file("devices/system/cpu/cpu9/cache/index0/level", "3");
        tree.file("devices/system/cpu/cpu9/cache/index0/type", "Unified");
        tree.file("devices/system/cpu/cpu9/cache/index0/shared_cpu_list", "0-1");
        for cpu in [7, 8, 9] {
            let error = Caches::under(tree.root()).sharing_last_level(MachineCpu(cpu)).unwrap_err();
            assert!(error.to_string().contains(&format!("cache of CPU {cpu} ")), "{error}");
        }
    }

    #[test]
    fn plan_stays_within_the_mask() {
        let tree = two_caches();
        let caches = Caches::under(tree.root());
        let allowed = cpus(&[1, 2, 3]);
        let plan = PinPlan::new(Pin::Llc, &allowed, &caches).unwrap().unwrap();
        let sets: Vec<_> = (0..4).map(|worker| plan.cpus_of(worker).to_string()).collect();
        assert_eq!(sets, ["1", "2-3", "2-3", "1"], "A1");
        let plan = PinPlan::new(Pin::Cpu, &allowed, &caches).unwrap().unwrap();
        let sets: Vec<_> = (0..4).map(|worker| plan.cpus_of(worker).to_string()).collect();
        assert_eq!(sets, ["1", "2", "3", "1"], "A1");
    }

    #[test]
    fn plan_needs_caches_only_if_it_pins_to_them() {
        let nowhere = Caches::under("/nonexistent");
        let allowed = cpus(&[0]);
        assert_eq!(PinPlan::new(Pin::Off, &allowed, &nowhere).unwrap(), None);
        assert!(PinPlan::new(Pin::Cpu, &allowed, &nowhere).unwrap().is_some());
        let error = PinPlan::new(Pin::Llc, &allowed, &nowhere).unwrap_err();
        assert!(matches!(error, AffinityError::NoCache { cpu: MachineCpu(0), .. }), "{error}");
        let error = PinPlan::new(Pin::Cpu, &cpus(&[]), &nowhere).unwrap_err();
        assert!(matches!(error, AffinityError::NoCpu), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pinned_thread_may_use_only_its_cpus() {
        let own = allowed().unwrap();
        let plan = PinPlan::new(Pin::Cpu, &own, &Caches::under("/nonexistent")).unwrap().unwrap();
        for worker in 0..own.len() {
            let plan = plan.clone();
            let seen = std::thread::spawn(move || {
                plan.pin_current_thread(worker).unwrap();
                (allowed().unwrap(), plan.cpus_of(worker).clone())
            });
            let (seen, planned) = seen.join().unwrap();
            assert_eq!(seen, planned);
        }
        assert_eq!(allowed().unwrap(), own, "other threads keep their mask");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn refused_pin_names_the_cpus() {
        let absent = cpus(&[CPU_NUMBER_MAX]);
        let plan = PinPlan::new(Pin::Cpu, &absent, &Caches::under("/nonexistent")).unwrap().unwrap();
        let error = plan.pin_current_thread(0).unwrap_err();
        assert!(error.to_string().contains("CPUs 65536"), "{error}");
    }

    #[test]
    fn pin_names_are_read_as_written() {
        for pin in [Pin::Off, Pin::Llc, Pin::Cpu] {
            assert_eq!(pin.to_string().parse(), Ok(pin));
        }
        let error = "Cores".parse::<Pin>().unwrap_err();
        assert_eq!(error.to_string(), "pin = \"Cores\": expected off, llc or cpu");
    }
}
