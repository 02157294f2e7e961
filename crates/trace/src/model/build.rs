//! Reads a trace off a record, event by event.
//!
//! A record may begin and end anywhere in a run: what is open then is open in the trace.
//!
//! Knows nothing of file formats.

use super::{Flow, Group, Instant, Mark, Row, Run, Slice, Source, Trace, What};
use evenkeel_core::{CpuId, GroupId, Span, Time, Vspan, Vtime};
use evenkeel_sim::machine::{Machine, Place};
use evenkeel_sim::{Record, RecordKind};
use std::collections::BTreeMap;

pub(super) fn trace(source: &Source<'_>) -> Trace {
    let mut builder = Builder::new(source);
    for (index, record) in source.records.iter().enumerate() {
        builder.read(index, record);
    }
    builder.finish(source)
}

/// What is known while the record is read.
struct Builder {
    begin: Time,
    end: Time,
    rows: Vec<Row>,
    outside: Row,
    states: Vec<CpuState>,
    tasks: BTreeMap<u32, TaskState>,
    groups: BTreeMap<u32, Vec<(Time, f64)>>,
    flows: Vec<Flow>,
    /// The first reading of a clock.
    base: Option<Vtime>,
}

/// What a CPU is in the middle of.
#[derive(Clone, Default)]
struct CpuState {
    open: Option<Open>,
    /// Something has begun on it in this trace: what ends before that had begun before the trace.
    has_begun: bool,
    has_dispatched: bool,
    /// The last kick that was sent to it.
    kick: Option<CpuId>,
}

#[derive(Clone, Copy)]
struct Open {
    begin: Time,
    order: usize,
    what: What,
}

/// What is known of a task that has not run since.
#[derive(Clone, Copy, Default)]
struct TaskState {
    runnable_since: Option<Time>,
    flow: Option<usize>,
    /// Where it was last.
    on: Option<CpuId>,
    /// Where it was before it moved.
    moved_from: Option<CpuId>,
}

impl Builder {
    fn new(source: &Source<'_>) -> Builder {
        let machine = source.machine;
        let named = |name| Row { name, ..Row::default() };
        let last = source.records.iter().map(|record| record.at).max().unwrap_or_default();
        Builder {
            begin: source.begin.min(source.end),
            // What was not kept is after the last record, about.
            end: if source.left_out > 0 { last.min(source.end) } else { source.end },
            rows: cpu_names(machine).map(named).collect(),
            outside: named("outside".to_owned()),
            states: vec![CpuState::default(); machine.cpus()],
            tasks: BTreeMap::new(),
            groups: BTreeMap::new(),
            flows: Vec::new(),
            base: None,
        }
    }

    fn read(&mut self, order: usize, record: &Record) {
        let (cpu, at) = (record.cpu, record.at);
        match record.kind {
            RecordKind::Spawn | RecordKind::Wake => self.wake(order, record),
            RecordKind::Dispatch => self.dispatch(order, record),
            RecordKind::Leave => self.leave(order, record),
            RecordKind::UserBegin => self.begin_if_free(cpu, at, order, What::User(Some(Span::ZERO))),
            RecordKind::UserEnd => self.end_user(order, record),
            RecordKind::Migrate => {
                self.mark(cpu, at, order, Mark::Moved(record.a));
                let state = self.tasks.entry(record.a).or_default();
                state.moved_from = state.moved_from.or(state.on);
                state.on = Some(cpu);
            }
            RecordKind::LockWait => self.begin(cpu, at, order, What::LockWait { lock: record.a }),
            RecordKind::LockGot => {
                self.end_begun_before(cpu, at, order, What::LockWait { lock: record.a });
                self.end(cpu, at, order, |what| matches!(what, What::LockWait { .. }));
            }
            RecordKind::LockTransfer => {}
            RecordKind::FailedTry => self.mark(cpu, at, order, Mark::FailedTry(record.a)),
            RecordKind::Park => {
                self.state(cpu).kick = None;
                self.begin(cpu, at, order, What::Idle { kicked_by: None });
            }
            RecordKind::Unpark => self.unpark(order, record),
            RecordKind::Kick => {
                let target = CpuId::new(record.a);
                self.mark(cpu, at, order, Mark::Kick(target));
                self.state(target).kick.get_or_insert(cpu);
            }
            RecordKind::Stall => {
                self.mark(cpu, at, order, Mark::Stall(Span::from_micros(record.a.into())));
            }
            RecordKind::HolderOff => {
                self.mark(cpu, at, order, Mark::HolderOff(Span::from_micros(record.a.into())));
            }
            RecordKind::Script => self.mark(cpu, at, order, Mark::Script(record.a)),
            RecordKind::Queue => {
                let row = &mut self.rows[record.a as usize].queue;
                // Another CPU may have published it, and be ahead of this one.
                let at = row.last().map_or(at, |(last, _)| at.max(*last));
                row.push((at, record.b));
            }
            RecordKind::Clock => self.clock(record),
            // A CPU that has ended is idle: so the accounting has it.
            RecordKind::End => self.begin(cpu, at, order, What::Idle { kicked_by: None }),
        }
    }

    fn state(&mut self, cpu: CpuId) -> &mut CpuState {
        &mut self.states[cpu.index()]
    }

    fn mark(&mut self, cpu: CpuId, at: Time, order: usize, what: Mark) {
        let row = if cpu == CpuId::OUTSIDE { &mut self.outside } else { &mut self.rows[cpu.index()] };
        row.instants.push(Instant { at, what, order });
    }

    /// A slice begins. One that is still open ends here: its end was no event of its own.
    fn begin(&mut self, cpu: CpuId, at: Time, order: usize, what: What) {
        if cpu == CpuId::OUTSIDE {
            return;
        }
        self.end(cpu, at, order, |_| true);
        let state = self.state(cpu);
        state.has_begun = true;
        state.open = Some(Open { begin: at, order, what });
    }

    /// User code begins: that of the task that was dispatched, or else of nobody.
    fn begin_if_free(&mut self, cpu: CpuId, at: Time, order: usize, what: What) {
        if cpu != CpuId::OUTSIDE && self.state(cpu).open.is_none() {
            self.begin(cpu, at, order, what);
        }
    }

    /// The open slice ends, if it is such a one.
    fn end(&mut self, cpu: CpuId, at: Time, order: usize, is: impl FnOnce(&What) -> bool) {
        if let Some(open) = self.state(cpu).open.take_if(|open| is(&open.what)) {
            let order = (open.order, order);
            let slice = Slice { begin: open.begin, is_begun_before: false, end: Some(at), what: open.what, order };
            self.push(cpu, slice);
        }
    }

    /// What ends had begun before the trace, if nothing has begun in it.
    fn end_begun_before(&mut self, cpu: CpuId, at: Time, order: usize, what: What) {
        if cpu != CpuId::OUTSIDE && !std::mem::replace(&mut self.state(cpu).has_begun, true) {
            let slice = Slice { begin: self.begin, is_begun_before: true, end: Some(at), what, order: (0, order) };
            self.push(cpu, slice);
        }
    }

    fn push(&mut self, cpu: CpuId, slice: Slice) {
        let slices = &mut self.rows[cpu.index()].slices;
        if let What::Task(Run { flow: Some(flow), .. }) = slice.what {
            self.flows[flow].to = Some((cpu, slices.len()));
        }
        slices.push(slice);
    }

    fn wake(&mut self, order: usize, record: &Record) {
        let waker = (record.cpu != CpuId::OUTSIDE).then(|| self.state(record.cpu).open).flatten();
        let waker = waker.and_then(|open| match open.what {
            What::Task(run) => Some(run.task),
            _ => None,
        });
        let flow = Flow {
            task: record.a,
            is_spawn: record.kind == RecordKind::Spawn,
            at: record.at,
            from: record.cpu,
            waker,
            to: None,
        };
        let index = self.flows.len();
        self.flows.push(flow);
        self.mark(record.cpu, record.at, order, Mark::Wake(index));
        let before = self.tasks.get(&record.a).and_then(|state| state.on);
        let on = if record.cpu == CpuId::OUTSIDE { before } else { Some(record.cpu) };
        let state = TaskState { runnable_since: Some(record.at), flow: Some(index), on, moved_from: None };
        self.tasks.insert(record.a, state);
    }

    fn dispatch(&mut self, order: usize, record: &Record) {
        let state = self.tasks.remove(&record.a).unwrap_or_default();
        let mut runnable_since = state.runnable_since;
        if let Some(flow) = state.flow {
            // What a poll does is there from its beginning, though it did some of its work before.
            let flow = &mut self.flows[flow];
            flow.at = flow.at.min(record.at);
            runnable_since = Some(flow.at);
        }
        let run = Run {
            task: record.a,
            group: group_of(record),
            work: Some(Span::ZERO),
            runnable_since,
            flow: state.flow,
            moved_from: state.moved_from.filter(|from| *from != record.cpu),
        };
        self.groups.entry(run.group.get()).or_default();
        self.begin(record.cpu, record.at, order, What::Task(run));
        if record.cpu != CpuId::OUTSIDE {
            self.state(record.cpu).has_dispatched = true;
        }
    }

    /// A task that leaves without having been woken meanwhile may have been requeued. If it was not, its next wake says so.
    fn leave(&mut self, order: usize, record: &Record) {
        let (cpu, task) = (record.cpu, record.a);
        if cpu == CpuId::OUTSIDE {
            return;
        }
        if !std::mem::replace(&mut self.state(cpu).has_dispatched, true) {
            // All that this CPU did in the trace so far was this task's.
            let state = self.state(cpu);
            (state.open, state.has_begun) = (None, false);
            self.rows[cpu.index()].slices.clear();
            let group = group_of(record);
            self.groups.entry(group.get()).or_default();
            let run = Run { task, group, work: None, runnable_since: None, flow: None, moved_from: None };
            self.end_begun_before(cpu, record.at, order, What::Task(run));
        }
        self.end(cpu, record.at, order, |what| matches!(what, What::Task(run) if run.task == task));
        let state = self.tasks.entry(task).or_default();
        if state.flow.is_none() {
            *state = TaskState { runnable_since: Some(record.at), on: Some(cpu), ..TaskState::default() };
        }
    }

    fn end_user(&mut self, order: usize, record: &Record) {
        if record.cpu == CpuId::OUTSIDE {
            return;
        }
        self.end_begun_before(record.cpu, record.at, order, What::User(None));
        let worked = Span::from_nanos(record.b);
        if let Some(open) = &mut self.state(record.cpu).open {
            match &mut open.what {
                What::Task(Run { work: Some(work), .. }) | What::User(Some(work)) => *work = work.plus(worked),
                What::Task(_) | What::User(None) => {}
                What::Idle { .. } | What::LockWait { .. } => {}
            }
        }
        self.end(record.cpu, record.at, order, |what| matches!(what, What::User(_)));
    }

    fn unpark(&mut self, order: usize, record: &Record) {
        self.end_begun_before(record.cpu, record.at, order, What::Idle { kicked_by: None });
        let state = self.state(record.cpu);
        let kick = state.kick.take();
        if let Some(Open { what: What::Idle { kicked_by }, .. }) = &mut state.open {
            *kicked_by = kick;
        }
        self.end(record.cpu, record.at, order, |what| matches!(what, What::Idle { .. }));
    }

    fn clock(&mut self, record: &Record) {
        let clock = Vtime::from_bits(record.b);
        let base = *self.base.get_or_insert(clock);
        let readings = self.groups.entry(record.a).or_default();
        // CPUs that charge one clock may be ahead of each other.
        let at = readings.last().map_or(record.at, |(last, _)| record.at.max(*last));
        readings.push((at, virtual_millis(clock.ahead_of(base))));
    }

    fn finish(mut self, source: &Source<'_>) -> Trace {
        for cpu in 0..self.states.len() {
            if let Some(mut open) = self.states[cpu].open.take() {
                if let What::Task(Run { work, .. }) | What::User(work) = &mut open.what {
                    *work = None;
                }
                let cpu = CpuId::new(u32::try_from(cpu).unwrap_or(u32::MAX));
                let order = (open.order, usize::MAX);
                self.push(cpu, Slice { begin: open.begin, is_begun_before: false, end: None, what: open.what, order });
            }
        }
        self.place_instants();
        let name = |id: u32| {
            let known = source.groups.iter().find(|(group, _)| group.get() == id);
            known.map_or_else(|| format!("group {id}"), |(_, name)| name.clone())
        };
        let groups = self.groups.into_iter();
        Trace {
            title: source.title.to_owned(),
            machine: source.machine.name.clone(),
            begin: self.begin,
            end: self.end,
            left_out: source.left_out,
            cpus: self.rows,
            outside: self.outside,
            groups: groups.map(|(id, clock)| Group { id: GroupId::new(id), name: name(id), clock }).collect(),
            flows: self.flows,
        }
    }

    /// Wakes are where their flows begin, nothing is after the end, and all is in the order of time.
    fn place_instants(&mut self) {
        for flow in &mut self.flows {
            flow.at = flow.at.min(self.end);
        }
        for row in self.rows.iter_mut().chain([&mut self.outside]) {
            for instant in &mut row.instants {
                if let Mark::Wake(flow) = instant.what {
                    instant.at = self.flows[flow].at;
                }
                instant.at = instant.at.min(self.end);
            }
            row.instants.sort_by_key(|instant| (instant.at, instant.order));
        }
    }
}

/// The group that a dispatch or a leave tells of.
fn group_of(record: &Record) -> GroupId {
    GroupId::new(u32::try_from(record.b).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "for people to read, never for decisions")]
fn virtual_millis(units: i64) -> f64 {
    let per_milli = Vspan::of(Span::from_millis(1), evenkeel_core::Weight::MIN).units();
    units as f64 / per_milli as f64
}

/// The names of all CPUs: their numbers, and their places as far as the machine has more than one.
fn cpu_names(machine: &Machine) -> impl Iterator<Item = String> {
    let count = u32::try_from(machine.cpus()).unwrap_or(u32::MAX);
    let places = move |cpu| machine.topology.place(CpuId::new(cpu));
    let last = |part: fn(Place) -> u32| (0..count).map(|cpu| part(places(cpu))).max().unwrap_or(0);
    let (sockets, nodes) = (last(|place| place.socket), last(|place| place.node));
    let (caches, cores) = (last(|place| place.cache), last(|place| place.core));
    (0..count).map(move |cpu| {
        let place = places(cpu);
        let parts = [
            ("socket", place.socket, sockets > 0),
            ("node", place.node, nodes > sockets),
            ("cache", place.cache, caches > nodes),
            ("core", place.core, cores + 1 < count),
        ];
        let told = parts.into_iter().filter(|(_, _, is_told)| *is_told);
        told.fold(format!("CPU {cpu}"), |name, (part, number, _)| format!("{name} · {part} {number}"))
    })
}
