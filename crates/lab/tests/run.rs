//! The built `evenkeel run`, from a scenario file to its exit code and its JSON.
//!
//! Looks at form, conservation and exit codes, never at speed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Folder, code, number, stderr};
use serde_json::Value;

const TARGETS: &[&str] = &["threads", "tokio", "tokio-split", "tokio-split-nice", "sim"];

fn evenkeel(scenario: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("run").arg(scenario).args(["--workers", "2"]).args(more).env_remove("EVENKEEL_WORKERS");
    command.output().unwrap()
}

/// Runs on all targets, expects success, and returns the runs of the JSON file.
fn runs(folder: &Folder, scenario: &str, more: &[&str]) -> Vec<Value> {
    let json = folder.0.join("out.json");
    let on = TARGETS.join(",");
    let mut arguments = vec!["--on", &on, "--machine", "flat-2", "--json", json.to_str().unwrap()];
    arguments.extend(more);
    let output = evenkeel(&folder.scenario(scenario), &arguments);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let whole: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    whole.as_array().unwrap().clone()
}

const MIXED: &str = r#"
warmup = 0.05
[[groups]]
name = "batch"
weight = 100
role = "batch"
[[groups]]
name = "quiet"
weight = 50
[[groups]]
name = "closed"
[[tasks]]
group = "batch"
count = 50
program = [{ repeat = { program = [{ run = "50us" }, "yield"] } }]
[[tasks]]
group = "quiet"
arrival = { open = { rate = 500, spacing = "even" } }
program = [{ run = "20us" }]
[[tasks]]
group = "closed"
arrival = { closed = { clients = 2, think = { exponential = "1ms" } } }
program = [{ run = { uniform = ["10us", "30us"] } }, "yield", { run = "10us" }]
"#;

#[test]
fn runs_are_interleaved_and_every_work_is_accounted_for() {
    let folder = Folder::new("interleaved");
    let runs = runs(&folder, MIXED, &["--seconds", "0.3", "--repeat", "2", "--seed", "7"]);
    let names: Vec<&str> = runs.iter().map(|run| run["on"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2 * TARGETS.len());
    for (repeat, half) in runs.chunks(TARGETS.len()).enumerate() {
        let mut on: Vec<&str> = half.iter().map(|run| run["on"].as_str().unwrap()).collect();
        on.sort_unstable();
        let mut expected = TARGETS.to_vec();
        expected.sort_unstable();
        assert_eq!(on, expected, "each repetition runs every target");
        for run in half {
            assert_eq!(number(run, "/repeat"), repeat as f64 + 1.0);
            assert_eq!(number(run, "/seed"), 7.0 + repeat as f64);
        }
    }
    assert_ne!(names[0], names[TARGETS.len()], "another target begins each time");
    runs.iter().for_each(check_conservation);
}

fn check_conservation(run: &Value) {
    assert_eq!(run["scenario"], "tiny");
    assert_eq!(number(run, "/workers"), 2.0);
    let groups = run["groups"].as_object().unwrap();
    let total: f64 = groups.values().map(|group| number(group, "/work_s")).sum();
    assert!(total > 0.0);
    assert!((total - number(run, "/all/work_s")).abs() < 1e-9);
    for share in ["/share", "/ideal_share"] {
        let sum: f64 = groups.values().map(|group| number(group, share)).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{share} adds up to {sum}");
    }
    let windows = run["windows"].as_array().unwrap();
    for (name, group) in groups {
        let sum: f64 = windows.iter().map(|window| number(window, &format!("/groups/{name}/work_s"))).sum();
        assert!((sum - number(group, "/work_s")).abs() < 1e-9, "the windows of {name} add up");
    }
    for window in windows {
        let sum = |what: &str| groups.keys().map(|name| number(window, &format!("/groups/{name}/{what}"))).sum::<f64>();
        assert!((sum("work_s") - sum("ideal_s")).abs() < 1e-6, "the ideal divides the work of the window");
    }
    // Whatever a request did before it was done is work: 20 us for `quiet`, at least 20 for `closed`.
    for name in ["quiet", "closed"] {
        let group = &groups[name];
        assert!(number(group, "/done") > 0.0, "{name} gets something done");
        let of_requests = number(group, "/done") * 20e-6;
        let slack = 200.0 * 20e-6;
        assert!(number(group, "/work_s") + slack >= of_requests, "{name} did less work than its requests are");
        let response = &group["response_us"];
        assert!(
            number(response, "/p50") <= number(response, "/p99")
                && number(response, "/p99") <= number(response, "/max")
        );
        assert!(number(response, "/count") > 0.0);
    }
    assert_eq!(number(run, "/groups/batch/response_us/count"), 0.0);
    assert_eq!(number(run, "/groups/batch/done"), 0.0, "an endless task is never done");
    assert!(number(run, "/cpu/got_s") > 0.0 && number(run, "/generator_late_us") >= 0.0);
}

const EVERY_STEP: &str = r#"
seconds = 2
warmup = 0
[[groups]]
name = "a"
[[groups]]
name = "b"
[[groups]]
name = "children"
[[tasks]]
group = "a"
start = "300ms"
program = [{ repeat = { times = 20, program = [{ notify = "ping" }, { wait = "pong" }, { run = "1us" }] } }]
[[tasks]]
group = "b"
start = "300ms"
program = [{ repeat = { times = 20, program = [{ wait = "ping" }, { run = "2us" }, { notify = "pong" }] } }]
[[tasks]]
group = "a"
count = 5
start = "300ms"
program = [
    { lock = "m" },
    { sleep = { uniform = ["10us", "1ms"] } },
    { run = { exponential = "1us" } },
    { unlock = "m" },
    { lock = "m" },
    { repeat = { program = ["yield", "exit"] } },
]
[[tasks]]
group = "b"
count = 3
start = "300ms"
program = [{ spawn = { group = "children", count = 4, program = [{ run = "10us" }, "yield", { run = "10us" }] } }]
"#;

#[test]
fn every_step_does_what_it_says() {
    let folder = Folder::new("steps");
    for run in runs(&folder, EVERY_STEP, &["--repeat", "1"]) {
        let on = &run["on"];
        assert_eq!(number(&run, "/groups/a/done"), 6.0, "on {on}: nobody is stuck at a lock or a wait");
        assert_eq!(number(&run, "/groups/b/done"), 4.0, "on {on}");
        assert_eq!(number(&run, "/groups/children/done"), 0.0, "on {on}: what a task spawns is part of it");
        assert!((number(&run, "/groups/b/work_s") - 40e-6).abs() < 1e-9, "on {on}");
        assert!((number(&run, "/groups/children/work_s") - 3.0 * 4.0 * 20e-6).abs() < 1e-9, "on {on}");
    }
}

#[test]
fn tasks_start_and_stop_when_told() {
    let folder = Folder::new("start-stop");
    let scenario = r#"
        seconds = 0.6
        warmup = 0.05
        [[groups]]
        name = "early"
        [[groups]]
        name = "late"
        [[tasks]]
        group = "early"
        stop = "200ms"
        program = [{ repeat = { program = [{ run = "50us" }, "yield"] } }]
        [[tasks]]
        group = "early"
        arrival = { closed = { clients = 2 } }
        stop = "200ms"
        program = [{ run = "50us" }]
        [[tasks]]
        group = "late"
        arrival = { open = { rate = 1000 } }
        start = "400ms"
        program = [{ run = "50us" }]
    "#;
    for run in runs(&folder, scenario, &["--repeat", "1"]) {
        let worked = |name: &str, when: &dyn Fn(f64, f64) -> bool| {
            let windows = run["windows"].as_array().unwrap().iter();
            let chosen = windows.filter(|window| when(number(window, "/from_s"), number(window, "/to_s")));
            chosen.map(|window| number(window, &format!("/groups/{name}/work_s"))).sum::<f64>()
        };
        assert!(worked("early", &|from, _| from < 0.2) > 0.0);
        assert_eq!(worked("early", &|from, _| from > 0.5), 0.0, "on {}", run["on"]);
        assert_eq!(worked("late", &|_, to| to < 0.39), 0.0);
        assert!(worked("late", &|_, to| to > 0.4) > 0.0);
    }
}

#[test]
fn a_run_ends_whatever_its_tasks_are_doing() {
    let folder = Folder::new("ends");
    let scenario = r#"
        warmup = 0
        [[groups]]
        name = "g"
        [[tasks]]
        group = "g"
        count = 2000
        program = [{ repeat = { program = [{ run = "50us" }] } }]
        [[tasks]]
        group = "g"
        count = 100
        program = [{ sleep = "3600s" }]
        [[tasks]]
        group = "g"
        count = 100
        program = [{ wait = "what never comes" }]
        [[tasks]]
        group = "g"
        arrival = { open = { rate = 100 } }
        program = [{ run = "3600s" }]
    "#;
    for run in runs(&folder, scenario, &["--seconds", "0.2", "--repeat", "1"]) {
        assert_eq!(number(&run, "/groups/g/done"), 0.0);
        assert!(number(&run, "/groups/g/unfinished") > 0.0, "requests that were not answered are told");
        assert!(run["groups"]["g"]["lag_of_bound"].is_null(), "a poll without end has no bound");
    }
}

#[test]
fn bad_input_is_named_with_its_line() {
    let folder = Folder::new("bad-input");
    let path = folder.scenario("[[groups]]\nname = \"g\"\nwieght = 3\n");
    let output = evenkeel(&path, &[]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains(&format!("{}:3: unknown field `wieght`", path.display())), "{}", stderr(&output));

    let output = evenkeel(&folder.0.join("missing.toml"), &[]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("missing.toml:1: can't read the scenario"), "{}", stderr(&output));

    std::fs::write(&path, b"seconds = 1\n\xff\xfe").unwrap();
    let output = evenkeel(&path, &[]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("tiny.toml:2: not UTF-8"), "{}", stderr(&output));
}

#[test]
fn bad_options_are_bad_input() {
    let folder = Folder::new("bad-options");
    let path = folder.scenario(MIXED);
    let cases: &[(&[&str], &str)] = &[
        (&["--on", "rayon"], "rayon"),
        (&["--on", "tokio,tokio"], "`tokio` twice"),
        (&["--seconds", "nan"], "--seconds NaN"),
        (&["--seconds=-1"], "--seconds -1"),
        (&["--seconds", "1e300"], "expected 0.01 to 3600"),
        (&["--repeat", "0"], "--repeat"),
        (&["--repeat", "99999999999"], "--repeat"),
        (&["--workers", "0"], "--workers"),
        (&["--seed", "x"], "--seed"),
        (&["--on", "tokio", "--set", "claim"], "expected switch=value"),
        (&["--on", "tokio", "--set", "claim=block"], "only `threads` and `sim` have switches"),
        (&["--set", "clam=block"], "no such switch"),
        (&["--set", "claim=maybe"], "no such value"),
        (&["--on", "tokio", "--json", "/"], "--json /"),
        (&["--on", "tokio", "--json", "missing/folder/out.json"], "can't be written"),
    ];
    for (arguments, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        let output = command.arg("run").arg(&path).args(*arguments).output().unwrap();
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}: nothing has run");
    }
}

#[test]
fn a_missed_bound_is_named_and_has_its_exit_code() {
    let folder = Folder::new("expect");
    let json = folder.0.join("out.json");
    let arguments = ["--on", "tokio", "--seconds", "0.1", "--repeat", "1", "--json", json.to_str().unwrap()];
    let missed = format!("{MIXED}\n[expect.tokio]\n\"batch.work_s\" = {{ min = 1e6 }}\n");
    let output = evenkeel(&folder.scenario(&missed), &arguments);
    assert_eq!(code(&output), 10, "{}", stderr(&output));
    assert!(stderr(&output).contains("tokio: batch.work_s = "), "{}", stderr(&output));
    assert!(stderr(&output).contains("expected at least 1000000"), "{}", stderr(&output));
    assert!(json.exists(), "results are kept when a bound is missed");
    assert!(!output.stdout.is_empty());

    let met = format!("{MIXED}\n[expect.tokio]\n\"batch.work_s\" = {{ max = 1e6 }}\n");
    assert_eq!(code(&evenkeel(&folder.scenario(&met), &arguments)), 0);
}

#[test]
fn progress_is_told_on_request_and_the_table_alone_on_stdout() {
    let folder = Folder::new("progress");
    let arguments = ["--on", "tokio", "--seconds", "0.1", "--repeat", "2", "--progress"];
    let output = evenkeel(&folder.scenario(MIXED), &arguments);
    assert_eq!(code(&output), 0);
    assert!(stderr(&output).contains("tiny: run 2 of 2, tokio"), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with("tiny: 0.1 s measured, 2 runs each"), "{table}");
    assert!(table.contains("quiet (weight 50)") && table.contains("response p99, ms"), "{table}");
}

#[test]
#[cfg(unix)]
fn a_reader_that_has_gone_costs_neither_the_file_nor_a_panic() {
    let folder = Folder::new("gone");
    let json = folder.0.join("out.json");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("run").arg(folder.scenario(SCENARIO_GONE)).args(["--workers", "1", "--repeat", "1", "--on", "threads"]);
    let output = command.arg("--json").arg(&json).stdout(writer).output().unwrap();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("can't print"), "{}", stderr(&output));
    let whole: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(whole.as_array().unwrap().len(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn errors_that_nobody_can_read_keep_their_exit_code() {
    for arguments in [["run", "no such file"], ["bench", "nonsense"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        assert_eq!(command.args(arguments).stderr(full).status().unwrap().code(), Some(2), "{arguments:?}");
    }
    let folder = Folder::new("full");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.arg("run").arg(folder.scenario(SCENARIO_GONE)).args(["--workers", "1", "--repeat", "1", "--on", "threads"]);
    assert_eq!(command.arg("--progress").stderr(full).output().unwrap().status.code(), Some(0));
}

/// Little, and soon done.
const SCENARIO_GONE: &str = r#"
seconds = 0.02
warmup = 0.0
[[groups]]
name = "a"
[[tasks]]
group = "a"
program = [{ run = "50us" }]
"#;
