//! The yardstick: what a perfectly fair machine would have given to each group, and how far a run
//! was from it.
//!
//! Pure functions of what was recorded. Knows nothing of runtimes and reports.

mod exact;
mod fluid;
mod ideal;

use std::time::Duration;

pub(crate) use exact::{Capacity, Exact, FluidWindow};

use ideal::Ideal;

use crate::moment::Moment;
use crate::run::{Recording, Window};
use crate::scenario::{Arrival, GroupDef, GroupIndex, Op, Program, Role, Scenario};

/// The slice of the `threads` target. Bounds are stated in slices for every target.
pub(crate) const SLICE: Duration = Duration::from_millis(1);

/// Percentages say something only from so many slices per CPU of a share on.
const SLICES_FOR_PERCENT: f64 = 500.0;

/// A newcomer gets its share from the second such span on.
const SETTLING: Duration = Duration::from_millis(100);

/// Windows begin and end within this of where they should.
const WINDOW_SLACK: Duration = Duration::from_millis(10);

/// How one group fared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) work: Duration,
    /// Of all groups' work; `None` if there was none.
    pub(crate) share: Option<f64>,
    pub(crate) ideal_share: Option<f64>,
    /// Largest difference between work and ideal in a window.
    pub(crate) lag: Duration,
    /// Largest lag as a fraction of its bound; `None` when some poll has no end.
    pub(crate) lag_of_bound: Option<f64>,
    /// Relative; `None` when the share was too small to tell.
    pub(crate) share_error: Option<f64>,
}

/// How all groups fared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdicts {
    pub(crate) groups: Vec<Verdict>,
    /// Of the work per weight of the batch groups; `None` with fewer than two, without work, or if
    /// some come later.
    pub(crate) jain: Option<f64>,
    /// Work and ideal work in seconds, per window and group.
    pub(crate) windows: Vec<FluidWindow>,
}

/// What a run is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Yardstick<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) cpus: usize,
    /// When measuring was to begin.
    pub(crate) from: Moment,
    /// The longest time for which a task can't lose its CPU; `None` if there is no such time.
    pub(crate) longest_poll: Option<Duration>,
    /// The windows of the recording on a fluid machine that was told of every change, if there was one.
    pub(crate) exact: Option<&'a [FluidWindow]>,
}

/// The fluid machine to put beside a run of `scenario` in virtual time.
pub(crate) fn exact(scenario: &Scenario, capacity: Capacity) -> Exact {
    Exact::new(ideal_groups(scenario), capacity)
}

fn ideal_groups(scenario: &Scenario) -> Vec<ideal::Group> {
    let group = |index: usize| ideal::Group {
        weight: f64::from(scenario.groups[index].weight),
        request: mean_request(scenario, GroupIndex(index)),
    };
    (0..scenario.groups.len()).map(group).collect()
}

/// Compares `recording` with the fluid share.
pub(crate) fn judge(yardstick: Yardstick<'_>, recording: &Recording) -> Verdicts {
    let scenario = yardstick.scenario;
    let sampled = || sampled(scenario, recording, yardstick.cpus);
    let windows = yardstick.exact.map_or_else(sampled, <[FluidWindow]>::to_vec);
    let verdict = |index| {
        let bound = yardstick.longest_poll.map(LagBound::new);
        let exempt = newcomer_at(scenario, GroupIndex(index)).map(|start| yardstick.from.plus(start));
        Fared { index, recording, windows: &windows }.verdict(bound, exempt)
    };
    let verdicts: Vec<Verdict> = (0..scenario.groups.len()).map(verdict).collect();
    Verdicts { jain: jain_of_batch(scenario, &verdicts), groups: verdicts, windows }
}

/// How the groups fared by what was sampled: their lags are those at the ends of windows.
fn sampled(scenario: &Scenario, recording: &Recording, cpus: usize) -> Vec<FluidWindow> {
    let ideals = ideal::ideals(recording, &ideal_groups(scenario), cpus as f64);
    let fared = |(window, ideal): (&Window, Ideal)| {
        let received: Vec<f64> = window.work.iter().map(Duration::as_secs_f64).collect();
        let length = window.to.since(window.from).as_secs_f64();
        FluidWindow {
            lag: received.iter().zip(&ideal.work).map(|(received, ideal)| (received - ideal).abs()).collect(),
            // In CPUs of the speed that they had: interference slows them down, it doesn't make them fewer.
            cpus: ideal.work.iter().map(|work| work / (length * ideal.speed)).collect(),
            received,
            ideal: ideal.work,
        }
    };
    recording.windows.iter().zip(ideals).map(fared).collect()
}

/// The lag that is allowed: (4 slices + 2 longest polls) for every CPU of the ideal share, rounded up.
#[derive(Debug, Clone, Copy)]
struct LagBound {
    per_cpu: Duration,
}

impl LagBound {
    fn new(longest_poll: Duration) -> LagBound {
        LagBound { per_cpu: (SLICE * 4).saturating_add(longest_poll.saturating_mul(2)) }
    }

    fn of(self, ideal_cpus: f64) -> f64 {
        // A hair above a whole number is rounding of the ideal, not another CPU.
        self.per_cpu.as_secs_f64() * (ideal_cpus - 1e-6).ceil().max(1.0)
    }
}

/// One group's part of a recording.
struct Fared<'a> {
    index: usize,
    recording: &'a Recording,
    windows: &'a [FluidWindow],
}

impl Fared<'_> {
    fn verdict(&self, bound: Option<LagBound>, newcomer: Option<Moment>) -> Verdict {
        let sum = |of: &dyn Fn(usize) -> f64| (0..self.windows.len()).map(of).sum::<f64>();
        let total = sum(&|window| self.windows[window].received.iter().sum());
        let work = sum(&|window| self.windows[window].received[self.index]);
        let ideal = sum(&|window| self.windows[window].ideal[self.index]);
        let of_total = |part: f64| (total > 0.0).then(|| part / total);
        let (lag, lag_of_bound) = self.lag(bound, newcomer);
        Verdict {
            work: Duration::from_secs_f64(work),
            share: of_total(work),
            ideal_share: of_total(ideal),
            lag: Duration::from_secs_f64(lag),
            lag_of_bound,
            share_error: self.tells(ideal).then(|| (work - ideal).abs() / ideal),
        }
    }

    fn length(&self, window: usize) -> f64 {
        let window = &self.recording.windows[window];
        window.to.since(window.from).as_secs_f64()
    }

    /// Whether an ideal of so many seconds is long enough for a percentage.
    fn tells(&self, ideal: f64) -> bool {
        let span: f64 = (0..self.windows.len()).map(|window| self.length(window)).sum();
        span > 0.0 && ideal >= SLICES_FOR_PERCENT * SLICE.as_secs_f64() * (ideal / span).ceil()
    }

    /// The largest lag in seconds, and the largest as a fraction of its bound, after the first
    /// window and after the one in which the group was a newcomer.
    fn lag(&self, bound: Option<LagBound>, newcomer: Option<Moment>) -> (f64, Option<f64>) {
        let (mut largest, mut of_bound) = (0.0f64, 0.0f64);
        for (number, window) in self.recording.windows.iter().enumerate().skip(1) {
            let settling = newcomer
                .is_some_and(|start| window.to > start && window.from.plus(WINDOW_SLACK) < start.plus(SETTLING));
            let length = self.length(number);
            if settling || length <= 0.0 {
                continue;
            }
            let fared = &self.windows[number];
            let lag = fared.lag[self.index];
            largest = largest.max(lag);
            if let Some(bound) = bound {
                of_bound = of_bound.max(lag / bound.of(fared.cpus[self.index]));
            }
        }
        (largest, bound.map(|_| of_bound))
    }
}

/// When the first tasks of `group` start, if that is during the measurement.
fn newcomer_at(scenario: &Scenario, group: GroupIndex) -> Option<Duration> {
    let starts = scenario.tasks.iter().filter(|set| set.group == group).map(|set| set.start);
    starts.min().flatten()
}

/// The work in seconds of a request of `group`, if all its tasks are open arrivals whose work is
/// planned: then its demand is what arrived, however late the runtime was to do it.
fn mean_request(scenario: &Scenario, group: GroupIndex) -> Option<f64> {
    let spawned_into = scenario.tasks.iter().any(|set| set.group != group && spawns_into(&set.program, group));
    let planned = |set: &crate::scenario::TaskSet| {
        let open = matches!(set.arrival, Arrival::Open { .. }) && set.program.only_computes();
        open.then(|| set.program.planned_work(fastrand::Rng::with_seed(0))).flatten()
    };
    let sets = scenario.tasks.iter().filter(|set| set.group == group);
    let works = sets.map(planned).collect::<Option<Vec<Duration>>>().filter(|works| !works.is_empty())?;
    let longest = works.into_iter().max().filter(|work| !work.is_zero());
    longest.filter(|_| !spawned_into).map(|work| work.as_secs_f64())
}

fn spawns_into(program: &Program, group: GroupIndex) -> bool {
    program.ops().iter().any(|op| match op {
        Op::Spawn(spawn) => spawn.group == Some(group) || spawns_into(&spawn.program, group),
        _ => false,
    })
}

/// Groups that come later have had less time, so with such there is no index.
fn jain_of_batch(scenario: &Scenario, verdicts: &[Verdict]) -> Option<f64> {
    let batch = scenario.groups.iter().zip(verdicts).enumerate().filter(|(_, (group, _))| group.role == Role::Batch);
    let per_weight = |(index, (group, verdict)): (usize, (&GroupDef, &Verdict))| {
        let work = verdict.work.as_secs_f64() / f64::from(group.weight);
        newcomer_at(scenario, GroupIndex(index)).is_none().then_some(work)
    };
    jain(&batch.map(per_weight).collect::<Option<Vec<f64>>>()?)
}

/// Jain's index: 1 when all are equal, 1/n when one has everything.
fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (values.len() > 1 && squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Tick;
    use crate::target::{Counters, GroupCounters};

    fn judged(scenario: &Scenario, recording: &Recording) -> Verdicts {
        let longest_poll = scenario.longest_poll();
        judge(Yardstick { scenario, cpus: 2, from: Moment::default(), longest_poll, exact: None }, recording)
    }

    const MS: u64 = 1_000_000;

    fn scenario(text: &str) -> Scenario {
        crate::scenario::of_text(text).unwrap()
    }

    /// One tick a window of 100 ms; work in ms by window and group.
    fn recording<const N: usize>(runnable: &[[f32; N]], released_ms: &[[f32; N]], work_ms: &[[u64; N]]) -> Recording {
        let window = |(number, work): (usize, &[u64; N])| Window {
            from: Moment::from_nanos(number as u64 * 100 * MS),
            to: Moment::from_nanos((number as u64 + 1) * 100 * MS),
            ticks: number..number + 1,
            work: work.iter().map(|&ms| Duration::from_millis(ms)).collect(),
        };
        Recording {
            ticks: vec![Tick { length: Duration::from_millis(100) }; work_ms.len()],
            runnable: runnable.concat(),
            released: released_ms.concat().iter().map(|ms| ms / 1e3).collect(),
            windows: work_ms.iter().enumerate().map(window).collect(),
            counters: Counters::default(),
            cpu_time: Duration::ZERO,
            idle_while_waiting: None,
            done: vec![0; N],
            group_counters: vec![GroupCounters::default(); N],
        }
    }

    const HOGS: &str = r#"
        [[groups]]
        name = "a"
        weight = 1
        role = "batch"
        [[groups]]
        name = "b"
        weight = 3
        role = "batch"
        [[tasks]]
        group = "a"
        program = [{ repeat = { program = [{ run = "1ms" }, "yield"] } }]
        [[tasks]]
        group = "b"
        start = "200ms"
        program = [{ repeat = { program = [{ run = "1ms" }, "yield"] } }]
    "#;

    #[test]
    fn ideal_divides_the_work_that_was_received() {
        // Interference took 20 of 200 ms; that is nobody's error.
        let recording = recording(&[[4.0, 4.0]; 2], &[[0.0; 2]; 2], &[[45, 135]; 2]);
        let verdicts = judged(&scenario(HOGS), &recording);
        for (group, share) in verdicts.groups.iter().zip([0.25, 0.75]) {
            assert!((group.share.unwrap() - share).abs() < 1e-9);
            assert!((group.ideal_share.unwrap() - share).abs() < 1e-9);
            assert!(group.lag < Duration::from_micros(1));
        }
        assert_eq!(verdicts.jain, None, "`b` comes later");
        let both = HOGS.replace("start = \"200ms\"", "");
        let jain = judged(&scenario(&both), &recording).jain;
        assert!((jain.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn lag_is_the_difference_and_its_bound_grows_with_the_share() {
        let works: [[u64; 2]; 4] = [[200, 0], [50, 150], [50, 150], [62, 138]];
        let recording = recording(&[[4.0, 4.0]; 4], &[[0.0; 2]; 4], &works);
        let verdicts = judged(&scenario(HOGS), &recording);
        let [a, b] = &verdicts.groups[..] else { panic!("two groups") };
        // The first window is not judged; `b` is a newcomer in the third, not in the fourth.
        assert!((a.lag.as_secs_f64() - 0.012).abs() < 1e-6, "{:?}", a.lag);
        assert!((b.lag.as_secs_f64() - 0.012).abs() < 1e-6, "{:?}", b.lag);
        // (4 x 1 ms + 2 x 1 ms) for one CPU of `a` and two of `b`.
        assert!((a.lag_of_bound.unwrap() - 2.0).abs() < 1e-3);
        assert!((b.lag_of_bound.unwrap() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_newcomer_is_not_judged_in_its_first_window() {
        let works: [[u64; 2]; 4] = [[200, 0], [200, 0], [150, 50], [50, 150]];
        let runnable: [[f32; 2]; 4] = [[4.0, 0.0], [4.0, 0.0], [4.0, 4.0], [4.0, 4.0]];
        let recording = recording(&runnable, &[[0.0; 2]; 4], &works);
        let verdicts = judged(&scenario(HOGS), &recording);
        assert!(verdicts.groups[1].lag < Duration::from_micros(1));
        assert!(verdicts.groups[0].lag > Duration::from_millis(90));
    }

    #[test]
    fn percentages_need_enough_slices() {
        let few = recording(&[[4.0, 4.0]; 2], &[[0.0; 2]; 2], &[[60, 140]; 2]);
        assert_eq!(judged(&scenario(HOGS), &few).groups[0].share_error, None);
        let many = recording(&[[4.0, 4.0]; 20], &[[0.0; 2]; 20], &[[60, 140]; 20]);
        let error = judged(&scenario(HOGS), &many).groups[0].share_error;
        assert!((error.unwrap() - 0.2).abs() < 1e-6);
    }

    #[test]
    fn open_demand_is_what_arrived_even_if_it_was_starved() {
        let text = r#"
            [[groups]]
            name = "batch"
            role = "batch"
            [[groups]]
            name = "quiet"
            [[tasks]]
            group = "batch"
            program = [{ repeat = { program = [{ run = "1ms" }, "yield"] } }]
            [[tasks]]
            group = "quiet"
            arrival = { open = { rate = 200 } }
            program = [{ run = "100us" }]
        "#;
        // 2 ms of requests arrive per window; none is served, and ever more of them wait.
        let runnable: [[f32; 2]; 3] = [[9.0, 10.0], [9.0, 30.0], [9.0, 50.0]];
        let recording = recording(&runnable, &[[0.0, 2.0]; 3], &[[200, 0]; 3]);
        let verdicts = judged(&scenario(text), &recording);
        let quiet = &verdicts.groups[1];
        assert_eq!(quiet.share, Some(0.0));
        assert!((quiet.ideal_share.unwrap() - 0.01).abs() < 1e-6, "{:?}", quiet.ideal_share);
        assert!((quiet.lag.as_secs_f64() - 0.002).abs() < 1e-6);
    }

    #[test]
    fn no_work_means_no_shares() {
        let recording = recording(&[[1.0, 1.0]], &[[0.0; 2]], &[[0, 0]]);
        let verdicts = judged(&scenario(HOGS), &recording);
        assert_eq!((verdicts.groups[0].share, verdicts.jain), (None, None));
        assert_eq!(verdicts.windows[0].ideal, [0.0, 0.0]);
    }

    #[test]
    fn jain_knows_equality_and_monopoly() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[5.0]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
