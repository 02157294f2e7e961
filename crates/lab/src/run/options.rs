//! What `evenkeel run` was asked to do, checked.
//!
//! Knows nothing of how it is done.

use std::path::PathBuf;
use std::time::Duration;

use super::sampler::{FIGURES_MAX, WINDOW};
use crate::failure::Failure;
use crate::scenario::{self, On, Scenario};

/// Runs a scenario on several runtimes, interleaved, and compares
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunArgs {
    /// The scenario: a TOML file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What runs it: several, separated by commas, run side by side
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = On::ALL)]
    pub(crate) on: Vec<On>,
    /// Sets a switch of the `threads` target; may be given several times
    #[arg(long, value_name = "SWITCH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Measured time instead of the scenario's, in seconds
    #[arg(long, value_name = "X.Y")]
    pub(crate) seconds: Option<f64>,
    /// How often each target runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// What random arrivals and times are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Workers of each runtime instead of one for each CPU that this process may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: Option<u32>,
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
    pub(crate) workers: usize,
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
        let plan = Plan {
            scenario,
            on: targets(&args.on)?,
            switches: args.set.iter().map(|set| switch(set)).collect::<Result<_, _>>()?,
            repeat: args.repeat,
            seed: args.seed,
            workers: args.workers.map_or_else(default_workers, |workers| Ok(workers as usize))?,
        };
        plan.check_switches()?;
        plan.check_cpus()?;
        Ok(plan)
    }

    fn check_cpus(&self) -> Result<(), Failure> {
        match self.scenario.last_cpu() {
            Some(last) if last.index() >= self.workers => Err(Failure::Input(format!(
                "{}: `cpus` names CPU {last}, but there are {} workers, with numbers from 0; --workers {} has it",
                self.scenario.name,
                self.workers,
                last.index() + 1,
            ))),
            _ => Ok(()),
        }
    }

    fn check_switches(&self) -> Result<(), Failure> {
        if self.switches.is_empty() {
            return Ok(());
        }
        if !self.on.contains(&On::Threads) {
            return Err(Failure::Input(
                "--set: only `threads` has switches, expected it among the targets of --on".into(),
            ));
        }
        crate::target::check_switches(&self.switches)?;
        Ok(())
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
