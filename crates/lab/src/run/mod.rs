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
mod traces;

pub(crate) use options::RunArgs;
pub(crate) use outcome::{AllOutcome, CpuOutcome, GroupOutcome, Outcome, SimOutcome, WindowGroup, WindowOutcome};
#[cfg(test)]
pub(crate) use sampler::Tick;
pub(crate) use sampler::{Recording, WINDOW, Window};

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
use traces::Traces;

/// Carries out the command.
pub(crate) fn command(args: &RunArgs) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let json = args.json.as_deref().map(JsonFile::open).transpose()?;
    if plan.on.iter().any(|&on| on != On::Sim) {
        work::calibrate();
    }
    let mut outcomes = Vec::new();
    let mut tracing = Tracing { files: Traces::open(args, plan.determinism)?, went: Ok(()) };
    let went = run_all(&plan, &mut Progress::new(args.progress, &plan), &mut tracing, &mut outcomes);
    // Whoever reads the table may have gone: that is told last, and costs neither the file nor the verdict's code.
    let printed = if outcomes.is_empty() { Ok(()) } else { report::print(&plan.scenario, &outcomes) };
    if let Some(json) = json {
        json.write(&outcomes)?;
    }
    went?;
    tracing.went?;
    let met = report::check_expectations(&plan.scenario.expect, &outcomes);
    met.map_err(|missed| missed.repeated_by(|| command::line(&plan, &plan.on, plan.seed, plan.repeat)))?;
    printed
}

/// The files of traces, until they are written, and whether that went well: a full disk costs no results.
struct Tracing {
    files: Option<Traces>,
    went: Result<(), Failure>,
}

fn run_all(
    plan: &Plan,
    progress: &mut Progress,
    tracing: &mut Tracing,
    outcomes: &mut Vec<Outcome>,
) -> Result<(), Failure> {
    for repeat in 1..=plan.repeat {
        // Another target begins each time, so that none is always the first after a pause.
        let first = (repeat as usize - 1) % plan.on.len();
        for &on in plan.on[first..].iter().chain(&plan.on[..first]) {
            outcomes.push(run_one(plan, on, repeat, progress, tracing)?);
        }
    }
    progress.finish();
    Ok(())
}

fn run_one(
    plan: &Plan,
    on: On,
    repeat: u32,
    progress: &mut Progress,
    tracing: &mut Tracing,
) -> Result<Outcome, Failure> {
    fn session<T: Target>(plan: &Plan, on: On, repeat: u32, progress: &mut Progress) -> Result<Outcome, Failure> {
        session::Session { plan, on, repeat }.run::<T>(progress)
    }
    match on {
        On::Threads => session::<target::Threads>(plan, on, repeat, progress),
        On::Sim => simulate(plan, repeat, progress, tracing),
        On::Tokio | On::TokioSplit | On::TokioSplitNice => session::<target::Tokio>(plan, on, repeat, progress),
    }
}

/// A run on the simulated machine. What goes wrong in it can be had again.
fn simulate(plan: &Plan, repeat: u32, progress: &mut Progress, tracing: &mut Tracing) -> Result<Outcome, Failure> {
    progress.begin(&plan.scenario.name, On::Sim);
    let session = session::Session { plan, on: On::Sim, repeat };
    guarded(|| simulate_session(session, progress, tracing), || command::line(plan, &[On::Sim], session.seed(), 1))
}

/// What `run` comes to. If that is nothing good, `command` repeats it; a check of the simulator that fails panics.
fn guarded<R>(run: impl FnOnce() -> Result<R, Failure>, command: impl FnOnce() -> String) -> Result<R, Failure> {
    let went = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::Simulation(text.unwrap_or("a panic without a text").to_owned()))
    });
    went.map_err(|failure| failure.repeated_by(command))
}

fn simulate_session(
    session: session::Session<'_>,
    progress: &Progress,
    tracing: &mut Tracing,
) -> Result<Outcome, Failure> {
    let machine = session.plan.machine.as_ref().expect("a plan with the target `sim` has a machine");
    let tell = |at: Moment| progress.at(at.since(Moment::default()));
    let mut run = SimRun::new(session, machine)?;
    let finished = match session.plan.determinism {
        Determinism::Checked => determinism::run_both([run, SimRun::new(session, machine)?], tell)?,
        Determinism::Trusted => {
            let files = tracing.files.take();
            if files.is_some() {
                run.record_measurement();
            }
            while run.step()? == Step::On {
                tell(run.at());
            }
            let records = run.take_records();
            let finished = run.finish(records)?;
            if let Some(files) = files {
                let title = format!("{}, seed {}", session.plan.scenario.name, session.seed());
                tracing.went = files.write(&title, &finished.seen);
            }
            finished
        }
    };
    Ok(finished.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_invariant_of_the_simulator_is_a_failure_that_can_be_repeated() {
        let went: Result<(), _> = guarded(|| panic!("V3: {} ns are missing", 7), || "evenkeel run that".to_owned());
        let text = went.unwrap_err().to_string();
        assert_eq!(text, "the simulation has failed: V3: 7 ns are missing\nThis repeats it: evenkeel run that");
        assert_eq!(guarded(|| Ok(3), || unreachable!("it went well")), Ok(3));
    }
}
