//! The arrivals of a run: something outside every runtime starts everything when it is due. In real time that is a thread,
//! on a simulated machine a device.
//!
//! Knows nothing of what a task does once it has been started.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Spawner;
use super::meter::{Measured, Responses};
use super::task::{Common, Starter};
use crate::moment::Moment;
use crate::os::{self, Urgency};
use crate::scenario::{Arrival, Scenario, Spacing, TaskSet};

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
            let mut rng = fastrand::Rng::with_seed(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let gaps = rng.fork();
            Source { set: set.clone(), starter: Starter::new(common, set.group, &set.program, rng), gaps }
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

    /// What arrives later.
    pub(crate) fn arrivals(self, timeline: Timeline) -> Arrivals<S> {
        let agenda = Agenda::new(&self.sources, timeline);
        Arrivals { common: self.common, sources: self.sources, agenda, late: Responses::empty(), refused: 0 }
    }
}

/// Starts the rest, each when it is due.
#[derive(Debug)]
pub(crate) struct Arrivals<S> {
    common: Arc<Common<S>>,
    sources: Vec<Source<S>>,
    agenda: Agenda,
    late: Responses,
    refused: u64,
}

/// Something that is due, and not done yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deed {
    pub(crate) due: Moment,
    event: Event,
}

impl<S: Spawner> Arrivals<S> {
    /// Does everything when it is due, on the calling thread, until the end of the measurement or `broken_off`.
    pub(crate) fn run(mut self, timeline: Timeline, broken_off: &AtomicBool) -> Generated {
        let urgency = os::become_urgent();
        while let Some(deed) = self.next(timeline.measured.to) {
            if !self.wait(deed.due, broken_off) {
                break;
            }
            self.carry_out(deed);
        }
        Generated { urgency, ..self.generated() }
    }

    /// What there is to say so far.
    pub(crate) fn generated(&self) -> Generated {
        Generated { late: self.late.clone(), urgency: Urgency::Virtual, refused: self.refused }
    }

    /// What is due next, if that is until `until`, and plans what follows it.
    pub(crate) fn next(&mut self, until: Moment) -> Option<Deed> {
        // Ends: each turn takes an event, and those of sources that have stopped leave no other.
        loop {
            let (due, event) = self.agenda.next(until)?;
            match event {
                Event::Start(number) => {
                    if let Arrival::Open { .. } = self.sources[number].set.arrival {
                        self.plan_arrival(number, due);
                    }
                }
                Event::Stop(number) => self.agenda.stopped[number] = true,
                Event::Arrive(number) if self.agenda.stopped[number] => continue,
                Event::Arrive(number) => self.plan_arrival(number, due),
            }
            return Some(Deed { due, event });
        }
    }

    fn plan_arrival(&mut self, number: usize, last: Moment) {
        let next = self.sources[number].next_arrival(last);
        self.agenda.add(next, Event::Arrive(number));
    }

    /// Sleeps until `due`; `false` if the run was broken off before.
    fn wait(&self, due: Moment, broken_off: &AtomicBool) -> bool {
        let clock = self.common.meter().clock();
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

    /// Does it.
    pub(crate) fn carry_out(&mut self, deed: Deed) {
        let Deed { due, event } = deed;
        match event {
            Event::Start(number) => self.sources[number].start(due),
            Event::Stop(number) => self.sources[number].starter.stop(),
            Event::Arrive(number) => {
                let crowded = self.common.meter().is_crowded();
                self.late.record(self.common.meter().now().since(due));
                self.refused += self.sources[number].arrive(due, crowded);
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
#[derive(Debug)]
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

    /// The next event, if it is due until `until`.
    fn next(&mut self, until: Moment) -> Option<(Moment, Event)> {
        let next = self.events.peek_mut().filter(|next| next.0.0 <= until)?;
        let Reverse((due, _, event)) = PeekMut::pop(next);
        Some((due, event))
    }
}
