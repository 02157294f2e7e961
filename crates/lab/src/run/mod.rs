//! `evenkeel run`: a scenario on several targets, interleaved and repeated.
//!
//! Knows nothing of how a report looks.

mod options;
mod outcome;
mod progress;
mod sampler;
mod session;

pub(crate) use options::RunArgs;
pub(crate) use outcome::{AllOutcome, CpuOutcome, GroupOutcome, Outcome, WindowGroup, WindowOutcome};
#[cfg(test)]
pub(crate) use sampler::Tick;
pub(crate) use sampler::{Recording, WINDOW, Window};

use crate::failure::Failure;
use crate::report::{self, JsonFile};
use crate::scenario::On;
use crate::target::{self, Target};
use evenkeel::work;
use options::Plan;
use progress::Progress;

/// Carries out the command.
pub(crate) fn command(args: &RunArgs) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let json = args.json.as_deref().map(JsonFile::open).transpose()?;
    work::calibrate();
    let mut outcomes = Vec::new();
    let went = run_all(&plan, &mut Progress::new(args.progress, &plan), &mut outcomes);
    // Whoever reads the table may have gone: that is told last, and costs neither the file nor the verdict's code.
    let printed = if outcomes.is_empty() { Ok(()) } else { report::print(&plan.scenario, &outcomes) };
    if let Some(json) = json {
        json.write(&outcomes)?;
    }
    went?;
    report::check_expectations(&plan.scenario.expect, &outcomes)?;
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
        On::Tokio | On::TokioSplit | On::TokioSplitNice => session::<target::Tokio>(plan, on, repeat, progress),
    }
}
