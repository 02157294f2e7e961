//! Small simulations, recorded.

use evenkeel_core::{GroupId, Span, Time};
use evenkeel_engine::api::{self, Group};
use evenkeel_sim::machine::Machine;
use evenkeel_sim::{Config, Faults, Simulation};
use evenkeel_trace::{Source, Trace};
use std::time::Duration;

/// A simulation, with all that is needed to make a trace of it.
pub(crate) struct Run {
    pub(crate) sim: Simulation,
    pub(crate) machine: Machine,
    pub(crate) groups: Vec<Group>,
    /// From when on it is recorded.
    pub(crate) begin: Time,
}

impl Run {
    /// A machine with two groups, `heavy` of weight 300 and `light` of weight 100. Keeps at most so many records.
    pub(crate) fn new(machine: &str, records_max: usize) -> Run {
        Run::with_faults(machine, Faults::NONE, records_max)
    }

    fn with_faults(machine: &str, faults: Faults, records_max: usize) -> Run {
        let machine = Machine::named(machine).unwrap();
        let mut sim = Simulation::new(Config { faults, ..Config::new(machine.clone()) }).unwrap();
        sim.keep_records_up_to(records_max);
        let group = |(name, weight): (&str, u32)| sim.handle().group(name).weight(weight).build().unwrap();
        let groups = [("heavy", 300), ("light", 100)].map(group).into();
        Run { sim, machine, groups, begin: Time::ZERO }
    }

    /// Tasks that compute, give way, and sleep, so often; all is done after 30 ms.
    pub(crate) fn finite(machine: &str) -> Run {
        Run::finite_with(machine, Faults::NONE)
    }

    /// The same while faults go on.
    pub(crate) fn finite_with(machine: &str, faults: Faults) -> Run {
        let mut run = Run::with_faults(machine, faults, usize::MAX);
        let tasks = 3 * run.machine.cpus() as u64;
        let groups = run.groups.clone();
        run.sim.with(|_| {
            for task in 0..tasks {
                drop(groups[usize::from(task % 3 == 0)].spawn(sleeper(task)));
            }
        });
        let late = run.groups[1].clone();
        run.sim.at(Time::from_nanos(333_333), move |_| drop(late.spawn(sleeper(1))));
        run.until(30_000);
        run
    }

    /// Tasks of both groups that compute for ever.
    pub(crate) fn spin(&mut self, tasks: usize, piece: Duration) {
        let groups = self.groups.clone();
        self.sim.with(|_| {
            for group in &groups {
                for _ in 0..tasks {
                    drop(group.spawn(async move {
                        loop {
                            api::compute(piece);
                            api::yield_now().await;
                        }
                    }));
                }
            }
        });
    }

    pub(crate) fn until(&mut self, micros: u64) {
        self.sim.run_until(Time::ZERO.after(Span::from_micros(micros))).unwrap();
    }

    pub(crate) fn names(&self) -> Vec<(GroupId, String)> {
        self.groups.iter().map(|group| (group.id(), group.name().to_owned())).collect()
    }

    pub(crate) fn trace(&self) -> Trace {
        Trace::new(&Source {
            title: "a test",
            records: self.sim.records(),
            left_out: self.sim.left_out(),
            machine: &self.machine,
            groups: &self.names(),
            begin: self.begin,
            end: self.sim.now(),
        })
    }
}

async fn sleeper(task: u64) {
    for turn in 0..20 {
        api::compute(Duration::from_nanos(3_000 + 100 * task));
        api::yield_now().await;
        api::run(Duration::from_micros(2)).await;
        api::sleep(Duration::from_micros(20 + turn)).await;
    }
}
