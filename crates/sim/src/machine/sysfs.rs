//! The topology of this computer, read from `/sys` or a copy of it.
//!
//! Knows nothing of what this process may use of it.

use super::source::MachineError;
use super::topology::{CPUS_MAX, Place, Topology};
use std::collections::BTreeMap;
use std::path::Path;

/// Lists beyond this are not CPU lists.
const TEXT_MAX: usize = 64 << 10;

pub(super) fn topology(root: &Path) -> Result<Topology, MachineError> {
    let cpus = root.join("devices/system/cpu");
    let online = read(&cpus.join("online"))?;
    let online = parse_list(&online).ok_or_else(|| wrong(&cpus.join("online"), &online, "a list of CPUs"))?;
    let nodes = nodes(root);
    let mut cores = Names::default();
    let mut caches = Names::default();
    let places = online.iter().map(|cpu| {
        let folder = cpus.join(format!("cpu{cpu}"));
        let socket = read_number(&folder.join("topology/physical_package_id"))?;
        let core = read_number(&folder.join("topology/core_id"))?;
        let node = nodes.get(cpu).copied().unwrap_or(0);
        let cache = last_cache(&folder).unwrap_or_else(|| format!("node {node}"));
        Ok(Place { core: cores.number(format!("{socket} {core}")), cache: caches.number(cache), node, socket })
    });
    let places = places.collect::<Result<Vec<_>, MachineError>>()?;
    let count = places.len();
    Topology::of_places(places).ok_or_else(|| {
        let what = format!("{count} CPUs, expected 1 to {CPUS_MAX} in cores of at most two");
        MachineError(format!("{}:1: {what}", cpus.display()))
    })
}

/// Numbers for names, in the order in which they are first seen.
#[derive(Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    fn number(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.0.len()).expect("there are as many names as CPUs at most");
        *self.0.entry(name).or_insert(next)
    }
}

/// The node of each CPU. Empty where the system knows no nodes.
fn nodes(root: &Path) -> BTreeMap<u32, u32> {
    let folder = root.join("devices/system/node");
    let listed = read(&folder.join("online")).ok().and_then(|text| parse_list(&text)).unwrap_or_default();
    let cpus_of = |node: &u32| {
        let text = read(&folder.join(format!("node{node}/cpulist"))).ok()?;
        Some(parse_list(&text)?.into_iter().map(|cpu| (cpu, *node)).collect::<Vec<_>>())
    };
    listed.iter().filter_map(cpus_of).flatten().collect()
}

/// The CPUs that share the last-level cache of the CPU in `folder`, as text: equal for all of them.
fn last_cache(folder: &Path) -> Option<String> {
    let levels = (0..8).filter_map(|index| {
        let cache = folder.join(format!("cache/index{index}"));
        let level = read_number(&cache.join("level")).ok()?;
        Some((level, read(&cache.join("shared_cpu_list")).ok()?))
    });
    levels.max_by_key(|(level, _)| *level).map(|(_, shared)| shared)
}

fn read(path: &Path) -> Result<String, MachineError> {
    let text = std::fs::read_to_string(path);
    text.map(|text| text.trim().to_owned())
        .map_err(|error| MachineError(format!("{}:1: can't read it: {error}", path.display())))
}

fn read_number(path: &Path) -> Result<u32, MachineError> {
    let text = read(path)?;
    text.parse().map_err(|_| wrong(path, &text, "a number"))
}

fn wrong(path: &Path, text: &str, expected: &str) -> MachineError {
    let shown: String = text.chars().take(40).collect();
    MachineError(format!("{}:1: `{shown}`, expected {expected}", path.display()))
}

/// A list such as `0-3,8`. `None` if it isn't one, or has too many entries.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let mut list = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || (last - first) as usize >= CPUS_MAX || list.len() > CPUS_MAX {
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
        assert_eq!(parse_list("3-1"), None);
        assert_eq!(parse_list("0-4000000000"), None);
        assert_eq!(parse_list("a"), None);
    }
}
