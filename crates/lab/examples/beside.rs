//! A line for each figure of a scenario that ran on threads and on a simulated machine, the two beside each other.
//!
//! ```text
//! cargo run -p evenkeel-lab --example beside -- RUNS.json
//! ```
//!
//! The median of the runs, and the lowest and highest. A scenario with more groups than a few shows two: the first, and the
//! last.

use std::process::ExitCode;

use serde_json::Value;

/// Of more groups than these, the first and the last are shown.
const GROUPS_SHOWN: usize = 5;

/// What a figure of a run is, or nothing if the run has none.
type Figure = fn(&Value, &str) -> Option<f64>;

const OF_GROUPS: &[(&str, Figure)] = &[
    ("share, %", |run, group| Some(at(run, &format!("/groups/{group}/share"))? * 100.0)),
    ("ideal share, %", |run, group| Some(at(run, &format!("/groups/{group}/ideal_share"))? * 100.0)),
    ("response p50, ms", |run, group| Some(at(run, &format!("/groups/{group}/response_us/p50"))? / 1e3)),
    ("response p99, ms", |run, group| Some(at(run, &format!("/groups/{group}/response_us/p99"))? / 1e3)),
];

const OF_RUNS: &[(&str, Figure)] = &[
    ("lag / bound", |run, _| at(run, "/all/lag_of_bound")),
    ("work / got", |run, _| Some(at(run, "/all/work_s")? / at(run, "/cpu/got_s")?)),
];

fn at(run: &Value, pointer: &str) -> Option<f64> {
    run.pointer(pointer)?.as_f64()
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [runs] = &paths[..] else { return Err("expected RUNS.json".into()) };
    let runs: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(runs)?)?;
    let of = |target: &str| runs.iter().filter(|run| run["on"] == target).collect::<Vec<_>>();
    let (threads, sim) = (of("threads"), of("sim"));
    let first = sim.first().filter(|_| !threads.is_empty()).ok_or("expected runs on `threads` and on `sim`")?;
    let scenario = first["scenario"].as_str().unwrap_or("?");
    let names: Vec<&String> = first["groups"].as_object().map(|groups| groups.keys().collect()).unwrap_or_default();
    let shown =
        names.iter().enumerate().filter(|(at, _)| names.len() <= GROUPS_SHOWN || [0, names.len() - 1].contains(at));
    for (_, name) in shown {
        for (figure, of) in OF_GROUPS {
            let values = |runs: &[&Value]| range(runs.iter().filter_map(|run| of(run, name)));
            line(scenario, &format!("{name}: {figure}"), &values(&threads), &values(&sim));
        }
    }
    for (figure, of) in OF_RUNS {
        let values = |runs: &[&Value]| range(runs.iter().filter_map(|run| of(run, "")));
        line(scenario, figure, &values(&threads), &values(&sim));
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing, if neither has the figure.
fn line(scenario: &str, figure: &str, threads: &str, sim: &str) {
    if !(threads.is_empty() && sim.is_empty()) {
        println!("{scenario:<24} {figure:<26} {threads:>24} {sim:>24}");
    }
}

fn range(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values[..] {
        [] => String::new(),
        [one] => digits(one),
        _ => format!(
            "{} ({} - {})",
            digits(values[values.len() / 2]),
            digits(values[0]),
            digits(values[values.len() - 1])
        ),
    }
}

/// About three digits that count.
fn digits(value: f64) -> String {
    let after_point = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        small if small >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.after_point$}")
}
