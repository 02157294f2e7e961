//! What groups with masks can have together: weighted max-min shares where not everybody may use every CPU.
//!
//! Groups of one mask form a *class*. Rates are possible if no set of classes has more than the CPUs that any of them may
//! use (Hall's condition, for CPUs that can be divided at will). Max-min then is water filling set by set: the set whose
//! level is lowest is the bottleneck, its groups are served at that level, and the others share what it leaves.
//!
//! Pure functions. Knows nothing of time, windows or runtimes.
//!
//! # Invariants
//! - F4: no set of classes gets more than the CPUs that any of them may use.
//! - F5: with one class the rates are those of [`super::fluid::fill`].

use evenkeel::CpuMask;

use super::fluid::{Flow, Scratch, fill, level};

/// All sets of classes are looked at, so there can't be many.
pub(crate) const CLASSES_MAX: usize = 8;

/// A set of classes, a bit each.
type Classes = usize;

/// Which CPUs groups may use.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// By group.
    class_of: Vec<usize>,
    /// By set of classes: how many CPUs any of them may use.
    cpus: Vec<f64>,
}

impl Capacity {
    /// For groups with these masks, `None` being all of `cpus` CPUs.
    ///
    /// # Panics
    /// If there are more than [`CLASSES_MAX`] different masks.
    pub(crate) fn new(masks: &[Option<CpuMask>], cpus: usize) -> Capacity {
        let last = u32::try_from(cpus.saturating_sub(1)).unwrap_or(u32::MAX);
        let all = CpuMask::range(0, last);
        let within = |mask: &Option<CpuMask>| mask.as_ref().map_or_else(|| all.clone(), |mask| mask.intersection(&all));
        let masks: Vec<CpuMask> = masks.iter().map(within).collect();
        let mut classes: Vec<&CpuMask> = masks.iter().collect();
        classes.sort_unstable();
        classes.dedup();
        assert!(classes.len() <= CLASSES_MAX, "a scenario has at most {CLASSES_MAX} different masks");
        let class_of = |mask: &CpuMask| classes.partition_point(|class| *class < mask);
        let union = |set: Classes| {
            let members = classes.iter().enumerate().filter(|(class, _)| set >> class & 1 == 1);
            members.fold(CpuMask::empty(), |union, (_, mask)| union.union(mask)).len() as f64
        };
        Capacity { class_of: masks.iter().map(class_of).collect(), cpus: (0..1 << classes.len()).map(union).collect() }
    }

    /// Whether all groups may use the same CPUs.
    pub(crate) fn is_uniform(&self) -> bool {
        self.all_classes() <= 1
    }

    fn all_classes(&self) -> Classes {
        self.cpus.len() - 1
    }

    /// Writes each flow's rate to `rates`; CPUs are `speed` fast.
    pub(crate) fn fill(&self, flows: &[Flow], speed: f64, scratch: &mut Scratch, rates: &mut Vec<f64>) {
        if self.is_uniform() {
            return fill(flows, self.cpus[self.all_classes()] * speed, scratch, rates);
        }
        rates.clear();
        rates.extend(flows.iter().map(|flow| flow.cap));
        let mut served: Classes = 0;
        // Ends: each turn serves a class at least, or all that are left get what they can use.
        while let Some((bottleneck, level)) = self.bottleneck(flows, served, speed, scratch) {
            for (index, flow) in flows.iter().enumerate().filter(|(index, _)| self.is_in(*index, bottleneck)) {
                rates[index] = flow.cap.min(level * flow.weight);
            }
            served |= bottleneck;
        }
    }

    fn is_in(&self, index: usize, set: Classes) -> bool {
        set >> self.class_of[index] & 1 == 1
    }

    /// The set of classes not served yet that has the lowest level in what those served leave; `None` if all that are left
    /// have enough.
    fn bottleneck(&self, flows: &[Flow], served: Classes, speed: f64, scratch: &mut Scratch) -> Option<(Classes, f64)> {
        let mut lowest: Option<(Classes, f64)> = None;
        for set in (1..=self.all_classes()).filter(|set| set & served == 0) {
            let room = (self.cpus[set | served] - self.cpus[served]) * speed;
            let members = flows.iter().enumerate().filter(|(index, _)| self.is_in(*index, set));
            let members: Vec<Flow> = members.map(|(_, flow)| *flow).collect();
            let level = level(&members, room, scratch);
            if level.is_finite() && lowest.is_none_or(|(_, least)| level < least) {
                lowest = Some((set, level));
            }
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel::CpuId;
    use proptest::prelude::*;

    fn rates(flows: &[(f64, f64, Option<&str>)], cpus: usize) -> Vec<f64> {
        let masks: Vec<_> = flows.iter().map(|flow| flow.2.map(|text| text.parse().unwrap())).collect();
        let flows: Vec<Flow> = flows.iter().map(|&(weight, cap, _)| Flow { weight, cap }).collect();
        let mut rates = Vec::new();
        Capacity::new(&masks, cpus).fill(&flows, 1.0, &mut Scratch::default(), &mut rates);
        rates
    }

    fn close(left: &[f64], right: &[f64]) {
        assert!(left.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-9), "{left:?} is not {right:?}");
    }

    #[test]
    fn known_cases() {
        let many = 99.0;
        // Pinned to one CPU of two beside one that may use both: each gets a CPU.
        close(&rates(&[(1.0, many, Some("0")), (1.0, many, None)], 2), &[1.0, 1.0]);
        // Two on the CPU: they share it, the other has the second CPU.
        close(&rates(&[(1.0, 1.0, Some("0")), (1.0, 1.0, Some("0")), (1.0, many, None)], 2), &[0.5, 0.5, 1.0]);
        // The pinned one weighs too little to have its CPU alone.
        close(&rates(&[(1.0, many, Some("0")), (4.0, many, None)], 2), &[0.4, 1.6]);
        // One everywhere, two on the right half; one of them can use little.
        close(&rates(&[(1.0, many, None), (1.0, many, Some("8-15")), (1.0, 1.5, Some("8-15"))], 16), &[8.0, 6.5, 1.5]);
        // Three nested.
        close(
            &rates(&[(1.0, many, None), (1.0, many, Some("8-15")), (1.0, many, Some("12-15"))], 16),
            &[8.0, 4.0, 4.0],
        );
        // Overlapping: nobody's CPUs are another's alone.
        close(&rates(&[(1.0, many, Some("0-1")), (1.0, many, Some("1-2"))], 3), &[1.5, 1.5]);
        close(&rates(&[(1.0, many, Some("0-1")), (3.0, many, Some("1-2"))], 3), &[1.0, 2.0]);
        // Who has enough leaves the rest.
        close(&rates(&[(1.0, 0.25, Some("0")), (1.0, many, None)], 2), &[0.25, 1.75]);
    }

    fn any_flows() -> impl Strategy<Value = Vec<(f64, f64, u8)>> {
        let cap = prop_oneof![Just(0.0), 0.001..0.2f64, (1u32..20).prop_map(f64::from)];
        let mask = prop_oneof![Just(0xffu8), Just(0x0f), Just(0x03), Just(0x3c), Just(0x80)];
        prop::collection::vec(((1u32..=1_000).prop_map(f64::from), cap, mask), 1..10)
    }

    fn mask_of(bits: u8) -> CpuMask {
        (0..8).filter(|bit| bits >> bit & 1 == 1).map(CpuId::new).collect()
    }

    proptest! {
        #[test]
        fn no_set_of_groups_gets_more_than_its_cpus_and_nobody_could_have_more(flows in any_flows()) {
            let masks: Vec<_> = flows.iter().map(|flow| Some(mask_of(flow.2))).collect();
            let plain: Vec<Flow> = flows.iter().map(|&(weight, cap, _)| Flow { weight, cap }).collect();
            let mut rates = Vec::new();
            Capacity::new(&masks, 8).fill(&plain, 1.0, &mut Scratch::default(), &mut rates);
            // The CPUs of a set of groups, and what it gets.
            let of = |set: usize| {
                let members = flows.iter().zip(&rates).enumerate().filter(|(index, _)| set >> index & 1 == 1);
                members.fold((0u8, 0.0), |(cpus, sum), (_, (flow, rate))| (cpus | flow.2, sum + rate))
            };
            let mut is_full = vec![false; flows.len()];
            for set in 1usize..1 << flows.len() {
                let (cpus, sum) = of(set);
                let room = f64::from(cpus.count_ones());
                prop_assert!(sum <= room + 1e-9, "F4: {sum} of {room}");
                if sum >= room - 1e-9 {
                    // In a full set nobody could have more but at the expense of one that has no more per weight.
                    let members = || (0..flows.len()).filter(|index| set >> index & 1 == 1);
                    let most = members().map(|index| rates[index] / flows[index].0).fold(0.0, f64::max);
                    members().for_each(|index| is_full[index] |= rates[index] / flows[index].0 >= most - 1e-9);
                }
            }
            for (index, flow) in flows.iter().enumerate() {
                prop_assert!(rates[index] <= flow.1 + 1e-12, "F1");
                prop_assert!(is_full[index] || rates[index] >= flow.1 - 1e-9, "group {index} could have more");
            }
        }
    }
}
