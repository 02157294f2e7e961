//! The arrivals of a run: one thread outside every runtime starts everything when it is due.
//!
//! Knows nothing of what a task does once it has been started.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Spawner;
use super::meter::{Measured, Responses};
use super::task::{Common, Starter};
use crate::moment::Moment;
use crate::os::{self, Urgency};
use crate::scenario::{Arrival, Scenario, Spacing, TaskSet};
use evenkeel_core::{Purpose, Seed};

/// The thread looks at least this often whether the run was broken off.
const LOOK: Duration = Duration::from_millis(50);

/// What happens when in a run, in moments of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// Open arrivals without a `start` begin here, before the warmup.
    pub(crate) begin: Moment,
    pub(crate) measured: Measured,
}

/// What the generator has to say when it is over.
#[derive(Debug)]
pub(crate) struct Generated {
    /// How late open arrivals were spawned.
    pub(crate) late: Responses,
    pub(crate) urgency: Urgency,
    /// Arrivals that were not spawned because too many tasks were there.
    pub(crate) refused: u64,
}

/// Starts what is there from the beginning, except open arrivals.
#[derive(Debug)]
pub(crate) struct Generator<S> {
    common: Arc<Common<S>>,
    sources: Vec<Source<S>>,
    groups: usize,
}

#[derive(Debug)]
struct Source<S> {
    set: TaskSet,
    starter: Starter<S>,
    gaps: fastrand::Rng,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    Arrive(usize),
    Stop(usize),
}

impl<S: Spawner> Generator<S> {
    pub(crate) fn new(scenario: &Scenario, common: &Arc<Common<S>>, seed: u64) -> Generator<S> {
        let source = |(number, set): (usize, &TaskSet)| {
            // Every set draws from streams of its own, so that changing one shifts no other.
            let stream = |purpose| fastrand::Rng::with_seed(Seed::new(seed).stream(purpose, number as u64));
            let starter = Starter::new(common, set.group, &set.program, stream(Purpose::Programs));
            Source { set: set.clone(), starter, gaps: stream(Purpose::Arrivals) }
        };
        let sources = scenario.tasks.iter().enumerate().map(source).collect();
        Generator { common: Arc::clone(common), sources, groups: scenario.groups.len() }
    }

    /// How many groups the scenario has.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Starts the tasks and clients that are there from the beginning.
    pub(crate) fn start(&mut self) {
        for source in &mut self.sources {
            if source.set.start.is_none() {
                source.start(self.common.meter().now());
            }
        }
    }

    /// Starts the rest, each when it is due, until the end of the measurement or `broken_off`.
    pub(crate) fn run(mut self, timeline: Timeline, broken_off: &AtomicBool) -> Generated {
        let urgency = os::become_urgent();
        let mut agenda = Agenda::new(&self.sources, timeline);
        let mut generated = Generated { late: Responses::empty(), urgency, refused: 0 };
        while let Some((due, event)) = agenda.next() {
            if due > timeline.measured.to || !self.wait(due, broken_off) {
                break;
            }
            self.act(due, event, &mut agenda, &mut generated);
        }
        generated
    }

    /// Sleeps until `due`; `false` if the run was broken off before.
    fn wait(&self, due: Moment, broken_off: &AtomicBool) -> bool {
        let clock = *self.common.meter().clock();
        loop {
            if broken_off.load(Ordering::Relaxed) {
                return false;
            }
            let now = clock.now();
            if now >= due {
                return true;
            }
            clock.sleep_until(due.min(now.plus(LOOK)));
        }
    }

    fn act(&mut self, due: Moment, event: Event, agenda: &mut Agenda, generated: &mut Generated) {
        match event {
            Event::Start(number) => {
                self.sources[number].start(due);
                if let Arrival::Open { .. } = self.sources[number].set.arrival {
                    agenda.add(self.sources[number].next_arrival(due), Event::Arrive(number));
                }
            }
            Event::Stop(number) => {
                self.sources[number].starter.stop();
                agenda.stopped[number] = true;
            }
            Event::Arrive(number) if agenda.stopped[number] => {}
            Event::Arrive(number) => {
                let crowded = self.common.meter().is_crowded();
                let late = self.common.meter().now().since(due);
                generated.late.record(late);
                generated.refused += self.sources[number].arrive(due, crowded);
                agenda.add(self.sources[number].next_arrival(due), Event::Arrive(number));
            }
        }
    }
}

impl<S: Spawner> Source<S> {
    fn start(&mut self, at: Moment) {
        match self.set.arrival {
            Arrival::Once { count } => (0..count).for_each(|_| self.starter.task(at)),
            Arrival::Closed { clients, think } => (0..clients).for_each(|_| self.starter.client(think, at)),
            Arrival::Open { .. } => {}
        }
    }

    /// One arrival; returns how many requests of it were refused.
    fn arrive(&mut self, at: Moment, crowded: bool) -> u64 {
        let Arrival::Open { count, .. } = self.set.arrival else { return 0 };
        if crowded {
            return u64::from(count);
        }
        (0..count).for_each(|_| self.starter.request(at));
        0
    }

    fn next_arrival(&mut self, last: Moment) -> Moment {
        let Arrival::Open { per_second, spacing, .. } = self.set.arrival else { return Moment::NEVER };
        let gap = match spacing {
            Spacing::Even => 1.0,
            Spacing::Poisson => -(1.0 - self.gaps.f64()).ln(),
        };
        last.plus(Duration::from_secs_f64(gap / per_second))
    }
}

/// What is still to come, in order of time; ties in order of entry.
struct Agenda {
    events: BinaryHeap<Reverse<(Moment, u64, Event)>>,
    entered: u64,
    stopped: Vec<bool>,
}

impl Agenda {
    fn new<S>(sources: &[Source<S>], timeline: Timeline) -> Agenda {
        let mut agenda = Agenda { events: BinaryHeap::new(), entered: 0, stopped: vec![false; sources.len()] };
        for (number, source) in sources.iter().enumerate() {
            let from = timeline.measured.from;
            match (source.set.start, &source.set.arrival) {
                (Some(start), _) => agenda.add(from.plus(start), Event::Start(number)),
                (None, Arrival::Open { .. }) => agenda.add(timeline.begin, Event::Start(number)),
                (None, _) => {}
            }
            if let Some(stop) = source.set.stop {
                agenda.add(from.plus(stop), Event::Stop(number));
            }
        }
        agenda
    }

    fn add(&mut self, due: Moment, event: Event) {
        self.entered += 1;
        self.events.push(Reverse((due, self.entered, event)));
    }

    fn next(&mut self) -> Option<(Moment, Event)> {
        self.events.pop().map(|Reverse((due, _, event))| (due, event))
    }
}
