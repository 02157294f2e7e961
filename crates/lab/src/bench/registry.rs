//! The benchmarks by name, and which runtimes each runs on.

use super::error::BenchError;
use super::groups;
use super::on_evenkeel::Evenkeel;
use super::round::Run;
use super::target::{Rt, Tokio};
use super::{outside, passing, spawning};

/// One benchmark: it may fill several rows of the table.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) rows: &'static [Row],
    pub(super) runs: &'static [On],
}

/// One figure of a benchmark. Smaller is better.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
}

/// A benchmark on one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct On {
    pub(super) target: &'static str,
    pub(super) run: Run,
}

macro_rules! on {
    ($target:ty: $run:path) => {
        On { target: <$target as Rt>::NAME, run: $run }
    };
}

/// On both targets.
macro_rules! both {
    ($($run:ident)::+) => {
        &[
            on!(Evenkeel: $($run)::+::<Evenkeel>),
            on!(Tokio: $($run)::+::<Tokio>),
        ]
    };
}

const fn row(name: &'static str, unit: &'static str) -> Row {
    Row { name, unit }
}

/// All benchmarks, in the order in which they run.
pub(super) const ALL: &[Bench] = &[
    Bench {
        name: "spawn_many_inside",
        rows: &[row("spawn_many_inside", "ns/task")],
        runs: both!(spawning::many_inside),
    },
    Bench {
        name: "spawn_many_outside",
        rows: &[row("spawn_many_outside", "ns/task")],
        runs: both!(spawning::many_outside),
    },
    Bench { name: "yield_many", rows: &[row("yield_many", "ns/yield")], runs: both!(passing::yield_many) },
    Bench { name: "ping_pong", rows: &[row("ping_pong", "ns/pair")], runs: both!(passing::ping_pong) },
    Bench { name: "chained_spawn", rows: &[row("chained_spawn", "ns/link")], runs: both!(spawning::chained) },
    Bench { name: "one_pair", rows: &[row("one_pair", "ns/round trip")], runs: both!(passing::one_pair) },
    Bench { name: "wake", rows: &[row("wake_p50", "us"), row("wake_p99", "us")], runs: both!(outside::wake) },
    Bench { name: "idle", rows: &[row("idle", "CPU us/s")], runs: both!(outside::idle) },
    Bench {
        name: "wakes_1000",
        rows: &[row("wakes_1000_cpu", "CPU us/wake"), row("wakes_1000_switches", "switches/wake")],
        runs: both!(outside::wakes),
    },
    Bench {
        name: "groups_1000",
        rows: &[
            row("groups_1000_flat", "ns/poll"),
            row("groups_1000_single", "ns/poll"),
            row("groups_1000_flat/single", "ratio"),
        ],
        runs: &[on!(Evenkeel: groups::one_task_each::<Evenkeel>)],
    },
];

/// The benchmarks that `names` ask for, in their own order, each once; all of them if there are no names.
///
/// A name asks for the benchmark called so, or for all whose name goes on after it with an underscore.
pub(super) fn select(names: &[String]) -> Result<Vec<&'static Bench>, BenchError> {
    if let Some(name) = names.iter().find(|name| !ALL.iter().any(|bench| asks_for(name, bench))) {
        let known = ALL.iter().map(|bench| bench.name).collect();
        return Err(BenchError::UnknownName { name: name.clone(), known });
    }
    let wanted = |bench: &&Bench| names.is_empty() || names.iter().any(|name| asks_for(name, bench));
    Ok(ALL.iter().filter(wanted).collect())
}

fn asks_for(name: &str, bench: &Bench) -> bool {
    bench.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Result<Vec<&'static str>, BenchError> {
        let asked: Vec<_> = of.iter().map(ToString::to_string).collect();
        Ok(select(&asked)?.iter().map(|bench| bench.name).collect())
    }

    #[test]
    fn no_name_asks_for_all() {
        assert_eq!(names(&[]).unwrap().len(), ALL.len());
    }

    #[test]
    fn a_family_name_asks_for_its_members() {
        assert_eq!(names(&["spawn_many"]).unwrap(), ["spawn_many_inside", "spawn_many_outside"]);
    }

    #[test]
    fn a_name_is_not_taken_for_the_start_of_a_longer_word() {
        assert_eq!(names(&["wake"]).unwrap(), ["wake"]);
    }

    #[test]
    fn named_twice_runs_once_and_in_table_order() {
        assert_eq!(
            names(&["yield_many", "spawn_many_inside", "yield_many"]).unwrap(),
            ["spawn_many_inside", "yield_many"]
        );
    }

    #[test]
    fn unknown_names_are_refused_with_the_list() {
        for name in ["spaw", "yield_man", "", "spawn_many_", "idle_"] {
            let refused = names(&["idle", name]).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{name:?}");
            assert!(ALL.iter().all(|bench| refused.to_string().contains(bench.name)), "{refused}");
        }
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<_> = ALL.iter().flat_map(|bench| bench.rows).map(|row| row.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
