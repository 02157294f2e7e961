//! One seed, many streams of random numbers: the one place where seeds are made of seeds.
//!
//! Whoever draws has a stream of its own, named by a purpose and a number. So drawing more in one, or switching off what
//! draws from it, shifts no other. Purposes are listed here, so that no two parts of a program can take the same.
//!
//! Knows nothing of generators: a stream is the 64 bits that one is seeded with.
//!
//! # Invariants
//! - R1: streams of one seed and purpose differ: their number is mixed by a permutation.

/// From which every stream of a run is derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u64);

/// What random numbers are drawn for. The values are part of what makes a run: they never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Purpose {
    /// Which CPUs are looked at. One stream per CPU.
    Engine = 1,
    /// When CPUs stall, which, and for how long.
    Stall = 2,
    /// When the holder of a lock loses its processor, and for how long.
    HolderOff = 3,
    /// Which kicks are late, and how late.
    LateKick = 4,
    /// Which ticks are late, and how late.
    LateTick = 5,
    /// When tasks arrive. One stream per source.
    Arrivals = 6,
    /// What tasks do. One stream per source.
    Programs = 7,
}

/// The step of SplitMix64: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output of SplitMix64 for a state (Steele, Lea, Flood 2014, with the constants of Stafford's variant 13): a
/// permutation of all 64-bit numbers.
const fn mix(state: u64) -> u64 {
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// What SplitMix64 with this seed puts out as number `index`, counted from 0.
const fn output(seed: u64, index: u64) -> u64 {
    mix(seed.wrapping_add(STEP.wrapping_mul(index.wrapping_add(1))))
}

impl Seed {
    /// This seed.
    pub const fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    /// What to seed the generator of a stream with.
    #[must_use]
    pub const fn stream(self, purpose: Purpose, index: u64) -> u64 {
        output(output(self.0, purpose as u64), index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const PURPOSES: [Purpose; 7] = [
        Purpose::Engine,
        Purpose::Stall,
        Purpose::HolderOff,
        Purpose::LateKick,
        Purpose::LateTick,
        Purpose::Arrivals,
        Purpose::Programs,
    ];

    #[test]
    fn the_splitter_is_splitmix64() {
        // The first outputs for the seed 1234567, as published with the reference implementations.
        let known = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([output(1_234_567, 0), output(1_234_567, 1), output(1_234_567, 2)], known);
    }

    #[test]
    fn no_two_streams_of_neighboring_seeds_coincide() {
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for seed in 0..32 {
            for purpose in PURPOSES {
                for index in 0..1_024 {
                    seen.insert(Seed::new(seed).stream(purpose, index));
                    count += 1;
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn streams_of_one_purpose_share_no_pattern() {
        // Of 64 bits, a neighbor differs in half: within five standard deviations of the mean of 1,024 pairs.
        for purpose in PURPOSES {
            let differ =
                |index| (Seed::new(1).stream(purpose, index) ^ Seed::new(1).stream(purpose, index + 1)).count_ones();
            let sum: u32 = (0..1_024).map(differ).sum();
            assert!((32 * 1_024 - 640..=32 * 1_024 + 640).contains(&sum), "{purpose:?}: {sum}");
        }
    }
}
