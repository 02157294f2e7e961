//! Every benchmark, tiny, on every target; and the command as a whole.

use std::fs;
use std::path::PathBuf;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
}

fn args(of: &[&str]) -> BenchArgs {
    Cli::try_parse_from([&["bench"], of].concat()).unwrap().args
}

fn setup(workers: usize) -> Setup {
    Setup { workers: NonZeroUsize::new(workers).unwrap(), switches: Vec::new(), size: Size::tiny() }
}

/// A directory of its own for a test, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("evenkeel-bench-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A benchmark checks by itself that all its tasks ran, and fails otherwise (see `round::complete`).
#[test]
fn every_benchmark_does_all_its_work_on_every_target() {
    for bench in registry::ALL {
        for on in bench.runs {
            for workers in [1, 2, 3] {
                let figures = (on.run)(&setup(workers));
                let figures = figures.unwrap_or_else(|why| panic!("{} on {}: {why}", bench.name, on.target));
                assert_eq!(figures.0.len(), bench.rows.len(), "{} on {}", bench.name, on.target);
                let sane = |figure: &f64| figure.is_finite() && *figure >= 0.0;
                assert!(figures.0.iter().all(sane), "{} on {}: {figures:?}", bench.name, on.target);
            }
        }
    }
}

#[test]
fn every_run_of_every_target_is_in_the_file() {
    let scratch = Scratch::new("file");
    let path = scratch.file("figures.json");
    let mut out = Vec::new();
    run(args(&["yield_many", "wake", "--repeat", "3", "--workers", "2", "--json", &path]), Size::tiny(), &mut out)
        .unwrap();
    let objects: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for row in ["yield_many", "wake_p50", "wake_p99"] {
        let found: Vec<_> =
            objects.as_array().unwrap().iter().filter(|of| of["bench"] == row && of["on"] == "tokio").collect();
        let [object] = found[..] else { panic!("{row}: {found:?}") };
        assert_eq!(object["workers"], 2);
        assert_eq!(object["repeat"], 3);
        assert_eq!(object["values"].as_array().unwrap().len(), 3);
        assert!(object["min"].as_f64() <= object["median"].as_f64());
        assert!(object["median"].as_f64() <= object["max"].as_f64());
        assert!(object["unit"].is_string());
    }
    assert_eq!(scratch.names(), ["figures.json"], "a draft was left behind");
    assert!(String::from_utf8(out).unwrap().contains("wake_p99"));
}

#[test]
fn a_file_that_was_there_is_replaced() {
    let scratch = Scratch::new("replaced");
    let path = scratch.file("figures.json");
    fs::write(&path, "old").unwrap();
    run(args(&["yield_many", "--repeat", "1", "--json", &path]), Size::tiny(), &mut Vec::new()).unwrap();
    assert!(fs::read_to_string(&path).unwrap().starts_with('['));
}

#[test]
fn a_path_that_cannot_be_written_is_refused_before_anything_runs() {
    let scratch = Scratch::new("refused");
    for path in [scratch.file("no-such-folder/figures.json"), scratch.0.to_str().unwrap().to_owned()] {
        let mut out = Vec::new();
        let refused = run(args(&["yield_many", "--json", &path]), Size::tiny(), &mut out).unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{refused}");
        assert!(refused.to_string().contains(&path), "{refused}");
        assert!(out.is_empty());
    }
}

#[test]
fn an_unknown_name_is_refused_before_anything_runs() {
    let mut out = Vec::new();
    let refused = run(args(&["yield_many", "spwan_many"]), Size::tiny(), &mut out).unwrap_err();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("spwan_many"), "{refused}");
    assert!(out.is_empty());
}

#[test]
fn an_unknown_switch_is_refused_before_anything_runs() {
    for switch in ["clam=block", "claim=blok"] {
        let mut out = Vec::new();
        let refused = run(args(&["yield_many", "--set", switch]), Size::tiny(), &mut out).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains(switch), "{refused}");
        assert!(out.is_empty());
    }
}

#[test]
fn a_row_of_both_targets_has_a_ratio_in_the_file() {
    let scratch = Scratch::new("ratio");
    let path = scratch.file("figures.json");
    let asked = args(&["yield_many", "--repeat", "3", "--set", "claim=try-victim", "--json", &path]);
    run(asked, Size::tiny(), &mut Vec::new()).unwrap();
    let objects: Vec<serde_json::Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let [ours, theirs, ratio] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!([&ours["on"], &theirs["on"], &ratio["on"]], ["evenkeel", "tokio", "evenkeel/tokio"]);
    assert_eq!(ours["switches"], serde_json::json!({ "claim": "try-victim" }));
    assert_eq!(theirs["switches"], serde_json::json!({}));
    assert!(ratio["verdict"].is_string());
    for run in 0..3 {
        let of = |object: &serde_json::Value| object["values"][run].as_f64().unwrap();
        assert!((of(ratio) * of(theirs) / of(ours) - 1.0).abs() < 1e-9, "run {run}");
    }
}

#[test]
fn no_workers_and_no_runs_are_refused() {
    for bad in [["--workers", "0"], ["--repeat", "0"], ["--set", "claim"]] {
        assert!(Cli::try_parse_from([&["bench"], &bad[..]].concat()).is_err(), "{bad:?}");
    }
}
