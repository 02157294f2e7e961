//! The reports that `--report` names: which there are, who has them, and how they are shown.
//!
//! Knows nothing of what is in one.

use std::fmt::Write;
use std::time::Duration;

use evenkeel::Stats;
use evenkeel_sim::{Accounting, LockStat};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{lock_stat, profile, runqlat, schedstat};
use crate::failure::Failure;
use crate::run::Outcome;
use crate::scenario::On;

/// A report that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReportKind {
    /// What the locks of run queues cost, and lines that CPUs share
    #[value(name = "lock_stat")]
    LockStat,
    /// How long tasks waited to run: a histogram
    Runqlat,
    /// What each CPU counted
    Schedstat,
    /// CPU time by function of the scheduler, of the target `sim`
    Profile,
}

impl ReportKind {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReportKind::LockStat => "lock_stat",
            ReportKind::Runqlat => "runqlat",
            ReportKind::Schedstat => "schedstat",
            ReportKind::Profile => "profile",
        }
    }

    /// Why a target can't have it.
    fn missing(self, on: On) -> Option<&'static str> {
        match (on, self) {
            (On::Sim, _) => None,
            (On::Threads, ReportKind::Profile) => {
                Some("on threads nobody measures what each function takes: that would cost more than they do")
            }
            (On::Threads, _) => None,
            (On::Tokio | On::TokioSplit | On::TokioSplitNice, _) => Some("tokio does not count this"),
        }
    }
}

/// Checks what was asked for.
pub(crate) fn check(asked: &[ReportKind], on: &[On]) -> Result<(), Failure> {
    for (index, kind) in asked.iter().enumerate() {
        let name = kind.name();
        if asked[..index].contains(kind) {
            return Err(Failure::Input(format!("--report: `{name}` twice, expected each report once")));
        }
        let reasons: Vec<_> = on.iter().map_while(|on| kind.missing(*on).map(|why| (on, why))).collect();
        if let (true, Some((_, why))) = (reasons.len() == on.len(), reasons.first()) {
            let have: Vec<_> = On::ALL.into_iter().filter(|on| kind.missing(*on).is_none()).map(On::name).collect();
            let have = have.join("` or `");
            return Err(Failure::Input(format!("--report {name}: {why}; expected `{have}` among the targets of --on")));
        }
    }
    Ok(())
}

/// What reports are made from: what was counted when the measurement began, and when it ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub(crate) elapsed: Duration,
    pub(crate) stats: Option<&'a (Stats, Stats)>,
    pub(crate) machine: Option<MachineCounted<'a>>,
}

/// What only a simulated machine counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachineCounted<'a> {
    pub(crate) before: &'a Accounting,
    pub(crate) after: &'a Accounting,
    /// Of the measurement alone.
    pub(crate) lock_stat: &'a LockStat,
}

/// The reports of one run, in the order in which they were asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reports(Vec<(ReportKind, Report)>);

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum Report {
    LockStat(lock_stat::Report),
    Runqlat(runqlat::Report),
    Schedstat(schedstat::Report),
    Profile(profile::Report),
    Missing { missing: &'static str },
}

impl Reports {
    /// Those that were asked for, of a run on `on`.
    pub(crate) fn of(asked: &[ReportKind], on: On, counted: &Counted<'_>) -> Reports {
        Reports(asked.iter().map(|kind| (*kind, report(*kind, on, counted))).collect())
    }
}

fn report(kind: ReportKind, on: On, counted: &Counted<'_>) -> Report {
    if let Some(missing) = kind.missing(on) {
        return Report::Missing { missing };
    }
    let Some((before, after)) = counted.stats else {
        return Report::Missing { missing: "the run was broken off before it was measured" };
    };
    match (kind, &counted.machine) {
        (ReportKind::LockStat, Some(machine)) => Report::LockStat(lock_stat::Report::of_machine(machine.lock_stat)),
        (ReportKind::LockStat, None) => Report::LockStat(lock_stat::Report::of_threads(before, after)),
        (ReportKind::Runqlat, _) => Report::Runqlat(runqlat::Report::new(before, after)),
        (ReportKind::Schedstat, _) => Report::Schedstat(schedstat::Report::new(counted.elapsed, before, after)),
        (ReportKind::Profile, Some(machine)) => Report::Profile(profile::Report::new(machine.before, machine.after)),
        (ReportKind::Profile, None) => Report::Missing { missing: "this target has no accounts" },
    }
}

impl Serialize for Reports {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (kind, report) in &self.0 {
            map.serialize_entry(kind.name(), report)?;
        }
        map.end()
    }
}

/// All reports of all runs, one after the other, each with a heading. Empty if none was asked for.
pub(crate) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for run in outcomes {
        for (kind, report) in &run.reports.0 {
            let place = if run.sim.is_some() { format!("sim on {}", run.machine) } else { run.on.to_owned() };
            // Writing to a string can't fail.
            let _infallible = writeln!(text, "\n=== {}: {place}, seed {}\n", kind.name(), run.seed);
            text.push_str(&match report {
                Report::LockStat(report) => lock_stat::text(report),
                Report::Runqlat(report) => runqlat::text(report),
                Report::Schedstat(report) => schedstat::text(report),
                Report::Profile(report) => profile::text(report),
                Report::Missing { missing } => format!("not there, because {missing}\n"),
            });
        }
    }
    text
}
