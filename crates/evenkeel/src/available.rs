//! How many CPUs this process may really use: its affinity mask, and the CPU quotas of its cgroups.
//!
//! A process that starts more workers than its quota pays for is throttled for the rest of every period, all workers at
//! once, so the quota counts as much as the mask. Both cgroup versions are read, side by side where a system has both,
//! and the quotas of all ancestors that can be seen from here count: the tightest wins.
//!
//! Knows nothing of worker threads, pinning or the engine. What is missing or garbled in the system's files is taken as
//! no limit: a runtime must start on any machine.
//!
//! # Invariants
//! - V1: only a cgroup that holds this process, or an ancestor of one, limits it.
//! - V2: the number of workers is at least 1 and at most the CPUs in the affinity mask.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};

use crate::affinity;

/// The environment variable that sets the number of workers where the program doesn't.
pub const WORKERS_VARIABLE: &str = "EVENKEEL_WORKERS";

/// The largest number of workers that [`WORKERS_VARIABLE`] may ask for. Guess: above every machine that is built, below
/// what a slip of the keyboard makes.
pub const WORKERS_MAX: usize = 8192;

/// The CPUs that this process may use, and why.
///
/// ```
/// let cpus = evenkeel::available::cpus();
/// assert!(cpus.workers() <= cpus.affinity.get());
/// println!("{} workers: {cpus}", cpus.workers());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AvailableCpus {
    /// The CPUs in the affinity mask. Cpusets of cgroups are part of it.
    pub affinity: NonZeroUsize,
    /// The tightest CPU quota of the process's cgroups, if there is one.
    pub quota: Option<Quota>,
}

impl AvailableCpus {
    /// How many workers are worth having: the affinity mask's CPUs, or the quota rounded up if that is less.
    pub fn workers(&self) -> usize {
        let affinity = self.affinity.get();
        self.quota.as_ref().map_or(affinity, |quota| affinity.min(quota.cpus.rounded_up()))
    }
}

/// For instance `affinity mask of 8, quota of 1.500 CPUs by /sys/fs/cgroup/a/cpu.max`.
impl fmt::Display for AvailableCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "affinity mask of {}, ", self.affinity)?;
        match &self.quota {
            Some(quota) => write!(f, "quota of {} CPUs by {}", quota.cpus, quota.file.display()),
            None => f.write_str("no quota"),
        }
    }
}

/// A CPU quota, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// How much CPU time per time.
    pub cpus: MilliCpus,
    /// The file that says so.
    pub file: PathBuf,
}

/// CPU time per time, in thousandths of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MilliCpus(pub u64);

impl MilliCpus {
    /// The number of CPUs that can use up this much; at least one.
    pub fn rounded_up(self) -> usize {
        usize::try_from(self.0.div_ceil(1000)).unwrap_or(usize::MAX).max(1)
    }

    /// `None` if the two make no sense as a quota.
    fn from_quota(budget: Budget) -> Option<Self> {
        if budget.quota_us == 0 || budget.period_us == 0 {
            return None;
        }
        let millis = (u128::from(budget.quota_us) * 1000).div_ceil(u128::from(budget.period_us));
        Some(Self(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// The CPUs that this process may use.
///
/// Where the system can't tell the affinity mask, the standard library's count stands in.
pub fn cpus() -> AvailableCpus {
    let counted = || std::thread::available_parallelism().ok();
    let mask = affinity::allowed().ok().and_then(|mask| NonZeroUsize::new(mask.len()));
    let affinity = mask.or_else(counted).unwrap_or(NonZeroUsize::MIN);
    AvailableCpus { affinity, quota: Source::of_this_machine().quota() }
}

/// The number of workers that [`WORKERS_VARIABLE`] asks for; `None` if it is unset or empty.
///
/// # Errors
///
/// [`WorkersVariableError`] if it holds anything but a number from 1 to [`WORKERS_MAX`].
pub fn workers_from_environment() -> Result<Option<usize>, WorkersVariableError> {
    match std::env::var_os(WORKERS_VARIABLE) {
        Some(value) => parse_workers(&value.to_string_lossy()),
        None => Ok(None),
    }
}

fn parse_workers(value: &str) -> Result<Option<usize>, WorkersVariableError> {
    let value = value.trim();
    if value.is_empty() {
        return Ok(None);
    }
    let in_range = |number: &usize| (1..=WORKERS_MAX).contains(number);
    let number = value.parse().ok().filter(in_range);
    number.map(Some).ok_or_else(|| WorkersVariableError { value: value.to_owned() })
}

/// [`WORKERS_VARIABLE`] holds something other than a number of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersVariableError {
    value: String,
}

impl fmt::Display for WorkersVariableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.value;
        write!(f, "{WORKERS_VARIABLE}={value:?}: expected a number from 1 to {WORKERS_MAX}")
    }
}

impl std::error::Error for WorkersVariableError {}

/// Where the system's files are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where `/proc` is.
    pub proc_root: PathBuf,
    /// What the mount points that are listed in `mountinfo` are below of.
    pub file_root: PathBuf,
}

impl Source {
    /// The machine this runs on.
    pub fn of_this_machine() -> Self {
        Self { proc_root: "/proc".into(), file_root: "/".into() }
    }

    /// The tightest CPU quota of the process's cgroups and their ancestors.
    pub fn quota(&self) -> Option<Quota> {
        // The paths in these files need not be UTF-8.
        let text = |file: &str| {
            let bytes = std::fs::read(self.proc_root.join("self").join(file)).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (memberships, mounts) = (text("cgroup")?, text("mountinfo")?);
        let memberships: Vec<_> = memberships.lines().filter_map(Membership::parse).collect();
        let folders = visible(&mounts)
            .filter_map(|mount| Some((mount.version()?, mount)))
            .flat_map(|(version, mount)| self.folders(version, &mount, &memberships));
        let quotas = folders.filter_map(|(version, folder)| version.quota_in(&folder));
        quotas.min_by_key(|quota| quota.cpus)
    }

    /// The process's cgroup and its ancestors, as far as `mount` shows them.
    fn folders(&self, version: Version, mount: &Mount, memberships: &[Membership]) -> Vec<(Version, PathBuf)> {
        let membership = memberships.iter().find(|membership| membership.version == version);
        let Some(below) = membership.and_then(|own| mount.root.names_down_to(&own.path)) else {
            return Vec::new();
        };
        let point = mount.point.strip_prefix("/").unwrap_or(&mount.point);
        let top = self.file_root.join(point);
        let own = top.join(below.iter().collect::<PathBuf>());
        let levels = below.len() + 1;
        own.ancestors().take(levels).map(|folder| (version, folder.to_owned())).collect()
    }
}

/// The two kinds of cgroup hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// A hierarchy of the `cpu` controller.
    V1,
    /// The one hierarchy of all controllers.
    V2,
}

impl Version {
    fn quota_in(self, folder: &Path) -> Option<Quota> {
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        let (budget, file) = match self {
            Self::V2 => (Budget::parse(&text("cpu.max")?)?, "cpu.max"),
            Self::V1 => {
                let quota = text("cpu.cfs_quota_us")?;
                let period = text("cpu.cfs_period_us")?;
                (Budget::parse(&format!("{} {}", quota.trim(), period.trim()))?, "cpu.cfs_quota_us")
            }
        };
        let cpus = MilliCpus::from_quota(budget)?;
        Some(Quota { cpus, file: folder.join(file) })
    }
}

/// A quota per period as the kernel states it.
#[derive(Clone, Copy, Debug)]
struct Budget {
    quota_us: u64,
    period_us: u64,
}

impl Budget {
    /// Parses `QUOTA PERIOD`. `None` if there is no limit (`max`, or `-1` in version 1) or no sense in it.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace();
        let quota_us = fields.next()?.parse().ok()?;
        let period_us = fields.next()?.parse().ok()?;
        Some(Self { quota_us, period_us })
    }
}

/// The cgroup of this process in one hierarchy: a line of `/proc/self/cgroup`.
#[derive(Clone, Debug)]
struct Membership {
    version: Version,
    path: GroupPath,
}

impl Membership {
    /// Parses `ID:CONTROLLERS:PATH`; `None` for hierarchies without the `cpu` controller.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match (id, controllers) {
            ("0", "") => Version::V2,
            (_, list) if has_cpu(list) => Version::V1,
            _ => return None,
        };
        Some(Self { version, path: GroupPath::parse(path)? })
    }
}

/// Whether a comma-separated list names the `cpu` controller.
fn has_cpu(list: &str) -> bool {
    list.split(',').any(|word| word == "cpu")
}

/// A path in a hierarchy as the kernel shows it to this process: from the root of its cgroup namespace, with a `..` for
/// each step above that root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupPath {
    steps_up: usize,
    names: Vec<String>,
}

impl GroupPath {
    fn parse(path: &str) -> Option<Self> {
        let mut parsed = Self { steps_up: 0, names: Vec::new() };
        for component in Path::new(path.strip_prefix('/')?).components() {
            match component {
                Component::ParentDir if parsed.names.is_empty() => parsed.steps_up += 1,
                Component::Normal(name) => parsed.names.push(name.to_str()?.to_owned()),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        Some(parsed)
    }

    /// The names on the way from here, the root of a mount, down to `own`, a process's cgroup. `None` if `own` isn't
    /// below: then nothing in the mount limits the process (V1).
    fn names_down_to<'a>(&self, own: &'a Self) -> Option<&'a [String]> {
        if self.steps_up > own.steps_up && self.names.is_empty() {
            // The mount shows an ancestor of the namespace's root, but the names in between are hidden from this
            // process: only the mount's top can be told to be its ancestor.
            return Some(&[]);
        }
        if self.steps_up != own.steps_up {
            return None;
        }
        own.names.strip_prefix(self.names.as_slice())
    }
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug)]
struct Mount {
    id: String,
    parent: String,
    root: GroupPath,
    point: PathBuf,
    kind: String,
    options: String,
}

impl Mount {
    /// Parses `ID PARENT DEVICE ROOT POINT OPTIONS [TAGS…] - KIND SOURCE OPTIONS`.
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let (id, parent) = (mount.next()?, mount.next()?);
        let (root, point) = (mount.nth(1)?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        Some(Self {
            id: id.to_owned(),
            parent: parent.to_owned(),
            root: GroupPath::parse(&unescape(root)?)?,
            point: unescape(point)?.into(),
            kind: kind.to_owned(),
            options: options.to_owned(),
        })
    }

    fn version(&self) -> Option<Version> {
        match self.kind.as_str() {
            "cgroup2" => Some(Version::V2),
            "cgroup" if has_cpu(&self.options) => Some(Version::V1),
            _ => None,
        }
    }

    /// Whether this mount lies on top of `other` at the same place.
    fn covers(&self, other: &Self) -> bool {
        self.parent == other.id && self.id != other.id && self.point == other.point
    }
}

/// The mounts whose files can be seen, since no other lies on top of them.
fn visible(mountinfo: &str) -> impl Iterator<Item = Mount> {
    let mounts: Vec<_> = mountinfo.lines().filter_map(Mount::parse).collect();
    let top = |mount: &Mount| !mounts.iter().any(|other| other.covers(mount));
    let seen: Vec<_> = mounts.iter().filter(|mount| top(mount)).cloned().collect();
    seen.into_iter()
}

/// Undoes the kernel's escapes of blanks and backslashes: `\040` and the like. `None` if there are others.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(3)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 8).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
