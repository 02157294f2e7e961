//! Watches a run from a thread of its own: runnable tasks, work and waste over time.
//!
//! Knows nothing of what is fair; it only records.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exec::{Measured, Meter, Totals};
use crate::moment::Moment;
use crate::os;
use crate::target::{Counters, GroupCounters, Target};

/// Work is compared with the ideal in windows of this length.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);

/// Lengths of a tick, from fine to coarse: each divides a window. Means are exact at any length;
/// finer ticks only follow changes of demand more closely.
const TICKS_MS: [u64; 5] = [2, 5, 10, 50, 100];

/// At most so many figures are kept per run.
pub(crate) const FIGURES_MAX: f64 = 2e7;

/// More tasks than this are not spawned by arrivals or by other tasks: they would only show how
/// much memory the machine has.
const TASKS_MAX: i64 = 2_000_000;

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
pub(crate) fn record<T: Target>(
    target: &T,
    meter: &Meter,
    measured: Measured,
    groups: usize,
    broken_off: &AtomicBool,
) -> Recording {
    os::become_urgent();
    let length = tick_length(measured.to.since(measured.from), groups);
    let mut watch = Watch::new(target, meter, groups);
    meter.clock().sleep_until(measured.from);
    watch.begin();
    let (counters, by_group, cpu_time) = (target.counters(), target.group_counters(), os::cpu_time());
    let mut due = measured.from;
    while due < measured.to && !broken_off.load(Ordering::Relaxed) {
        due = due.plus(length).min(measured.to);
        meter.clock().sleep_until(due);
        watch.tick();
        let ends_window = watch.at.since(watch.window_from) + length / 2 >= WINDOW;
        if ends_window || due == measured.to {
            watch.end_window();
        }
        // Looks that were missed are missed: the next tick is longer, and knows it.
        while due.plus(length) < watch.at {
            due = due.plus(length);
        }
    }
    let mut recording = watch.recording;
    recording.counters = target.counters().since(&counters);
    let now = target.group_counters();
    recording.group_counters = now.iter().zip(&by_group).map(|(now, before)| now.since(before)).collect();
    recording.cpu_time = os::cpu_time().saturating_sub(cpu_time);
    recording
}

struct Watch<'a, T> {
    target: &'a T,
    meter: &'a Meter,
    recording: Recording,
    at: Moment,
    before: Vec<Totals>,
    now: Vec<Totals>,
    begin: Vec<Totals>,
    window_begin: Vec<Totals>,
    window_from: Moment,
    window_tick: usize,
}

impl<'a, T: Target> Watch<'a, T> {
    fn new(target: &'a T, meter: &'a Meter, groups: usize) -> Watch<'a, T> {
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
        Watch {
            target,
            meter,
            recording,
            at: Moment::default(),
            before: none(),
            now: none(),
            begin: none(),
            window_begin: none(),
            window_from: Moment::default(),
            window_tick: 0,
        }
    }

    fn begin(&mut self) {
        self.at = self.meter.now();
        self.meter.totals(&mut self.before);
        self.begin = self.before.clone();
        self.window_begin = self.before.clone();
        self.window_from = self.at;
    }

    fn tick(&mut self) {
        let at = self.meter.now();
        self.meter.totals(&mut self.now);
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
        if let Some(cpus) = self.target.idle_while_waiting() {
            let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
            *self.recording.idle_while_waiting.get_or_insert_default() += length.saturating_mul(cpus);
        }
        self.meter.set_crowded(self.now.iter().map(Totals::live).sum::<i64>() > TASKS_MAX);
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
