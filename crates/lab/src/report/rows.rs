//! Which figures the table shows for a scenario.
//!
//! Knows nothing of layout.

use crate::run::{GroupOutcome, Outcome};
use crate::scenario::{GroupIndex, Role, Scenario};

/// More groups than this are summed up, except those that somebody waits for.
const GROUPS_SHOWN: usize = 8;

/// A figure of a run; the second run is tokio's of the same repetition.
type Figure = Box<dyn Fn(&Outcome, Option<&Outcome>) -> Option<f64>>;

/// One row of the table.
pub(crate) struct Row {
    /// What the row is about; shown where it changes.
    pub(crate) subject: String,
    pub(crate) label: &'static str,
    pub(crate) figure: Figure,
}

/// All rows for `scenario`.
pub(crate) fn rows(scenario: &Scenario) -> Vec<Row> {
    let mut rows = Vec::new();
    let many = scenario.groups.len() > GROUPS_SHOWN;
    // What somebody waits for comes first.
    for role in [Role::Interactive, Role::Batch] {
        for (index, group) in scenario.groups.iter().enumerate() {
            if group.role == role && (role == Role::Interactive || !many) {
                group_rows(&mut rows, scenario, GroupIndex(index));
            }
        }
    }
    all_rows(&mut rows, scenario);
    cpu_rows(&mut rows);
    rows
}

fn group_rows(rows: &mut Vec<Row>, scenario: &Scenario, group: GroupIndex) {
    let def = &scenario.groups[group.0];
    let subject = format!("{} (weight {})", def.name, def.weight);
    let mut add = |label, of: fn(&GroupOutcome, &Outcome) -> Option<f64>| {
        let figure = move |run: &Outcome, _: Option<&Outcome>| of(&run.groups[group.0].1, run);
        rows.push(Row { subject: subject.clone(), label, figure: Box::new(figure) });
    };
    add("response p50, ms", |of, _| of.response_us.p50.map(|us| us / 1e3));
    add("response p99, ms", |of, _| of.response_us.p99.map(|us| us / 1e3));
    add("response max, ms", |of, _| of.response_us.max.map(|us| us / 1e3));
    add("done per s", |of, run| (of.done + of.unfinished > 0).then(|| of.done as f64 / run.seconds));
    add("unfinished", |of, _| (of.unfinished > 0).then_some(of.unfinished as f64));
    add("work, CPUs", |of, run| Some(of.work_s / run.seconds));
    add("share, %", |of, _| of.share.map(|share| share * 100.0));
    add("ideal share, %", |of, _| of.ideal_share.map(|share| share * 100.0));
    add("largest lag, ms", |of, _| Some(of.lag_ms));
    let ratio = move |run: &Outcome, tokio: Option<&Outcome>| {
        let work = |run: &Outcome| run.groups[group.0].1.work_s;
        tokio.map(work).filter(|&work| work > 0.0).map(|tokio| work(run) / tokio)
    };
    rows.push(Row { subject, label: "work / tokio's", figure: Box::new(ratio) });
}

fn all_rows(rows: &mut Vec<Row>, scenario: &Scenario) {
    let subject = format!("all {} groups", scenario.groups.len());
    let mut add = |label, figure: Figure| rows.push(Row { subject: subject.clone(), label, figure });
    add("work, CPUs", Box::new(|run, _| Some(run.all.work_s / run.seconds)));
    add("work / tokio's", Box::new(|run, tokio| ratio(run.all.work_s, tokio?.all.work_s)));
    add("Jain's index, batch", Box::new(|run, _| run.all.jain));
    add("lag / bound", Box::new(|run, _| run.all.lag_of_bound));
    add("error in 100 ms p99, %", Box::new(|run, _| run.all.error_100ms.map(|errors| errors.p99 * 100.0)));
    add("error in 1 s max, %", Box::new(|run, _| run.all.error_1s.map(|errors| errors.max * 100.0)));
}

fn cpu_rows(rows: &mut Vec<Row>) {
    let mut add = |label, figure: Figure| rows.push(Row { subject: "CPU".to_owned(), label, figure });
    let per_second = |count: Option<u64>, run: &Outcome| count.map(|count| count as f64 / run.seconds);
    add("got, %", Box::new(|run, _| Some(run.cpu.used_pct)));
    add("work / got", Box::new(|run, _| ratio(run.all.work_s, run.cpu.got_s)));
    add("wakes per s", Box::new(move |run, _| per_second(run.cpu.wakes, run)));
    add(
        "wakes per task",
        Box::new(|run, _| {
            let done: u64 = run.groups.iter().map(|(_, group)| group.done).sum();
            ratio(run.cpu.wakes? as f64, done as f64)
        }),
    );
    add("empty wakes per s", Box::new(move |run, _| per_second(run.cpu.empty_wakes, run)));
    add("steals per s", Box::new(move |run, _| per_second(run.cpu.steals, run)));
    add("contended locks per s", Box::new(move |run, _| per_second(run.cpu.contended, run)));
    add("failed tries per s", Box::new(move |run, _| per_second(run.cpu.failed_tries, run)));
    add("idle while waiting, ms", Box::new(|run, _| run.cpu.idle_while_waiting_ms));
    add("arrivals late p99, ms", Box::new(|run, _| run.generator_late_us.map(|us| us / 1e3)));
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
