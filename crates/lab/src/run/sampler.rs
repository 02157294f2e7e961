//! Watches a run: runnable tasks, work and waste over time. In real time from a thread of its own.
//!
//! Knows nothing of what is fair; it only records.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exec::{Measured, Meter, TASKS_MAX, Totals};
use crate::moment::Moment;
use crate::os;
use crate::target::{Counters, Counts, GroupCounters};

/// Work is compared with the ideal in windows of this length.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);

/// Lengths of a tick, from fine to coarse: each divides a window. Means are exact at any length;
/// finer ticks only follow changes of demand more closely.
const TICKS_MS: [u64; 5] = [2, 5, 10, 50, 100];

/// At most so many figures are kept per run.
pub(crate) const FIGURES_MAX: f64 = 2e7;

/// What was seen of one run.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    pub(crate) ticks: Vec<Tick>,
    /// Runnable tasks on average, per tick and group.
    pub(crate) runnable: Vec<f32>,
    /// Work of arrivals in seconds, per tick and group.
    pub(crate) released: Vec<f32>,
    pub(crate) windows: Vec<Window>,
    pub(crate) counters: Counters,
    pub(crate) cpu_time: Duration,
    /// CPUs' worth of time that was idle although a task waited, where that is known.
    pub(crate) idle_while_waiting: Option<Duration>,
    pub(crate) done: Vec<u64>,
    /// What the runtime counted for each group.
    pub(crate) group_counters: Vec<GroupCounters>,
}

/// The time from one look to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    pub(crate) length: Duration,
}

/// About a tenth of a second.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) ticks: Range<usize>,
    /// Work done in it, by group.
    pub(crate) work: Vec<Duration>,
}

/// The length of a tick that keeps the number of figures bearable.
pub(crate) fn tick_length(seconds: Duration, groups: usize) -> Duration {
    let fits = |&ms: &u64| seconds.as_secs_f64() * 1e3 / ms as f64 * groups as f64 * 2.0 <= FIGURES_MAX;
    Duration::from_millis(TICKS_MS.into_iter().find(fits).unwrap_or(TICKS_MS[TICKS_MS.len() - 1]))
}

/// Records until the end of what is measured, or until the run is broken off.
pub(crate) fn record<T: Counts>(
    target: &T,
    meter: &Meter,
    measured: Measured,
    groups: usize,
    broken_off: &AtomicBool,
) -> Recording {
    os::become_urgent();
    let mut watch = Watch::new(measured, groups);
    meter.clock().sleep_until(measured.from);
    watch.begin(target, meter);
    while !watch.is_over() && !broken_off.load(Ordering::Relaxed) {
        meter.clock().sleep_until(watch.due());
        watch.look(target, meter);
    }
    watch.end(target)
}

/// Looks at a run each time that it is told to.
#[derive(Debug)]
pub(crate) struct Watch {
    measured: Measured,
    length: Duration,
    due: Moment,
    recording: Recording,
    at: Moment,
    before: Vec<Totals>,
    now: Vec<Totals>,
    begin: Vec<Totals>,
    window_begin: Vec<Totals>,
    window_from: Moment,
    window_tick: usize,
    at_begin: (Counters, Vec<GroupCounters>, Duration),
}

impl Watch {
    /// To begin at the start of what is measured.
    pub(crate) fn new(measured: Measured, groups: usize) -> Watch {
        let recording = Recording {
            ticks: Vec::new(),
            runnable: Vec::new(),
            released: Vec::new(),
            windows: Vec::new(),
            counters: Counters::default(),
            cpu_time: Duration::ZERO,
            idle_while_waiting: None,
            done: vec![0; groups],
            group_counters: vec![GroupCounters::default(); groups],
        };
        let none = Vec::new;
        let length = tick_length(measured.to.since(measured.from), groups);
        Watch {
            measured,
            length,
            due: measured.from.plus(length).min(measured.to),
            recording,
            at: Moment::default(),
            before: none(),
            now: none(),
            begin: none(),
            window_begin: none(),
            window_from: Moment::default(),
            window_tick: 0,
            at_begin: Default::default(),
        }
    }

    /// The moment of the next look.
    pub(crate) fn due(&self) -> Moment {
        self.due
    }

    /// Whether all is measured.
    pub(crate) fn is_over(&self) -> bool {
        self.at >= self.measured.to
    }

    /// The measurement begins.
    pub(crate) fn begin(&mut self, target: &impl Counts, meter: &Meter) {
        self.at = meter.now();
        meter.totals(&mut self.before);
        self.begin = self.before.clone();
        self.window_begin = self.before.clone();
        self.window_from = self.at;
        self.at_begin = (target.counters(), target.group_counters(), target.cpu_time());
    }

    /// A look, at about the moment at which it is due; tells how many windows have ended.
    pub(crate) fn look(&mut self, target: &impl Counts, meter: &Meter) -> usize {
        self.tick(target, meter);
        let ends_window = self.at.since(self.window_from) + self.length / 2 >= WINDOW;
        if ends_window || self.due == self.measured.to {
            self.end_window();
        }
        // Looks that were missed are missed: the next tick is longer, and knows it.
        while self.due.plus(self.length) < self.at {
            self.due = self.due.plus(self.length);
        }
        self.due = self.due.plus(self.length).min(self.measured.to);
        self.recording.windows.len()
    }

    /// The measurement is over.
    pub(crate) fn end(self, target: &impl Counts) -> Recording {
        let mut recording = self.recording;
        let (counters, by_group, cpu_time) = self.at_begin;
        recording.counters = target.counters().since(&counters);
        let now = target.group_counters();
        recording.group_counters = now.iter().zip(&by_group).map(|(now, before)| now.since(before)).collect();
        recording.cpu_time = target.cpu_time().saturating_sub(cpu_time);
        recording
    }

    fn tick(&mut self, target: &impl Counts, meter: &Meter) {
        let at = meter.now();
        meter.totals(&mut self.now);
        let length = at.since(self.at);
        for (now, before) in self.now.iter().zip(&self.before) {
            #[expect(clippy::cast_possible_truncation, reason = "seven digits are plenty for a mean")]
            let (runnable, released) = (
                now.mean_runnable(at, before, self.at) as f32,
                now.released().saturating_sub(before.released()).as_secs_f64() as f32,
            );
            self.recording.runnable.push(runnable);
            self.recording.released.push(released);
        }
        self.recording.ticks.push(Tick { length });
        if let Some(cpus) = target.idle_while_waiting() {
            let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
            *self.recording.idle_while_waiting.get_or_insert_default() += length.saturating_mul(cpus);
        }
        meter.set_crowded(self.now.iter().map(Totals::live).sum::<i64>() > TASKS_MAX);
        std::mem::swap(&mut self.before, &mut self.now);
        self.at = at;
    }

    fn end_window(&mut self) {
        let work = |(now, then): (&Totals, &Totals)| now.work().saturating_sub(then.work());
        let ticks = self.window_tick..self.recording.ticks.len();
        self.recording.windows.push(Window {
            from: self.window_from,
            to: self.at,
            ticks: ticks.clone(),
            work: self.before.iter().zip(&self.window_begin).map(work).collect(),
        });
        let done = |(now, then): (&Totals, &Totals)| now.done.saturating_sub(then.done);
        self.recording.done = self.before.iter().zip(&self.begin).map(done).collect();
        self.window_begin.clone_from(&self.before);
        self.window_from = self.at;
        self.window_tick = ticks.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_divide_a_window_and_figures_stay_bearable() {
        for (seconds, groups) in [(1, 1), (30, 101), (3600, 2), (3600, 50), (100, 10_000)] {
            let length = tick_length(Duration::from_secs(seconds), groups);
            assert_eq!(WINDOW.as_nanos() % length.as_nanos(), 0);
            let figures = seconds as f64 / length.as_secs_f64() * groups as f64 * 2.0;
            assert!(figures <= FIGURES_MAX, "{seconds} s of {groups} groups make {figures} figures");
        }
    }
}
