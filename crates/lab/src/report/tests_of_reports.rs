//! The reports that `--report` names, as text and as JSON, from figures made by hand.

use std::time::Duration;

use clap::ValueEnum;
use evenkeel::{CpuId, CpuStats, GroupId, GroupStats, Histogram, LockStats, Span, Stats};
use evenkeel_sim::{LineClass, LineStat, LockStat, Site, SiteLockStat, Times};

use super::kinds::{Counted, ReportKind, Reports, check};
use super::profile::Function;
use super::{lock_stat, profile, runqlat, schedstat};
use crate::failure::Failure;
use crate::scenario::On;

/// So many spans of a length each.
fn times(count: u64, nanos: u64) -> Times {
    let each = Span::from_nanos(nanos);
    Times { count, min: each, max: each, total: Span::from_nanos(nanos * count) }
}

fn machine() -> LockStat {
    let search = SiteLockStat {
        acquisitions: 10,
        bounces: 10,
        contention_bounces: 2,
        waits: times(2, 1_500),
        holds: times(10, 400),
        failed_tries: times(7, 50),
    };
    let dispatch = SiteLockStat { acquisitions: 90, bounces: 5, holds: times(90, 200), ..SiteLockStat::default() };
    let line = |count, queued| LineStat { transfers: times(count, 50), queued: times(queued, 20) };
    LockStat {
        sites: vec![(Site::Dispatch, dispatch), (Site::Search, search)],
        waited_for: vec![(Site::Search, Site::Dispatch, 2)],
        failed_for: vec![(Site::Search, Site::Dispatch, 6), (Site::Search, Site::Pull, 1)],
        lines: vec![
            (LineClass::Inbox, Site::Wake, line(4, 0)),
            (LineClass::Poll, Site::Dispatch, line(10, 1)),
            (LineClass::Poll, Site::Search, line(30, 3)),
        ],
    }
}

/// Without what trails at the ends of lines, and with a rule as one sign.
fn squeezed(text: &str) -> String {
    let lines = text.lines().map(|line| if line.starts_with("---") { "---" } else { line.trim_end() });
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn lock_stat_has_the_kernels_columns_and_what_they_leave_out() {
    let report = lock_stat::Report::of_machine(&machine());
    let text = squeezed(&lock_stat::text(&report));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| lines.iter().find(|line| line.first() == Some(&name)).unwrap();
    let class = row("rq->lock:");
    let expected = "rq->lock: 2 2 1.50 1.50 3.00 1.50 15 100 0.20 0.40 22.00 0.22 7 0.35";
    assert_eq!(class.join(" "), expected, "{text}");
    let heads = row("class").join(" ");
    assert!(
        heads.starts_with("class name con-bounces contentions waittime-min waittime-max waittime-total waittime-avg")
    );
    assert!(heads.ends_with("holdtime-total holdtime-avg failed-tries failtime-total"));
    for line in [
        "rq->lock 2 [wants] search waited 3.00, 7 failed tries took 0.35, 10 acquisitions",
        "rq->lock 2 [holds] dispatch 6 failed tries of others",
        "rq->lock 0 [holds] pull 1 failed tries of others",
        "cpu->poll: 40 2.00 0.05 4 0.08 search 75% dispatch 25%",
        "inbox->head: 4 0.20 0.05 0 0.00 wake 100%",
    ] {
        assert!(lines.iter().any(|words| words.join(" ") == line), "{line}\n{text}");
    }
    // Each figure ends below its heading, as in the kernel's file.
    let ends = |line: &str| {
        line.char_indices()
            .filter(|(at, _)| {
                line[*at..].starts_with(|c: char| !c.is_whitespace())
                    && line[at + 1..].chars().next().is_none_or(char::is_whitespace)
            })
            .map(|(at, _)| at)
            .collect::<Vec<_>>()
    };
    let whole: Vec<&str> = text.lines().collect();
    let (heads, figures) = (ends(whole[2]), ends(whole[4]));
    assert_eq!(heads[heads.len() - 14..], figures[figures.len() - 14..], "{text}");
}

#[test]
fn lock_stat_as_json_has_every_figure_by_name() {
    let json = serde_json::to_value(lock_stat::Report::of_machine(&machine())).unwrap();
    let class = &json["classes"][0];
    assert_eq!(class["class"], "rq->lock");
    assert_eq!(
        (&class["contentions"], &class["acquisitions"], &class["failed_tries"]),
        (&2.into(), &100.into(), &7.into())
    );
    assert_eq!(class["hold_us"]["total"], 22.0);
    assert_eq!(class["waiting"][0]["site"], "search");
    assert_eq!(class["holding"][1], serde_json::json!({"site": "pull", "contentions": 0, "failed_tries": 1}));
    assert_eq!(json["lines"][0]["queued"], 4);
}

fn cpu(index: u32, scale: u64, waits: &[u64]) -> CpuStats {
    let mut wait = Histogram::default();
    waits.iter().for_each(|micros| wait.record(Span::from_micros(*micros)));
    CpuStats {
        cpu: CpuId::new(index),
        polls: 10 * scale,
        run: Span::from_micros(100 * scale),
        steals_tried: 0,
        steals: 0,
        migrations: 0,
        contended: 0,
        failed_tries: 0,
        wakes: 0,
        empty_wakes: 0,
        parks: scale,
        idles: 2 * scale,
        yields: 3 * scale,
        woken_here: 4 * scale,
        woken_outside: 3 * scale,
        cuts: 0,
        long_polls: 0,
        wait,
        wait_total: Span::from_micros(waits.iter().sum()),
    }
}

fn lock(site: Site, scale: u64) -> LockStats {
    LockStats {
        site,
        acquisitions: 10 * scale,
        waits: scale,
        wait: Span::from_micros(scale),
        wait_min: Span::from_nanos(500),
        wait_max: Span::from_micros(2),
        failed_tries: 2 * scale,
    }
}

fn stats(scale: u64, waits: &[u64], locks: Vec<LockStats>) -> Stats {
    let cpus = vec![cpu(0, scale, waits), cpu(1, 0, &[])];
    let group = |id, wait| GroupStats {
        id: GroupId::new(id),
        name: format!("g{id}"),
        weight: evenkeel::Weight::DEFAULT,
        polls: 0,
        run: Span::ZERO,
        wait,
    };
    let groups = vec![group(0, Histogram::default()), group(1, cpus[0].wait.clone())];
    Stats { cpus, groups, locks }
}

#[test]
fn lock_stat_on_threads_counts_what_came_since_and_says_what_it_cannot_tell() {
    let before = stats(1, &[], vec![lock(Site::Search, 1)]);
    let after = stats(1, &[], vec![lock(Site::Dispatch, 0), lock(Site::Search, 3)]);
    let report = lock_stat::Report::of_threads(&before, &after);
    let text = lock_stat::text(&report);
    let class = text.lines().find(|line| line.contains("rq->lock:")).unwrap();
    let words: Vec<_> = class.split_whitespace().collect();
    assert_eq!(words.join(" "), "rq->lock: - 2 0.50 2.00 2.00 1.00 - 20 - - - - 4 -");
    assert!(!text.contains("line class"), "{text}");
    let none = lock_stat::Report::of_threads(&before, &before);
    assert!(lock_stat::text(&none).contains(" 0.00 "), "no wait is not a negative one");
    assert!(!lock_stat::text(&none).contains("-0.00"));
}

#[test]
fn runqlat_looks_like_bccs() {
    // Sixteen of 0 to 1, four of 4 to 7, one of 512 to 1,023: units of 1,024 ns.
    let mut waits = vec![1; 17];
    waits.extend([6; 4]);
    waits.push(700);
    let report = runqlat::Report::new(&stats(0, &[1], vec![]), &stats(1, &waits, vec![]));
    let bins = "\
\x20    usecs               : count     distribution
         0 -> 1          : 16       |****************************************|
         2 -> 3          : 0        |                                        |
         4 -> 7          : 4        |**********                              |
         8 -> 15         : 0        |                                        |
        16 -> 31         : 0        |                                        |
        32 -> 63         : 0        |                                        |
        64 -> 127        : 0        |                                        |
       128 -> 255        : 0        |                                        |
       256 -> 511        : 0        |                                        |
       512 -> 1023       : 1        |**                                      |
";
    assert_eq!(runqlat::text(&report), format!("{bins}\ngroup = g1\n{bins}"));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["total"]["count"], 21);
    assert_eq!(json["groups"][0]["group"], "g1");
    assert_eq!(json["groups"][0]["usecs"][2], serde_json::json!({"from": 4, "to": 7, "count": 4}));
}

#[test]
fn every_bucket_of_the_engine_falls_into_one_bin() {
    let spans = (0..63).flat_map(|bits| (0..4).map(move |quarter| (1_u64 << bits) + (1_u64 << bits) / 4 * quarter));
    for nanos in spans {
        let mut histogram = Histogram::default();
        (0..3).for_each(|_| histogram.record(Span::from_nanos(nanos)));
        let after = Stats { cpus: vec![CpuStats { wait: histogram, ..cpu(0, 1, &[]) }], ..Stats::default() };
        let before = Stats { cpus: vec![cpu(0, 0, &[])], ..Stats::default() };
        let report = runqlat::Report::new(&before, &after);
        assert_eq!(report.total.usecs.iter().map(|bin| bin.count).sum::<u64>(), 3);
        let last = report.total.usecs.last().unwrap();
        assert_eq!(last.count, 3);
        let units = (nanos >> 10).min((1 << 27) - 1);
        assert!((last.from..=last.to).contains(&units), "{nanos} ns in {last:?}");
        assert!(last.from < last.to && report.total.usecs.windows(2).all(|pair| pair[0].to + 1 == pair[1].from));
    }
}

#[test]
fn schedstat_has_the_kernels_nine_fields() {
    let (before, after) = (stats(1, &[1], vec![]), stats(3, &[1, 5, 7], vec![]));
    let report = schedstat::Report::new(Duration::from_millis(250), &before, &after);
    let text = schedstat::text(&report);
    assert_eq!(text, "version 17\ntimestamp 250\ncpu0 6 0 24 2 14 8 200000 12000 20\ncpu1 0 0 0 0 0 0 0 0 0\n");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["cpus"][0]["wakeups_local"], 8);
}

#[test]
fn profile_shows_parts_of_all_and_of_what_was_not_idle() {
    let function = |name: &str, self_us: f64, total_us: f64, is_busy: bool| Function {
        name: name.into(),
        self_us,
        total_us,
        self_of_elapsed: self_us / 1_000.0,
        total_of_elapsed: total_us / 1_000.0,
        self_of_busy: is_busy.then_some(self_us / 400.0),
        total_of_busy: is_busy.then_some(total_us / 400.0),
    };
    let functions = vec![function("idle", 600.0, 600.0, false), function("dispatch", 100.0, 150.5, true)];
    let report = profile::Report { elapsed_us: 1_000.0, busy_us: 400.0, scheduler_us: 150.5, functions };
    let words: Vec<String> =
        profile::text(&report).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        words,
        [
            "self us children us self % child. % busy s. % busy c. %",
            "idle 600.00 600.00 60.00 60.00 - -",
            "dispatch 100.00 150.50 10.00 15.05 25.00 37.62",
            "elapsed x CPUs 1000.00 100.00",
            "not idle 400.00",
            "scheduler 150.50",
        ]
    );
}

#[test]
fn what_cannot_be_had_is_an_error_if_nobody_has_it_and_a_line_otherwise() {
    let all = ReportKind::value_variants();
    check(all, &[On::Sim]).unwrap();
    check(all, &[On::Tokio, On::Sim]).unwrap();
    for (kind, on) in [(ReportKind::Profile, On::Threads), (ReportKind::Runqlat, On::Tokio)] {
        let Err(Failure::Input(message)) = check(&[kind], &[on]) else { panic!("{kind:?} on {on}") };
        assert!(message.contains(kind.name()) && message.contains("`sim`"), "{message}");
    }
    let Err(Failure::Input(message)) = check(&[ReportKind::LockStat, ReportKind::LockStat], &[On::Sim]) else {
        panic!("twice")
    };
    assert!(message.contains("twice"), "{message}");
    let counted = Counted { elapsed: Duration::ZERO, stats: None, machine: None };
    let json = serde_json::to_value(Reports::of(&[ReportKind::Profile], On::Threads, &counted)).unwrap();
    assert!(json["profile"]["missing"].as_str().unwrap().contains("threads"), "{json}");
}

#[test]
fn the_names_of_reports_are_those_of_the_command_line() {
    for kind in ReportKind::value_variants() {
        assert_eq!(kind.to_possible_value().unwrap().get_name(), kind.name());
    }
}
