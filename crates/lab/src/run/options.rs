//! What `evenkeel run` was asked to do, checked.
//!
//! Knows nothing of how it is done.

use std::path::PathBuf;
use std::time::Duration;

use super::command::Asked;
use super::sampler::{FIGURES_MAX, WINDOW};
use crate::failure::Failure;
use crate::report::{self, ReportKind};
use crate::scenario::{self, On, Scenario};
use evenkeel_sim::Faults;
use evenkeel_sim::machine::Machine;

/// Runs a scenario on several runtimes, interleaved, and compares
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunArgs {
    /// The scenario: a TOML file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What runs it: several, separated by commas, run side by side
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = On::REAL)]
    pub(crate) on: Vec<On>,
    /// The machine that `sim` simulates: `host`, a preset, `flat-N`, the name of a file in machines/, or a path [default: the
    /// scenario's, or host]
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,
    /// Sets a switch of the targets `threads` and `sim`; may be given several times
    #[arg(long, value_name = "SWITCH=VALUE")]
    pub(crate) set: Vec<String>,
    /// What goes wrong on the target `sim`, such as `stall=100us@50/s` (docs/faults.md); may be given several times
    #[arg(long, value_name = "FAULT=LENGTH@HOW_OFTEN")]
    pub(crate) fault: Vec<String>,
    /// Measured time instead of the scenario's, in seconds
    #[arg(long, value_name = "X.Y")]
    pub(crate) seconds: Option<f64>,
    /// Warmup instead of the scenario's, in seconds
    #[arg(long, value_name = "X.Y")]
    pub(crate) warmup: Option<f64>,
    /// How often each target runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// What random arrivals and times are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Workers of each runtime on threads instead of one for each CPU that this process may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: Option<u32>,
    /// Runs each run of the target `sim` twice, side by side, and fails at the first event that differs
    #[arg(long)]
    pub(crate) check_determinism: bool,
    /// Reports of the scheduler's inside, below the table: several, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "REPORT")]
    pub(crate) report: Vec<ReportKind>,
    /// Writes a Perfetto trace of the measurement of the first run on `sim` to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Writes the same as a page of HTML to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Writes all results to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Says which run has begun, also when nobody watches
    #[arg(long)]
    pub(crate) progress: bool,
}

/// The command's options, checked and completed.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) on: Vec<On>,
    pub(crate) switches: Vec<(String, String)>,
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
    /// Of runtimes on threads.
    pub(crate) workers: usize,
    /// Of the target `sim`, if it is among them.
    pub(crate) machine: Option<Machine>,
    /// What goes wrong on that.
    pub(crate) faults: Faults,
    pub(super) determinism: Determinism,
    pub(crate) reports: Vec<ReportKind>,
    pub(super) asked: Asked,
}

/// Whether runs on simulated machines are checked for being the same each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Determinism {
    Trusted,
    Checked,
}

impl Plan {
    pub(crate) fn new(args: &RunArgs) -> Result<Plan, Failure> {
        let mut scenario = scenario::read(&args.file)?;
        if let Some(seconds) = args.seconds {
            if !scenario::SECONDS_RANGE.contains(&seconds) {
                return Err(Failure::Input(format!("--seconds {seconds}: expected 0.01 to 3600")));
            }
            scenario.seconds = Duration::from_secs_f64(seconds);
        }
        if let Some(warmup) = args.warmup {
            if !scenario::WARMUP_RANGE.contains(&warmup) {
                return Err(Failure::Input(format!("--warmup {warmup}: expected 0 to 60")));
            }
            scenario.warmup = Duration::from_secs_f64(warmup);
        }
        let figures = scenario.seconds.as_secs_f64() / WINDOW.as_secs_f64() * scenario.groups.len() as f64 * 2.0;
        if figures > FIGURES_MAX {
            return Err(Failure::Input(format!(
                "{}: {} groups for {} s: expected at most {} group-seconds",
                args.file.display(),
                scenario.groups.len(),
                scenario.seconds.as_secs_f64(),
                FIGURES_MAX / 2.0 * WINDOW.as_secs_f64(),
            )));
        }
        let asked = Asked::of(args, &scenario);
        let plan = Plan {
            scenario,
            machine: machine(args, asked.machine.as_deref())?,
            faults: faults(args)?,
            determinism: determinism(args)?,
            reports: args.report.clone(),
            asked,
            on: targets(&args.on)?,
            switches: args.set.iter().map(|set| switch(set)).collect::<Result<_, _>>()?,
            repeat: args.repeat,
            seed: args.seed,
            workers: args.workers.map_or_else(default_workers, |workers| Ok(workers as usize))?,
        };
        plan.check_switches()?;
        plan.check_cpus()?;
        report::check(&plan.reports, &plan.on)?;
        Ok(plan)
    }

    fn check_cpus(&self) -> Result<(), Failure> {
        let Some(last) = self.scenario.last_cpu() else { return Ok(()) };
        let refused = |there: String| {
            let message = format!("{}: `cpus` names CPU {last}, but {there}, with numbers from 0", self.scenario.name);
            Err(Failure::Input(message))
        };
        let simulated = self.machine.as_ref().map(Machine::cpus).filter(|_| self.on.contains(&On::Sim));
        match simulated {
            Some(cpus) if last.index() >= cpus => return refused(format!("the simulated machine has {cpus} CPUs")),
            _ => {}
        }
        if self.on.iter().any(|&on| on != On::Sim) && last.index() >= self.workers {
            return refused(format!("there are {} workers", self.workers));
        }
        Ok(())
    }

    fn check_switches(&self) -> Result<(), Failure> {
        if self.switches.is_empty() {
            return Ok(());
        }
        if !self.on.iter().any(|on| on.has_switches()) {
            return Err(Failure::Input(
                "--set: only `threads` and `sim` have switches, expected one of them among the targets of --on".into(),
            ));
        }
        crate::target::check_switches(&self.switches)?;
        Ok(())
    }
}

/// The machine that `sim` is to simulate: `host` unless another was asked for.
fn machine(args: &RunArgs, asked: Option<&str>) -> Result<Option<Machine>, Failure> {
    if !args.on.contains(&On::Sim) {
        return match &args.machine {
            None => Ok(None),
            Some(name) => Err(Failure::Input(format!("--machine {name}: expected `sim` among the targets of --on"))),
        };
    }
    if args.workers.is_some() && args.on == [On::Sim] {
        let message =
            "--workers: a simulated machine has the CPUs that its file says, expected another --machine instead";
        return Err(Failure::Input(message.to_owned()));
    }
    crate::machines::named(asked.unwrap_or("host")).map(Some)
}

/// What is to go wrong on that machine.
fn faults(args: &RunArgs) -> Result<Faults, Failure> {
    let mut all = Faults::NONE;
    for fault in &args.fault {
        let wrong = |what: &dyn std::fmt::Display| Failure::Input(format!("--fault {fault}: {what}"));
        if !args.on.contains(&On::Sim) {
            return Err(wrong(&"expected `sim` among the targets of --on"));
        }
        let more = fault.parse::<Faults>().map_err(|error| wrong(&error))?;
        all = all.and(more).map_err(|error| wrong(&error))?;
    }
    Ok(all)
}

fn determinism(args: &RunArgs) -> Result<Determinism, Failure> {
    match (args.check_determinism, args.on.contains(&On::Sim)) {
        (false, _) => Ok(Determinism::Trusted),
        (true, true) => Ok(Determinism::Checked),
        (true, false) => {
            Err(Failure::Input("--check-determinism: expected `sim` among the targets of --on".to_owned()))
        }
    }
}

fn targets(on: &[On]) -> Result<Vec<On>, Failure> {
    let mut targets: Vec<On> = Vec::new();
    for &target in on {
        if targets.contains(&target) {
            return Err(Failure::Input(format!("--on: `{target}` twice, expected each target once")));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn switch(set: &str) -> Result<(String, String), Failure> {
    match set.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::Input(format!("--set {set}: expected switch=value"))),
    }
}

/// What the environment asks for, or one for each CPU that this process may use.
fn default_workers() -> Result<usize, Failure> {
    let asked = evenkeel::available::workers_from_environment().map_err(|error| Failure::Input(error.to_string()))?;
    Ok(asked.unwrap_or_else(|| evenkeel::available::cpus().workers()))
}
