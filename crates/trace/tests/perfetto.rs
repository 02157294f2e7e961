//! The trace, decoded with Perfetto's published definitions: what a viewer relies on holds, and the figures are those of
//! the run.

#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::Run;
use evenkeel_core::{CpuId, Span, Time, Vspan, Vtime, Weight};
use evenkeel_sim::{Account, Activity, FaultKind, Faults, Record, RecordKind};
use evenkeel_trace::{Source, Trace};
use perfetto_protos::trace::Trace as Published;
use perfetto_protos::trace_packet::trace_packet::SequenceFlags;
use perfetto_protos::track_descriptor::TrackDescriptor;
use perfetto_protos::track_event::{TrackEvent, track_event};
use protobuf::Message;
use std::collections::BTreeMap;
use std::time::Duration;
use track_event::Type;

/// All kinds of faults at once, often.
const FAULTS: &str = "stall=exp:100us@1000/s,holder=exp:5us@5%,kick=exp:50us@50%,tick=exp:300us@50%";

/// What a viewer makes of the file.
#[derive(Default)]
struct Decoded {
    tracks: BTreeMap<u64, TrackDescriptor>,
    /// By track, in the order of the file.
    events: BTreeMap<u64, Vec<Event>>,
}

#[derive(Debug)]
struct Event {
    at: u64,
    kind: Type,
    name: String,
    categories: Vec<String>,
    notes: BTreeMap<String, Note>,
    counter: Option<f64>,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

#[derive(Debug, PartialEq)]
enum Note {
    Number(u64),
    Text(String),
}

/// Numbers that stand for texts, as the file says so far.
#[derive(Default)]
struct Interned {
    names: BTreeMap<u64, String>,
    categories: BTreeMap<u64, String>,
    notes: BTreeMap<u64, String>,
}

fn decode(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    let mut interned = Interned::default();
    for packet in Published::parse_from_bytes(bytes).unwrap().packet {
        assert!(packet.special_fields.unknown_fields().iter().next().is_none(), "{packet:?}");
        assert_eq!(packet.trusted_packet_sequence_id(), 1);
        for data in packet.interned_data.iter() {
            let names = data.event_names.iter().map(|name| (name.iid(), name.name().to_owned()));
            interned.names.extend(names);
            let categories = data.event_categories.iter().map(|name| (name.iid(), name.name().to_owned()));
            interned.categories.extend(categories);
            let notes = data.debug_annotation_names.iter().map(|name| (name.iid(), name.name().to_owned()));
            interned.notes.extend(notes);
        }
        if packet.has_track_descriptor() {
            let track = packet.track_descriptor();
            assert!(decoded.tracks.insert(track.uuid(), track.clone()).is_none(), "a track is described twice");
        }
        if packet.has_track_event() {
            // Without it a viewer would not look its numbers up.
            assert_eq!(packet.sequence_flags(), SequenceFlags::SEQ_NEEDS_INCREMENTAL_STATE as u32, "{packet:?}");
            let event = packet.track_event();
            assert!(decoded.tracks.contains_key(&event.track_uuid()), "an event of no track: {event:?}");
            let events = decoded.events.entry(event.track_uuid()).or_default();
            events.push(event_of(packet.timestamp(), event, &interned));
        }
    }
    decoded
}

fn event_of(at: u64, event: &TrackEvent, interned: &Interned) -> Event {
    let note = |note: &perfetto_protos::debug_annotation::DebugAnnotation| {
        let value = match note.has_uint_value() {
            true => Note::Number(note.uint_value()),
            false => Note::Text(note.string_value().to_owned()),
        };
        (interned.notes[&note.name_iid()].clone(), value)
    };
    let counter = match (event.has_counter_value(), event.has_double_counter_value()) {
        (true, false) => Some(event.counter_value() as f64),
        (false, true) => Some(event.double_counter_value()),
        (false, false) => None,
        (true, true) => panic!("two values: {event:?}"),
    };
    Event {
        at,
        kind: event.type_(),
        name: if event.has_name_iid() { interned.names[&event.name_iid()].clone() } else { String::new() },
        categories: event.category_iids.iter().map(|iid| interned.categories[iid].clone()).collect(),
        notes: event.debug_annotations.iter().map(note).collect(),
        counter,
        begins: event.flow_ids.clone(),
        ends: event.terminating_flow_ids.clone(),
    }
}

impl Event {
    /// The value of a note that is a number.
    fn number(&self, note: &str) -> u64 {
        match self.notes[note] {
            Note::Number(number) => number,
            Note::Text(_) => panic!("{self:?}"),
        }
    }
}

impl Decoded {
    fn of(run: &Run) -> Decoded {
        let mut bytes = Vec::new();
        evenkeel_trace::perfetto::write(&run.trace(), &mut bytes).unwrap();
        decode(&bytes)
    }

    /// The events of a CPU.
    fn cpu(&self, cpu: usize) -> &[Event] {
        let is_it = |track: &TrackDescriptor| {
            let name = track.thread.as_ref().map_or("", |thread| thread.thread_name());
            name == format!("CPU {cpu}") || name.starts_with(&format!("CPU {cpu} "))
        };
        let (uuid, _) = self.tracks.iter().find(|(_, track)| is_it(track)).unwrap();
        self.events.get(uuid).map_or(&[], Vec::as_slice)
    }

    /// The values of the counter with a name.
    fn counter(&self, name: &str) -> Vec<f64> {
        let (uuid, _) = self.tracks.iter().find(|(_, track)| track.name() == name).unwrap();
        self.events.get(uuid).map_or(Vec::new(), |events| events.iter().map(|event| event.counter.unwrap()).collect())
    }

    /// Slices of a category on a CPU: begin and end.
    fn slices(&self, cpu: usize, category: &str) -> Vec<(&Event, &Event)> {
        let (mut slices, mut open) = (Vec::new(), Vec::new());
        for event in self.cpu(cpu) {
            match event.kind {
                Type::TYPE_SLICE_BEGIN => open.push(event),
                Type::TYPE_SLICE_END => slices.push((open.pop().unwrap(), event)),
                _ => {}
            }
        }
        slices.retain(|(begin, _)| begin.categories == [category]);
        slices
    }

    fn time_in(&self, cpu: usize, category: &str) -> Span {
        let slices = self.slices(cpu, category);
        Span::from_nanos(slices.iter().map(|(begin, end)| end.at - begin.at).sum())
    }

    /// What viewers rely on.
    fn check(&self) {
        let mut flows: BTreeMap<u64, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
        for (uuid, events) in &self.events {
            let is_counter = self.tracks[uuid].counter.is_some();
            let (mut open, mut last) = (0, 0);
            for event in events {
                assert!(event.at >= last, "time falls: {event:?}");
                last = event.at;
                assert_eq!(is_counter, event.kind == Type::TYPE_COUNTER, "{event:?}");
                assert_eq!(is_counter, event.counter.is_some(), "{event:?}");
                match event.kind {
                    Type::TYPE_SLICE_BEGIN => open += 1,
                    Type::TYPE_SLICE_END => open -= 1,
                    Type::TYPE_INSTANT | Type::TYPE_COUNTER => {}
                    Type::TYPE_UNSPECIFIED => panic!("{event:?}"),
                }
                // A CPU does one thing at a time.
                assert!((0..=1).contains(&open), "slices overlap: {event:?}");
                let is_named = matches!(event.kind, Type::TYPE_SLICE_BEGIN | Type::TYPE_INSTANT);
                assert_eq!(is_named, !event.name.is_empty(), "{event:?}");
                if event.kind == Type::TYPE_SLICE_BEGIN && event.categories == ["task"] {
                    let group = event.name.split(" #").next().unwrap();
                    assert_eq!(event.notes.get("group"), Some(&Note::Text(group.to_owned())), "{event:?}");
                }
                event.begins.iter().for_each(|flow| flows.entry(*flow).or_default().0.push(event.at));
                event.ends.iter().for_each(|flow| flows.entry(*flow).or_default().1.push(event.at));
            }
            assert_eq!(open, 0, "a slice is not closed");
        }
        for (flow, (begins, ends)) in &flows {
            assert_eq!((begins.len(), ends.len()), (1, 1), "flow {flow}: {begins:?} to {ends:?}");
            assert!(begins[0] <= ends[0], "flow {flow} goes back in time: {begins:?} to {ends:?}");
        }
        for track in self.tracks.values() {
            let parent = track.parent_uuid();
            assert!(parent == 0 || self.tracks.contains_key(&parent), "{track:?}");
        }
    }
}

#[test]
fn slices_close_flows_pair_and_time_grows() {
    for machine in ["flat-4", "flat-16", "xeon-e5-2650v4-2s"] {
        Decoded::of(&Run::finite(machine)).check();
    }
}

#[test]
fn what_waited_says_for_how_long() {
    let run = Run::finite("flat-16");
    let decoded = Decoded::of(&run);
    let wakes: BTreeMap<u64, u64> =
        decoded.events.values().flatten().flat_map(|event| event.begins.iter().map(|flow| (*flow, event.at))).collect();
    let runs = (0..16).flat_map(|cpu| decoded.slices(cpu, "task"));
    let woken: Vec<_> = runs.filter(|(begin, _)| !begin.ends.is_empty()).collect();
    assert!(woken.len() > 500, "{}", woken.len());
    for (begin, _) in woken {
        assert_eq!(begin.number("waited_ns"), begin.at - wakes[&begin.ends[0]], "{begin:?}");
    }
}

#[test]
fn what_ends_as_the_next_begins_comes_before_it() {
    let mut run = Run::new("flat-4", 0);
    run.until(100);
    let record = |at, kind| Record { at: Time::from_nanos(at), cpu: CpuId::new(0), kind, a: 0, b: 1 };
    // One event ends the one and begins the other.
    let records = [record(10, RecordKind::Dispatch), record(20, RecordKind::Park), record(30, RecordKind::LockWait)];
    let source = Source {
        title: "by hand",
        records: &records,
        left_out: 0,
        machine: &run.machine,
        groups: &[],
        begin: Time::ZERO,
        end: Time::from_nanos(40),
    };
    let mut bytes = Vec::new();
    evenkeel_trace::perfetto::write(&Trace::new(&source), &mut bytes).unwrap();
    let decoded = decode(&bytes);
    decoded.check();
    let times = ["task", "idle", "lock wait"].map(|category| decoded.time_in(0, category).as_nanos());
    assert_eq!(times, [10, 10, 10]);
}

#[test]
fn a_trace_that_ends_in_the_middle_of_everything_is_whole() {
    let mut run = Run::new("flat-4", usize::MAX);
    run.spin(9, Duration::from_micros(70));
    run.until(1_234);
    let decoded = Decoded::of(&run);
    decoded.check();
    let open = |cpu| decoded.slices(cpu, "task").last().unwrap().1.notes.contains_key("open_at_end_of_trace");
    assert!((0..4).all(open));
}

#[test]
fn a_record_that_was_cut_gives_a_whole_trace_that_says_so() {
    for records in [0, 1, 100, 777] {
        let mut run = Run::new("flat-4", records);
        run.spin(9, Duration::from_micros(20));
        run.until(5_000);
        let decoded = Decoded::of(&run);
        decoded.check();
        let labels = decoded.tracks.values().find_map(|track| Some(&track.process.as_ref()?.process_labels)).unwrap();
        assert_eq!(*labels, [format!("cut: {} later events left out", run.sim.left_out())]);
    }
}

#[test]
fn a_record_that_begins_in_the_middle_gives_a_whole_trace() {
    let mut run = Run::new("flat-4", 0);
    run.spin(9, Duration::from_micros(20));
    run.until(1_000);
    run.sim.keep_records();
    run.begin = run.sim.now();
    run.until(2_000);
    let decoded = Decoded::of(&run);
    decoded.check();
    for cpu in 0..4 {
        let slices = decoded.slices(cpu, "task");
        let (begin, end) = slices[0];
        assert_eq!((begin.at, end.notes.get("begun_before_trace")), (1_000_000, Some(&Note::Number(1))), "CPU {cpu}");
        assert!(!end.notes.contains_key("work_ns"));
        assert!(slices.len() > 10 && slices[1..].iter().all(|(_, end)| !end.notes.contains_key("begun_before_trace")));
        // All of a CPU's time is a task's or the scheduler's: nothing else happens here.
        let account = &run.sim.accounting().cpus[cpu];
        let told = decoded.time_in(cpu, "task");
        assert!(told.plus(account.scheduler()) >= Span::from_micros(1_000), "CPU {cpu}: {told:?}");
    }
}

#[test]
fn a_machine_that_stops_gives_a_whole_trace() {
    let mut run = Run::new("flat-4", usize::MAX);
    run.spin(9, Duration::from_micros(20));
    run.until(1_000);
    run.sim.stop().unwrap();
    Decoded::of(&run).check();
}

#[test]
fn each_wake_and_spawn_leads_to_one_run() {
    let run = Run::finite("flat-16");
    let decoded = Decoded::of(&run);
    let count = |kind| run.sim.records().iter().filter(|record| record.kind == kind).count();
    let ends: Vec<_> = (0..16).flat_map(|cpu| decoded.slices(cpu, "task")).flat_map(|(begin, _)| &begin.ends).collect();
    // All is done, so nothing waits.
    assert_eq!(ends.len(), count(RecordKind::Spawn) + count(RecordKind::Wake));
    assert!(count(RecordKind::Wake) >= 49 * 20);
}

#[test]
fn a_wake_that_led_nowhere_is_no_flow() {
    let mut run = Run::new("flat-4", usize::MAX);
    run.spin(9, Duration::from_micros(300));
    run.until(50);
    let decoded = Decoded::of(&run);
    decoded.check();
    let spawns = decoded.events.values().flatten().filter(|event| event.name.starts_with("spawn"));
    let (led, nowhere): (Vec<_>, Vec<_>) = spawns.partition(|event| event.begins.len() == 1);
    let trace = run.trace();
    let open: Vec<_> = trace.flows.iter().filter(|flow| flow.to.is_none()).map(|flow| flow.task).collect();
    assert_eq!((led.len(), nowhere.len(), open.len()), (4, 14, 14));
}

/// What one CPU's slices say, held against its account.
fn check_account(decoded: &Decoded, cpu: usize, account: &Account) {
    let work = |category| {
        let slices = decoded.slices(cpu, category).into_iter();
        Span::from_nanos(slices.map(|(_, end)| end.number("work_ns")).sum())
    };
    let lost = |kind| account.of(Activity::Lost(kind));
    let worked = work("task").plus(work("user code"));
    assert_eq!(worked, account.of(Activity::Work), "CPU {cpu}");
    // A CPU that waits loses what passes after it should have gone on: its slice lasts until it does.
    let (stalls, late) = (lost(FaultKind::Stall), lost(FaultKind::LateKick));
    let idle = decoded.time_in(cpu, "idle").minus(account.of(Activity::Idle));
    assert!(decoded.time_in(cpu, "idle") >= account.of(Activity::Idle).plus(late), "CPU {cpu}");
    assert!(idle <= late.plus(stalls), "CPU {cpu}: {idle:?}");
    let waits = decoded.time_in(cpu, "lock wait").minus(account.of(Activity::LockWait));
    assert!(decoded.time_in(cpu, "lock wait") >= account.of(Activity::LockWait), "CPU {cpu}");
    assert!(waits <= stalls, "CPU {cpu}: {waits:?}");
    // The rest of a slice is what the scheduler does inside polls and for ticks, and what is taken away from them.
    let beside = decoded.time_in(cpu, "task").minus(work("task"));
    assert!(decoded.time_in(cpu, "task") >= work("task"), "CPU {cpu}");
    let interrupts = FaultKind::ALL.map(lost).into_iter().fold(account.of(Activity::Taken), Span::plus);
    assert!(beside <= account.scheduler().plus(interrupts), "CPU {cpu}: {beside:?}");
}

#[test]
fn the_slices_are_what_the_accounting_says() {
    for machine in ["flat-4", "xeon-e5-2650v4-2s"] {
        for faults in [Faults::NONE, FAULTS.parse().unwrap()] {
            let run = Run::finite_with(machine, faults);
            let decoded = Decoded::of(&run);
            let accounting = run.sim.accounting();
            let total = accounting.total();
            let lost = |kind| total.of(Activity::Lost(kind)) > Span::ZERO;
            assert_eq!(
                [FaultKind::Stall, FaultKind::HolderOff, FaultKind::LateKick].map(lost),
                [faults != Faults::NONE; 3]
            );
            for (cpu, account) in accounting.cpus.iter().enumerate() {
                check_account(&decoded, cpu, account);
            }
        }
    }
}

#[test]
fn faults_are_told_where_they_happen() {
    let run = Run::finite_with("xeon-e5-2650v4-2s", FAULTS.parse().unwrap());
    let decoded = Decoded::of(&run);
    decoded.check();
    for (kind, name) in [(RecordKind::Stall, "stall"), (RecordKind::HolderOff, "lock holder off")] {
        for cpu in 0..run.machine.cpus() {
            let records = run.sim.records().iter().filter(|record| record.kind == kind && record.cpu.index() == cpu);
            let mut happened: Vec<_> =
                records.map(|record| (record.at.as_nanos(), u64::from(record.a) * 1_000)).collect();
            happened.sort_unstable();
            let told = decoded.cpu(cpu).iter().filter(|event| event.name == name);
            let mut told: Vec<_> = told.map(|event| (event.at, event.number("lost_ns"))).collect();
            told.sort_unstable();
            assert!(!told.is_empty() || cpu > 0, "nothing happened");
            assert_eq!(told, happened, "{name} of CPU {cpu}");
        }
    }
}

#[test]
fn the_counters_end_as_the_engine_shows() {
    let mut run = Run::new("flat-4", usize::MAX);
    run.spin(9, Duration::from_micros(30));
    run.until(100_000);
    let decoded = Decoded::of(&run);
    let lengths = (0..4).map(|cpu| run.sim.queue_length(CpuId::new(cpu)) as f64);
    let counted = (0..4).map(|cpu| *decoded.counter(&format!("queue of CPU {cpu}")).last().unwrap());
    assert_eq!(counted.collect::<Vec<_>>(), lengths.collect::<Vec<_>>());
    // A clock advances by what its group was charged, divided by its weight: but for what turns under way have reserved,
    // a slice for each CPU, when the first and when the last reading was taken.
    let stats = run.sim.handle().stats();
    for group in stats.groups.iter().filter(|group| ["heavy", "light"].contains(&group.name.as_str())) {
        let clock = decoded.counter(&format!("clock of {}", group.name));
        let charged = group.run.as_secs_f64() * 1e3;
        let advanced = (clock.last().unwrap() - clock.first().unwrap()) * f64::from(group.weight.get());
        assert!((advanced - charged).abs() <= 8.0, "{}: {advanced} of {charged}", group.name);
        assert!(charged > 90.0, "{}", group.name);
    }
}

#[test]
fn a_clock_is_told_from_the_first_reading_on() {
    let run = Run::finite("flat-4");
    let decoded = Decoded::of(&run);
    let readings = || run.sim.records().iter().filter(|record| record.kind == RecordKind::Clock);
    let base = Vtime::from_bits(readings().next().unwrap().b);
    let per_milli = Vspan::of(Span::from_millis(1), Weight::MIN).units() as f64;
    for group in &run.groups {
        // All is settled: nobody runs.
        let shown = run.sim.group_clock(group.id()).ahead_of(base) as f64 / per_milli;
        assert_eq!(decoded.counter(&format!("clock of {}", group.name())).last(), Some(&shown));
    }
    assert_eq!(run.trace().end, Time::from_nanos(30_000_000));
}

#[test]
fn tracks_are_named_by_place() {
    let decoded = Decoded::of(&Run::finite("xeon-e5-2650v4-2s"));
    let threads = decoded.tracks.values().filter_map(|track| track.thread.as_ref());
    let names: Vec<_> = threads.map(|thread| (thread.tid(), thread.thread_name().to_owned())).collect();
    assert_eq!(names.len(), 49);
    assert!(names.contains(&(1, "outside".to_owned())));
    assert!(names.contains(&(3, "CPU 1 · socket 1 · core 12".to_owned())), "{names:?}");
    let process = decoded.tracks.values().find_map(|track| track.process.as_ref()).unwrap();
    assert_eq!(process.process_name(), "a test on xeon-e5-2650v4-2s");
}
