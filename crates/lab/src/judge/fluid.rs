//! Weighted max-min shares: water filling over weight and cap.
//!
//! Pure functions. Knows nothing of time, windows or runtimes.
//!
//! # Invariants
//! - F1: no rate exceeds its cap.
//! - F2: the rates add up to the capacity, or to the sum of the caps if that is less.
//! - F3: flows below their caps have rates in proportion to their weights, and no flow at its cap
//!   has more per weight than they.

/// One competitor for capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Flow {
    /// Above zero.
    pub(crate) weight: f64,
    /// The most it can use, in CPUs.
    pub(crate) cap: f64,
}

/// Reused between fills, so that many fills allocate once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    order: Vec<usize>,
}

/// Writes each flow's rate, in CPUs, to `rates`.
pub(crate) fn fill(flows: &[Flow], capacity: f64, scratch: &mut Scratch, rates: &mut Vec<f64>) {
    let level = level(flows, capacity, scratch);
    rates.clear();
    rates.extend(flows.iter().map(|flow| flow.cap.min(level * flow.weight)));
}

/// The water level: the rate per weight of every flow that is not capped; infinite if all are.
pub(crate) fn level(flows: &[Flow], capacity: f64, scratch: &mut Scratch) -> f64 {
    if flows.iter().map(|flow| flow.cap).sum::<f64>() <= capacity {
        return f64::INFINITY;
    }
    let knee = |flow: &Flow| flow.cap / flow.weight;
    scratch.order.clear();
    scratch.order.extend(0..flows.len());
    scratch.order.sort_unstable_by(|&a, &b| knee(&flows[a]).total_cmp(&knee(&flows[b])));
    let mut room = capacity;
    let mut weight: f64 = flows.iter().map(|flow| flow.weight).sum();
    for &index in &scratch.order {
        let flow = &flows[index];
        if knee(flow) * weight >= room {
            return room.max(0.0) / weight;
        }
        room -= flow.cap;
        weight -= flow.weight;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rates(flows: &[(f64, f64)], capacity: f64) -> Vec<f64> {
        let flows: Vec<Flow> = flows.iter().map(|&(weight, cap)| Flow { weight, cap }).collect();
        let mut rates = Vec::new();
        fill(&flows, capacity, &mut Scratch::default(), &mut rates);
        rates
    }

    fn close(left: &[f64], right: &[f64]) {
        assert_eq!(left.len(), right.len());
        assert!(left.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-9), "{left:?} is not {right:?}");
    }

    #[test]
    fn known_max_min_cases() {
        close(&rates(&[], 2.0), &[]);
        close(&rates(&[(1.0, 9.0), (10.0, 9.0)], 2.2), &[0.2, 2.0]);
        // A group with one task and nine tenths of the weight can use one CPU of two.
        close(&rates(&[(9.0, 1.0), (1.0, 100.0)], 2.0), &[1.0, 1.0]);
        // What a group doesn't use goes to the others by weight.
        close(&rates(&[(8.0, 0.02), (1.0, 2.0), (3.0, 2.0)], 2.0), &[0.02, 0.495, 1.485]);
        // Two capped one after the other.
        close(&rates(&[(1.0, 0.1), (1.0, 0.6), (1.0, 5.0)], 2.0), &[0.1, 0.6, 1.3]);
        // Less demand than capacity.
        close(&rates(&[(1.0, 0.5), (100.0, 0.25)], 2.0), &[0.5, 0.25]);
        close(&rates(&[(1.0, 0.0), (1.0, 3.0)], 2.0), &[0.0, 2.0]);
        close(&rates(&[(1.0, 1.0)], 0.0), &[0.0]);
    }

    fn any_flows() -> impl Strategy<Value = Vec<(f64, f64)>> {
        let cap = prop_oneof![Just(0.0), 0.001..0.2f64, (1u32..200).prop_map(f64::from)];
        prop::collection::vec(((1u32..=10_000).prop_map(f64::from), cap), 1..40)
    }

    proptest! {
        #[test]
        fn rates_add_up_to_capacity_or_demand(flows in any_flows(), capacity in 0.1..64.0f64) {
            let demand: f64 = flows.iter().map(|flow| flow.1).sum();
            let sum: f64 = rates(&flows, capacity).iter().sum();
            prop_assert!((sum - capacity.min(demand)).abs() < 1e-6, "{sum} of {capacity}, demand {demand}");
        }

        #[test]
        fn no_flow_gets_more_than_its_cap_and_levels_are_fair(flows in any_flows(), capacity in 0.1..64.0f64) {
            let rates = rates(&flows, capacity);
            let level = rates.iter().zip(&flows).map(|(rate, flow)| rate / flow.0).fold(0.0, f64::max);
            for (rate, &(weight, cap)) in rates.iter().zip(&flows) {
                prop_assert!(*rate >= 0.0 && *rate <= cap);
                prop_assert!(*rate >= cap - 1e-9 || rate / weight >= level - 1e-9, "below its cap and below the level");
            }
        }

        #[test]
        fn the_order_of_flows_does_not_matter(flows in any_flows(), capacity in 0.1..64.0f64, seed in any::<u64>()) {
            let mut order: Vec<usize> = (0..flows.len()).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut order);
            let shuffled: Vec<(f64, f64)> = order.iter().map(|&index| flows[index]).collect();
            let (straight, shuffled) = (rates(&flows, capacity), rates(&shuffled, capacity));
            for (place, &index) in order.iter().enumerate() {
                prop_assert!((straight[index] - shuffled[place]).abs() < 1e-6);
            }
        }
    }
}
