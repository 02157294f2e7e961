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
    acts: Vec<(Time, u64)>,
    /// `winners[1]` is the root; the children of node n are 2n and 2n + 1; leaves are the actors.
    winners: Vec<u32>,
    sequence: u64,
}

/// An actor without a next act comes last.
const NEVER: (Time, u64) = (Time::NEVER, u64::MAX);

impl Agenda {
    /// No actor has a next act.
    pub(super) fn new(actors: usize) -> Agenda {
        let leaves = actors.next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for (leaf, winner) in winners[leaves..].iter_mut().enumerate() {
            *winner = u32::try_from(leaf).expect("there are few actors");
        }
        for node in (1..leaves).rev() {
            winners[node] = winners[2 * node];
        }
        Agenda { acts: vec![NEVER; leaves], winners, sequence: 0 }
    }

    /// The actor that acts next, and when. [`Time::NEVER`] if none does.
    pub(super) fn first(&self) -> (usize, Time) {
        let actor = self.winners[1] as usize;
        (actor, self.acts[actor].0)
    }

    /// When an actor acts next.
    pub(super) fn time(&self, actor: usize) -> Time {
        self.acts[actor].0
    }

    /// Sets the time of an actor's next act, whatever it was.
    pub(super) fn set(&mut self, actor: usize, time: Time) {
        self.sequence += 1;
        self.acts[actor] = if time == Time::NEVER { NEVER } else { (time, self.sequence) };
        let mut node = (self.winners.len() / 2 + actor) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            let is_right = self.acts[right as usize] < self.acts[left as usize];
            self.winners[node] = if is_right { right } else { left };
            node /= 2;
        }
    }
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
