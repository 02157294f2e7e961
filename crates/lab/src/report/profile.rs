//! What the time of all CPUs went to, by function of the scheduler: by itself, and with all that it had done.
//!
//! Knows nothing of how time is accounted for, but that it sums up.

use std::fmt::Write;

use evenkeel_sim::{Account, Accounting, Activity};
use serde::Serialize;

use super::micros;

/// All that took any time, what took most by itself first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Elapsed time × CPUs: the sum of all `self_us`.
    pub(crate) elapsed_us: f64,
    /// The same less what was idle, taken by other programs, or lost to faults.
    pub(crate) busy_us: f64,
    /// Of it, what went to the scheduler: neither work nor waiting for locks.
    pub(crate) scheduler_us: f64,
    pub(crate) functions: Vec<Function>,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) self_us: f64,
    /// With its callees.
    pub(crate) total_us: f64,
    pub(crate) self_of_elapsed: f64,
    pub(crate) total_of_elapsed: f64,
    /// Absent for what is not busy.
    pub(crate) self_of_busy: Option<f64>,
    pub(crate) total_of_busy: Option<f64>,
}

impl Report {
    /// Between two looks.
    ///
    /// # Panics
    /// V3: if the parts do not sum to the time that has passed × CPUs.
    pub(crate) fn new(before: &Accounting, after: &Accounting) -> Report {
        let account = after.total().since(&before.total());
        let elapsed = after.elapsed.minus(before.elapsed).times(after.cpus.len() as u64);
        let frames = account.frames().into_iter().map(|(_, span)| span);
        let sum = frames.fold(evenkeel::Span::ZERO, evenkeel::Span::plus);
        assert_eq!(sum, elapsed, "V3: the profile does not sum to the time of all CPUs");
        let off = Activity::all().filter(|activity| !is_busy(*activity)).map(|activity| account.of(activity));
        let busy = off.fold(elapsed, evenkeel::Span::minus);
        let function = |activity| Function::of(&account, activity, micros(elapsed), micros(busy));
        let mut functions: Vec<_> = Activity::all().map(function).filter(|function| function.total_us > 0.0).collect();
        functions.sort_by(|one, other| other.self_us.total_cmp(&one.self_us));
        Report {
            elapsed_us: micros(elapsed),
            busy_us: micros(busy),
            scheduler_us: micros(account.scheduler()),
            functions,
        }
    }
}

/// Whether a CPU does something meanwhile.
fn is_busy(activity: Activity) -> bool {
    !matches!(activity, Activity::Idle | Activity::Taken | Activity::Lost(_))
}

impl Function {
    fn of(account: &Account, activity: Activity, elapsed: f64, busy: f64) -> Function {
        let (itself, total) = (micros(account.of(activity)), micros(account.with_callees(activity)));
        let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let is_busy = is_busy(activity);
        Function {
            name: activity.to_string(),
            self_us: itself,
            total_us: total,
            self_of_elapsed: of(itself, elapsed),
            total_of_elapsed: of(total, elapsed),
            self_of_busy: is_busy.then(|| of(itself, busy)),
            total_of_busy: is_busy.then(|| of(total, busy)),
        }
    }
}

/// As text.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!(
        "{:<26} {:>14} {:>14} {:>9} {:>9} {:>9} {:>9}\n",
        "", "self us", "children us", "self %", "child. %", "busy s. %", "busy c. %"
    );
    let busy = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{:.2}", 100.0 * part));
    for function in &report.functions {
        // Writing to a string can't fail.
        let _infallible = writeln!(
            text,
            "{:<26} {:>14.2} {:>14.2} {:>9.2} {:>9.2} {:>9} {:>9}",
            function.name,
            function.self_us,
            function.total_us,
            100.0 * function.self_of_elapsed,
            100.0 * function.total_of_elapsed,
            busy(function.self_of_busy),
            busy(function.total_of_busy),
        );
    }
    let percent = if report.elapsed_us > 0.0 { 100.0 } else { 0.0 };
    let _infallible = writeln!(text, "{:<26} {:>14.2} {:>14} {percent:>9.2}", "elapsed x CPUs", report.elapsed_us, "");
    let _infallible = writeln!(text, "{:<26} {:>14.2}", "not idle", report.busy_us);
    let _infallible = writeln!(text, "{:<26} {:>14.2}", "scheduler", report.scheduler_us);
    text
}
