//! A trace in Perfetto's format: <https://ui.perfetto.dev> shows it.
//!
//! One process for the machine; in it a thread for each CPU and one for the outside, a counter of what waits in each queue,
//! and a counter for each group's clock. A wake is an instant from which a flow leads to the slice of the task that it woke.
//!
//! Knows nothing of how a trace is read off a record.

mod messages;

use crate::model::{Instant, Mark, Row, Run, Slice, Trace, What};
use evenkeel_core::{CpuId, Time};
use messages::{
    CounterDescriptor, DebugAnnotation, EventType, Interned, InternedData, ProcessDescriptor,
    SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE, ThreadDescriptor, TracePacket, TrackDescriptor,
    TrackEvent,
};
use prost::Message;
use prost::encoding::encode_varint;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes a trace.
///
/// # Errors
/// If `out` does not take it.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut writer = Writer { trace, out, names: BTreeMap::new(), buffer: Vec::new() };
    writer.begin()?;
    for (index, row) in trace.cpus.iter().enumerate() {
        writer.row(Track::Cpu(index), row)?;
    }
    writer.row(Track::Outside, &trace.outside)?;
    for (index, group) in trace.groups.iter().enumerate() {
        for (at, clock) in &group.clock {
            let event = TrackEvent { double_counter_value: Some(*clock), ..TrackEvent::default() };
            writer.count(*at, Track::Clock(index), event)?;
        }
    }
    Ok(())
}

/// The only process and the only sequence of packets.
const ONLY: u32 = 1;

/// What events are shown on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Track {
    Machine,
    Outside,
    Cpu(usize),
    Queue(usize),
    Clock(usize),
}

impl Track {
    /// Its number in the file. Zero stands for none there.
    fn uuid(self) -> u64 {
        let (kind, index) = match self {
            Track::Machine => (1, 0),
            Track::Outside => (2, 0),
            Track::Cpu(index) => (3, index),
            Track::Queue(index) => (4, index),
            Track::Clock(index) => (5, index),
        };
        kind << 32 | index as u64
    }
}

/// What kind of event it is: Perfetto colors and filters by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Category {
    Task = 1,
    User = 2,
    Idle = 3,
    LockWait = 4,
    Wake = 5,
    Scheduler = 6,
}

const CATEGORIES: [(Category, &str); 6] = [
    (Category::Task, "task"),
    (Category::User, "user code"),
    (Category::Idle, "idle"),
    (Category::LockWait, "lock wait"),
    (Category::Wake, "wake"),
    (Category::Scheduler, "scheduler"),
];

/// What else is told of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Note {
    Group = 1,
    WorkNs = 2,
    WaitedNs = 3,
    MovedFrom = 4,
    OpenAtEnd = 5,
    Lock = 6,
    KickedBy = 7,
    Waker = 8,
    BegunBefore = 9,
    LostNs = 10,
}

const NOTES: [(Note, &str); 10] = [
    (Note::Group, "group"),
    (Note::WorkNs, "work_ns"),
    (Note::WaitedNs, "waited_ns"),
    (Note::MovedFrom, "moved_from_cpu"),
    (Note::OpenAtEnd, "open_at_end_of_trace"),
    (Note::Lock, "lock"),
    (Note::KickedBy, "kicked_by"),
    (Note::Waker, "woken_by"),
    (Note::BegunBefore, "begun_before_trace"),
    (Note::LostNs, "lost_ns"),
];

impl Note {
    fn number(self, value: u64) -> DebugAnnotation {
        DebugAnnotation { name_iid: Some(self as u64), uint_value: Some(value), string_value: None }
    }

    fn text(self, value: impl Into<String>) -> DebugAnnotation {
        DebugAnnotation { name_iid: Some(self as u64), uint_value: None, string_value: Some(value.into()) }
    }
}

/// Where something is on a row, so that what happens at one time stays in the order in which it happened.
enum On<'a> {
    Begin(&'a Slice),
    End(&'a Slice),
    Instant(&'a Instant),
}

struct Writer<'a, W> {
    trace: &'a Trace,
    out: &'a mut W,
    /// The names that are in the file already, and their numbers there.
    names: BTreeMap<String, u64>,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<'_, W> {
    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(ONLY), ..packet };
        self.buffer.clear();
        // A trace is a message whose field 1 is repeated: each packet stands behind that field's tag and its length.
        self.buffer.push(1 << 3 | 2);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        packet.encode(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }

    fn begin(&mut self) -> io::Result<()> {
        let interned = |iid: u64, name: &str| Interned { iid: Some(iid), name: Some(name.to_owned()) };
        let data = InternedData {
            event_categories: CATEGORIES.iter().map(|(category, name)| interned(*category as u64, name)).collect(),
            debug_annotation_names: NOTES.iter().map(|(note, name)| interned(*note as u64, name)).collect(),
            event_names: Vec::new(),
        };
        self.packet(TracePacket {
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            interned_data: Some(data),
            ..TracePacket::default()
        })?;
        self.describe_machine()?;
        for index in 0..self.trace.cpus.len() {
            let name = self.trace.cpus[index].name.clone();
            self.describe_thread(Track::Cpu(index), index + 2, name)?;
            let counter = CounterDescriptor { unit_name: Some("tasks".to_owned()) };
            self.describe_counter(Track::Queue(index), Track::Cpu(index), format!("queue of CPU {index}"), counter)?;
        }
        for index in 0..self.trace.groups.len() {
            let counter = CounterDescriptor { unit_name: Some("virtual ms".to_owned()) };
            let name = format!("clock of {}", self.trace.groups[index].name);
            self.describe_counter(Track::Clock(index), Track::Machine, name, counter)?;
        }
        Ok(())
    }

    fn describe(&mut self, track: Track, descriptor: TrackDescriptor) -> io::Result<()> {
        let descriptor = TrackDescriptor { uuid: Some(track.uuid()), ..descriptor };
        self.packet(TracePacket { track_descriptor: Some(Box::new(descriptor)), ..TracePacket::default() })
    }

    fn describe_machine(&mut self) -> io::Result<()> {
        let trace = self.trace;
        let cut = format!("cut: {} later events left out", trace.left_out);
        let process = ProcessDescriptor {
            pid: Some(ONLY.cast_signed()),
            process_name: Some(format!("{} on {}", trace.title, trace.machine)),
            process_labels: if trace.left_out > 0 { vec![cut] } else { Vec::new() },
        };
        self.describe(Track::Machine, TrackDescriptor { process: Some(process), ..TrackDescriptor::default() })?;
        self.describe_thread(Track::Outside, 1, trace.outside.name.clone())
    }

    /// The viewer orders threads by their numbers; zero means the kernel's idle thread to it.
    fn describe_thread(&mut self, track: Track, tid: usize, name: String) -> io::Result<()> {
        let thread = ThreadDescriptor {
            pid: Some(ONLY.cast_signed()),
            tid: Some(i32::try_from(tid).unwrap_or(i32::MAX)),
            thread_name: Some(name),
        };
        self.describe(track, TrackDescriptor { thread: Some(thread), ..TrackDescriptor::default() })
    }

    fn describe_counter(
        &mut self,
        track: Track,
        parent: Track,
        name: String,
        counter: CounterDescriptor,
    ) -> io::Result<()> {
        let descriptor = TrackDescriptor {
            name: Some(name),
            parent_uuid: Some(parent.uuid()),
            counter: Some(counter),
            ..TrackDescriptor::default()
        };
        self.describe(track, descriptor)
    }

    /// An event with a name, which is interned at its first use.
    fn event(
        &mut self,
        at: Time,
        track: Track,
        name: Option<String>,
        kind: EventType,
        event: TrackEvent,
    ) -> io::Result<()> {
        let mut interned_data = None;
        let name_iid = name.map(|name| {
            let next = self.names.len() as u64 + 1;
            *self.names.entry(name).or_insert_with_key(|name| {
                let interned = Interned { iid: Some(next), name: Some(name.clone()) };
                interned_data = Some(InternedData { event_names: vec![interned], ..InternedData::default() });
                next
            })
        });
        let event = TrackEvent { r#type: Some(kind.into()), track_uuid: Some(track.uuid()), name_iid, ..event };
        self.packet(TracePacket {
            timestamp: Some(at.as_nanos()),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            track_event: Some(event),
            interned_data,
            ..TracePacket::default()
        })
    }

    fn count(&mut self, at: Time, track: Track, event: TrackEvent) -> io::Result<()> {
        self.event(at, track, None, EventType::Counter, event)
    }

    fn row(&mut self, track: Track, row: &Row) -> io::Result<()> {
        let end = self.trace.end;
        let begins = row.slices.iter().map(|slice| ((slice.begin, slice.order.0), On::Begin(slice)));
        let ends = row.slices.iter().map(|slice| ((slice.end_in(end), slice.order.1), On::End(slice)));
        let instants = row.instants.iter().map(|instant| ((instant.at, instant.order), On::Instant(instant)));
        let mut all: Vec<_> = begins.chain(ends).chain(instants).collect();
        // One record may end a slice and begin the next: the end comes first. Otherwise orders differ.
        all.sort_by_key(|(place, on)| (*place, matches!(on, On::Begin(_))));
        for ((at, _), on) in all {
            match on {
                On::Begin(slice) => self.begin_slice(track, slice)?,
                On::End(slice) => self.end_slice(at, track, slice)?,
                On::Instant(instant) => self.instant(track, instant)?,
            }
        }
        if let Track::Cpu(index) = track {
            for (at, count) in &row.queue {
                let value = i64::try_from(*count).unwrap_or(i64::MAX);
                let event = TrackEvent { counter_value: Some(value), ..TrackEvent::default() };
                self.count(*at, Track::Queue(index), event)?;
            }
        }
        Ok(())
    }

    fn begin_slice(&mut self, track: Track, slice: &Slice) -> io::Result<()> {
        let mut flows = Vec::new();
        let mut notes = Vec::new();
        let (category, name) = match slice.what {
            What::Task(run) => {
                let group = self.trace.group_index(run.group);
                let group = group.map_or("?", |index| &self.trace.groups[index].name);
                notes.push(Note::Group.text(group));
                if let Some(since) = run.runnable_since {
                    notes.push(Note::WaitedNs.number(slice.begin.since(since).as_nanos()));
                }
                notes.extend(run.moved_from.map(|from| Note::MovedFrom.number(from.get().into())));
                flows.extend(run.flow.map(flow_id));
                (Category::Task, format!("{group} #{}", run.task))
            }
            What::User(_) => (Category::User, "wakers and destructors".to_owned()),
            What::Idle { .. } => (Category::Idle, "idle".to_owned()),
            What::LockWait { lock } => {
                notes.push(Note::Lock.number(lock.into()));
                (Category::LockWait, "lock wait".to_owned())
            }
        };
        let event = TrackEvent {
            category_iids: vec![category as u64],
            debug_annotations: notes,
            terminating_flow_ids: flows,
            ..TrackEvent::default()
        };
        self.event(slice.begin, track, Some(name), EventType::SliceBegin, event)
    }

    fn end_slice(&mut self, at: Time, track: Track, slice: &Slice) -> io::Result<()> {
        let mut notes = Vec::new();
        match slice.what {
            What::Task(Run { work, .. }) | What::User(work) => {
                notes.extend(work.map(|work| Note::WorkNs.number(work.as_nanos())));
            }
            What::Idle { kicked_by } => notes.extend(kicked_by.map(|by| Note::KickedBy.text(cpu_text(by)))),
            What::LockWait { .. } => {}
        }
        if slice.end.is_none() {
            notes.push(Note::OpenAtEnd.number(1));
        }
        if slice.is_begun_before {
            notes.push(Note::BegunBefore.number(1));
        }
        let event = TrackEvent { debug_annotations: notes, ..TrackEvent::default() };
        self.event(at, track, None, EventType::SliceEnd, event)
    }

    fn instant(&mut self, track: Track, instant: &Instant) -> io::Result<()> {
        let mut flows = Vec::new();
        let mut notes = Vec::new();
        let (category, name) = match instant.what {
            Mark::Wake(index) => {
                let flow = &self.trace.flows[index];
                // One that led nowhere is only an instant: a flow has two ends.
                flows.extend(flow.to.is_some().then(|| flow_id(index)));
                notes.extend(flow.waker.map(|waker| Note::Waker.text(format!("#{waker}"))));
                let verb = if flow.is_spawn { "spawn" } else { "wake" };
                (Category::Wake, format!("{verb} #{}", flow.task))
            }
            Mark::Kick(cpu) => (Category::Scheduler, format!("kick {}", cpu_text(cpu))),
            Mark::FailedTry(lock) => {
                notes.push(Note::Lock.number(lock.into()));
                (Category::Scheduler, "failed try".to_owned())
            }
            Mark::Moved(task) => (Category::Scheduler, format!("moved here #{task}")),
            Mark::Stall(length) => {
                notes.push(Note::LostNs.number(length.as_nanos()));
                (Category::Scheduler, "stall".to_owned())
            }
            Mark::HolderOff(length) => {
                notes.push(Note::LostNs.number(length.as_nanos()));
                (Category::Scheduler, "lock holder off".to_owned())
            }
            Mark::Script(u32::MAX) => (Category::Scheduler, "block_on".to_owned()),
            Mark::Script(script) => (Category::Scheduler, format!("script {script}")),
        };
        let event = TrackEvent {
            category_iids: vec![category as u64],
            debug_annotations: notes,
            flow_ids: flows,
            ..TrackEvent::default()
        };
        self.event(instant.at, track, Some(name), EventType::Instant, event)
    }
}

/// Zero stands for none in the file.
fn flow_id(flow: usize) -> u64 {
    flow as u64 + 1
}

fn cpu_text(cpu: CpuId) -> String {
    if cpu == CpuId::OUTSIDE { "outside".to_owned() } else { format!("CPU {cpu}") }
}
