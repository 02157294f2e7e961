//! Who acts next: for each actor the time of its next act, and the least of them.
//!
//! A tournament: a tree whose leaves are the actors and whose inner nodes name the earlier of two. A change costs one walk
//! to the root, whatever the number of entries made void meanwhile.
//!
//! Knows nothing of what the actors are.
//!
//! # Invariants
//! - V1: ties end in the order in which the acts were set.

use evenkeel_core::Time;

#[derive(Debug)]
pub(super) struct Agenda {
    /// `nodes[1]` is the root; the children of node n are 2n and 2n + 1, in one line of the cache; leaves are the actors.
    nodes: Vec<Node>,
    sequence: u64,
}

/// The earliest act below a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(32))]
struct Node {
    /// Its time in ns, and below that the order in which acts were set.
    when: u128,
    actor: u32,
}

/// An actor without a next act comes last.
const NEVER: u128 = u128::MAX;

impl Agenda {
    /// No actor has a next act.
    pub(super) fn new(actors: usize) -> Agenda {
        let leaves = actors.next_power_of_two();
        let mut nodes = vec![Node { when: NEVER, actor: 0 }; 2 * leaves];
        for (actor, node) in nodes[leaves..].iter_mut().enumerate() {
            node.actor = u32::try_from(actor).expect("there are few actors");
        }
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node];
        }
        Agenda { nodes, sequence: 0 }
    }

    /// The actor that acts next, and when. [`Time::NEVER`] if none does.
    pub(super) fn first(&self) -> (usize, Time) {
        (self.nodes[1].actor as usize, time(self.nodes[1].when))
    }

    /// When an actor acts next.
    pub(super) fn time(&self, actor: usize) -> Time {
        time(self.nodes[self.nodes.len() / 2 + actor].when)
    }

    /// Sets the time of an actor's next act, whatever it was.
    pub(super) fn set(&mut self, actor: usize, time: Time) {
        self.sequence += 1;
        let mut node = self.nodes.len() / 2 + actor;
        self.nodes[node].when =
            if time == Time::NEVER { NEVER } else { u128::from(time.as_nanos()) << 64 | u128::from(self.sequence) };
        while node > 1 {
            // The place of the winner rather than the winner: that is chosen without a jump, and who wins is hard to foresee.
            let winner = self.nodes[node ^ usize::from(self.nodes[node ^ 1].when < self.nodes[node].when)];
            node /= 2;
            // Whoever wins here as before changes nothing above.
            if std::mem::replace(&mut self.nodes[node], winner) == winner {
                return;
            }
        }
    }
}

fn time(when: u128) -> Time {
    Time::from_nanos(u64::try_from(when >> 64).expect("what is left has 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_least(actors in 1_usize..40, sets in prop::collection::vec((0_usize..40, 0_u64..20), 1..200)) {
            let mut agenda = Agenda::new(actors);
            let mut plain = vec![(u64::MAX, u64::MAX); actors];
            for (turn, (actor, time)) in sets.into_iter().enumerate() {
                let actor = actor % actors;
                let time = if time == 19 { u64::MAX } else { time };
                agenda.set(actor, Time::from_nanos(time));
                plain[actor] = if time == u64::MAX { (time, time) } else { (time, turn as u64) };
                let least = (0..actors).min_by_key(|actor| plain[*actor]).unwrap();
                let (first, at) = agenda.first();
                prop_assert_eq!(at.as_nanos(), plain[least].0);
                prop_assert!(at == Time::NEVER || first == least);
            }
        }
    }
}
