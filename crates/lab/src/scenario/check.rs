//! Turns the raw shape of a scenario into the checked one.
//!
//! Knows nothing of files: every error carries the place in the text.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use evenkeel::CpuMask;
use evenkeel_sim::machine::PRESETS;
use toml::Spanned;

use super::cpus::Cpus;
use super::expect;
use super::family::{Amount, Found, Names, Rank, check_amount};
use super::program::{Compiler, in_range};
use super::source::{Source, Wrong};
use super::{Arrival, GroupDef, GroupIndex, Scenario, TaskSet, raw};
use crate::judge::CLASSES_MAX;

/// Measured time where neither the file nor the command line says otherwise.
const SECONDS: f64 = 5.0;
/// Design's warmup: long enough for every worker to be busy.
const WARMUP: f64 = 0.3;
/// Measured time must lie in this range. The shortest is for tests.
pub(crate) const SECONDS_RANGE: Range<f64> = 0.01..3600.01;
/// The warmup must lie in this range.
pub(crate) const WARMUP_RANGE: Range<f64> = 0.0..60.01;
const WEIGHT_DEFAULT: u32 = 100;
const WEIGHT_MAX: i64 = 10_000;
/// Tasks started at once and clients, of all task sets together.
const TASKS_MAX: i64 = 1_000_000;
/// Open arrivals per second, of one task set.
const RATE_RANGE: Range<f64> = 0.001..1_000_000.1;

pub(crate) fn scenario(source: &Source, raw: raw::Scenario) -> Result<Scenario, Wrong> {
    let names = Names::read(&raw.groups)?;
    let mut groups = Vec::new();
    for (table, group) in raw.groups.iter().enumerate() {
        members(table, group, &names, &mut groups)?;
    }
    if raw.tasks.is_empty() {
        return Err(Wrong::new(0..0, "no tasks, expected at least one [[tasks]]"));
    }
    let mut compiler = Compiler::new(&names);
    let mut total = 0;
    let mut tasks = Vec::new();
    for set in &raw.tasks {
        task_sets(&mut compiler, &groups, set, &mut total, &mut tasks)?;
    }
    let scenario = Scenario {
        name: source.stem().to_owned(),
        seconds: seconds(raw.seconds.as_ref(), "seconds", SECONDS, SECONDS_RANGE)?,
        preempt: raw.preempt,
        machine: raw.machine.as_ref().map(machine).transpose()?,
        warmup: seconds(raw.warmup.as_ref(), "warmup", WARMUP, WARMUP_RANGE)?,
        tasks,
        signals: compiler.signals.len(),
        locks: compiler.locks.len(),
        expect: expect::expectations(&raw.expect, &names)?,
        groups,
    };
    check_masks(&scenario)?;
    Ok(scenario)
}

/// The name of a machine that is there wherever the scenario is run.
fn machine(name: &Spanned<String>) -> Result<String, Wrong> {
    if PRESETS.iter().any(|(preset, _)| preset == name.get_ref()) {
        return Ok(name.get_ref().clone());
    }
    let known: Vec<&str> = PRESETS.iter().map(|(preset, _)| *preset).collect();
    let message = format!("unknown machine `{}`, expected one of {}", name.get_ref(), known.join(", "));
    Err(Wrong::new(name.span(), message))
}

/// Reads a number of seconds, or takes the default.
fn seconds(value: Option<&Spanned<f64>>, what: &str, default: f64, range: Range<f64>) -> Result<Duration, Wrong> {
    let number = value.map_or(default, |value| *value.get_ref());
    if !range.contains(&number) {
        let message = format!("{what} = {number}, expected {} to {}", range.start, range.end.floor());
        return Err(Wrong::new(value.map_or(0..0, Spanned::span), message));
    }
    Ok(Duration::from_secs_f64(number))
}

/// Adds the groups that the n-th `[[groups]]` table stands for.
fn members(table: usize, raw: &raw::Group, names: &Names, into: &mut Vec<GroupDef>) -> Result<(), Wrong> {
    if let Some(weight) = &raw.weight {
        check_amount(weight, names.is_family(table))?;
    }
    for (rank, name) in names.members_of(table) {
        into.push(group(raw, rank, name)?);
    }
    Ok(())
}

fn group(raw: &raw::Group, rank: Rank, name: &str) -> Result<GroupDef, Wrong> {
    let later = [("parent", &raw.parent), ("quota", &raw.quota), ("class", &raw.class), ("slice", &raw.slice)];
    for (key, value) in later {
        if let Some(value) = value {
            let message = format!("`{key}` can't be honored by this version, expected a group without it");
            return Err(Wrong::new(value.span(), message));
        }
    }
    let weight = raw.weight.as_ref().map_or(Ok(WEIGHT_DEFAULT), |weight| {
        let number = Spanned::new(weight.span(), weight.get_ref().weight(rank));
        in_range(&number, "weight", 1..WEIGHT_MAX + 1)
    })?;
    let cpus = raw.cpus.as_ref().map(|cpus| cpus.0.clone());
    Ok(GroupDef { name: name.to_owned(), weight, role: raw.role.unwrap_or_default(), cpus })
}

/// Adds the task sets that a `[[tasks]]` table stands for: one for each group that it names.
fn task_sets(
    compiler: &mut Compiler<'_>,
    groups: &[GroupDef],
    raw: &Spanned<raw::Tasks>,
    total: &mut i64,
    into: &mut Vec<TaskSet>,
) -> Result<(), Wrong> {
    let at = raw.span();
    let raw = raw.get_ref();
    let found = compiler.groups.find(&raw.group)?;
    let program = Arc::new(compiler.program(&raw.program)?);
    check_arrival(raw, &found)?;
    if !matches!(raw.arrival, None | Some(raw::Arrival::Once)) && !program.ends() {
        let message = "requests that never end, expected a program without an endless repeat";
        return Err(Wrong::new(raw.program.span(), message));
    }
    let start = raw.start.as_ref().map(|start| start.get_ref().0);
    let stop = raw.stop.as_ref().map(|stop| stop.get_ref().0);
    if stop.is_some_and(|stop| stop <= start.unwrap_or_default()) {
        let at = raw.stop.as_ref().map_or(at, Spanned::span);
        return Err(Wrong::new(at, "stops before it starts, expected `stop` after `start`"));
    }
    for (rank, group) in found.groups() {
        let arrival = arrival(raw, rank, total)?;
        let cpus = task_cpus(raw.cpus.as_ref(), &groups[group.0])?;
        into.push(TaskSet { group, cpus, arrival, start, stop, program: Arc::clone(&program) });
    }
    Ok(())
}

/// Where the tasks of a set may run, if they have a mask of their own.
fn task_cpus(raw: Option<&Spanned<Cpus>>, group: &GroupDef) -> Result<Option<CpuMask>, Wrong> {
    let Some(raw) = raw else { return Ok(None) };
    let own = &raw.get_ref().0;
    let within = group.cpus.as_ref().map_or_else(|| own.clone(), |cpus| cpus.intersection(own));
    if within.is_empty() {
        let message = format!("CPUs {own} are none of those of group `{}`, expected one of them at least", group.name);
        return Err(Wrong::new(raw.span(), message));
    }
    Ok(Some(within))
}

/// The yardstick takes time that grows with each mask.
fn check_masks(scenario: &Scenario) -> Result<(), Wrong> {
    let masks: BTreeSet<_> = (0..scenario.groups.len()).map(|index| scenario.cpus_of(GroupIndex(index))).collect();
    if masks.len() > CLASSES_MAX {
        let message = format!("groups with {} different masks, expected at most {CLASSES_MAX}", masks.len());
        return Err(Wrong::new(0..0, message));
    }
    Ok(())
}

/// Refuses what is wrong for every member alike.
fn check_arrival(raw: &raw::Tasks, found: &Found) -> Result<(), Wrong> {
    if let Some(count) = &raw.count {
        if let Some(raw::Arrival::Closed(_)) = &raw.arrival {
            return Err(Wrong::new(count.span(), "`count` beside closed arrivals, expected only `clients`"));
        }
        check_amount(count, found.is_family)?;
    }
    match &raw.arrival {
        Some(raw::Arrival::Closed(closed)) => check_amount(&closed.clients, found.is_family),
        Some(raw::Arrival::Open(open)) if !RATE_RANGE.contains(open.rate.get_ref()) => {
            let rate = open.rate.get_ref();
            let (low, high) = (RATE_RANGE.start, RATE_RANGE.end.floor());
            Err(Wrong::new(open.rate.span(), format!("rate = {rate}, expected {low} to {high} per second")))
        }
        _ => Ok(()),
    }
}

fn arrival(raw: &raw::Tasks, rank: Rank, total: &mut i64) -> Result<Arrival, Wrong> {
    let count = |total: &mut i64| raw.count.as_ref().map_or(Ok(1), |count| counted(count, "count", rank, total));
    Ok(match &raw.arrival {
        None | Some(raw::Arrival::Once) => Arrival::Once { count: count(total)? },
        Some(raw::Arrival::Closed(closed)) => {
            Arrival::Closed { clients: counted(&closed.clients, "clients", rank, total)?, think: closed.think }
        }
        Some(raw::Arrival::Open(open)) => {
            Arrival::Open { per_second: *open.rate.get_ref(), spacing: open.spacing, count: count(total)? }
        }
    })
}

fn counted(value: &Spanned<Amount>, what: &str, rank: Rank, total: &mut i64) -> Result<u32, Wrong> {
    let number = Spanned::new(value.span(), value.get_ref().count(rank));
    let count = in_range(&number, what, 1..TASKS_MAX + 1)?;
    *total += i64::from(count);
    if *total > TASKS_MAX {
        return Err(Wrong::new(value.span(), format!("too many tasks, expected at most {TASKS_MAX} in all")));
    }
    Ok(count)
}
