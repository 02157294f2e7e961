//! A table of the bounds of a scenario's `[expect.sim]` and of what runs of it came to: one line for each bound.
//!
//! ```text
//! cargo run -p evenkeel-lab --example bounds -- SCENARIO.toml RUNS.json
//! ```
//!
//! Judged is the worst run, not the median as by `evenkeel run`. Fails if a bound is not met. Errors are shown in per cent,
//! other figures as they are.

use std::process::ExitCode;

use serde_json::Value;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, runs] = &paths[..] else { return Err("expected SCENARIO.toml and RUNS.json".into()) };
    let name = std::path::Path::new(scenario).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let scenario: toml::Table = std::fs::read_to_string(scenario)?.parse()?;
    let runs: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(runs)?)?;
    let bounds = scenario.get("expect").and_then(|expect| expect.get("sim")).and_then(toml::Value::as_table);
    let bounds = bounds.ok_or("no [expect.sim] in the scenario")?;
    let mut all_met = true;
    for (figure, bound) in bounds {
        let number = |key| {
            bound.get(key).and_then(|value: &toml::Value| value.as_float().or(value.as_integer().map(|n| n as f64)))
        };
        let (least, most) = (number("min"), number("max"));
        let values = runs.iter().map(|run| value(run, figure)).collect::<Option<Vec<f64>>>();
        let values = values.filter(|values| !values.is_empty()).ok_or_else(|| format!("{figure} was not measured"))?;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let met = least.is_none_or(|least| low >= least) && most.is_none_or(|most| high <= most);
        all_met &= met;
        let (scale, unit) = if figure.contains(".error_") { (100.0, " %") } else { (1.0, "") };
        let limit = match (least, most) {
            (Some(least), Some(most)) => format!("{:.1} to {:.1}{unit}", least * scale, most * scale),
            (Some(least), None) => format!(">= {:.1}{unit}", least * scale),
            (None, most) => format!("<= {:.1}{unit}", most.unwrap_or(f64::INFINITY) * scale),
        };
        let machine = runs[0]["machine"].as_str().unwrap_or("?");
        let verdict = if met { "met" } else { "MISSED" };
        let range = format!("{:.1} - {:.1}{unit}", low * scale, high * scale);
        println!("{name:<18} {machine:<9} {figure:<26} {range:>18} {limit:>12}  {verdict}");
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The figure of a run that a bound names.
fn value(run: &Value, figure: &str) -> Option<f64> {
    let root = if figure.starts_with("all.") || figure.starts_with("cpu.") { "" } else { "/groups" };
    run.pointer(&format!("{root}/{}", figure.replace('.', "/")))?.as_f64()
}
