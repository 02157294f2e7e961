//! Turns the raw shape of a machine file into the checked one.
//!
//! Knows nothing of files: every error carries the place in the text.

use super::source::Wrong;
use super::topology::{CPUS_MAX, Distance, Shape, Topology};
use super::{Costs, DeepIdle, Machine, Tick, raw};
use evenkeel_core::Span;
use std::ops::RangeInclusive;
use toml::Spanned;

/// A cost beyond this is a mistake: no operation of a scheduler takes a hundred milliseconds.
const COST: RangeInclusive<i64> = 0..=100_000_000;
/// What must take time, or a CPU could act for ever without its time moving.
const COST_NOT_ZERO: RangeInclusive<i64> = 1..=100_000_000;
/// Up to ten seconds.
const PERIOD_US: RangeInclusive<i64> = 1..=10_000_000;

pub(super) fn machine(name: &str, raw: &raw::Machine) -> Result<Machine, Wrong> {
    let work = raw.work.as_ref();
    let percent = work.and_then(|work| work.beside_busy_sibling_percent.as_ref());
    let permille = work.and_then(|work| work.got_permille.as_ref());
    Ok(Machine {
        name: name.to_owned(),
        topology: topology(&raw.topology)?,
        transfer: transfer(&raw.transfer_ns)?,
        reads_overlap: in_range(&raw.transfer_ns.reads_overlap, "reads_overlap", 1..=32)?.unsigned_abs(),
        shared_read: nanos(in_range(&raw.transfer_ns.shared_read, "shared_read", COST)?),
        costs: costs(raw)?,
        lock: raw.lock.kind,
        deep_idle: deep_idle(&raw.idle)?,
        tick: raw.tick.as_ref().map(tick).transpose()?,
        beside_busy_sibling_percent: optional(percent, "beside_busy_sibling_percent", 10..=100, 100)?,
        got_permille: optional(permille, "got_permille", 100..=1_000, 1_000)?,
    })
}

fn topology(raw: &raw::Topology) -> Result<Topology, Wrong> {
    let level = |value: &Spanned<i64>, what: &str, most: i64| {
        let number = in_range(value, what, 1..=most)?;
        Ok(u32::try_from(number).expect("the range is smaller"))
    };
    let shape = Shape {
        sockets: level(&raw.sockets, "sockets", 1_024)?,
        nodes_per_socket: level(&raw.nodes_per_socket, "nodes_per_socket", 1_024)?,
        caches_per_node: level(&raw.caches_per_node, "caches_per_node", 1_024)?,
        cores_per_cache: level(&raw.cores_per_cache, "cores_per_cache", 1_024)?,
        threads_per_core: level(&raw.threads_per_core, "threads_per_core", 2)?,
    };
    Topology::regular(shape, raw.numbering).ok_or_else(|| {
        let message = format!("{} CPUs in all, expected 1 to {CPUS_MAX}", shape.cpus());
        Wrong { span: raw.sockets.span(), message }
    })
}

/// By distance; what is farther costs no less.
fn transfer(raw: &raw::Transfer) -> Result<[Span; Distance::COUNT], Wrong> {
    let levels = [
        (&raw.sibling, "sibling"),
        (&raw.cache, "cache"),
        (&raw.node, "node"),
        (&raw.socket, "socket"),
        (&raw.machine, "machine"),
    ];
    let mut costs = [Span::ZERO; Distance::COUNT];
    let mut nearer = 1;
    for (distance, (value, what)) in levels.into_iter().enumerate() {
        let most = *COST.end();
        let cost = in_range(value, what, COST_NOT_ZERO)?;
        if cost < nearer {
            let message = format!("{what} = {cost}, expected {nearer} to {most}: no less than what is nearer");
            return Err(Wrong { span: value.span(), message });
        }
        nearer = cost;
        costs[distance + 1] = nanos(cost);
    }
    Ok(costs)
}

fn costs(raw: &raw::Machine) -> Result<Costs, Wrong> {
    let (cost, lock) = (&raw.cost_ns, &raw.lock);
    let any = |value, what| in_range(value, what, COST).map(nanos);
    let some = |value, what| in_range(value, what, COST_NOT_ZERO).map(nanos);
    Ok(Costs {
        hit: some(&cost.hit, "hit")?,
        atomic: any(&cost.atomic, "atomic")?,
        clock_read: some(&cost.clock_read, "clock_read")?,
        queue_operation: some(&cost.queue_operation, "queue_operation")?,
        switch: some(&cost.switch, "switch")?,
        kick: any(&cost.kick, "kick")?,
        kick_delivery: any(&cost.kick_delivery, "kick_delivery")?,
        park: some(&cost.park, "park")?,
        timer_set: any(&cost.timer_set, "timer_set")?,
        timer_fire: any(&cost.timer_fire, "timer_fire")?,
        lock: any(&lock.uncontended_ns, "uncontended_ns")?,
        handover: any(&lock.handover_ns, "handover_ns")?,
        idle_exit: any(&raw.idle.exit_ns, "exit_ns")?,
    })
}

fn deep_idle(raw: &raw::Idle) -> Result<Option<DeepIdle>, Wrong> {
    match (&raw.deep_after_us, &raw.deep_exit_ns) {
        (None, None) => Ok(None),
        (Some(after), Some(exit)) => Ok(Some(DeepIdle {
            after: micros(in_range(after, "deep_after_us", PERIOD_US)?),
            exit: nanos(in_range(exit, "deep_exit_ns", COST)?),
        })),
        (Some(value), None) | (None, Some(value)) => {
            let message = "deep_after_us and deep_exit_ns belong together, expected both or none".to_owned();
            Err(Wrong { span: value.span(), message })
        }
    }
}

fn tick(raw: &raw::Tick) -> Result<Tick, Wrong> {
    let period = in_range(&raw.period_us, "period_us", PERIOD_US)?;
    let handler = in_range(&raw.handler_ns, "handler_ns", COST)?;
    if handler > period * 500 {
        let message =
            format!("handler_ns = {handler}, expected at most half of the period: hardly anything else would run");
        return Err(Wrong { span: raw.handler_ns.span(), message });
    }
    Ok(Tick { period: micros(period), handler: nanos(handler) })
}

fn optional(value: Option<&Spanned<i64>>, what: &str, range: RangeInclusive<i64>, default: u64) -> Result<u64, Wrong> {
    value.map_or(Ok(default), |value| in_range(value, what, range).map(i64::unsigned_abs))
}

fn in_range(value: &Spanned<i64>, what: &str, range: RangeInclusive<i64>) -> Result<i64, Wrong> {
    let number = *value.get_ref();
    if range.contains(&number) {
        return Ok(number);
    }
    let message = format!("{what} = {number}, expected {} to {}", range.start(), range.end());
    Err(Wrong { span: value.span(), message })
}

fn nanos(number: i64) -> Span {
    Span::from_nanos(number.unsigned_abs())
}

fn micros(number: i64) -> Span {
    Span::from_micros(number.unsigned_abs())
}
