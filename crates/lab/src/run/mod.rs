//! `evenkeel run`: a scenario on several targets, interleaved and repeated.
//!
//! Knows nothing of how a report looks.

mod command;
mod determinism;
mod options;
mod outcome;
mod progress;
mod sampler;
mod session;
mod simulate;

pub(crate) use options::RunArgs;
pub(crate) use outcome::{AllOutcome, CpuOutcome, GroupOutcome, Outcome, SimOutcome, WindowGroup, WindowOutcome};
#[cfg(test)]
pub(crate) use sampler::Tick;
pub(crate) use sampler::{Recording, Window};

use crate::failure::Failure;
use crate::moment::Moment;
use crate::report::{self, JsonFile};
use crate::scenario::On;
use crate::target::{self, Target};
use evenkeel::work;
use options::{Determinism, Plan};
use progress::Progress;
use simulate::{SimRun, Step};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Carries out the command.
pub(crate) fn command(args: &RunArgs) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let json = args.json.as_deref().map(JsonFile::open).transpose()?;
    if plan.on.iter().any(|&on| on != On::Sim) {
        work::calibrate();
    }
    let mut outcomes = Vec::new();
    let went = run_all(&plan, &mut Progress::new(args.progress, &plan), &mut outcomes);
    // Whoever reads the table may have gone: that is told last, and costs neither the file nor the verdict's code.
    let printed = if outcomes.is_empty() { Ok(()) } else { report::print(&plan.scenario, &outcomes) };
    if let Some(json) = json {
        json.write(&outcomes)?;
    }
    went?;
    let met = report::check_expectations(&plan.scenario.expect, &outcomes);
    met.map_err(|missed| missed.repeated_by(|| command::line(&plan, &plan.on, plan.seed, plan.repeat)))?;
    printed
}

fn run_all(plan: &Plan, progress: &mut Progress, outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
    for repeat in 1..=plan.repeat {
        // Another target begins each time, so that none is always the first after a pause.
        let first = (repeat as usize - 1) % plan.on.len();
        for &on in plan.on[first..].iter().chain(&plan.on[..first]) {
            outcomes.push(run_one(plan, on, repeat, progress)?);
        }
    }
    progress.finish();
    Ok(())
}

fn run_one(plan: &Plan, on: On, repeat: u32, progress: &mut Progress) -> Result<Outcome, Failure> {
    fn session<T: Target>(plan: &Plan, on: On, repeat: u32, progress: &mut Progress) -> Result<Outcome, Failure> {
        session::Session { plan, on, repeat }.run::<T>(progress)
    }
    match on {
        On::Threads => session::<target::Threads>(plan, on, repeat, progress),
        On::Sim => simulate(plan, repeat, progress),
        On::Tokio | On::TokioSplit | On::TokioSplitNice => session::<target::Tokio>(plan, on, repeat, progress),
    }
}

/// A run on the simulated machine. What goes wrong in it can be had again.
fn simulate(plan: &Plan, repeat: u32, progress: &mut Progress) -> Result<Outcome, Failure> {
    progress.begin(&plan.scenario.name, On::Sim);
    let session = session::Session { plan, on: On::Sim, repeat };
    // A check of the simulator that fails panics.
    let went = catch_unwind(AssertUnwindSafe(|| simulate_session(session, progress)));
    let went = went.unwrap_or_else(|_| Err(Failure::Simulation("an invariant of the simulator is broken".to_owned())));
    went.map_err(|failure| failure.repeated_by(|| command::line(plan, &[On::Sim], session.seed(), 1)))
}

fn simulate_session(session: session::Session<'_>, progress: &Progress) -> Result<Outcome, Failure> {
    let machine = session.plan.machine.as_ref().expect("a plan with the target `sim` has a machine");
    let tell = |at: Moment| progress.at(at.since(Moment::default()));
    let mut run = SimRun::new(session, machine)?;
    let (outcome, _seen) = match session.plan.determinism {
        Determinism::Checked => determinism::run_both([run, SimRun::new(session, machine)?], tell)?,
        Determinism::Trusted => {
            while run.step()? == Step::On {
                tell(run.at());
            }
            let finished = run.finish(Vec::new())?;
            (finished.outcome, finished.seen)
        }
    };
    Ok(outcome)
}
