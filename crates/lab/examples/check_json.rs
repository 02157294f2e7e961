//! Checks that a file written by `evenkeel run … --json FILE` has the form that is promised: an array of runs, each with
//! all its keys. Says nothing of whether the figures are good.
//!
//! `cargo run -p evenkeel-lab --example check_json -- FILE`

use serde_json::{Map, Value};
use std::process::ExitCode;

const RUN: &[&str] =
    &["scenario", "on", "machine", "workers", "seconds", "seed", "repeat", "switches", "groups", "cpu", "windows"];
const GROUP: &[&str] =
    &["weight", "done", "work_s", "share", "ideal_share", "lag_ms", "share_error", "response_us", "wait_us"];
const QUANTILES: &[&str] = &["count", "p50", "p90", "p99", "p999", "max"];
const CPU: &[&str] =
    &["got_s", "used_pct", "wakes", "empty_wakes", "steals", "contended", "failed_tries", "idle_while_waiting_ms"];

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("check_json: expected the name of a file");
        return ExitCode::from(2);
    };
    match check_file(&file) {
        Ok(runs) => {
            println!("{file}: {runs} runs, all keys there");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check_file(file: &str) -> Result<usize, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let whole: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let runs = whole.as_array().ok_or("expected an array of runs")?;
    for (index, run) in runs.iter().enumerate() {
        check_run(run).map_err(|error| format!("run {index}: {error}"))?;
    }
    let did_work = |run: &&Value| run["groups"].as_object().is_some_and(|groups| groups.values().any(has_done_work));
    match runs.iter().find(|run| !did_work(run)) {
        None if !runs.is_empty() => Ok(runs.len()),
        None => Err("there is no run".to_owned()),
        Some(idle) => Err(format!("on {}: no group has done any work", idle["on"])),
    }
}

fn has_done_work(group: &Value) -> bool {
    group["work_s"].as_f64().is_some_and(|seconds| seconds > 0.0)
}

fn check_run(run: &Value) -> Result<(), String> {
    let run = object_with(run, RUN, "a run")?;
    let groups = run["groups"].as_object().filter(|groups| !groups.is_empty()).ok_or("groups: expected some")?;
    for (name, group) in groups {
        let group = object_with(group, GROUP, &format!("group {name}"))?;
        // Only what a kind of run can't know may be null: when nothing arrives, there is no response time.
        for times in ["response_us", "wait_us"] {
            if !group[times].is_null() {
                object_with(&group[times], QUANTILES, &format!("{times} of group {name}"))?;
            }
        }
        for number in ["weight", "work_s", "share", "ideal_share"] {
            group[number].as_f64().ok_or_else(|| format!("{number} of group {name}: expected a number"))?;
        }
    }
    object_with(&run["cpu"], CPU, "cpu")?;
    let windows = run["windows"].as_array().ok_or("windows: expected an array")?;
    if windows.is_empty() {
        return Err("windows: expected at least one".to_owned());
    }
    Ok(())
}

fn object_with<'a>(value: &'a Value, keys: &[&str], what: &str) -> Result<&'a Map<String, Value>, String> {
    let object = value.as_object().ok_or_else(|| format!("{what}: expected an object"))?;
    match keys.iter().find(|key| !object.contains_key(**key)) {
        Some(key) => Err(format!("{what}: {key} is missing")),
        None => Ok(object),
    }
}
