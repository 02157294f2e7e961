//! The topology of this computer, read from `/sys` or a copy of it.
//!
//! What may be missing there (nodes, caches) is made up; what is there must make sense. Walks through no folders, and reads no
//! more of a file than a list of CPUs can have.
//!
//! Knows nothing of what this process may use of it.

use super::source::MachineError;
use super::topology::{CPUS_MAX, Place, Topology};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files beyond this are not CPU lists.
const TEXT_MAX: u64 = 64 << 10;

pub(super) fn topology(root: &Path) -> Result<Topology, MachineError> {
    let cpus = root.join("devices/system/cpu");
    let online = read_list(&cpus.join("online"))?;
    let nodes = nodes(root)?;
    let (mut sockets, mut cores, mut caches) = (Names::default(), Names::default(), Caches::default());
    let places = online.iter().map(|cpu| {
        let folder = cpus.join(format!("cpu{cpu}"));
        let id = |name: &str| read_id(&folder.join("topology").join(name));
        let socket = id("physical_package_id")?;
        let die = if folder.join("topology/die_id").exists() { id("die_id")? } else { 0 };
        let core = cores.number((socket, die, id("core_id")?));
        let node = nodes.get(cpu).copied().unwrap_or(0);
        let cache = match last_cache(&folder)? {
            Some(shared) => caches.number(*cpu, shared)?,
            None => caches.of_node(node),
        };
        Ok(Place { core, cache, node, socket: sockets.number(socket) })
    });
    let places = places.collect::<Result<Vec<_>, MachineError>>()?;
    let count = places.len();
    Topology::of_places(places).ok_or_else(|| {
        let what = format!("{count} CPUs, expected 1 to {CPUS_MAX} in cores of at most two");
        MachineError(format!("{}:1: {what}", cpus.display()))
    })
}

/// Numbers for names, in the order in which they are first seen.
#[derive(Debug)]
struct Names<N>(BTreeMap<N, u32>);

impl<N> Default for Names<N> {
    fn default() -> Self {
        Names(BTreeMap::new())
    }
}

impl<N: Ord> Names<N> {
    fn number(&mut self, name: N) -> u32 {
        let next = u32::try_from(self.0.len()).expect("there are as many names as CPUs at most");
        *self.0.entry(name).or_insert(next)
    }
}

/// The last-level caches that have been seen. One is known by the CPUs that share it.
#[derive(Debug, Default)]
struct Caches {
    numbers: Names<CacheName>,
    /// The file that said so of each CPU.
    by_cpu: BTreeMap<u32, (u32, PathBuf)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CacheName {
    Shared(Vec<u32>),
    /// The system tells of no caches: one per node.
    OfNode(u32),
}

impl Caches {
    fn of_node(&mut self, node: u32) -> u32 {
        self.numbers.number(CacheName::OfNode(node))
    }

    /// The cache of a CPU, of which `shared` says who shares it. All that share it must say the same.
    fn number(&mut self, cpu: u32, (file, shared): (PathBuf, Vec<u32>)) -> Result<u32, MachineError> {
        let odd = |what: String| MachineError(format!("{}:1: {what}", file.display()));
        if !shared.contains(&cpu) {
            return Err(odd(format!("CPU {cpu} is not in the list, expected it among those that share its cache")));
        }
        let number = self.numbers.number(CacheName::Shared(shared.clone()));
        for other in shared {
            let (before, by) = self.by_cpu.entry(other).or_insert_with(|| (number, file.clone()));
            if *before != number {
                let what = format!("CPU {other} shares this cache, expected what {} says of it", by.display());
                return Err(odd(what));
            }
        }
        Ok(number)
    }
}

/// The node of each CPU. Empty where the system knows no nodes.
fn nodes(root: &Path) -> Result<BTreeMap<u32, u32>, MachineError> {
    let folder = root.join("devices/system/node");
    let mut nodes = BTreeMap::new();
    if !folder.join("online").exists() {
        return Ok(nodes);
    }
    for node in read_list(&folder.join("online"))? {
        let file = folder.join(format!("node{node}/cpulist"));
        for cpu in read_list(&file)? {
            if let Some(other) = nodes.insert(cpu, node) {
                let what = format!("CPU {cpu} is in node {other} too, expected it in one");
                return Err(MachineError(format!("{}:1: {what}", file.display())));
            }
        }
    }
    Ok(nodes)
}

/// The CPUs that share the last-level cache of the CPU in `folder`, and the file that says so. `None` if nothing is said of
/// caches.
fn last_cache(folder: &Path) -> Result<Option<(PathBuf, Vec<u32>)>, MachineError> {
    let mut last = None;
    for index in 0..8 {
        let cache = folder.join(format!("cache/index{index}"));
        if !cache.join("level").exists() {
            continue;
        }
        let level = read_id(&cache.join("level"))?;
        if last.as_ref().is_none_or(|(highest, _)| level >= *highest) {
            last = Some((level, cache.join("shared_cpu_list")));
        }
    }
    last.map(|(_, file)| read_list(&file).map(|list| (file, list))).transpose()
}

fn read(path: &Path) -> Result<String, MachineError> {
    let fail = |what: String| MachineError(format!("{}:1: {what}", path.display()));
    let cannot = |error: std::io::Error| fail(format!("can't read it: {error}; expected a file of /sys"));
    // Before it is opened: opening some kinds of files never returns.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(fail("not a plain file, expected a file of /sys".to_owned()));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(TEXT_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > TEXT_MAX {
        return Err(fail(format!("more than {TEXT_MAX} bytes, expected a file of /sys")));
    }
    Ok(text.trim().to_owned())
}

/// A small number. The kernel writes -1 for what it does not know.
fn read_id(path: &Path) -> Result<i32, MachineError> {
    let text = read(path)?;
    text.parse().map_err(|_| wrong(path, &text, "a number"))
}

fn read_list(path: &Path) -> Result<Vec<u32>, MachineError> {
    let text = read(path)?;
    parse_list(&text).ok_or_else(|| wrong(path, &text, "a list of CPUs"))
}

fn wrong(path: &Path, text: &str, expected: &str) -> MachineError {
    let shown: String = text.chars().take(40).map(|char| if char.is_control() { ' ' } else { char }).collect();
    MachineError(format!("{}:1: `{shown}`, expected {expected}", path.display()))
}

/// A list such as `0-3,8`, in ascending order. `None` if it isn't one, or has more entries than a machine has CPUs.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut list: Vec<u32> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let is_ascending = list.last().is_none_or(|before| *before < first) && first <= last;
        if !is_ascending || (last - first) as usize >= CPUS_MAX || list.len() >= CPUS_MAX {
            return None;
        }
        list.extend(first..=last);
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        assert_eq!(parse_list("4294967295"), Some(vec![u32::MAX]));
        for text in ["3-1", "0-4000000000", "a", "0,0", "1,0", "0-3,3", ",", "0,", "-1", "0--1", "99999999999", "0-2-3"]
        {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
