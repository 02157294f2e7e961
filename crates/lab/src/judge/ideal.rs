//! The fluid machine run over recorded demand, window by window.
//!
//! Knows nothing of what the runtime did in a window but how much work all groups got together.
//!
//! # Invariants
//! - Y1: in every window the ideals add up to the work that all groups received.
//! - Y2: no open group is ideally served more than has arrived for it, except by the scaling that
//!   Y1 asks for.

use super::capacity::Capacity;
use super::fluid::{Flow, Scratch};
use crate::run::{Recording, Window};

/// How often the speed of the fluid machine is adjusted to the work that was received. It moves
/// by a few percent at most from the third time on.
const ADJUSTMENTS: usize = 8;

/// Close enough.
const PRECISION: f64 = 1e-4;

/// A machine this much slower or faster than calibrated is taken for an artefact.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=4.0;

/// What the yardstick has to know of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) weight: f64,
    /// The work in seconds of one request, if the group's demand is what arrives for it; without
    /// it, its demand is its runnable tasks.
    pub(crate) request: Option<f64>,
}

/// One window on the fluid machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ideal {
    /// Work in seconds, by group.
    pub(crate) work: Vec<f64>,
    /// How fast its CPUs were: 1 is a calibrated one with nobody else on it.
    pub(crate) speed: f64,
}

/// The ideal of every window.
pub(crate) fn ideals(recording: &Recording, groups: &[Group], capacity: &Capacity) -> Vec<Ideal> {
    let mut machine = Machine {
        recording,
        groups,
        capacity,
        backlog: vec![0.0; groups.len()],
        scratch: Scratch::default(),
        flows: Vec::new(),
        rates: Vec::new(),
    };
    recording.windows.iter().map(|window| machine.window(window)).collect()
}

struct Machine<'a> {
    recording: &'a Recording,
    groups: &'a [Group],
    capacity: &'a Capacity,
    /// Work in seconds that arrived for open groups and is not done on this machine.
    backlog: Vec<f64>,
    scratch: Scratch,
    flows: Vec<Flow>,
    rates: Vec<f64>,
}

impl Machine<'_> {
    /// Serves one window at the speed at which the machine does what was done, and returns each
    /// group's part. A slower machine has slower CPUs, not fewer.
    fn window(&mut self, window: &Window) -> Ideal {
        let done: f64 = window.work.iter().map(std::time::Duration::as_secs_f64).sum();
        let before = self.backlog.clone();
        let mut speed = 1.0f64;
        let mut served = self.serve(window, speed);
        for _ in 0..ADJUSTMENTS {
            let sum: f64 = served.iter().sum();
            let next = (speed * done / sum).clamp(*SPEEDS.start(), *SPEEDS.end());
            if sum <= 0.0 || (sum - done).abs() <= PRECISION * done || (next - speed).abs() <= PRECISION * speed {
                break;
            }
            speed = next;
            self.backlog.clone_from(&before);
            served = self.serve(window, speed);
        }
        let sum: f64 = served.iter().sum();
        // What was done for no demand that was seen belongs to those who did it.
        if sum <= 0.0 {
            return Ideal { work: window.work.iter().map(std::time::Duration::as_secs_f64).collect(), speed };
        }
        Ideal { work: served.iter().map(|part| part * done / sum).collect(), speed }
    }

    fn serve(&mut self, window: &Window, speed: f64) -> Vec<f64> {
        let mut served = vec![0.0; self.groups.len()];
        for tick in window.ticks.clone() {
            let length = self.recording.ticks[tick].length.as_secs_f64();
            if length <= 0.0 {
                continue;
            }
            self.demand(tick, length, speed);
            self.capacity.fill(&self.flows, speed, &mut self.scratch, &mut self.rates);
            for (index, rate) in self.rates.iter().enumerate() {
                let service = rate * length;
                served[index] += service;
                self.backlog[index] = (self.backlog[index] - service).max(0.0);
            }
        }
        served
    }

    fn demand(&mut self, tick: usize, length: f64, speed: f64) {
        self.flows.clear();
        let first = tick * self.groups.len();
        for (index, group) in self.groups.iter().enumerate() {
            let runnable = f64::from(self.recording.runnable[first + index]);
            let cap = match group.request {
                None => runnable * speed,
                Some(request) => {
                    self.backlog[index] += f64::from(self.recording.released[first + index]);
                    let backlog = self.backlog[index];
                    let parallel = runnable.max((backlog / request).ceil()) * speed;
                    parallel.min(backlog / length)
                }
            };
            self.flows.push(Flow { weight: group.weight, cap });
        }
    }
}
