//! Programs for the single-threaded host, and what they received beside what was due to them.
//!
//! Knows nothing of how the engine shares.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(
    clippy::disallowed_types,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "figures of tests are small"
)]

pub mod fluid;
pub mod workloads;

use evenkeel_core::{CpuMask, Span, Time};
use evenkeel_engine::api::{Group, GroupBuilder, compute, now, sleep_until, yield_now};
use evenkeel_engine::test_host::{TestConfig, TestMachine};
use fluid::{Arrival, Demand, WINDOW};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

pub const fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

pub const fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

pub fn at_ms(millis: u64) -> Time {
    Time::ZERO.after(ms(millis))
}

/// A machine with groups whose programs keep a ledger.
pub struct Bench {
    pub machine: TestMachine,
    pub groups: Vec<Group>,
    pub ledger: Ledger,
    /// By what the groups are judged.
    pub yardstick: Yardstick,
    cpus: usize,
    seed: u64,
}

/// What a group asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Yardstick {
    /// As many CPUs as it has runnable tasks.
    Runnable,
    /// The work of its clients, as it comes; for groups of clients only, of equal weight.
    Arrivals,
}

/// What groups asked for and received.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    demands: Vec<(Time, usize, Demand)>,
    /// Per group, from the time that each piece of work came to its first poll.
    waits: BTreeMap<usize, Vec<Span>>,
    /// Work of clients.
    arrivals: Vec<Arrival>,
    /// Per window and group, in ns.
    service: Vec<Vec<f64>>,
    groups: usize,
}

impl Ledger {
    /// A change of what a group asks for.
    pub fn ask(&self, at: Time, group: usize, demand: Demand) {
        self.0.lock().demands.push((at, group, demand));
    }

    /// Computes, in the poll under way.
    pub fn work(&self, group: usize, span: Span) {
        let began = now().as_nanos();
        compute(span.into());
        let ended = began + span.as_nanos();
        let mut records = self.0.lock();
        let mut since = began;
        while since < ended {
            let window = since / WINDOW.as_nanos();
            let until = ended.min((window + 1) * WINDOW.as_nanos());
            let groups = records.groups;
            if records.service.len() <= window as usize {
                records.service.resize_with(window as usize + 1, || vec![0.0; groups]);
            }
            let row = &mut records.service[window as usize];
            row.resize(groups.max(row.len()), 0.0);
            row[group] += (until - since) as f64;
            since = until;
        }
    }

    /// Computes for so long, in polls.
    pub async fn work_in_polls(&self, group: usize, span: Span, poll: Span) {
        let mut left = span;
        while left > Span::ZERO {
            self.work(group, left.min(poll));
            left = left.minus(poll);
            yield_now().await;
        }
    }

    /// Sleeps, during which one task less is asked for.
    pub async fn sleep_until(&self, group: usize, until: Time) {
        self.ask(now(), group, Demand::Tasks(-1));
        self.ask(until.max(now()), group, Demand::Tasks(1));
        sleep_until(until).await;
    }

    /// Always has work.
    pub async fn hog(self, group: usize, poll: Span) {
        loop {
            self.work(group, poll);
            yield_now().await;
        }
    }

    /// Works for a while (mean), sleeps for a while (mean), both exponentially distributed.
    pub async fn client(self, group: usize, run: Span, pause: Span, poll: Span, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut at = now();
        loop {
            let work = exponential(&mut random, run);
            {
                let mut records = self.0.lock();
                records.arrivals.push(Arrival { at, group, work });
                records.waits.entry(group).or_default().push(now().since(at));
            }
            self.work_in_polls(group, work, poll).await;
            at = now().after(exponential(&mut random, pause));
            self.sleep_until(group, at).await;
        }
    }

    /// Has work during every other period.
    pub async fn on_off(self, group: usize, period: Span, poll: Span) {
        loop {
            self.work(group, poll);
            let in_cycle = now().as_nanos() % period.times(2).as_nanos();
            if in_cycle >= period.as_nanos() {
                let on = now().as_nanos() - in_cycle + period.times(2).as_nanos();
                self.sleep_until(group, Time::from_nanos(on)).await;
            } else {
                yield_now().await;
            }
        }
    }
}

fn exponential(random: &mut fastrand::Rng, mean: Span) -> Span {
    let nanos = -(1.0 - random.f64()).ln() * mean.as_nanos() as f64;
    Span::from_nanos((nanos as u64).max(1_000))
}

impl Bench {
    pub fn flat(cpus: usize) -> Self {
        Bench::new(TestConfig::flat(cpus))
    }

    pub fn new(config: TestConfig) -> Self {
        let (cpus, seed) = (config.machine.caches.len(), config.machine.seed);
        let machine = TestMachine::new(config);
        Bench { machine, groups: Vec::new(), ledger: Ledger::default(), yardstick: Yardstick::Runnable, cpus, seed }
    }

    /// A group of this weight.
    pub fn group(&mut self, weight: u32) -> usize {
        self.add_group(weight, |builder| builder)
    }

    /// A group of this weight that may use these CPUs only. The yardsticks know nothing of masks: judge by absolute shares.
    pub fn group_on(&mut self, weight: u32, cpus: CpuMask) -> usize {
        self.add_group(weight, |builder| builder.cpus(cpus))
    }

    fn add_group(&mut self, weight: u32, with: impl FnOnce(GroupBuilder) -> GroupBuilder) -> usize {
        let index = self.groups.len();
        let builder = self.machine.handle().group(format!("g{index}")).weight(weight);
        self.groups.push(with(builder).build().unwrap());
        self.ledger.0.lock().groups = self.groups.len();
        self.ledger.ask(self.machine.now(), index, Demand::Weight(f64::from(weight)));
        index
    }

    pub fn hogs(&mut self, group: usize, count: usize, poll: Span) {
        self.hogs_at(self.machine.now(), group, count, poll);
    }

    pub fn hogs_at(&mut self, at: Time, group: usize, count: usize, poll: Span) {
        self.ledger.ask(at, group, Demand::Tasks(count as i64));
        let (ledger, of) = (self.ledger.clone(), self.groups[group].clone());
        self.machine.at(at, move |_| {
            for _ in 0..count {
                drop(of.spawn(ledger.clone().hog(group, poll)));
            }
        });
    }

    /// Hogs that may use these CPUs only, of those of their group.
    pub fn hogs_on(&mut self, group: usize, cpus: &CpuMask, count: usize, poll: Span) {
        self.ledger.ask(self.machine.now(), group, Demand::Tasks(count as i64));
        for _ in 0..count {
            drop(self.groups[group].spawn_on(cpus, self.ledger.clone().hog(group, poll)));
        }
    }

    pub fn clients(&mut self, group: usize, count: usize, run: Span, pause: Span, poll: Span) {
        self.ledger.ask(self.machine.now(), group, Demand::Tasks(count as i64));
        for client in 0..count {
            let seed = self.seed ^ (group as u64) << 20 ^ (client as u64) << 40;
            drop(self.groups[group].spawn(self.ledger.clone().client(group, run, pause, poll, seed)));
        }
    }

    pub fn on_offs(&mut self, group: usize, count: usize, period: Span, poll: Span) {
        self.ledger.ask(self.machine.now(), group, Demand::Tasks(count as i64));
        for _ in 0..count {
            drop(self.groups[group].spawn(self.ledger.clone().on_off(group, period, poll)));
        }
    }

    pub fn weight_at(&mut self, at: Time, group: usize, weight: u32) {
        self.ledger.ask(at, group, Demand::Weight(f64::from(weight)));
        let of = self.groups[group].clone();
        self.machine.at(at, move |_| of.set_weight(weight).unwrap());
    }

    /// Runs to the end of that many windows.
    pub fn run(&mut self, windows: u64) {
        self.machine.run_until(Time::ZERO.after(WINDOW.times(windows))).unwrap();
    }

    /// What each group received and was due in each window: `[window][group]`, in ns.
    pub fn account(&self) -> Vec<Vec<Share>> {
        let records = self.ledger.0.lock();
        let windows = (self.machine.now().as_nanos() / WINDOW.as_nanos()) as usize;
        let due = match self.yardstick {
            Yardstick::Runnable => fluid::due(self.cpus, records.groups, records.demands.clone(), windows),
            Yardstick::Arrivals => fluid::due_of_arrivals(self.cpus, records.groups, records.arrivals.clone(), windows),
        };
        let none = vec![0.0; records.groups];
        let rows = due.into_iter().enumerate().map(|(window, due)| {
            let got = records.service.get(window).unwrap_or(&none);
            // The ideal divides what all received together.
            let scale = got.iter().sum::<f64>() / due.iter().sum::<f64>().max(1.0);
            let shares = due.into_iter().enumerate();
            shares.map(|(group, due)| Share { got: got.get(group).copied().unwrap_or(0.0), due: due * scale }).collect()
        });
        rows.collect()
    }

    /// Errors over windows from `from` on, `merged` of them taken together.
    pub fn errors(&self, from: usize, merged: usize) -> Errors {
        let account = self.account();
        let mut all: Vec<f64> = Vec::new();
        for span in account[from..].chunks_exact(merged) {
            let groups = (0..self.groups.len()).map(|group| Share::sum(span.iter().map(|window| window[group])));
            all.extend(groups.filter(|share| share.due > 0.0).map(|share| (share.got / share.due - 1.0).abs()));
        }
        all.sort_by(f64::total_cmp);
        let rank = (all.len() as f64 * 0.99).ceil() as usize;
        Errors { p99: 100.0 * all[rank.max(1) - 1], max: 100.0 * all.last().unwrap() }
    }

    /// What a group received and was due from one window up to another, in CPUs.
    pub fn cpus_of(&self, group: usize, from: usize, to: usize) -> Share {
        let account = self.account();
        let sum = Share::sum(account[from..to].iter().map(|window| window[group]));
        let length = WINDOW.as_nanos() as f64 * (to - from) as f64;
        Share { got: sum.got / length, due: sum.due / length }
    }

    /// How long a piece of a group's work waited, from when it came to its first poll: the given quantile, of 1,000.
    pub fn wait(&self, group: usize, per_mille: usize) -> Span {
        let records = self.ledger.0.lock();
        let mut waits = records.waits[&group].clone();
        waits.sort_unstable();
        waits[(waits.len() * per_mille).div_ceil(1_000).max(1) - 1]
    }

    /// The bound of lag: four slices and the two longest polls, times the CPUs due, rounded up. Panics with the first
    /// group and window past it.
    pub fn assert_lag_bound(&self, from: usize, poll: Span) {
        self.assert_lag_bound_in(std::slice::from_ref(&(from..usize::MAX)), poll);
    }

    /// The same for some windows only.
    pub fn assert_lag_bound_in(&self, windows: &[Range<usize>], poll: Span) {
        for (window, groups) in self.account().iter().enumerate() {
            if !windows.iter().any(|range| range.contains(&window)) {
                continue;
            }
            for (group, share) in groups.iter().enumerate() {
                let cpus = (share.due / WINDOW.as_nanos() as f64).ceil().max(1.0);
                let bound = (4.0 * ms(1).as_nanos() as f64 + 2.0 * poll.as_nanos() as f64) * cpus;
                let lag = share.due - share.got;
                assert!(
                    lag.abs() <= bound,
                    "group {group} in window {window}: lag {:.2} ms, bound {:.2} ms, due {:.2} ms",
                    lag / 1e6,
                    bound / 1e6,
                    share.due / 1e6
                );
            }
        }
    }
}

/// What a group received, and what was due to it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share {
    pub got: f64,
    pub due: f64,
}

impl Share {
    fn sum(shares: impl Iterator<Item = Share>) -> Share {
        shares.fold(Share::default(), |sum, share| Share { got: sum.got + share.got, due: sum.due + share.due })
    }

    /// How far what was received is from what was due, in per cent.
    pub fn error(&self) -> f64 {
        100.0 * (self.got / self.due - 1.0).abs()
    }
}

/// Relative errors of shares, in per cent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Errors {
    pub p99: f64,
    pub max: f64,
}
