//! What goes into the record: what the engine tells, and where user code begins and ends.
//!
//! Knows nothing of who reads it.

use super::account::{Activity, Function};
use super::events::{Record, RecordKind};
use super::{Phase, World};
use evenkeel_core::{CpuId, GroupId, Vtime};
use evenkeel_engine::host::{Site, Sites, TaskKey};

impl World {
    pub(super) fn record(&mut self, kind: RecordKind, a: u32, b: u64) {
        let record = Record { at: self.acting_time(), cpu: self.acting.unwrap_or(CpuId::OUTSIDE), kind, a, b };
        self.stream.add(record);
    }

    pub(crate) fn observe_spawn(&mut self, key: TaskKey) {
        let task = self.stream.new_task(key);
        self.record(RecordKind::Spawn, task, 0);
    }

    pub(crate) fn observe_wake(&mut self, key: TaskKey) {
        let task = self.stream.task(key);
        self.record(RecordKind::Wake, task, 0);
    }

    pub(crate) fn observe_move(&mut self, key: TaskKey) {
        let task = self.stream.task(key);
        self.record(RecordKind::Migrate, task, 0);
    }

    pub(crate) fn observe_dispatch(&mut self, key: TaskKey, group: u32) {
        self.cost_points += 1;
        self.spend_on(Function::Switch, Sites::NONE.with(Site::Dispatch), self.machine.costs.switch);
        let task = self.stream.task(key);
        if let Some(cpu) = self.acting_cpu() {
            cpu.dispatched = (task, group);
        }
        self.record(RecordKind::Dispatch, task, group.into());
    }

    /// Its address may be another task's by now: it has a number since it was dispatched.
    pub(crate) fn observe_leave(&mut self) {
        let (task, group) = self.acting_cpu().map_or((u32::MAX, u32::MAX), |cpu| cpu.dispatched);
        self.record(RecordKind::Leave, task, group.into());
    }

    pub(crate) fn observe_queue(&mut self, cpu: CpuId, count: usize) {
        self.record(RecordKind::Queue, cpu.get(), count as u64);
    }

    pub(crate) fn observe_clock(&mut self, group: GroupId, clock: Vtime) {
        self.record(RecordKind::Clock, group.get(), clock.bits());
    }

    pub(super) fn begin_user(&mut self, cpu: CpuId) {
        self.record(RecordKind::UserBegin, 0, 0);
        let state = &mut self.cpus[cpu.index()];
        state.is_in_user = true;
        state.worked_before = state.books.of(Activity::Work);
        self.come_into(Sites::NONE);
    }

    pub(super) fn record_user_end(&mut self, cpu: CpuId) {
        let state = &self.cpus[cpu.index()];
        let worked = state.books.of(Activity::Work).minus(state.worked_before);
        self.record(RecordKind::UserEnd, 0, worked.as_nanos());
    }

    /// What is kept begins with the CPUs that are idle: who only sees what follows could not tell.
    pub(crate) fn keep_records(&mut self, max: usize) {
        self.stream.keep(max);
        for (index, cpu) in (0u32..).zip(&self.cpus) {
            if let Phase::Idle { since } = cpu.phase {
                let (at, cpu) = (since.max(self.now), CpuId::new(index));
                self.stream.keep_only(Record { at, cpu, kind: RecordKind::Park, a: 0, b: 0 });
            }
        }
    }

    pub(crate) fn records(&self) -> &[Record] {
        self.stream.kept()
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.stream.left_out()
    }

    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        self.stream.take_kept()
    }

    pub(crate) fn digest(&self) -> (u64, u64) {
        self.stream.digest()
    }
}
