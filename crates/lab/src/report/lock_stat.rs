//! What locks and lines cost, in the columns of Linux' `/proc/lock_stat`, and what those leave out.
//!
//! The kernel's `contentions` counts who waited: a try that fails looks free there. Here failed tries, and the lines that
//! moved between CPUs, stand beside them with the time that they took.
//!
//! Knows nothing of how it was counted.

use std::fmt::Write;

use evenkeel::{LockStats, Stats};
use evenkeel_sim::{LineStat, LockStat, Site, SiteLockStat, Times};
use serde::Serialize;

use super::micros;

/// The class of all run-queue locks.
const QUEUE_LOCK: &str = "rq->lock";

/// The kernel lists four of each kind, those that it saw first. Here it is all, the most frequent first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) classes: Vec<LockClass>,
    /// Absent on threads, where nobody sees lines move.
    pub(crate) lines: Option<Vec<Lines>>,
}

/// Locks of one kind. Times in microseconds; what a host does not count is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LockClass {
    pub(crate) class: &'static str,
    pub(crate) con_bounces: Option<u64>,
    pub(crate) contentions: u64,
    pub(crate) wait_us: Spans,
    pub(crate) acq_bounces: Option<u64>,
    pub(crate) acquisitions: u64,
    pub(crate) hold_us: Option<Spans>,
    pub(crate) failed_tries: u64,
    pub(crate) failed_us: Option<Spans>,
    /// Where it was waited for, or tried in vain.
    pub(crate) waiting: Vec<WaitingSite>,
    /// Who had it then.
    pub(crate) holding: Option<Vec<HoldingSite>>,
}

/// A distribution of times, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Spans {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) total: f64,
    pub(crate) avg: f64,
}

/// A place that did not get a lock at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WaitingSite {
    pub(crate) site: &'static str,
    pub(crate) acquisitions: u64,
    pub(crate) contentions: u64,
    pub(crate) wait_us: f64,
    pub(crate) failed_tries: u64,
    pub(crate) failed_us: Option<f64>,
}

/// A place that had a lock when others wanted it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HoldingSite {
    pub(crate) site: &'static str,
    /// Times that others waited for it.
    pub(crate) contentions: u64,
    /// Times that others went on without.
    pub(crate) failed_tries: u64,
}

/// Lines of shared words of one kind. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Lines {
    pub(crate) class: &'static str,
    /// Times that a line came from elsewhere.
    pub(crate) bounces: u64,
    pub(crate) bounced_us: f64,
    /// Of these, those that waited for another transfer of the line.
    pub(crate) queued: u64,
    pub(crate) queued_us: f64,
    /// Who asked, those that lost most time first.
    pub(crate) sites: Vec<LineSite>,
}

/// A place that asked for lines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LineSite {
    pub(crate) site: &'static str,
    pub(crate) bounces: u64,
    pub(crate) bounced_us: f64,
}

impl Report {
    /// Of a simulated machine.
    pub(crate) fn of_machine(stat: &LockStat) -> Report {
        let all = sum(stat.sites.iter().map(|(_, stat)| stat));
        let waiting = stat.sites.iter().map(|(site, stat)| WaitingSite {
            site: site.name(),
            acquisitions: stat.acquisitions,
            contentions: stat.waits.count,
            wait_us: micros(stat.waits.total),
            failed_tries: stat.failed_tries.count,
            failed_us: Some(micros(stat.failed_tries.total)),
        });
        let class = LockClass {
            class: QUEUE_LOCK,
            con_bounces: Some(all.contention_bounces),
            contentions: all.waits.count,
            wait_us: all.waits.into(),
            acq_bounces: Some(all.bounces),
            acquisitions: all.acquisitions,
            hold_us: Some(all.holds.into()),
            failed_tries: all.failed_tries.count,
            failed_us: Some(all.failed_tries.into()),
            waiting: refused(waiting),
            holding: Some(holding(stat)),
        };
        Report { classes: vec![class], lines: Some(lines(stat)) }
    }

    /// Of threads, between two looks.
    pub(crate) fn of_threads(before: &Stats, after: &Stats) -> Report {
        let sites: Vec<LockStats> = after.locks.iter().map(|now| since(now, &before.locks)).collect();
        let waits = sites.iter().filter(|site| site.waits > 0);
        let wait_us = Spans {
            min: waits.clone().map(|site| micros(site.wait_min)).reduce(f64::min).unwrap_or(0.0),
            max: waits.clone().map(|site| micros(site.wait_max)).reduce(f64::max).unwrap_or(0.0),
            // Not `sum`: that of nothing is a negative zero.
            total: waits.clone().map(|site| micros(site.wait)).fold(0.0, |sum, more| sum + more),
            avg: 0.0,
        };
        let count = |of: fn(&LockStats) -> u64| sites.iter().map(of).sum::<u64>();
        let contentions = count(|site| site.waits);
        let waiting = sites.iter().map(|site| WaitingSite {
            site: site.site.name(),
            acquisitions: site.acquisitions,
            contentions: site.waits,
            wait_us: micros(site.wait),
            failed_tries: site.failed_tries,
            failed_us: None,
        });
        let class = LockClass {
            class: QUEUE_LOCK,
            con_bounces: None,
            contentions,
            wait_us: Spans { avg: average(wait_us.total, contentions), ..wait_us },
            acq_bounces: None,
            acquisitions: count(|site| site.acquisitions),
            hold_us: None,
            failed_tries: count(|site| site.failed_tries),
            failed_us: None,
            waiting: refused(waiting),
            holding: None,
        };
        Report { classes: vec![class], lines: None }
    }
}

impl From<Times> for Spans {
    fn from(times: Times) -> Spans {
        let total = micros(times.total);
        Spans { min: micros(times.min), max: micros(times.max), total, avg: average(total, times.count) }
    }
}

fn average(total: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total / count as f64 }
}

/// What a place counted since `before`. The extremes are those of its whole life.
fn since(now: &LockStats, before: &[LockStats]) -> LockStats {
    let Some(then) = before.iter().find(|then| then.site == now.site) else { return *now };
    LockStats {
        acquisitions: now.acquisitions - then.acquisitions,
        waits: now.waits - then.waits,
        wait: now.wait.minus(then.wait),
        failed_tries: now.failed_tries - then.failed_tries,
        ..*now
    }
}

fn sum<'a>(sites: impl Iterator<Item = &'a SiteLockStat>) -> SiteLockStat {
    let times = |one: Times, other: Times| Times {
        count: one.count + other.count,
        min: match (one.count, other.count) {
            (_, 0) => one.min,
            (0, _) => other.min,
            _ => one.min.min(other.min),
        },
        max: one.max.max(other.max),
        total: one.total.plus(other.total),
    };
    sites.fold(SiteLockStat::default(), |sum, more| SiteLockStat {
        acquisitions: sum.acquisitions + more.acquisitions,
        bounces: sum.bounces + more.bounces,
        contention_bounces: sum.contention_bounces + more.contention_bounces,
        waits: times(sum.waits, more.waits),
        holds: times(sum.holds, more.holds),
        failed_tries: times(sum.failed_tries, more.failed_tries),
    })
}

/// The places that did not always get the lock at once, those that were refused most often first.
fn refused(sites: impl Iterator<Item = WaitingSite>) -> Vec<WaitingSite> {
    let mut sites: Vec<_> = sites.filter(|site| site.contentions + site.failed_tries > 0).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.contentions + site.failed_tries));
    sites
}

fn holding(stat: &LockStat) -> Vec<HoldingSite> {
    let met = |pairs: &[(Site, Site, u64)], site| pairs.iter().filter(|pair| pair.1 == site).map(|pair| pair.2).sum();
    let all = Site::ALL.into_iter().map(|site| HoldingSite {
        site: site.name(),
        contentions: met(&stat.waited_for, site),
        failed_tries: met(&stat.failed_for, site),
    });
    let mut sites: Vec<_> = all.filter(|site| site.contentions + site.failed_tries > 0).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.contentions + site.failed_tries));
    sites
}

fn lines(stat: &LockStat) -> Vec<Lines> {
    let mut classes: Vec<Lines> = Vec::new();
    for (class, site, line) in &stat.lines {
        if classes.last().is_none_or(|last| last.class != class.name()) {
            classes.push(Lines {
                class: class.name(),
                bounces: 0,
                bounced_us: 0.0,
                queued: 0,
                queued_us: 0.0,
                sites: Vec::new(),
            });
        }
        if let Some(lines) = classes.last_mut() {
            lines.add(*site, line);
        }
    }
    let by_time = |one: f64, other: f64| other.total_cmp(&one);
    classes.iter_mut().for_each(|class| class.sites.sort_by(|one, other| by_time(one.bounced_us, other.bounced_us)));
    classes.sort_by(|one, other| by_time(one.bounced_us, other.bounced_us));
    classes
}

impl Lines {
    fn add(&mut self, site: Site, line: &LineStat) {
        self.bounces += line.transfers.count;
        self.bounced_us += micros(line.transfers.total);
        self.queued += line.queued.count;
        self.queued_us += micros(line.queued.total);
        let bounced_us = micros(line.transfers.total);
        self.sites.push(LineSite { site: site.name(), bounces: line.transfers.count, bounced_us });
    }
}

/// Widths of the kernel's columns.
const NAME: usize = 40;
const RULE: usize = NAME + 1 + 14 * 15;

/// As text.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _infallible = write_classes(&mut text, &report.classes);
    if let Some(lines) = &report.lines {
        let _infallible = write_lines(&mut text, lines);
    }
    text
}

fn write_classes(text: &mut String, classes: &[LockClass]) -> std::fmt::Result {
    const COLUMNS: [&str; 14] = [
        "con-bounces",
        "contentions",
        "waittime-min",
        "waittime-max",
        "waittime-total",
        "waittime-avg",
        "acq-bounces",
        "acquisitions",
        "holdtime-min",
        "holdtime-max",
        "holdtime-total",
        "holdtime-avg",
        "failed-tries",
        "failtime-total",
    ];
    writeln!(text, "lock_stat version 0.4, times in us; two columns more, and all sites\n{}", "-".repeat(RULE))?;
    write!(text, "{:>NAME$} ", "class name")?;
    COLUMNS.iter().try_for_each(|column| write!(text, " {column:>14}"))?;
    writeln!(text, "\n{}", "-".repeat(RULE))?;
    for class in classes {
        write!(text, "{:>NAME$}:", class.class)?;
        let [wait, hold] = [Some(class.wait_us), class.hold_us].map(columns);
        let counts = [class.con_bounces, Some(class.contentions), class.acq_bounces, Some(class.acquisitions)];
        let [con_bounces, contentions, acq_bounces, acquisitions] = counts.map(count);
        let failed = count(Some(class.failed_tries));
        let fail_time = class.failed_us.map_or_else(|| "-".to_owned(), |spans| format!("{:.2}", spans.total));
        let cells = [con_bounces, contentions].into_iter().chain(wait).chain([acq_bounces, acquisitions]).chain(hold);
        for cell in cells.chain([failed, fail_time]) {
            write!(text, " {cell:>14}")?;
        }
        writeln!(text)?;
        write_sites(text, class)?;
    }
    Ok(())
}

fn count(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

fn columns(spans: Option<Spans>) -> [String; 4] {
    spans.map_or_else(
        || std::array::from_fn(|_| "-".to_owned()),
        |spans| [spans.min, spans.max, spans.total, spans.avg].map(|us| format!("{us:.2}")),
    )
}

/// Below its class, as the kernel has them: who waited, then who was waited for.
fn write_sites(text: &mut String, class: &LockClass) -> std::fmt::Result {
    let rule = "-".repeat(class.class.len());
    writeln!(text, "{rule:>NAME$}")?;
    for site in &class.waiting {
        write!(text, "{:>NAME$} {:>14}  [wants] {:<12}", class.class, site.contentions, site.site)?;
        write!(text, " waited {:.2}, {} failed tries", site.wait_us, site.failed_tries)?;
        site.failed_us.map_or(Ok(()), |us| write!(text, " took {us:.2}"))?;
        writeln!(text, ", {} acquisitions", site.acquisitions)?;
    }
    let Some(holding) = &class.holding else { return Ok(()) };
    writeln!(text, "{rule:>NAME$}")?;
    for site in holding {
        write!(text, "{:>NAME$} {:>14}  [holds] {:<12}", class.class, site.contentions, site.site)?;
        writeln!(text, " {} failed tries of others", site.failed_tries)?;
    }
    Ok(())
}

fn write_lines(text: &mut String, lines: &[Lines]) -> std::fmt::Result {
    writeln!(text, "\n{:>NAME$} ", "line class")?;
    text.truncate(text.len() - 1);
    for column in ["bounces", "bounced-total", "bounced-avg", "queued", "queued-total"] {
        write!(text, " {column:>14}")?;
    }
    writeln!(text, "  time lost, by site")?;
    for class in lines {
        write!(text, "{:>NAME$}:", class.class)?;
        let average = average(class.bounced_us, class.bounces);
        write!(text, " {:>14} {:>14.2} {average:>14.2}", class.bounces, class.bounced_us)?;
        write!(text, " {:>14} {:>14.2} ", class.queued, class.queued_us)?;
        for site in &class.sites {
            let percent = if class.bounced_us > 0.0 { 100.0 * site.bounced_us / class.bounced_us } else { 0.0 };
            write!(text, " {} {percent:.0}%", site.site)?;
        }
        writeln!(text)?;
    }
    Ok(())
}
