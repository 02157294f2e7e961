use super::*;
use evenkeel_sim::RecordKind::{self, *};

fn us(micros: u64) -> Time {
    Time::ZERO.after(Span::from_micros(micros))
}

fn record(at: u64, cpu: u32, kind: RecordKind, a: u32, b: u64) -> Record {
    let cpu = if cpu == 99 { CpuId::OUTSIDE } else { CpuId::new(cpu) };
    Record { at: us(at), cpu, kind, a, b }
}

fn trace(records: &[Record]) -> Trace {
    let machine = Machine::named("flat-4").unwrap();
    let groups = [(GroupId::new(2), "web".to_owned())];
    Trace::new(&Source {
        title: "t",
        records,
        left_out: 0,
        machine: &machine,
        groups: &groups,
        begin: Time::ZERO,
        end: us(100),
    })
}

fn tasks(row: &Row) -> Vec<Run> {
    let run = |slice: &Slice| match slice.what {
        What::Task(run) => Some(run),
        _ => None,
    };
    row.slices.iter().filter_map(run).collect()
}

#[test]
fn a_wake_knows_its_waker_and_what_it_led_to() {
    let trace = trace(&[
        record(1, 99, Spawn, 0, 0),
        record(2, 0, Dispatch, 0, 2),
        record(2, 0, UserBegin, 0, 0),
        record(3, 0, Spawn, 1, 0),
        record(9, 0, UserEnd, 0, 6_000),
        record(9, 0, Leave, 0, 2),
        record(10, 1, Migrate, 1, 0),
        record(11, 1, Dispatch, 1, 2),
    ]);
    let [first, second] = trace.flows[..] else { panic!("{trace:?}") };
    assert_eq!((first.from, first.waker, first.to), (CpuId::OUTSIDE, None, Some((CpuId::new(0), 0))));
    assert_eq!((second.from, second.waker, second.to), (CpuId::new(0), Some(0), Some((CpuId::new(1), 0))));
    let run = tasks(&trace.cpus[1])[0];
    assert_eq!((run.moved_from, run.runnable_since, run.work), (Some(CpuId::new(0)), Some(us(3)), None));
    assert_eq!(tasks(&trace.cpus[0])[0].work, Some(Span::from_micros(6)));
    assert_eq!(trace.groups[0].name, "web");
}

#[test]
fn a_wake_that_a_poll_pays_for_later_is_no_later_than_what_it_led_to() {
    // The poll has done 50 µs of work before it wakes; others see the wake at once.
    let trace = trace(&[
        record(2, 0, Dispatch, 0, 2),
        record(2, 0, UserBegin, 0, 0),
        record(52, 0, Wake, 1, 0),
        record(5, 1, Dispatch, 1, 2),
        record(52, 0, UserEnd, 0, 50_000),
        record(52, 0, Leave, 0, 2),
    ]);
    assert_eq!(trace.flows[0].at, us(5));
    assert_eq!(trace.cpus[0].instants[0].at, us(5));
    assert_eq!(tasks(&trace.cpus[1])[0].runnable_since, Some(us(5)));
}

#[test]
fn a_task_that_gives_way_waits_from_then_on() {
    let trace = trace(&[
        record(2, 0, Dispatch, 4, 2),
        record(5, 0, Leave, 4, 2),
        record(20, 0, Dispatch, 4, 2),
        record(21, 0, Leave, 4, 2),
    ]);
    let run = tasks(&trace.cpus[0])[1];
    assert_eq!((run.runnable_since, run.flow), (Some(us(5)), None));
}

#[test]
fn idle_time_knows_who_ended_it() {
    let trace = trace(&[
        record(1, 0, Kick, 2, 0),
        record(2, 2, Park, 0, 0),
        record(3, 1, Kick, 2, 0),
        record(4, 2, Unpark, 0, 0),
        record(5, 2, Park, 0, 0),
        record(9, 2, Unpark, 0, 0),
    ]);
    let idle = |kicked_by| What::Idle { kicked_by };
    let slices: Vec<_> = trace.cpus[2].slices.iter().map(|slice| slice.what).collect();
    assert_eq!(slices, [idle(Some(CpuId::new(1))), idle(None)]);
}

#[test]
fn what_had_begun_before_the_trace_is_told_from_its_begin_on() {
    let trace = trace(&[
        // A task whose poll is followed by another without a dispatch.
        record(5, 0, UserEnd, 0, 9_000),
        record(5, 0, UserBegin, 0, 0),
        record(7, 0, UserEnd, 0, 2_000),
        record(7, 0, Leave, 3, 2),
        record(8, 1, Unpark, 0, 0),
        record(9, 2, LockGot, 6, 0),
        record(9, 3, UserEnd, 0, 1_000),
        record(10, 3, Park, 0, 0),
    ]);
    let first = |cpu: usize| (trace.cpus[cpu].slices.len(), trace.cpus[cpu].slices[0].clone());
    let task = Run { task: 3, group: GroupId::new(2), work: None, runnable_since: None, flow: None, moved_from: None };
    let expected = [
        (1, 7, What::Task(task)),
        (1, 8, What::Idle { kicked_by: None }),
        (1, 9, What::LockWait { lock: 6 }),
        (2, 9, What::User(None)),
    ];
    for (cpu, (count, end, what)) in expected.into_iter().enumerate() {
        let (found, slice) = first(cpu);
        assert_eq!((found, slice.begin, slice.is_begun_before), (count, Time::ZERO, true), "CPU {cpu}");
        assert_eq!((slice.end, slice.what), (Some(us(end)), what), "CPU {cpu}");
    }
}

#[test]
fn a_counter_never_goes_back_in_time() {
    let trace = trace(&[record(5, 0, Queue, 1, 3), record(4, 1, Queue, 1, 2), record(7, 2, Queue, 1, 0)]);
    assert_eq!(trace.cpus[1].queue, [(us(5), 3), (us(5), 2), (us(7), 0)]);
}
