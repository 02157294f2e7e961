//! Turns the raw shape of a scenario into the checked one.
//!
//! Knows nothing of files: every error carries the place in the text.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use super::expect::{self, RESERVED};
use super::program::{Compiler, find_group, in_range};
use super::source::{Source, Wrong};
use super::{Arrival, GroupDef, Scenario, TaskSet, raw};

/// Measured time where neither the file nor the command line says otherwise.
const SECONDS: f64 = 5.0;
/// Design's warmup: long enough for every worker to be busy.
const WARMUP: f64 = 0.3;
/// Measured time must lie in this range. The shortest is for tests.
pub(crate) const SECONDS_RANGE: Range<f64> = 0.01..3600.01;
/// The warmup must lie in this range.
pub(crate) const WARMUP_RANGE: Range<f64> = 0.0..60.01;
const GROUPS_MAX: usize = 10_000;
const WEIGHT_DEFAULT: u32 = 100;
const WEIGHT_MAX: i64 = 10_000;
/// Tasks started at once and clients, of all task sets together.
const TASKS_MAX: i64 = 1_000_000;
/// Open arrivals per second, of one task set.
const RATE_RANGE: Range<f64> = 0.001..1_000_000.1;

pub(crate) fn scenario(source: &Source, raw: raw::Scenario) -> Result<Scenario, Wrong> {
    let names = group_names(&raw.groups)?;
    let groups = raw.groups.iter().map(group).collect::<Result<Vec<_>, _>>()?;
    if raw.tasks.is_empty() {
        return Err(Wrong::new(0..0, "no tasks, expected at least one [[tasks]]"));
    }
    let mut compiler = Compiler::new(&names);
    let mut total = 0;
    let tasks =
        raw.tasks.iter().map(|tasks| task_set(&mut compiler, tasks, &mut total)).collect::<Result<Vec<_>, _>>()?;
    Ok(Scenario {
        name: source.stem().to_owned(),
        seconds: seconds(raw.seconds.as_ref(), "seconds", SECONDS, SECONDS_RANGE)?,
        preempt: raw.preempt,
        warmup: seconds(raw.warmup.as_ref(), "warmup", WARMUP, WARMUP_RANGE)?,
        tasks,
        signals: compiler.signals.len(),
        locks: compiler.locks.len(),
        expect: expect::expectations(&raw.expect, &names)?,
        groups,
    })
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

fn group_names(groups: &[raw::Group]) -> Result<Vec<String>, Wrong> {
    let mut names: Vec<String> = Vec::with_capacity(groups.len().min(GROUPS_MAX));
    let mut seen = std::collections::HashSet::new();
    for group in groups {
        let (name, at) = (group.name.get_ref(), group.name.span());
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(Wrong::new(at, format!("`{name}` as a name, expected 1 to 64 letters, digits, `-` and `_`")));
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(Wrong::new(at, format!("`{name}` is reserved, expected another name")));
        }
        if !seen.insert(name.as_str()) {
            return Err(Wrong::new(at, format!("a second group `{name}`, expected names that differ")));
        }
        if names.len() == GROUPS_MAX {
            return Err(Wrong::new(at, format!("too many groups, expected at most {GROUPS_MAX}")));
        }
        names.push(name.clone());
    }
    if names.is_empty() {
        return Err(Wrong::new(0..0, "no groups, expected at least one [[groups]]"));
    }
    Ok(names)
}

fn group(raw: &raw::Group) -> Result<GroupDef, Wrong> {
    let later = [
        ("parent", &raw.parent),
        ("cpus", &raw.cpus),
        ("quota", &raw.quota),
        ("class", &raw.class),
        ("slice", &raw.slice),
    ];
    for (key, value) in later {
        if let Some(value) = value {
            let message = format!("`{key}` can't be honored by this version, expected a group without it");
            return Err(Wrong::new(value.span(), message));
        }
    }
    let weight =
        raw.weight.as_ref().map_or(Ok(WEIGHT_DEFAULT), |weight| in_range(weight, "weight", 1..WEIGHT_MAX + 1))?;
    Ok(GroupDef { name: raw.name.get_ref().clone(), weight, role: raw.role.unwrap_or_default() })
}

fn task_set(compiler: &mut Compiler<'_>, raw: &Spanned<raw::Tasks>, total: &mut i64) -> Result<TaskSet, Wrong> {
    let at = raw.span();
    let raw = raw.get_ref();
    let group = find_group(compiler.groups, &raw.group)?;
    let program = compiler.program(&raw.program)?;
    let arrival = arrival(raw, total)?;
    if !matches!(arrival, Arrival::Once { .. }) && !program.ends() {
        let message = "requests that never end, expected a program without an endless repeat";
        return Err(Wrong::new(raw.program.span(), message));
    }
    let start = raw.start.as_ref().map(|start| start.get_ref().0);
    let stop = raw.stop.as_ref().map(|stop| stop.get_ref().0);
    if stop.is_some_and(|stop| stop <= start.unwrap_or_default()) {
        let at = raw.stop.as_ref().map_or(at, Spanned::span);
        return Err(Wrong::new(at, "stops before it starts, expected `stop` after `start`"));
    }
    Ok(TaskSet { group, arrival, start, stop, program: Arc::new(program) })
}

fn arrival(raw: &raw::Tasks, total: &mut i64) -> Result<Arrival, Wrong> {
    let count = |total: &mut i64| raw.count.as_ref().map_or(Ok(1), |count| counted(count, "count", total));
    Ok(match &raw.arrival {
        None | Some(raw::Arrival::Once) => Arrival::Once { count: count(total)? },
        Some(raw::Arrival::Closed(closed)) => {
            if let Some(count) = &raw.count {
                return Err(Wrong::new(count.span(), "`count` beside closed arrivals, expected only `clients`"));
            }
            Arrival::Closed { clients: counted(&closed.clients, "clients", total)?, think: closed.think }
        }
        Some(raw::Arrival::Open(open)) => {
            let rate = *open.rate.get_ref();
            if !RATE_RANGE.contains(&rate) {
                let message =
                    format!("rate = {rate}, expected {} to {} per second", RATE_RANGE.start, RATE_RANGE.end.floor());
                return Err(Wrong::new(open.rate.span(), message));
            }
            Arrival::Open { per_second: rate, spacing: open.spacing, count: count(total)? }
        }
    })
}

fn counted(value: &Spanned<i64>, what: &str, total: &mut i64) -> Result<u32, Wrong> {
    let count = in_range(value, what, 1..TASKS_MAX + 1)?;
    *total += i64::from(count);
    if *total > TASKS_MAX {
        return Err(Wrong::new(value.span(), format!("too many tasks, expected at most {TASKS_MAX} in all")));
    }
    Ok(count)
}
