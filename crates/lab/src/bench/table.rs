//! The table that a person reads. It appears row by row, while the benchmarks run.

use std::io::{self, Write};
use std::num::NonZeroU32;

use super::Measured;
use super::statistics::{Pair, Summary, Verdict, ratios};
use super::target::{OURS, Rt, Setup, Tokio};

/// What stands where there is no figure.
const NONE: &str = "-";

/// What was run, and the columns.
pub(super) fn header(out: &mut impl Write, setup: &Setup, repeat: NonZeroU32) -> io::Result<()> {
    write!(out, "{} workers, {repeat} runs on each runtime, taking turns", setup.workers)?;
    for switch in &setup.switches {
        write!(out, ", {switch}")?;
    }
    writeln!(out, "; median (min..max), smaller is better\n")?;
    line(out, ["benchmark", "unit", OURS, Tokio::NAME, "ratio", "verdict"])
}

/// The rows of one benchmark.
pub(super) fn rows(out: &mut impl Write, measured: &[Measured]) -> io::Result<()> {
    for row in measured {
        let ours = values(row, OURS);
        let theirs = values(row, Tokio::NAME);
        let pairs = Pair::zip(ours, theirs);
        let ratio = ratios(&pairs).map_or_else(|| NONE.to_owned(), |ratios| spread(&ratios));
        let verdict = if pairs.is_empty() { NONE } else { Verdict::of(&pairs).words() };
        line(out, [row.row.name, row.row.unit, &spread(ours), &spread(theirs), &ratio, verdict])?;
    }
    out.flush()
}

/// How to read the last two columns.
pub(super) fn footer(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nratio: {OURS} / {}, of runs made right after one another. A verdict needs the same sign in all of them.",
        Tokio::NAME
    )
}

fn values<'a>(row: &'a Measured, target: &str) -> &'a [f64] {
    row.on(target).map_or(&[], |series| &series.values)
}

fn line(out: &mut impl Write, cells: [&str; 6]) -> io::Result<()> {
    let [name, unit, ours, theirs, ratio, verdict] = cells;
    writeln!(out, "{name:<23} {unit:<13} {ours:>22} {theirs:>22} {ratio:>18}  {verdict}")
}

/// Median and range, as `median (min..max)`.
fn spread(values: &[f64]) -> String {
    match Summary::of(values) {
        None => NONE.to_owned(),
        Some(of) if values.len() == 1 => figure(of.median),
        Some(of) => format!("{} ({}..{})", figure(of.median), figure(of.min), figure(of.max)),
    }
}

/// About three digits: more would be noise.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        middling if middling >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::super::registry::Row;
    use super::*;

    fn printed(series: Vec<Series>) -> String {
        let row = Row { name: "spawn_many_inside", unit: "ns/task" };
        let mut out = Vec::new();
        rows(&mut out, &[Measured { row, series }]).unwrap();
        let line = String::from_utf8(out).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_row_has_both_targets_their_ratio_and_a_verdict() {
        let series = vec![
            Series { target: "evenkeel", values: vec![500.0, 600.0, 550.0] },
            Series { target: "tokio", values: vec![1000.0, 1200.0, 1000.0] },
        ];
        let expected = "spawn_many_inside ns/task 550 (500..600) 1000 (1000..1200) 0.50 (0.50..0.55) better";
        assert_eq!(printed(series), expected);
    }

    #[test]
    fn a_target_without_runs_leaves_its_cells_empty() {
        let series = vec![Series { target: "evenkeel", values: vec![12.34] }];
        assert_eq!(printed(series), "spawn_many_inside ns/task 12.3 - - -");
    }

    #[test]
    fn a_zero_is_compared_without_a_ratio() {
        let series =
            vec![Series { target: "evenkeel", values: vec![1.0; 3] }, Series { target: "tokio", values: vec![0.0; 3] }];
        assert_eq!(printed(series), "spawn_many_inside ns/task 1.00 (1.00..1.00) 0.00 (0.00..0.00) - worse");
    }
}
