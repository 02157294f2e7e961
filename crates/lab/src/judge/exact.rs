//! The fluid machine beside a run in virtual time, change by change: nothing is sampled.
//!
//! It is told of each change of what is runnable and of each piece of computing. Between two changes everything is linear:
//! the fluid machine gives what all groups together receive to those that it would serve. So the largest lag is one of those
//! at the changes, and all are looked at.
//!
//! A piece is taken to go on at an even pace from where it begins. So it does, but for ticks within it, and beside a busy
//! thread of the same core.
//!
//! Knows nothing of runs and reports.
//!
//! # Invariants
//! - E1: what the fluid machine gives adds up to what was received, at all times.
//! - E2: changes are applied in the order of their moments, whatever the order in which they were told.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fluid::{Flow, Scratch, fill};
use super::ideal::Group;
use crate::exec::{Change, Watcher};
use crate::moment::Moment;
use crate::scenario::GroupIndex;

/// A backlog of less than this is none: the rest of one that was served in many parts.
const NOTHING: f64 = 1e-12;

/// How all groups fared in a window, by group; times in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct FluidWindow {
    pub(crate) received: Vec<f64>,
    pub(crate) ideal: Vec<f64>,
    /// The largest difference of the two at any moment of the window, both counted from its beginning.
    pub(crate) lag: Vec<f64>,
    /// CPUs of the fluid share on average.
    pub(crate) cpus: Vec<f64>,
}

/// What the machine is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Capacity {
    pub(crate) cpus: f64,
    /// How much computing a busy CPU does per time.
    pub(crate) pace: f64,
}

/// The fluid machine beside a run.
#[derive(Debug)]
pub(crate) struct Exact(Mutex<Fluid>);

impl Exact {
    pub(crate) fn new(groups: Vec<Group>, capacity: Capacity) -> Exact {
        let count = groups.len();
        let fared = zeros(count);
        Exact(Mutex::new(Fluid {
            states: vec![State::default(); count],
            groups,
            capacity,
            told: BinaryHeap::new(),
            sequence: 0,
            now: Moment::default(),
            busy: 0,
            window_from: Moment::default(),
            fared,
            windows: Vec::new(),
            level: Level::Unknown,
            flows: Vec::new(),
            rates: Vec::new(),
            scratch: Scratch::default(),
        }))
    }

    /// All that happened before `moment` has been told: goes on until then.
    pub(crate) fn settle(&self, moment: Moment) {
        self.fluid().settle(moment);
    }

    /// A window begins; what was before it is forgotten.
    pub(crate) fn begin_window(&self) {
        self.fluid().begin_window();
    }

    /// A window ends, and the next one begins.
    pub(crate) fn end_window(&self) {
        self.fluid().end_window();
    }

    /// The windows so far.
    pub(crate) fn take_windows(&self) -> Vec<FluidWindow> {
        std::mem::take(&mut self.fluid().windows)
    }

    fn fluid(&self) -> MutexGuard<'_, Fluid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Exact {
    fn note(&self, at: Moment, group: GroupIndex, change: Change) {
        self.fluid().note(at, group, change);
    }
}

/// Something that happens to a group at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Change(Change),
    /// A piece that has begun is complete.
    Ends,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    runnable: i64,
    /// Pieces under way.
    busy: u32,
    /// Work in seconds that arrived and was not done on the fluid machine, if demand is what arrives.
    backlog: f64,
}

impl State {
    /// How many requests of this length its backlog is, the one that is being served included.
    fn requests(&self, request: f64) -> f64 {
        ((self.backlog - NOTHING) / request).ceil()
    }
}

/// Whether the rates are those of the present demand.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Level {
    Unknown,
    /// Of a demand at which flows that aren't capped get so much per weight.
    Known(f64),
}

#[derive(Debug)]
struct Fluid {
    groups: Vec<Group>,
    states: Vec<State>,
    capacity: Capacity,
    told: BinaryHeap<Reverse<(Moment, u64, GroupIndex, Event)>>,
    sequence: u64,
    now: Moment,
    /// Pieces under way, of all groups.
    busy: u32,
    window_from: Moment,
    /// Of the window under way; `cpus` is summed over time.
    fared: FluidWindow,
    windows: Vec<FluidWindow>,
    level: Level,
    flows: Vec<Flow>,
    rates: Vec<f64>,
    scratch: Scratch,
}

impl Fluid {
    fn note(&mut self, at: Moment, group: GroupIndex, change: Change) {
        self.tell(at, group, Event::Change(change));
        if let Change::Begins(piece) = change {
            let takes = Duration::from_secs_f64(piece.as_secs_f64() / self.capacity.pace);
            self.tell(at.plus(takes), group, Event::Ends);
        }
    }

    fn tell(&mut self, at: Moment, group: GroupIndex, event: Event) {
        self.sequence += 1;
        self.told.push(Reverse((at, self.sequence, group, event)));
    }

    fn settle(&mut self, to: Moment) {
        // Ends: nothing is told meanwhile.
        while let Some((at, group, event)) = self.next(to) {
            self.advance(at);
            self.apply(group, event);
        }
        self.advance(to);
    }

    fn next(&mut self, until: Moment) -> Option<(Moment, GroupIndex, Event)> {
        let next = self.told.peek_mut().filter(|next| next.0.0 <= until)?;
        let Reverse((at, _, group, event)) = PeekMut::pop(next);
        Some((at, group, event))
    }

    fn apply(&mut self, group: GroupIndex, event: Event) {
        let (state, is_open) = (&mut self.states[group.0], self.groups[group.0].request.is_some());
        let before = state.runnable;
        match event {
            Event::Change(Change::Ready) => state.runnable += 1,
            Event::Change(Change::Blocked) => state.runnable -= 1,
            Event::Change(Change::Released(work)) if is_open => state.backlog += work.as_secs_f64(),
            Event::Change(Change::Released(_)) => {}
            Event::Change(Change::Begins(_)) => {
                state.busy += 1;
                self.busy += 1;
            }
            Event::Ends => {
                state.busy -= 1;
                self.busy -= 1;
            }
        }
        let least = before.min(state.runnable);
        if is_open || (before != state.runnable && self.is_felt(group, least)) {
            self.level = Level::Unknown;
        }
    }

    /// Whether the rates depend on how many tasks of a group are runnable, if these are at least so many.
    fn is_felt(&self, group: GroupIndex, least: i64) -> bool {
        match self.level {
            Level::Unknown => true,
            Level::Known(level) => (least as f64) < level * self.groups[group.0].weight,
        }
    }

    /// Lets time pass, in which nothing changes but what is left of backlogs.
    fn advance(&mut self, to: Moment) {
        let mut left = to.since(self.now).as_secs_f64();
        self.now = self.now.max(to);
        // Ends: each turn but the last serves a request.
        while left > 0.0 {
            self.refill();
            let served: f64 = self.rates.iter().sum();
            let received = f64::from(self.busy) * self.capacity.pace;
            let step = left.min(self.until_fewer(served, received));
            self.pass(step, served, received);
            left -= step;
        }
    }

    fn refill(&mut self) {
        if self.level != Level::Unknown {
            return;
        }
        let mut is_steady = true;
        self.flows.clear();
        for (group, state) in self.groups.iter().zip(&self.states) {
            let runnable = state.runnable.max(0) as f64;
            let cap = match group.request {
                None => runnable,
                Some(_) if state.backlog <= NOTHING => 0.0,
                Some(request) => {
                    // How many of its requests are left depends on time.
                    is_steady = false;
                    runnable.max(state.requests(request))
                }
            };
            self.flows.push(Flow { weight: group.weight, cap });
        }
        fill(&self.flows, self.capacity.cpus, &mut self.scratch, &mut self.rates);
        if is_steady {
            let of_flow = |(rate, flow): (&f64, &Flow)| rate / flow.weight;
            let uncapped = self.rates.iter().zip(&self.flows).filter(|(rate, flow)| **rate < flow.cap);
            // With all flows capped every one of them is felt.
            self.level = Level::Known(uncapped.map(of_flow).next().unwrap_or(f64::INFINITY));
        }
    }

    /// In how long the first backlog has a request less.
    fn until_fewer(&self, served: f64, received: f64) -> f64 {
        if served <= 0.0 || received <= 0.0 {
            return f64::INFINITY;
        }
        let until = |((group, state), rate): ((&Group, &State), &f64)| {
            let request = group.request.filter(|_| state.backlog > NOTHING && *rate > 0.0)?;
            let rest = state.backlog - (state.requests(request) - 1.0) * request;
            Some(rest / (rate / served * received))
        };
        let all = self.groups.iter().zip(&self.states).zip(&self.rates).filter_map(until);
        all.fold(f64::INFINITY, f64::min)
    }

    /// So much time passes at these rates.
    fn pass(&mut self, span: f64, served: f64, received: f64) {
        for (index, state) in self.states.iter_mut().enumerate() {
            let own = f64::from(state.busy) * self.capacity.pace;
            // What is done for no demand that is seen belongs to those who do it.
            let ideal = if served > 0.0 { self.rates[index] / served * received } else { own };
            state.backlog = (state.backlog - ideal * span).max(0.0);
            self.fared.received[index] += own * span;
            self.fared.ideal[index] += ideal * span;
            self.fared.cpus[index] += self.rates[index] * span;
            let lag = (self.fared.received[index] - self.fared.ideal[index]).abs();
            self.fared.lag[index] = self.fared.lag[index].max(lag);
        }
    }

    fn begin_window(&mut self) {
        self.fared = zeros(self.groups.len());
        self.window_from = self.now;
    }

    fn end_window(&mut self) {
        let length = self.now.since(self.window_from).as_secs_f64();
        let mut fared = std::mem::take(&mut self.fared);
        fared.cpus.iter_mut().for_each(|cpus| *cpus = if length > 0.0 { *cpus / length } else { 0.0 });
        self.windows.push(fared);
        self.begin_window();
    }
}

fn zeros(groups: usize) -> FluidWindow {
    let zeros = || vec![0.0; groups];
    FluidWindow { received: zeros(), ideal: zeros(), lag: zeros(), cpus: zeros() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Capacity = Capacity { cpus: 1.0, pace: 1.0 };

    fn at(micros: u64) -> Moment {
        Moment::from_nanos(micros * 1_000)
    }

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn closed(weights: &[f64]) -> Vec<Group> {
        weights.iter().map(|&weight| Group { weight, request: None }).collect()
    }

    fn close(left: &[f64], micros: &[f64]) {
        let is_close = left.len() == micros.len() && left.iter().zip(micros).all(|(a, b)| (a * 1e6 - b).abs() < 1e-6);
        assert!(is_close, "{left:?} s is not {micros:?} us");
    }

    fn begins(exact: &Exact, group: usize, from: u64, length: u64) {
        exact.note(at(from), GroupIndex(group), Change::Begins(us(length)));
    }

    fn window(exact: &Exact, to: u64) -> FluidWindow {
        exact.settle(at(to));
        exact.end_window();
        exact.take_windows().remove(0)
    }

    #[test]
    fn a_lag_that_has_gone_at_the_end_of_its_window_is_seen() {
        let exact = Exact::new(closed(&[1.0, 1.0]), ONE);
        (0..2).for_each(|group| exact.note(at(0), GroupIndex(group), Change::Ready));
        // One after the other, for 400 us each: half of that is the largest lag of both.
        begins(&exact, 0, 0, 400);
        begins(&exact, 1, 400, 400);
        let fared = window(&exact, 800);
        close(&fared.received, &[400.0, 400.0]);
        close(&fared.ideal, &[400.0, 400.0]);
        close(&fared.lag, &[200.0, 200.0]);
        assert!(fared.cpus.iter().all(|cpus| (cpus - 0.5).abs() < 1e-9), "{:?}", fared.cpus);
    }

    #[test]
    fn the_ideal_follows_every_change_of_what_is_runnable() {
        let exact = Exact::new(closed(&[1.0, 3.0]), Capacity { cpus: 2.0, pace: 1.0 });
        // Two tasks of the light group alone, then four of the heavy one for a while, of which two run.
        (0..2).for_each(|_| exact.note(at(0), GroupIndex(0), Change::Ready));
        (0..2).for_each(|_| begins(&exact, 0, 0, 100));
        (0..4).for_each(|_| exact.note(at(100), GroupIndex(1), Change::Ready));
        (0..2).for_each(|_| begins(&exact, 1, 100, 60));
        (0..4).for_each(|_| exact.note(at(160), GroupIndex(1), Change::Blocked));
        let fared = window(&exact, 200);
        close(&fared.received, &[200.0, 120.0]);
        // In the middle 60 us of two CPUs are divided 1 to 3.
        close(&fared.ideal, &[230.0, 90.0]);
        close(&fared.lag, &[30.0, 30.0]);
    }

    #[test]
    fn changes_that_are_told_out_of_order_are_applied_in_order() {
        let run = |swapped: bool| {
            let exact = Exact::new(closed(&[1.0, 1.0]), ONE);
            let changes = [(0, 0, Change::Ready), (10, 1, Change::Ready), (20, 0, Change::Begins(us(30)))];
            let mut changes = changes.map(|(when, group, change)| (at(when), GroupIndex(group), change));
            if swapped {
                changes.reverse();
            }
            changes.into_iter().for_each(|(at, group, change)| exact.note(at, group, change));
            window(&exact, 100)
        };
        assert_eq!(run(false), run(true), "E2");
    }

    #[test]
    fn open_demand_is_what_arrived_and_ends_when_it_is_served() {
        let groups = vec![Group { weight: 1.0, request: Some(50e-6) }, Group { weight: 1.0, request: None }];
        let exact = Exact::new(groups, ONE);
        exact.note(at(0), GroupIndex(1), Change::Ready);
        exact.note(at(0), GroupIndex(0), Change::Ready);
        exact.note(at(0), GroupIndex(0), Change::Released(us(50)));
        // The request waits for its turn at the other group's piece: the fluid machine has served it after 100 us.
        begins(&exact, 1, 0, 200);
        begins(&exact, 0, 200, 50);
        let fared = window(&exact, 300);
        close(&fared.received, &[50.0, 200.0]);
        close(&fared.ideal, &[50.0, 200.0]);
        close(&fared.lag, &[50.0, 50.0]);
    }

    #[test]
    fn what_is_done_for_no_demand_belongs_to_who_does_it() {
        let exact = Exact::new(closed(&[1.0, 1.0]), ONE);
        begins(&exact, 0, 0, 70);
        let fared = window(&exact, 100);
        close(&fared.ideal, &[70.0, 0.0]);
        close(&fared.lag, &[0.0, 0.0]);
    }

    #[test]
    fn windows_count_from_their_beginning() {
        let exact = Exact::new(closed(&[1.0, 1.0]), ONE);
        (0..2).for_each(|group| exact.note(at(0), GroupIndex(group), Change::Ready));
        begins(&exact, 0, 0, 500);
        exact.settle(at(100));
        exact.begin_window();
        let first = window(&exact, 200);
        close(&first.lag, &[50.0, 50.0]);
        close(&window(&exact, 300).received, &[100.0, 0.0]);
    }

    proptest::proptest! {
        /// Whatever is told, E1 holds, and rates that were not computed anew are those that would have been.
        #[test]
        fn ideals_add_up_to_what_was_received(
            changes in proptest::collection::vec((0u64..1000, 0usize..4, 0u32..4, 1u64..200), 1..200),
        ) {
            let groups = || vec![
                Group { weight: 1.0, request: None },
                Group { weight: 2.5, request: None },
                Group { weight: 40.0, request: None },
                Group { weight: 3.0, request: Some(20e-6) },
            ];
            let lazy = Exact::new(groups(), Capacity { cpus: 3.0, pace: 0.9 });
            let eager = Exact::new(groups(), Capacity { cpus: 3.0, pace: 0.9 });
            let mut told = Vec::new();
            for (when, group, kind, length) in changes {
                let group = GroupIndex(group);
                match kind {
                    0 => told.push((when, group, Change::Begins(us(length)))),
                    1 => told.push((when, group, Change::Released(us(length)))),
                    _ => told.extend([(when, group, Change::Ready), (when + length, group, Change::Blocked)]),
                }
            }
            told.sort();
            for &(when, group, change) in &told {
                lazy.note(at(when), group, change);
                eager.note(at(when), group, change);
            }
            for moment in 0..1300 {
                eager.fluid().level = Level::Unknown;
                eager.settle(at(moment));
            }
            lazy.settle(at(1299));
            let (lazy, eager) = (window(&lazy, 1299), window(&eager, 1299));
            let sum = |of: &[f64]| of.iter().sum::<f64>();
            proptest::prop_assert!((sum(&lazy.received) - sum(&lazy.ideal)).abs() < 1e-9, "E1");
            let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
            proptest::prop_assert!(near(&lazy.received, &eager.received));
            proptest::prop_assert!(near(&lazy.ideal, &eager.ideal) && near(&lazy.lag, &eager.lag), "{lazy:?} {eager:?}");
        }
    }
}
