//! The workloads that the sharing rule is judged by, with the same names in the tests and in the table of decision 0001.
//!
//! Knows nothing of how they are judged.

use super::{Bench, Yardstick, ms, us};
use evenkeel_core::Span;

/// Groups that always have work, `tasks` tasks each.
pub fn backlog(bench: &mut Bench, weights: &[u32], tasks: usize, poll: Span) {
    for weight in weights {
        let group = bench.group(*weight);
        bench.hogs(group, tasks, poll);
    }
}

/// A hundred weights, each the largest divided by its rank.
pub fn zipf_weights() -> Vec<u32> {
    (1..=100).map(|rank| 10_000 / rank).collect()
}

/// A hundred groups of equal weight with a Zipf number of clients, about one and a half times what the machine can do.
pub fn closed_loop(bench: &mut Bench, cpus: usize, poll: Span) {
    bench.yardstick = Yardstick::Arrivals;
    for rank in 1..=100 {
        let group = bench.group(100);
        let clients = (cpus as f64 * 7.5 / 5.19 / f64::from(rank)).ceil() as usize;
        bench.clients(group, clients, ms(1), ms(4), poll);
    }
}

/// Two hog groups and one that is on and off, of equal weight.
pub fn on_off(bench: &mut Bench, cpus: usize, period: Span, poll: Span) {
    backlog(bench, &[100, 100], cpus, poll);
    let group = bench.group(100);
    bench.on_offs(group, cpus, period, poll);
}

/// A group of short runs and short sleeps beside hog groups, all of equal weight. Which group it is.
pub fn interactive(bench: &mut Bench, cpus: usize, hogs: usize, poll: Span) -> usize {
    backlog(bench, &vec![100; hogs], cpus, poll);
    let group = bench.group(100);
    bench.clients(group, cpus / 2, us(20), us(300), us(20));
    group
}
