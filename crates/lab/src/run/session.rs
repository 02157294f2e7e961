//! One run of a scenario on one target in real time, from building its runtime to its figures.
//!
//! Knows nothing of other runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::options::Plan;
use super::progress::Progress;
use super::sampler::{self, Recording};
use super::{AllOutcome, CpuOutcome, GroupOutcome, Outcome, SimOutcome, WindowGroup, WindowOutcome};
use crate::exec::{Common, Generated, Generator, Measured, Meter, Responses, Timeline};
use crate::failure::Failure;
use crate::judge::{self, FluidWindow, Verdicts, Yardstick};
use crate::moment::{Moment, RunClock};
use crate::scenario::{On, Preempt, Scenario};
use crate::target::{Setup, Target, Times, Waits};
use evenkeel::work;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(200);

/// Which run it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) on: On,
    pub(crate) repeat: u32,
}

impl Session<'_> {
    /// Every repetition draws differently, and all targets alike.
    pub(super) fn seed(&self) -> u64 {
        self.plan.seed.wrapping_add(u64::from(self.repeat) - 1)
    }

    pub(crate) fn run<T: Target>(&self, progress: &mut Progress) -> Result<Outcome, Failure> {
        let scenario = &self.plan.scenario;
        progress.begin(&scenario.name, self.on);
        work::calibrate();
        let target = T::build(self.setup())?;
        let meter = Arc::new(Meter::new(scenario.groups.len(), RunClock::start()));
        let common = Common::new(scenario, target.spawner(), Arc::clone(&meter));
        let mut generator = Generator::new(scenario, &common, self.seed());
        generator.start();
        let timeline = self.timeline(meter.now());
        meter.measure(timeline.measured);
        let watched = watch(&target, generator, &meter, timeline, progress);
        common.finish();
        let mut seen = Seen {
            machine: "host".to_owned(),
            cpus: self.plan.workers,
            longest_poll: scenario.longest_poll(),
            iterations_per_us: Some(work::calibrate().iterations_per_microsecond()),
            switches: target.switches(),
            notes: target.notes(),
            sim: None,
        };
        if scenario.preempt == Preempt::Ticks {
            seen.notes
                .push("`preempt = \"ticks\"` can't be had here: tasks lose their CPU only between polls".to_owned());
        }
        target.stop();
        let (recording, generated) = watched?;
        // The process's threads have ended: what they counted is complete.
        Ok(self.outcome(&Parts { meter: &meter, timeline, recording, generated, seen, exact: None }))
    }

    /// What a target is built from.
    pub(super) fn setup(&self) -> Setup<'_> {
        Setup {
            on: self.on,
            groups: &self.plan.scenario.groups,
            workers: self.plan.workers,
            seed: self.seed(),
            switches: &self.plan.switches,
        }
    }

    /// When what happens in a run that begins at `begin`.
    pub(super) fn timeline(&self, begin: Moment) -> Timeline {
        let from = begin.plus(self.plan.scenario.warmup);
        Timeline { begin, measured: Measured { from, to: from.plus(self.plan.scenario.seconds) } }
    }

    /// The figures of a run that is over.
    pub(super) fn outcome(&self, parts: &Parts<'_>) -> Outcome {
        let (scenario, recording) = (&self.plan.scenario, &parts.recording);
        let verdicts = judge::judge(parts.yardstick(scenario), recording);
        let length = recording.ticks.iter().map(|tick| tick.length).sum::<Duration>();
        Outcome {
            scenario: scenario.name.clone(),
            on: self.on.name(),
            machine: parts.seen.machine.clone(),
            workers: parts.seen.cpus,
            seconds: length.as_secs_f64(),
            seed: self.seed(),
            repeat: self.repeat,
            switches: parts.seen.switches.clone(),
            groups: self.groups(parts, &verdicts),
            all: AllOutcome {
                work_s: verdicts.groups.iter().map(|verdict| verdict.work.as_secs_f64()).sum(),
                jain: verdicts.jain,
                lag_of_bound: verdicts.groups.iter().filter_map(|verdict| verdict.lag_of_bound).reduce(f64::max),
            },
            cpu: cpu(recording, length, parts.seen.cpus),
            sim: parts.seen.sim.clone(),
            iterations_per_us: parts.seen.iterations_per_us,
            generator_late_us: parts.generated.late.quantile_us(0.99),
            generator_late_max_us: parts.generated.late.max_us(),
            generator: parts.generated.urgency,
            refused: parts.generated.refused,
            notes: parts.seen.notes.clone(),
            windows: self.windows(parts, &verdicts),
        }
    }

    fn groups(&self, parts: &Parts<'_>, verdicts: &Verdicts) -> Vec<(String, GroupOutcome)> {
        let mut totals = Vec::new();
        parts.meter.totals(&mut totals);
        let responses = parts.meter.responses();
        let got = parts.recording.cpu_time.as_secs_f64();
        let groups = self.plan.scenario.groups.iter().enumerate();
        groups
            .map(|(index, def)| {
                let verdict = &verdicts.groups[index];
                let counted = &parts.recording.group_counters[index];
                let work_s = verdict.work.as_secs_f64();
                let outcome = GroupOutcome {
                    weight: def.weight,
                    done: parts.recording.done[index],
                    unfinished: totals[index].unfinished,
                    work_s,
                    work_of_got: (got > 0.0).then(|| work_s / got),
                    share: verdict.share,
                    ideal_share: verdict.ideal_share,
                    lag_ms: verdict.lag.as_secs_f64() * 1e3,
                    lag_of_bound: verdict.lag_of_bound,
                    share_error: verdict.share_error,
                    response_us: times(&responses[index]),
                    wait_us: counted.waits.as_ref().map(Waits::times),
                    charged_s: counted.charged.map(|charged| charged.as_secs_f64()),
                };
                (def.name.clone(), outcome)
            })
            .collect()
    }

    fn windows(&self, parts: &Parts<'_>, verdicts: &Verdicts) -> Vec<WindowOutcome> {
        let from = parts.timeline.measured.from;
        let groups = &self.plan.scenario.groups;
        let windows = parts.recording.windows.iter().zip(&verdicts.windows);
        windows
            .map(|(window, fared)| WindowOutcome {
                from_s: window.from.since(from).as_secs_f64(),
                to_s: window.to.since(from).as_secs_f64(),
                groups: (0..groups.len())
                    .map(|index| {
                        // On a simulated machine what was received of pieces under way is included.
                        let (work_s, ideal_s) = (fared.received[index], fared.ideal[index]);
                        (groups[index].name.clone(), WindowGroup { work_s, ideal_s })
                    })
                    .collect(),
            })
            .collect()
    }
}

/// What is left of a run when its runtime has stopped.
pub(super) struct Parts<'a> {
    pub(super) meter: &'a Meter,
    pub(super) timeline: Timeline,
    pub(super) recording: Recording,
    pub(super) generated: Generated,
    pub(super) seen: Seen,
    /// Where time is virtual: how the groups fared in each window, to the last change.
    pub(super) exact: Option<Vec<FluidWindow>>,
}

impl Parts<'_> {
    fn yardstick<'b>(&'b self, scenario: &'b Scenario) -> Yardstick<'b> {
        Yardstick {
            scenario,
            cpus: self.seen.cpus,
            from: self.timeline.measured.from,
            longest_poll: self.seen.longest_poll,
            exact: self.exact.as_deref(),
        }
    }
}

/// What the target had to say before it stopped.
pub(super) struct Seen {
    pub(super) machine: String,
    pub(super) cpus: usize,
    /// The longest time for which a task can't lose its CPU; `None` if there is no such time.
    pub(super) longest_poll: Option<Duration>,
    pub(super) iterations_per_us: Option<u64>,
    pub(super) switches: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    pub(super) sim: Option<SimOutcome>,
}

/// Lets the run go on to its end: arrivals on one thread, the sampler on another.
fn watch<T: Target>(
    target: &T,
    generator: Generator<T::Spawner>,
    meter: &Meter,
    timeline: Timeline,
    progress: &Progress,
) -> Result<(Recording, Generated), Failure> {
    let broken_off = AtomicBool::new(false);
    let groups = generator.groups();
    thread::scope(|scope| {
        let arrivals = scope.spawn(|| generator.arrivals(timeline).run(timeline, &broken_off));
        let sampler = scope.spawn(|| sampler::record(target, meter, timeline.measured, groups, &broken_off));
        while !sampler.is_finished() {
            thread::sleep(PROGRESS.min(timeline.measured.to.since(meter.now()) + Duration::from_millis(1)));
            progress.at(meter.now().since(timeline.begin));
        }
        let recording = sampler.join();
        broken_off.store(true, Ordering::Relaxed);
        match (recording, arrivals.join()) {
            (Ok(recording), Ok(generated)) => Ok((recording, generated)),
            (Err(_), _) => Err(Failure::Internal("the sampler panicked".into())),
            (_, Err(_)) => Err(Failure::Internal("the arrivals' thread panicked".into())),
        }
    })
}

fn cpu(recording: &Recording, length: Duration, workers: usize) -> CpuOutcome {
    let got_s = recording.cpu_time.as_secs_f64();
    let counters = recording.counters;
    CpuOutcome {
        got_s,
        used_pct: 100.0 * got_s / (length.as_secs_f64() * workers as f64),
        wakes: counters.wakes,
        empty_wakes: counters.empty_wakes,
        steals: counters.steals,
        contended: counters.contended,
        failed_tries: counters.failed_tries,
        idle_while_waiting_ms: recording.idle_while_waiting.map(|idle| idle.as_secs_f64() * 1e3),
    }
}

fn times(responses: &Responses) -> Times {
    Times {
        count: responses.count(),
        p50: responses.quantile_us(0.5),
        p90: responses.quantile_us(0.9),
        p99: responses.quantile_us(0.99),
        p999: responses.quantile_us(0.999),
        max: responses.max_us(),
    }
}
