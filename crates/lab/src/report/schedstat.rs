//! What each CPU counted, in the form of Linux' `/proc/schedstat`.
//!
//! One line per CPU with the kernel's nine fields. The lines of domains follow when there is balancing by domain.
//!
//! Knows nothing of how it was counted.

use std::fmt::Write;
use std::time::Duration;

use evenkeel::{CpuStats, Stats};
use serde::Serialize;

/// All CPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// The time that it is about.
    pub(crate) elapsed_ms: u128,
    pub(crate) cpus: Vec<Cpu>,
}

/// One CPU. The kernel's names in the comments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cpu {
    pub(crate) cpu: u32,
    /// `yld_count`.
    pub(crate) yields: u64,
    /// `sched_count`.
    pub(crate) schedules: u64,
    /// `sched_goidle`.
    pub(crate) went_idle: u64,
    /// `ttwu_count`.
    pub(crate) wakeups: u64,
    /// `ttwu_local`.
    pub(crate) wakeups_local: u64,
    /// `rq_cpu_time`.
    pub(crate) run_ns: u64,
    /// `run_delay`.
    pub(crate) wait_ns: u64,
    /// `pcount`.
    pub(crate) timeslices: u64,
}

impl Report {
    /// Between two looks.
    pub(crate) fn new(elapsed: Duration, before: &Stats, after: &Stats) -> Report {
        let cpus = after.cpus.iter().zip(&before.cpus).map(|(now, then)| {
            let less = |of: fn(&CpuStats) -> u64| of(now) - of(then);
            Cpu {
                cpu: now.cpu.get(),
                yields: less(|cpu| cpu.yields),
                schedules: less(|cpu| cpu.polls + cpu.idles),
                went_idle: less(|cpu| cpu.parks),
                wakeups: less(|cpu| cpu.woken_here + cpu.woken_outside),
                wakeups_local: less(|cpu| cpu.woken_here),
                run_ns: less(|cpu| cpu.run.as_nanos()),
                wait_ns: less(|cpu| cpu.wait_total.as_nanos()),
                timeslices: less(|cpu| cpu.polls),
            }
        });
        Report { elapsed_ms: elapsed.as_millis(), cpus: cpus.collect() }
    }
}

/// As text.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!("version 17\ntimestamp {}\n", report.elapsed_ms);
    for cpu in &report.cpus {
        // Writing to a string can't fail. The zero is a field that the kernel no longer uses.
        let _infallible = writeln!(
            text,
            "cpu{} {} 0 {} {} {} {} {} {} {}",
            cpu.cpu,
            cpu.yields,
            cpu.schedules,
            cpu.went_idle,
            cpu.wakeups,
            cpu.wakeups_local,
            cpu.run_ns,
            cpu.wait_ns,
            cpu.timeslices
        );
    }
    text
}
