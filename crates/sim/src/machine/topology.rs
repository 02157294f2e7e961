//! Where the CPUs of a machine are: core, last-level cache, memory node, socket.
//!
//! Knows nothing of costs, nor of who runs where.

use evenkeel_core::CpuId;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most CPUs that a machine may have.
pub const CPUS_MAX: usize = 1_024;

/// Where one CPU is. Two CPUs are in the same core, cache, node or socket if the numbers are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its core, unique in the machine.
    pub core: u32,
    /// Its last-level cache, unique in the machine.
    pub cache: u32,
    /// Its memory node.
    pub node: u32,
    /// Its socket.
    pub socket: u32,
}

/// How far two CPUs are apart: the smallest thing that holds both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Distance {
    /// One and the same.
    Same,
    /// Threads of one core.
    Sibling,
    /// One last-level cache.
    Cache,
    /// One memory node.
    Node,
    /// One socket.
    Socket,
    /// Different sockets, or one of them is outside.
    Machine,
}

impl Distance {
    /// How many distances there are.
    pub const COUNT: usize = Distance::Machine as usize + 1;
}

/// How CPUs are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numbering {
    /// First one thread of every core, node after node; then the second threads in the same order.
    ThreadsLast,
    /// The threads of a core have consecutive numbers.
    ThreadsAdjacent,
    /// One core of each node in turn, then the second threads in the same order: on two nodes, even CPUs are on node 0.
    InterleavedNodes,
}

/// How many of each there are, one level inside the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Sockets of the machine.
    pub sockets: u32,
    /// Memory nodes of a socket.
    pub nodes_per_socket: u32,
    /// Last-level caches of a node.
    pub caches_per_node: u32,
    /// Cores of a cache.
    pub cores_per_cache: u32,
    /// CPUs of a core: 1 or 2.
    pub threads_per_core: u32,
}

impl Shape {
    /// How many CPUs that makes. Saturates.
    pub fn cpus(&self) -> u64 {
        let levels =
            [self.sockets, self.nodes_per_socket, self.caches_per_node, self.cores_per_cache, self.threads_per_core];
        levels.into_iter().map(u64::from).fold(1, u64::saturating_mul)
    }

    fn nodes(&self) -> u32 {
        self.sockets * self.nodes_per_socket
    }

    fn cores_per_node(&self) -> u32 {
        self.caches_per_node * self.cores_per_cache
    }

    /// The place of the CPU with a number.
    fn place(&self, cpu: u32, numbering: Numbering) -> Place {
        let cores = self.nodes() * self.cores_per_node();
        let (node, core_in_node) = match numbering {
            Numbering::ThreadsLast => ((cpu % cores) / self.cores_per_node(), (cpu % cores) % self.cores_per_node()),
            Numbering::ThreadsAdjacent => {
                let core = cpu / self.threads_per_core;
                (core / self.cores_per_node(), core % self.cores_per_node())
            }
            Numbering::InterleavedNodes => ((cpu % cores) % self.nodes(), (cpu % cores) / self.nodes()),
        };
        Place {
            core: node * self.cores_per_node() + core_in_node,
            cache: node * self.caches_per_node + core_in_node / self.cores_per_cache,
            node,
            socket: node / self.nodes_per_socket,
        }
    }
}

/// The places of all CPUs of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    places: Vec<Place>,
    /// The other thread of each CPU's core.
    siblings: Vec<Option<CpuId>>,
}

impl Topology {
    /// A machine whose parts are all alike. `None` if it has no CPUs or more than [`CPUS_MAX`], or cores of more than two
    /// threads.
    pub fn regular(shape: Shape, numbering: Numbering) -> Option<Topology> {
        let cpus = u32::try_from(shape.cpus()).ok().filter(|cpus| (1..=CPUS_MAX).contains(&(*cpus as usize)))?;
        Topology::of_places((0..cpus).map(|cpu| shape.place(cpu, numbering)).collect())
    }

    /// A machine of these CPUs. `None` if there are none or more than [`CPUS_MAX`], or cores of more than two threads.
    pub fn of_places(places: Vec<Place>) -> Option<Topology> {
        if places.is_empty() || places.len() > CPUS_MAX {
            return None;
        }
        let mut cores: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (cpu, place) in places.iter().enumerate() {
            cores.entry(place.core).or_default().push(cpu);
        }
        let mut siblings = vec![None; places.len()];
        for cpus in cores.values() {
            match cpus[..] {
                [_] => {}
                [one, other] => (siblings[one], siblings[other]) = (Some(cpu_id(other)), Some(cpu_id(one))),
                _ => return None,
            }
        }
        Some(Topology { places, siblings })
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.places.len()
    }

    /// Where a CPU is.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn place(&self, cpu: CpuId) -> Place {
        self.places[cpu.index()]
    }

    /// The other thread of a CPU's core.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn sibling(&self, cpu: CpuId) -> Option<CpuId> {
        self.siblings[cpu.index()]
    }

    /// The last-level cache of each CPU, as the engine wants it.
    pub fn caches(&self) -> Vec<usize> {
        self.places.iter().map(|place| place.cache as usize).collect()
    }

    /// How far two CPUs are apart. Whoever is not a CPU of the machine is as far as can be.
    pub fn distance(&self, one: CpuId, other: CpuId) -> Distance {
        if one == other {
            return Distance::Same;
        }
        let (Some(here), Some(there)) = (self.places.get(one.index()), self.places.get(other.index())) else {
            return Distance::Machine;
        };
        if here.core == there.core {
            Distance::Sibling
        } else if here.cache == there.cache {
            Distance::Cache
        } else if here.node == there.node {
            Distance::Node
        } else if here.socket == there.socket {
            Distance::Socket
        } else {
            Distance::Machine
        }
    }
}

fn cpu_id(index: usize) -> CpuId {
    CpuId::new(u32::try_from(index).expect("a machine has at most CPUS_MAX CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const XEON: Shape =
        Shape { sockets: 2, nodes_per_socket: 1, caches_per_node: 1, cores_per_cache: 12, threads_per_core: 2 };

    fn distance(topology: &Topology, one: u32, other: u32) -> Distance {
        topology.distance(CpuId::new(one), CpuId::new(other))
    }

    #[test]
    fn interleaved_nodes_take_turns() {
        let topology = Topology::regular(XEON, Numbering::InterleavedNodes).unwrap();
        assert_eq!(topology.cpus(), 48);
        for cpu in 0..48 {
            assert_eq!(topology.place(CpuId::new(cpu)).node, cpu % 2);
        }
        assert_eq!(topology.sibling(CpuId::new(3)), Some(CpuId::new(27)));
        assert_eq!(distance(&topology, 0, 24), Distance::Sibling);
        assert_eq!(distance(&topology, 0, 2), Distance::Cache);
        assert_eq!(distance(&topology, 0, 1), Distance::Machine);
    }

    #[test]
    fn threads_come_last_or_side_by_side() {
        let last = Topology::regular(XEON, Numbering::ThreadsLast).unwrap();
        assert_eq!((distance(&last, 0, 24), distance(&last, 0, 1)), (Distance::Sibling, Distance::Cache));
        assert_eq!(distance(&last, 11, 12), Distance::Machine);
        let adjacent = Topology::regular(XEON, Numbering::ThreadsAdjacent).unwrap();
        assert_eq!((distance(&adjacent, 0, 1), distance(&adjacent, 0, 2)), (Distance::Sibling, Distance::Cache));
        assert_eq!(distance(&adjacent, 23, 24), Distance::Machine);
    }

    #[test]
    fn every_numbering_fills_every_place() {
        let shape =
            Shape { sockets: 2, nodes_per_socket: 2, caches_per_node: 3, cores_per_cache: 5, threads_per_core: 2 };
        for numbering in [Numbering::ThreadsLast, Numbering::ThreadsAdjacent, Numbering::InterleavedNodes] {
            let topology = Topology::regular(shape, numbering).unwrap();
            let mut cores: BTreeMap<u32, usize> = BTreeMap::new();
            let mut caches: BTreeMap<(u32, u32, u32), usize> = BTreeMap::new();
            for cpu in 0..120 {
                let place = topology.place(CpuId::new(cpu));
                *cores.entry(place.core).or_default() += 1;
                *caches.entry((place.socket, place.node, place.cache)).or_default() += 1;
            }
            assert_eq!((cores.len(), caches.len()), (60, 12), "{numbering:?}");
            assert!(cores.values().all(|cpus| *cpus == 2) && caches.values().all(|cpus| *cpus == 10));
        }
    }

    #[test]
    fn the_outside_is_far_from_everybody() {
        let topology = Topology::regular(XEON, Numbering::ThreadsLast).unwrap();
        assert_eq!(topology.distance(CpuId::OUTSIDE, CpuId::new(0)), Distance::Machine);
    }
}
