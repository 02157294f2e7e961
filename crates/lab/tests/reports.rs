//! The built `evenkeel run --report`: that reports agree with each other and with the run's other figures, and what is
//! said where there is none.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The scenario of docs/reports.md: short polls on many CPUs, all of which look for work all the time, so thieves meet.
fn short() -> String {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports.md")).unwrap();
    page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap().to_owned()
}

const ALL: &str = "lock_stat,runqlat,schedstat,profile";

/// A folder that is gone at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("evenkeel-reports-{}-{test}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("short.toml"), short()).unwrap();
        Folder(path)
    }

    fn run(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.arg("run").arg(self.0.join("short.toml")).args(["--repeat", "1"]).args(more);
        command.env_remove("EVENKEEL_WORKERS").output().unwrap()
    }

    /// What a run printed, and the runs of its JSON file.
    fn json(&self, more: &[&str]) -> (String, Vec<Value>) {
        let path: &Path = &self.0.join("out.json");
        let output = self.run(&[&["--json", path.to_str().unwrap()], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        (String::from_utf8(output.stdout).unwrap(), json.as_array().unwrap().clone())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer} in {value}"))
}

fn sum(list: &Value, field: &str) -> f64 {
    list.as_array().unwrap().iter().map(|entry| entry[field].as_f64().unwrap()).sum()
}

fn check_agreement(run: &Value, cpus: f64) {
    let reports = &run["reports"];
    let profile = &reports["profile"];
    let elapsed = number(profile, "/elapsed_us");
    assert!((elapsed - number(run, "/seconds") * cpus * 1e6).abs() < 1e-3, "{elapsed}");
    assert!((sum(&profile["functions"], "self_us") - elapsed).abs() < 1e-3, "the parts are the whole");
    let got = number(run, "/cpu/got_s") * 1e6;
    assert!((number(profile, "/busy_us") - got).abs() < 1e-3, "what was not idle is what was got");
    let schedstat = &reports["schedstat"]["cpus"];
    let lock = &reports["lock_stat"]["classes"][0];
    // At either end of the measurement, each CPU may be between two counts of the same.
    let agree = |one: f64, other: f64| (one - other).abs() <= 2.0 * cpus;
    let dispatches = sum(schedstat, "timeslices");
    assert!(agree(dispatches, number(reports, "/runqlat/total/count")), "a wait for each dispatch");
    assert!(agree(number(lock, "/failed_tries"), number(run, "/cpu/failed_tries")), "{lock}");
    assert!(agree(number(lock, "/contentions"), number(run, "/cpu/contended")), "{lock}");
    assert_eq!(sum(&lock["waiting"], "contentions"), number(lock, "/contentions"));
    assert_eq!(sum(&lock["waiting"], "failed_tries"), number(lock, "/failed_tries"));
    assert_eq!(sum(&lock["holding"], "failed_tries"), number(lock, "/failed_tries"));
    assert!(number(lock, "/acquisitions") + cpus >= sum(schedstat, "schedules"), "each dispatch takes its lock");
    let waits = profile["functions"].as_array().unwrap().iter().find(|function| function["name"] == "lock wait");
    let waited = waits.map_or(0.0, |waits| waits["self_us"].as_f64().unwrap());
    let longest = number(lock, "/wait_us/max") * 2.0 * cpus;
    assert!((waited - number(lock, "/wait_us/total")).abs() <= longest, "{waited} in {lock}");
    let outside = sum(schedstat, "wakeups") - sum(schedstat, "wakeups_local");
    assert!((outside - 2_000.0 * number(run, "/seconds")).abs() <= 2.0, "what comes from outside is not local");
    let yields = sum(schedstat, "yields");
    assert!((yields - number(run, "/groups/quiet/done")).abs() <= cpus, "each request yields once");
}

#[test]
fn thieves_wait_if_they_block_and_fail_if_they_try() {
    let folder = Folder::new("claim");
    let locks = ["block", "try-victim"].map(|claim| {
        let set = format!("claim={claim}");
        let (_, runs) = folder.json(&["--on", "sim", "--machine", "flat-16", "--set", &set, "--report", ALL]);
        check_agreement(&runs[0], 16.0);
        let sites = runs[0]["reports"]["lock_stat"]["classes"][0]["waiting"].as_array().unwrap().clone();
        let search = sites.into_iter().find(|site| site["site"] == "search").unwrap();
        [
            number(&search, "/contentions"),
            number(&search, "/wait_us"),
            number(&search, "/failed_tries"),
            number(&search, "/failed_us"),
        ]
    });
    let [block, tries] = locks;
    assert!(block[0] > 0.0 && block[1] > 0.0, "who blocks waits: {block:?}");
    assert_eq!(block[2..], [0.0, 0.0]);
    assert_eq!(tries[..2], [0.0, 0.0]);
    assert!(tries[2] > 0.0 && tries[3] > 0.0, "a try that fails is not free: {tries:?}");
}

#[test]
fn reports_of_the_same_run_are_the_same() {
    let folder = Folder::new("same");
    let run = || folder.json(&["--on", "sim", "--machine", "flat-16", "--report", ALL, "--check-determinism"]);
    let (one, other) = (run(), run());
    assert_eq!(one.1[0]["reports"], other.1[0]["reports"]);
    assert_eq!(one.0, other.0);
    check_agreement(&one.1[0], 16.0);
    let (_, plain) = folder.json(&["--on", "sim", "--machine", "flat-16"]);
    assert_eq!(plain[0]["reports"], serde_json::json!({}));
    assert_eq!(plain[0]["sim"]["hash"], one.1[0]["sim"]["hash"], "reports change nothing");
}

#[test]
fn targets_that_lack_a_report_say_why_beside_those_that_have_it() {
    let folder = Folder::new("lacking");
    let on = ["--on", "threads,tokio,sim", "--machine", "flat-4", "--workers", "2"];
    let (text, runs) =
        folder.json(&[&on[..], &["--report", "lock_stat,runqlat", "--report", "schedstat,profile"]].concat());
    let run = |on: &str| runs.iter().find(|run| run["on"] == on).unwrap()["reports"].clone();
    let (threads, tokio) = (run("threads"), run("tokio"));
    assert!(number(&threads, "/lock_stat/classes/0/acquisitions") > 0.0);
    assert_eq!(threads.pointer("/lock_stat/classes/0/hold_us"), Some(&Value::Null));
    assert_eq!(threads["schedstat"]["cpus"].as_array().unwrap().len(), 2);
    assert!(number(&threads, "/runqlat/total/count") > 0.0);
    assert!(threads["profile"]["missing"].is_string());
    for report in ALL.split(',') {
        assert!(tokio[report]["missing"].is_string(), "{report}");
        assert!(text.contains(&format!("=== {report}: tokio")), "{text}");
    }
    assert!(text.contains("not there, because"));
    assert!(run("sim")["profile"]["functions"].is_array());
}

#[test]
fn what_cannot_be_had_is_refused_before_anything_runs() {
    let folder = Folder::new("refused");
    for (more, expected) in [
        (&["--on", "sim", "--report", "foo"][..], "foo"),
        (&["--on", "sim", "--report", ""], "--report"),
        (&["--on", "sim", "--report", "runqlat,runqlat"], "twice"),
        (&["--on", "sim", "--report", "runqlat", "--report", "runqlat"], "twice"),
        (&["--on", "threads", "--report", "profile"], "`sim`"),
        (&["--on", "tokio", "--report", "lock_stat"], "`threads` or `sim`"),
        (&["--on", "tokio,threads", "--report", "runqlat,profile"], "--report profile"),
    ] {
        let output = folder.run(more);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{more:?}: {stderr}");
    }
}
