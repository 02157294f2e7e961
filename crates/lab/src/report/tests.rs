use super::*;
use crate::failure::Failure;
use crate::os::Urgency;
use crate::run::{AllOutcome, CpuOutcome, GroupOutcome, WindowGroup, WindowOutcome};
use crate::scenario::{self, On};
use crate::target::Times;

const SCENARIO: &str = r#"
    [[groups]]
    name = "batch"
    role = "batch"
    [[groups]]
    name = "quiet"
    [[tasks]]
    group = "batch"
    program = [{ run = "1ms" }]
    [[tasks]]
    group = "quiet"
    arrival = { open = { rate = 200 } }
    program = [{ run = "100us" }]
"#;

fn group(work_s: f64, p99: Option<f64>) -> GroupOutcome {
    GroupOutcome {
        weight: 100,
        done: 10,
        unfinished: 0,
        work_s,
        charged_s: None,
        work_of_got: Some(0.5),
        share: Some(0.5),
        ideal_share: Some(0.5),
        lag_ms: 1.0,
        lag_of_bound: Some(0.25),
        share_error: None,
        response_us: Times { count: 10, p50: p99, p90: p99, p99, p999: p99, max: p99 },
        wait_us: None,
    }
}

fn outcome(on: On, repeat: u32, batch_work: f64, p99: f64) -> Outcome {
    let window = WindowGroup { work_s: 0.1, ideal_s: 0.1 };
    Outcome {
        scenario: "here".into(),
        on: on.name(),
        machine: "host".into(),
        workers: 2,
        seconds: 1.0,
        seed: u64::from(repeat),
        repeat,
        switches: if on == On::Threads { vec![("claim".into(), "try-victim".into())] } else { vec![] },
        groups: vec![("batch".into(), group(batch_work, None)), ("quiet".into(), group(0.02, Some(p99)))],
        all: AllOutcome { work_s: batch_work + 0.02, jain: None, lag_of_bound: Some(0.25) },
        cpu: CpuOutcome {
            got_s: 2.0,
            used_pct: 100.0,
            wakes: (on == On::Threads).then_some(40),
            empty_wakes: None,
            steals: None,
            contended: None,
            failed_tries: None,
            idle_while_waiting_ms: None,
        },
        sim: None,
        iterations_per_us: Some(600),
        generator_late_us: Some(30.0),
        generator_late_max_us: Some(300.0),
        generator: Urgency::Ordinary,
        refused: 0,
        notes: vec!["a note".into()],
        windows: vec![WindowOutcome { from_s: 0.0, to_s: 0.1, groups: vec![("batch".into(), window)] }],
    }
}

fn outcomes() -> Vec<Outcome> {
    vec![
        outcome(On::Threads, 1, 1.9, 200.0),
        outcome(On::Tokio, 1, 2.0, 800_000.0),
        outcome(On::Tokio, 2, 1.8, 900_000.0),
        outcome(On::Threads, 2, 1.9, 300.0),
        outcome(On::Threads, 3, 1.8, 250.0),
        outcome(On::Tokio, 3, 1.8, 850_000.0),
    ]
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let found = text.lines().find(|line| line.trim_start().starts_with(start));
    found.unwrap_or_else(|| panic!("no line {start:?} in\n{text}"))
}

#[test]
fn the_table_stands_side_by_side() {
    let text = table::text(&scenario::of_text(SCENARIO).unwrap(), &outcomes());
    assert!(
        text.starts_with("here: 1.0 s measured, 3 runs each, median (lowest - highest), 2 workers, seed 1\n"),
        "{text}"
    );
    let cells =
        |start| line(&text, start).split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    assert_eq!(cells("threads"), ["threads", "tokio"]);
    // The medians of the repetitions, and only `quiet` responds.
    assert_eq!(cells("response p99"), ["response p99, ms", "0.250 (0.200 - 0.300)", "850 (800 - 900)"]);
    // What a target doesn't count is not zero.
    assert_eq!(cells("wakes per s"), ["wakes per s", "40.0", "-"]);
    assert!(!text.contains("steals"), "nobody counts steals");
    // Each repetition is compared with tokio's of the same number: 0.95, 1.06, 1.
    let ratios: Vec<&str> = text.lines().filter(|line| line.contains("work / tokio's")).collect();
    assert!(ratios.iter().any(|line| line.contains("1.00 (0.950 - 1.06)")), "{text}");
    assert_eq!(text.matches("claim = try-victim").count(), 1);
    assert_eq!(text.matches("real-time priority is not allowed here").count(), 1);
    assert!(text.contains("tokio: a note"));
}

#[test]
fn columns_are_aligned() {
    let text = table::text(&scenario::of_text(SCENARIO).unwrap(), &outcomes());
    let ends = |start| line(&text, start).chars().count();
    let widest = ends("response p99");
    assert!(["response max", "done per s", "share", "got, %"].iter().all(|start| ends(start) == widest), "{text}");
}

#[test]
fn many_groups_are_summed_up() {
    let mut text = String::new();
    for name in 0..9 {
        text += &format!("[[groups]]\nname = \"b{name}\"\nrole = \"batch\"\n");
    }
    text += "[[groups]]\nname = \"quiet\"\n[[tasks]]\ngroup = \"quiet\"\nprogram = [\"yield\"]\n";
    let subjects: Vec<String> =
        rows::rows(&scenario::of_text(&text).unwrap()).into_iter().map(|row| row.subject).collect();
    assert!(subjects.iter().any(|subject| subject.starts_with("quiet")));
    assert!(!subjects.iter().any(|subject| subject.starts_with('b')));
    assert!(subjects.contains(&"all 10 groups".to_owned()));
}

fn check(expect: &str) -> Result<(), Failure> {
    let scenario = scenario::of_text(&format!("{SCENARIO}\n{expect}")).unwrap();
    check_expectations(&scenario.expect, &outcomes())
}

#[test]
fn bounds_are_judged_by_the_median() {
    assert_eq!(check(""), Ok(()));
    assert_eq!(check("[expect.threads]\n\"quiet.response_us.p99\" = { max = 250 }"), Ok(()));
    assert_eq!(check("[expect.threads]\n\"quiet.response_us.p99\" = { min = 250, max = 251 }"), Ok(()));
    let Err(Failure::Expect(broken)) = check("[expect.threads]\n\"quiet.response_us.p99\" = { max = 249.5 }") else {
        panic!("a bound that isn't met")
    };
    assert_eq!(broken, ["threads: quiet.response_us.p99 = 250, expected at most 249.5"]);
}

#[test]
fn bounds_relate_to_another_target() {
    assert_eq!(check("[expect.threads]\n\"batch.work_s\" = { min = 1.0, times = \"tokio\" }"), Ok(()));
    let Err(Failure::Expect(broken)) = check("[expect.threads]\n\"batch.work_s\" = { min = 1.1, times = \"tokio\" }")
    else {
        panic!("a bound that isn't met")
    };
    assert_eq!(broken, ["threads: batch.work_s = 1.90, expected at least 1.1 x tokio's 1.80"]);
}

#[test]
fn what_did_not_run_is_not_judged_and_what_was_not_measured_fails() {
    assert_eq!(check("[expect.tokio-split]\n\"all.work_s\" = { min = 1e9 }"), Ok(()));
    assert_eq!(check("[expect.threads]\n\"all.work_s\" = { min = 1e9, times = \"tokio-split\" }"), Ok(()));
    let Err(Failure::Expect(broken)) = check("[expect.threads]\n\"all.jain\" = { min = 0.5 }") else {
        panic!("a figure that is missing")
    };
    assert_eq!(broken, ["threads: all.jain was not measured"]);
    // Too short for a percentage is no failure.
    assert_eq!(check("[expect.threads]\n\"batch.share_error\" = { max = 0.01 }"), Ok(()));
}

#[test]
fn every_figure_that_a_bound_can_name_is_in_the_json() {
    let run = serde_json::to_value(outcome(On::Threads, 1, 1.0, 1.0)).unwrap();
    for name in scenario::figure_names("quiet") {
        let text = format!("{SCENARIO}\n[expect.threads]\n\"{name}\" = {{ min = 0 }}");
        let scenario = scenario::of_text(&text).unwrap();
        let pointer = scenario.expect[0].metric.pointer();
        // A table that is not measured is null as a whole.
        let there = run.pointer(pointer).is_some() || name.contains(".wait_us.");
        assert!(there, "{name} is not at {pointer}");
    }
}
