//! The yardstick: what an ideal, infinitely divisible machine would have given each group.
//!
//! Weighted max-min (water filling): capacity goes to the groups that have runnable tasks, by weight; none gets more CPUs
//! than it has tasks. Integrated over the demands as they were recorded.
//!
//! Knows nothing of machines.

use evenkeel_core::{Span, Time};

/// What groups have asked for and received is added up over windows of this length.
pub const WINDOW: Span = Span::from_millis(100);

/// A change of what a group asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Demand {
    /// So many more (or fewer) of its tasks are runnable.
    Tasks(i64),
    /// Its weight is this from now on.
    Weight(f64),
}

/// One group's demand at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Ask {
    tasks: i64,
    weight: f64,
}

/// CPUs due to each group.
fn water_fill(cpus: f64, asks: &[Ask]) -> Vec<f64> {
    let mut due = vec![0.0; asks.len()];
    let mut open: Vec<usize> = (0..asks.len()).filter(|group| asks[*group].tasks > 0).collect();
    let mut left = cpus;
    // Ends: each turn closes a group, or is the last.
    loop {
        let weights: f64 = open.iter().map(|group| asks[*group].weight).sum();
        let per_weight = if weights > 0.0 { left / weights } else { 0.0 };
        let is_sated = |group: usize| asks[group].tasks as f64 <= asks[group].weight * per_weight;
        let (sated, rest): (Vec<usize>, Vec<usize>) = open.into_iter().partition(|group| is_sated(*group));
        if sated.is_empty() {
            rest.iter().for_each(|&group| due[group] = asks[group].weight * per_weight);
            return due;
        }
        for group in sated {
            due[group] = asks[group].tasks as f64;
            left -= due[group];
        }
        open = rest;
    }
}

/// What was due to each group in each window, in ns: `due[window][group]`.
pub fn due(cpus: usize, groups: usize, mut changes: Vec<(Time, usize, Demand)>, windows: usize) -> Vec<Vec<f64>> {
    changes.sort_by_key(|(time, ..)| *time);
    let mut asks = vec![Ask::default(); groups];
    let mut due = vec![vec![0.0; groups]; windows];
    let mut since = 0;
    let end = WINDOW.as_nanos() * windows as u64;
    let mut changes = changes.into_iter().peekable();
    while since < end {
        while let Some((_, group, demand)) = changes.next_if(|(time, ..)| time.as_nanos() <= since) {
            match demand {
                Demand::Tasks(delta) => asks[group].tasks += delta,
                Demand::Weight(weight) => asks[group].weight = weight,
            }
        }
        let next = changes.peek().map_or(end, |(time, ..)| time.as_nanos().min(end));
        let rates = water_fill(cpus as f64, &asks);
        while since < next {
            let window = (since / WINDOW.as_nanos()) as usize;
            let until = next.min((window as u64 + 1) * WINDOW.as_nanos());
            for (sum, rate) in due[window].iter_mut().zip(&rates) {
                *sum += rate * (until - since) as f64;
            }
            since = until;
        }
    }
    due
}

/// A piece of work that comes at a time, and can use one CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arrival {
    pub at: Time,
    pub group: usize,
    pub work: Span,
}

/// Steps in which the fluid machine of [`due_of_arrivals`] moves on.
const STEP: Span = Span::from_micros(50);

/// The same for groups of equal weight whose demand is work that arrives: what is left of it in the *ideal* machine is what
/// a group asks for. A real machine serves one piece at full speed while another waits, which says nothing of demand.
pub fn due_of_arrivals(cpus: usize, groups: usize, mut arrivals: Vec<Arrival>, windows: usize) -> Vec<Vec<f64>> {
    arrivals.sort_by_key(|arrival| arrival.at);
    let mut due = vec![vec![0.0; groups]; windows];
    let mut left: Vec<Vec<f64>> = vec![Vec::new(); groups];
    let mut arrivals = arrivals.into_iter().peekable();
    let steps = WINDOW.as_nanos() / STEP.as_nanos();
    for step in 0..steps * windows as u64 {
        let until = (step + 1) * STEP.as_nanos();
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at.as_nanos() < until) {
            left[arrival.group].push(arrival.work.as_nanos() as f64);
        }
        let asks: Vec<_> = left.iter().map(|pieces| Ask { tasks: pieces.len() as i64, weight: 1.0 }).collect();
        let rates = water_fill(cpus as f64, &asks);
        for (group, pieces) in left.iter_mut().enumerate().filter(|(_, pieces)| !pieces.is_empty()) {
            let each = rates[group] * STEP.as_nanos() as f64 / pieces.len() as f64;
            due[(step / steps) as usize][group] += pieces.iter().map(|piece| piece.min(each)).sum::<f64>();
            pieces.retain_mut(|piece| {
                *piece -= each;
                *piece > 0.0
            });
        }
    }
    due
}

#[test]
fn what_a_group_cannot_use_goes_to_the_others_by_weight() {
    let asks = [(9.0, 1), (1.0, 100), (2.0, 100), (5.0, 0)].map(|(weight, tasks)| Ask { tasks, weight });
    assert_eq!(water_fill(4.0, &asks), [1.0, 1.0, 2.0, 0.0]);
}

#[test]
fn demands_are_integrated_over_windows() {
    let at = |millis| Time::ZERO.after(Span::from_millis(millis));
    let changes = vec![
        (at(0), 0, Demand::Weight(1.0)),
        (at(0), 1, Demand::Weight(3.0)),
        (at(0), 0, Demand::Tasks(4)),
        (at(50), 1, Demand::Tasks(4)),
    ];
    let due = due(1, 2, changes, 2);
    let millis: Vec<Vec<_>> = due.iter().map(|window| window.iter().map(|ns| ns / 1e6).collect()).collect();
    assert_eq!(millis, [[62.5, 37.5], [25.0, 75.0]]);
}
