//! How far shares are from the ideal, relative to it, window by window.
//!
//! Lag says what a group is owed; this says how it looks from its side: a group that is due little is
//! as far off by little. Pure functions of what was recorded.

use std::time::Duration;

use crate::run::{Recording, WINDOW, Window};

/// Groups that are due less than this many CPUs in a window are not judged there: a poll more or less
/// would be a large part of it.
const CPUS_MIN: f64 = 0.005;

/// The errors of all groups in all windows of one length: |work - ideal| / ideal.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct Errors {
    /// All but one in a hundred are not larger.
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// The errors in stretches of `count` windows one after the other. `ideal` is work in seconds by window and group. `None` if
/// the run had no such stretch, or no group was due enough to be judged.
pub(crate) fn errors(recording: &Recording, ideal: &[Vec<f64>], count: usize) -> Option<Errors> {
    let stretches = recording.windows.chunks_exact(count).zip(ideal.chunks_exact(count));
    let mut errors: Vec<f64> = stretches
        .filter(|(windows, _)| is_whole(windows))
        .flat_map(|(windows, ideal)| of_groups(windows, ideal))
        .collect();
    errors.sort_by(f64::total_cmp);
    let max = *errors.last()?;
    Some(Errors { p99: errors[(errors.len() - 1) * 99 / 100], max })
}

/// Whether the windows are about as long as they should be. The last one of a run may be short.
fn is_whole(windows: &[Window]) -> bool {
    let count = u32::try_from(windows.len()).unwrap_or(u32::MAX);
    length(windows) * 10 >= WINDOW.saturating_mul(count) * 9
}

fn length(windows: &[Window]) -> Duration {
    windows.iter().map(|window| window.to.since(window.from)).sum()
}

fn of_groups(windows: &[Window], ideal: &[Vec<f64>]) -> impl Iterator<Item = f64> {
    let least = CPUS_MIN * length(windows).as_secs_f64();
    let groups = ideal.first().map_or(0, Vec::len);
    (0..groups).filter_map(move |group| {
        let due: f64 = ideal.iter().map(|ideal| ideal[group]).sum();
        let work: Duration = windows.iter().map(|window| window.work[group]).sum();
        (due > least).then(|| (work.as_secs_f64() - due).abs() / due)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Moment;
    use crate::target::{Counters, GroupCounters};

    const MS: u64 = 1_000_000;

    /// Windows of the given lengths in ms; work in ms by window and group.
    fn recording(lengths: &[u64], work: &[[u64; 2]]) -> Recording {
        let mut from = 0;
        let windows = lengths.iter().zip(work).map(|(length, work)| {
            let begin = from;
            from += length;
            Window {
                from: Moment::from_nanos(begin * MS),
                to: Moment::from_nanos(from * MS),
                ticks: 0..0,
                work: work.iter().map(|&ms| Duration::from_millis(ms)).collect(),
            }
        });
        Recording {
            windows: windows.collect(),
            ticks: Vec::new(),
            runnable: Vec::new(),
            released: Vec::new(),
            counters: Counters::default(),
            cpu_time: Duration::ZERO,
            idle_while_waiting: None,
            done: vec![0; 2],
            group_counters: vec![GroupCounters::default(); 2],
            stats: None,
        }
    }

    fn close(errors: Option<Errors>, p99: f64, max: f64) {
        let errors = errors.expect("there were windows");
        assert!((errors.p99 - p99).abs() < 1e-9 && (errors.max - max).abs() < 1e-9, "{errors:?} is not {p99}, {max}");
    }

    #[test]
    fn errors_are_relative_to_what_was_due() {
        let recording = recording(&[100, 100], &[[90, 110], [12, 190]]);
        close(errors(&recording, &[vec![0.1, 0.1], vec![0.01, 0.19]], 1), 0.1, 0.2);
        // One window after the other they make up for each other.
        close(errors(&recording, &[vec![0.1, 0.1], vec![0.002, 0.2]], 2), 0.0, 0.0);
    }

    #[test]
    fn one_in_a_hundred_may_be_larger_than_the_percentile() {
        let mut work = vec![[100, 100]; 100];
        work[7] = [150, 100];
        work[8] = [100, 130];
        let ideal = vec![vec![0.1, 0.1]; 100];
        close(errors(&recording(&[100; 100], &work), &ideal, 1), 0.0, 0.5);
        work[9] = [102, 100];
        close(errors(&recording(&[100; 100], &work), &ideal, 1), 0.02, 0.5);
    }

    #[test]
    fn little_due_and_windows_cut_short_are_not_judged() {
        // 0.4 ms of 100 are 0.004 CPUs.
        let recording = recording(&[100, 50], &[[5, 100], [0, 50]]);
        close(errors(&recording, &[vec![0.0004, 0.1], vec![0.02, 0.02]], 1), 0.0, 0.0);
        assert_eq!(errors(&recording, &[vec![0.0004, 0.1], vec![0.02, 0.02]], 2), None);
        assert_eq!(errors(&recording, &[vec![0.0004, 0.1], vec![0.02, 0.02]], 10), None);
    }
}
