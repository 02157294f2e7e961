//! One run of a scenario on a simulated machine, step by step.
//!
//! All on the calling thread: the outside's deeds are planned for their time, and the sampler looks between two steps, so
//! nothing of real time enters.
//!
//! Knows nothing of other runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::sampler::{Watch, tick_length};
use super::session::{Parts, Seen, Session};
use super::traces::RECORDS_MAX;
use super::{Outcome, SimOutcome};
use crate::exec::{Arrivals, Common, Generator, Meter, Timeline, Watcher};
use crate::failure::Failure;
use crate::judge::{self, Exact};
use crate::moment::{Moment, RunClock};
use crate::scenario::Preempt;
use crate::target::{Counts, Sim, SimSeen, SimSpawner, Snapshot};
use evenkeel_sim::machine::Machine;
use evenkeel_sim::{Digest, Record};

/// A run that has begun.
pub(super) struct SimRun<'a> {
    session: Session<'a>,
    sim: Sim,
    meter: Arc<Meter>,
    common: Arc<Common<SimSpawner>>,
    arrivals: Rc<RefCell<Arrivals<SimSpawner>>>,
    timeline: Timeline,
    watch: Watch,
    exact: Arc<Exact>,
    /// What was counted before the measurement, once that has begun.
    before: Option<Snapshot>,
    at: Moment,
    is_recorded: bool,
    /// Windows that have ended.
    windows: usize,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    pub(super) seen: SimSeen,
    /// Of all events, those of the machine's end included.
    pub(super) end: Digest,
}

/// Whether there is more to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    On,
    Over,
}

impl<'a> SimRun<'a> {
    /// Builds the machine and starts what is there from the beginning.
    pub(super) fn new(session: Session<'a>, machine: &Machine) -> Result<SimRun<'a>, Failure> {
        let scenario = &session.plan.scenario;
        let mut sim = Sim::build(machine, scenario.preempt, session.plan.faults, session.setup())?;
        let exact = Arc::new(judge::exact(scenario, machine.cpus(), machine.got_permille as f64 / 1e3));
        let watcher: Arc<dyn Watcher> = Arc::<Exact>::clone(&exact);
        let meter = Arc::new(Meter::watched(scenario.groups.len(), RunClock::start_virtual(), watcher));
        let common = Common::new(scenario, sim.spawner(), Arc::clone(&meter));
        let mut generator = Generator::new(scenario, &common, session.seed());
        sim.start(|| generator.start());
        let timeline = session.timeline(meter.now());
        meter.measure(timeline.measured);
        let watch = Watch::new(timeline.measured, scenario.groups.len());
        let arrivals = Rc::new(RefCell::new(generator.arrivals(timeline)));
        Ok(SimRun {
            session,
            sim,
            meter,
            common,
            arrivals,
            timeline,
            watch,
            exact,
            before: None,
            at: timeline.begin,
            is_recorded: false,
            windows: 0,
        })
    }

    /// From here on, keeps every event.
    pub(super) fn keep_all_records(&mut self) {
        self.sim.keep_records(usize::MAX);
    }

    /// Keeps the events of the measurement, until there are enough for a trace.
    pub(super) fn record_measurement(&mut self) {
        self.is_recorded = true;
    }

    /// The events kept since this was last asked.
    pub(super) fn take_records(&mut self) -> Vec<Record> {
        self.sim.take_records()
    }

    /// Of all events so far.
    pub(super) fn digest(&self) -> Digest {
        self.sim.digest()
    }

    /// The name of the group with an id.
    pub(super) fn group_name(&self, id: u32) -> Option<String> {
        self.sim.group_name(id)
    }

    /// How far it is.
    pub(super) fn at(&self) -> Moment {
        self.at
    }

    /// Lets time pass until the next look.
    pub(super) fn step(&mut self) -> Result<Step, Failure> {
        let measured = self.timeline.measured;
        if self.before.is_none() && self.at >= measured.from {
            self.before = Some(self.sim.begin_measurement());
            if self.is_recorded {
                self.sim.keep_records(RECORDS_MAX);
            }
            self.watch.begin(&self.sim, &self.meter);
            self.exact.begin_window();
        }
        let length = tick_length(measured.to.since(measured.from), self.session.plan.scenario.groups.len());
        let next = if self.before.is_some() { self.watch.due() } else { self.at.plus(length).min(measured.from) };
        self.plan_until(next);
        self.sim.run_until(next)?;
        self.at = next;
        self.meter.clock().stand_at(next);
        self.exact.settle(next);
        if self.before.is_some() && self.watch.look(&self.sim, &self.meter) > self.windows {
            self.windows += 1;
            self.exact.end_window();
        }
        Ok(if self.watch.is_over() { Step::Over } else { Step::On })
    }

    /// Plans what the outside does until then.
    fn plan_until(&mut self, until: Moment) {
        // Ends: a source has a rate.
        loop {
            let Some(deed) = self.arrivals.borrow_mut().next(until) else { return };
            let arrivals = Rc::clone(&self.arrivals);
            self.sim.plan(deed, move |deed| arrivals.borrow_mut().carry_out(deed));
        }
    }

    /// For how long a task keeps its CPU at most: until the next tick, if that may take it.
    fn longest_poll(&self) -> Option<Duration> {
        let scenario = &self.session.plan.scenario;
        let (poll, tick) = (scenario.longest_poll(), self.sim.tick_period());
        match scenario.preempt {
            Preempt::Polls => poll,
            Preempt::Ticks => poll.into_iter().chain(tick).min(),
        }
    }

    /// Stops the machine, and adds up. `records` are all that were kept, if any.
    pub(super) fn finish(mut self, records: Vec<Record>) -> Result<Finished, Failure> {
        let before = self.before.take().unwrap_or_else(|| self.sim.snapshot());
        let seen = self.sim.seen(before, records);
        let exact = self.exact.take_windows();
        let longest_poll = self.longest_poll();
        let recording = self.watch.end(&self.sim);
        let told = Seen {
            machine: seen.machine.name.clone(),
            cpus: self.sim.cpus(),
            longest_poll,
            iterations_per_us: None,
            switches: self.sim.switches(),
            notes: self.sim.notes(),
            sim: Some(SimOutcome {
                events: seen.digest.count,
                hash: format!("{:016x}", seen.digest.hash),
                cost_points: seen.speed.cost_points,
            }),
            machine_counted: Some((seen.before.clone(), seen.after.clone())),
        };
        self.common.finish();
        self.sim.stop()?;
        self.meter.clock().stand_at(self.sim.now());
        // Every task is gone: what they counted is complete.
        let generated = self.arrivals.borrow().generated();
        let parts =
            Parts { meter: &self.meter, timeline: self.timeline, recording, generated, seen: told, exact: Some(exact) };
        Ok(Finished { outcome: self.session.outcome(&parts), seen, end: self.sim.digest() })
    }
}
