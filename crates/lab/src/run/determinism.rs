//! The same run on two simulated machines side by side, compared event by event.
//!
//! Knows nothing of what a run does.

use super::Outcome;
use super::simulate::{Finished, SimRun, Step};
use crate::failure::Failure;
use crate::moment::Moment;
use evenkeel_core::CpuId;
use evenkeel_sim::{Digest, Record, RecordKind};

/// Lets both go on to their end, telling `progress` of it, and returns the first if nothing differs.
///
/// They take turns in steps, so that no more is kept than the events of a step.
pub(super) fn run_both(mut runs: [SimRun<'_>; 2], mut progress: impl FnMut(Moment)) -> Result<Finished, Failure> {
    runs.iter_mut().for_each(SimRun::keep_all_records);
    // Ends: both have the same number of steps, unless they differ.
    loop {
        let mut went = [Step::Over; 2];
        for (run, went) in runs.iter_mut().zip(&mut went) {
            *went = run.step()?;
        }
        let [first, second] = &mut runs;
        let records = [first.take_records(), second.take_records()];
        compare([first.digest(), second.digest()], &records, &|group| first.group_name(group))?;
        progress(first.at());
        if went == [Step::Over; 2] {
            break;
        }
    }
    let [first, second] = runs;
    let (first, second) = (first.finish(Vec::new())?, second.finish(Vec::new())?);
    compare([first.end, second.end], &[Vec::new(), Vec::new()], &|_| None)?;
    let figures = |outcome: &Outcome| {
        serde_json::to_string(outcome).map_err(|error| Failure::Internal(format!("can't write a result: {error}")))
    };
    let (one, other) = (figures(&first.outcome)?, figures(&second.outcome)?);
    if one != other {
        let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
        let part = |text: &str| text.chars().skip(at.saturating_sub(40)).take(120).collect::<String>();
        let message = format!("the events agree, but not the figures: …{}… and …{}…", part(&one), part(&other));
        return Err(Failure::Differs(message));
    }
    Ok(first)
}

/// Fails if two runs differ so far; `records` are what happened since they were last the same.
fn compare(
    digests: [Digest; 2],
    records: &[Vec<Record>; 2],
    group_name: &dyn Fn(u32) -> Option<String>,
) -> Result<(), Failure> {
    if digests[0] == digests[1] {
        return Ok(());
    }
    let [first, second] = records;
    let same = first.iter().zip(second).take_while(|(one, other)| one == other).count();
    let event = |records: &[Record]| match records.get(same) {
        Some(record) => described(*record, group_name),
        None => "nothing more".to_owned(),
    };
    let before = digests[0].count - first.len() as u64 + same as u64;
    Err(Failure::Differs(format!(
        "event {}\n  of the first run: {}\n  of the second run: {}\n  \
         {} events with hash {:016x} so far, and {} events with hash {:016x}",
        before + 1,
        event(first),
        event(second),
        digests[0].count,
        digests[0].hash,
        digests[1].count,
        digests[1].hash,
    )))
}

/// An event for people.
fn described(record: Record, group_name: &dyn Fn(u32) -> Option<String>) -> String {
    let Record { at, cpu, kind, a, b } = record;
    let place = if cpu == CpuId::OUTSIDE { "outside".to_owned() } else { format!("CPU {cpu}") };
    let what = match kind {
        RecordKind::Spawn | RecordKind::Wake | RecordKind::Migrate => format!("task {a}"),
        RecordKind::Dispatch | RecordKind::Leave => match u32::try_from(b).ok().and_then(group_name) {
            Some(name) => format!("task {a} of group `{name}`"),
            None => format!("task {a} of group {b}"),
        },
        _ => format!("{a}, {b}"),
    };
    format!("at {} ns, {place}, {kind:?}: {what}", at.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::options::{Plan, RunArgs};
    use crate::run::session::Session;
    use crate::scenario::On;
    use clap::Parser;
    use evenkeel::Time;

    fn record(at: u64, kind: RecordKind, a: u32, b: u64) -> Record {
        Record { at: Time::from_nanos(at), cpu: CpuId::new(3), kind, a, b }
    }

    fn digest(hash: u64, count: u64) -> Digest {
        Digest { hash, count }
    }

    fn name(group: u32) -> Option<String> {
        (group == 7).then(|| "quiet".to_owned())
    }

    #[test]
    fn the_first_event_that_differs_is_named() {
        let same = record(10, RecordKind::Wake, 1, 0);
        let records = [
            vec![same, record(20, RecordKind::Dispatch, 2, 7)],
            vec![same, record(21, RecordKind::Dispatch, 2, 8), same],
        ];
        let went = compare([digest(1, 102), digest(2, 103)], &records, &name);
        let Err(Failure::Differs(message)) = went else { panic!("{went:?}") };
        assert!(message.starts_with("event 102\n"), "{message}");
        assert!(message.contains("of the first run: at 20 ns, CPU 3, Dispatch: task 2 of group `quiet`"), "{message}");
        assert!(message.contains("of the second run: at 21 ns, CPU 3, Dispatch: task 2 of group 8"), "{message}");
    }

    #[derive(Debug, clap::Parser)]
    struct Args {
        #[command(flatten)]
        run: RunArgs,
    }

    /// Two runs, of which the second draws as repetition `repeat` does.
    fn both(repeat: u32) -> Result<Finished, Failure> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/noisy-neighbour.toml");
        let options = ["--on", "sim", "--machine", "flat-4", "--seconds", "0.02", "--warmup", "0.01"];
        let args = Args::parse_from(["run", file].into_iter().chain(options));
        let plan = Plan::new(&args.run)?;
        let machine = plan.machine.as_ref().unwrap();
        let session = |repeat| Session { plan: &plan, on: On::Sim, repeat };
        run_both([SimRun::new(session(1), machine)?, SimRun::new(session(repeat), machine)?], |_| {})
    }

    #[test]
    fn what_is_drawn_otherwise_is_noticed_at_its_first_event() {
        let finished = both(1).unwrap();
        assert_eq!(finished.outcome.sim.unwrap().events, finished.seen.digest.count);
        let went = both(2);
        let Err(Failure::Differs(message)) = went else { panic!("{went:?}") };
        assert!(message.contains("of the first run: at ") && message.contains(" ns, "), "{message}");
    }

    #[test]
    fn one_that_ends_earlier_differs_too() {
        let same = record(10, RecordKind::Wake, 1, 0);
        let outside = Record { cpu: CpuId::OUTSIDE, ..record(11, RecordKind::Script, 4, 0) };
        let went = compare([digest(1, 1), digest(2, 2)], &[vec![same], vec![same, outside]], &name);
        let Err(Failure::Differs(message)) = went else { panic!("{went:?}") };
        assert!(message.contains("of the first run: nothing more"), "{message}");
        assert!(message.contains("of the second run: at 11 ns, outside, Script: 4, 0"), "{message}");
        assert_eq!(compare([digest(1, 1), digest(1, 1)], &[vec![], vec![]], &name), Ok(()));
    }
}
