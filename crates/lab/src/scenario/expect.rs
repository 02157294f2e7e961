//! The `[expect]` table: bounds on figures of the report, per target.
//!
//! A figure is named as in the JSON: `quiet.response_us.p99`, `cpu.steals`, `all.jain`. Knows
//! nothing of how figures are measured.

use std::fmt;

use serde::Deserialize;
use toml::Spanned;

use super::raw;
use super::source::Wrong;

/// What can run a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum On {
    /// Evenkeel on real threads
    Threads,
    /// One tokio runtime
    Tokio,
    /// Two tokio runtimes, one per role, each with as many threads as there are workers
    TokioSplit,
    /// The same, the batch one's threads at nice 19
    TokioSplitNice,
    /// Evenkeel on a simulated machine, in virtual time
    Sim,
}

impl On {
    pub(crate) const ALL: [On; 5] = [On::Threads, On::Tokio, On::TokioSplit, On::TokioSplitNice, On::Sim];

    /// Those in real time: what runs if nothing is said.
    pub(crate) const REAL: [On; 4] = [On::Threads, On::Tokio, On::TokioSplit, On::TokioSplitNice];

    /// Whether it has the switches of Evenkeel's scheduler.
    pub(crate) fn has_switches(self) -> bool {
        matches!(self, On::Threads | On::Sim)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            On::Threads => "threads",
            On::Tokio => "tokio",
            On::TokioSplit => "tokio-split",
            On::TokioSplitNice => "tokio-split-nice",
            On::Sim => "sim",
        }
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Group names that would make a figure's name ambiguous.
pub(crate) const RESERVED: [&str; 2] = ["all", "cpu"];

const GROUP_FIGURES: &[&str] = &[
    "weight",
    "done",
    "unfinished",
    "work_s",
    "charged_s",
    "work_of_got",
    "share",
    "ideal_share",
    "lag_ms",
    "lag_of_bound",
    "share_error",
];
const TIME_TABLES: &[&str] = &["response_us", "wait_us"];
const TIME_FIGURES: &[&str] = &["count", "p50", "p90", "p99", "p999", "max"];
const ALL_FIGURES: &[&str] = &["work_s", "jain", "lag_of_bound"];
const CPU_FIGURES: &[&str] =
    &["got_s", "used_pct", "wakes", "empty_wakes", "steals", "contended", "failed_tries", "idle_while_waiting_ms"];

/// The name of one figure of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metric {
    written: String,
    pointer: String,
}

impl Metric {
    /// As written in the scenario.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// Where the figure is in a run's JSON object, as a JSON pointer.
    pub(crate) fn pointer(&self) -> &str {
        &self.pointer
    }

    fn parse(written: &str, groups: &[String]) -> Result<Metric, String> {
        let parts: Vec<&str> = written.split('.').collect();
        let known = match parts[..] {
            ["all", figure] => ALL_FIGURES.contains(&figure),
            ["cpu", figure] => CPU_FIGURES.contains(&figure),
            [group, ..] if !groups.iter().any(|name| name == group) => {
                return Err(format!(
                    "unknown group `{group}` in `{written}`, expected one of [[groups]], `all` or `cpu`"
                ));
            }
            [_, figure] => GROUP_FIGURES.contains(&figure),
            [_, table, figure] => TIME_TABLES.contains(&table) && TIME_FIGURES.contains(&figure),
            _ => false,
        };
        if !known {
            return Err(format!(
                "unknown figure `{written}`, expected GROUP.{{{}}}, GROUP.{{{}}}.{{{}}}, all.{{{}}} or cpu.{{{}}}",
                GROUP_FIGURES.join("|"),
                TIME_TABLES.join("|"),
                TIME_FIGURES.join("|"),
                ALL_FIGURES.join("|"),
                CPU_FIGURES.join("|"),
            ));
        }
        let root = if RESERVED.contains(&parts[0]) { "" } else { "/groups" };
        Ok(Metric { written: written.to_owned(), pointer: format!("{root}/{}", parts.join("/")) })
    }
}

/// A bound of an expectation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    Min(f64),
    Max(f64),
}

/// One bound on one figure of one target.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) on: On,
    pub(crate) metric: Metric,
    pub(crate) bound: Bound,
    /// The bound is a multiple of the same figure on this target.
    pub(crate) times: Option<On>,
}

/// Checks the whole table.
pub(crate) fn expectations(
    raw: &std::collections::BTreeMap<Spanned<String>, std::collections::BTreeMap<Spanned<String>, Spanned<raw::Bound>>>,
    groups: &[String],
) -> Result<Vec<Expectation>, Wrong> {
    let mut all = Vec::new();
    for (target, bounds) in raw {
        let on = On::ALL.into_iter().find(|on| on.name() == target.get_ref()).ok_or_else(|| {
            let known = On::ALL.map(On::name).join(", ");
            Wrong::new(target.span(), format!("unknown target `{}`, expected one of {known}", target.get_ref()))
        })?;
        for (name, bound) in bounds {
            let metric = Metric::parse(name.get_ref(), groups).map_err(|message| Wrong::new(name.span(), message))?;
            both(on, &metric, bound, &mut all)?;
        }
    }
    Ok(all)
}

fn both(on: On, metric: &Metric, raw: &Spanned<raw::Bound>, all: &mut Vec<Expectation>) -> Result<(), Wrong> {
    let raw::Bound { min, max, times } = *raw.get_ref();
    let bounds = [min.map(Bound::Min), max.map(Bound::Max)];
    if bounds.iter().all(Option::is_none) {
        return Err(Wrong::new(raw.span(), "a bound without `min` and `max`, expected at least one of them"));
    }
    if [min, max].iter().flatten().any(|bound| !bound.is_finite()) {
        return Err(Wrong::new(raw.span(), "a bound that is not a finite number"));
    }
    if times == Some(on) {
        return Err(Wrong::new(
            raw.span(),
            format!("a bound as a multiple of itself, expected another target than {on}"),
        ));
    }
    for bound in bounds.into_iter().flatten() {
        all.push(Expectation { on, metric: metric.clone(), bound, times });
    }
    Ok(())
}

/// Every figure that a bound can name, with `group` for the group.
#[cfg(test)]
pub(crate) fn figure_names(group: &str) -> Vec<String> {
    let of_all = ALL_FIGURES.iter().map(|figure| format!("all.{figure}"));
    let of_cpu = CPU_FIGURES.iter().map(|figure| format!("cpu.{figure}"));
    let of_group = GROUP_FIGURES.iter().map(|figure| format!("{group}.{figure}"));
    let times =
        TIME_TABLES.iter().flat_map(|table| TIME_FIGURES.iter().map(move |figure| format!("{group}.{table}.{figure}")));
    of_all.chain(of_cpu).chain(of_group).chain(times).collect()
}
