//! Programs of tasks: compiled from nested steps to a flat list, with what can be said about one
//! before it runs: whether it ends, its longest poll. What work it will do is in `plan.rs`.
//!
//! Knows nothing of how a task is carried out.
//!
//! # Invariants
//! - P1: `Begin` and `End` are balanced, and every `slot` is below [`NEST_MAX`].
//! - P2: a loop without a count contains something that takes time or gives way.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use super::GroupIndex;
use super::family;
use super::plan;
use super::raw::{self, Step};
use super::source::Wrong;
use super::time::{Offset, Time};

/// Loops and spawns within one another. Deeper ones are surely a slip, and the counters of a
/// task's loops are stored within the task.
pub(crate) const NEST_MAX: usize = 8;

/// Steps of all programs of a scenario together.
const STEPS_MAX: usize = 100_000;

/// Largest count of a loop.
const TIMES_MAX: i64 = 1_000_000_000;

/// Most tasks that one `spawn` step may start.
const SPAWN_MAX: i64 = 10_000;

/// One step, flat.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    Run(Time),
    /// Computes for `run`, and gives way whenever it has computed for `each` and is not done.
    Polls {
        run: Time,
        each: Duration,
    },
    Sleep(Time),
    Yield,
    Wait(usize),
    Notify(usize),
    Lock(usize),
    Unlock(usize),
    Spawn(SpawnOp),
    /// Sets the counter of `slot`; `None` loops until the end of the run.
    Begin {
        slot: usize,
        times: Option<u32>,
    },
    /// Counts down `slot` and goes back to `body` unless it was the last round.
    End {
        slot: usize,
        body: usize,
    },
    /// The end of a round that is on and off in turn: goes back to `body`, in an off time only when it is over.
    Pace {
        on: Duration,
        off: Duration,
        body: usize,
    },
    Exit,
}

/// Tasks started by a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpawnOp {
    /// `None`: the group of the task that spawns.
    pub(crate) group: Option<GroupIndex>,
    pub(crate) count: u32,
    pub(crate) program: Arc<Program>,
}

/// What a task does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Program {
    ops: Vec<Op>,
    ends: bool,
    longest_poll: Option<Duration>,
    mean_burst: Option<Duration>,
}

impl Program {
    fn new(ops: Vec<Op>, ends: bool, longest_poll: Option<Duration>) -> Program {
        Program { mean_burst: plan::mean_burst(&ops), ops, ends, longest_poll }
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether a task comes to the end of the program by itself.
    pub(crate) fn ends(&self) -> bool {
        self.ends
    }

    /// The mean of the longest burst of a task that computes and sleeps in turn, and does nothing else: its work between
    /// two sleeps is known when the first of them ends. `None` for other programs.
    pub(crate) fn mean_burst(&self) -> Option<Duration> {
        self.mean_burst
    }

    /// The longest computing between two points where the task gives way; `None` without such
    /// points in an endless loop. Includes the programs it spawns.
    pub(crate) fn longest_poll(&self) -> Option<Duration> {
        self.longest_poll
    }

    /// Whether a task of group `own` with this program spawns tasks into `group`, by itself or through others.
    pub(crate) fn spawns_into(&self, group: GroupIndex, own: GroupIndex) -> bool {
        self.ops.iter().any(|op| match op {
            Op::Spawn(spawn) => {
                let of = spawn.group.unwrap_or(own);
                of == group || spawn.program.spawns_into(group, of)
            }
            _ => false,
        })
    }
}

/// Names shared by the programs of a scenario, numbered in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<String, usize>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    fn number(&mut self, name: &str) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(name.to_owned()).or_insert(next)
    }
}

/// Compiles the programs of one scenario.
#[derive(Debug)]
pub(crate) struct Compiler<'a> {
    pub(crate) groups: &'a family::Names,
    pub(crate) signals: Names,
    pub(crate) locks: Names,
    pub(crate) steps: usize,
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(groups: &'a family::Names) -> Compiler<'a> {
        Compiler { groups, signals: Names::default(), locks: Names::default(), steps: 0 }
    }

    /// Compiles one program.
    pub(crate) fn program(&mut self, steps: &Spanned<Vec<Spanned<Step>>>) -> Result<Program, Wrong> {
        self.nested(steps, 0)
    }

    fn nested(&mut self, steps: &Spanned<Vec<Spanned<Step>>>, depth: usize) -> Result<Program, Wrong> {
        let mut building = Building { ops: Vec::new(), held: Vec::new(), ends: true, spawned: Some(Duration::ZERO) };
        let stretch = self.block(&mut building, steps, Depth { loops: 0, all: depth })?;
        let longest_poll = match (stretch.longest(), building.spawned) {
            (Some(own), Some(spawned)) => Some(own.max(spawned)),
            _ => None,
        };
        Ok(Program::new(building.ops, building.ends, longest_poll))
    }

    fn block(
        &mut self,
        into: &mut Building,
        steps: &Spanned<Vec<Spanned<Step>>>,
        depth: Depth,
    ) -> Result<Stretch, Wrong> {
        if steps.get_ref().is_empty() {
            return Err(Wrong::new(steps.span(), "an empty program, expected at least one step"));
        }
        if depth.all > NEST_MAX || depth.loops > NEST_MAX {
            return Err(Wrong::new(steps.span(), format!("nested too deep, expected at most {NEST_MAX} levels")));
        }
        let mut stretch = Stretch::default();
        for (number, step) in steps.get_ref().iter().enumerate() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(Wrong::new(step.span(), format!("too many steps, expected at most {STEPS_MAX} in all")));
            }
            if !Building::reachable(number, steps.get_ref()) {
                return Err(Wrong::new(step.span(), "never reached: the step before it doesn't end"));
            }
            stretch = stretch.then(self.step(into, step, depth)?);
        }
        Ok(stretch)
    }

    fn step(&mut self, into: &mut Building, step: &Spanned<Step>, depth: Depth) -> Result<Stretch, Wrong> {
        let (op, stretch) = match step.get_ref() {
            Step::Run(time) => (Op::Run(*time), Stretch::run(time.longest())),
            Step::Polls(polls) => {
                let each = positive(&polls.each, "each")?;
                (Op::Polls { run: polls.run, each }, Stretch::polls(&polls.run, each))
            }
            Step::Sleep(time) => (Op::Sleep(*time), Stretch::pause()),
            Step::Yield => (Op::Yield, Stretch::pause()),
            Step::Wait(name) => (Op::Wait(self.signals.number(text(name)?)), Stretch::may_pause()),
            Step::Notify(name) => (Op::Notify(self.signals.number(text(name)?)), Stretch::default()),
            Step::Lock(name) => (Op::Lock(self.lock(into, name)?), Stretch::may_pause()),
            Step::Unlock(name) => (Op::Unlock(self.unlock(into, name)?), Stretch::default()),
            Step::Spawn(spawn) => (Op::Spawn(self.spawn(into, spawn, depth)?), Stretch::default()),
            Step::Repeat(repeat) => return self.repeat(into, repeat, &step.span(), depth),
            Step::Exit => (Op::Exit, Stretch::default()),
        };
        into.ops.push(op);
        Ok(stretch)
    }

    fn lock(&mut self, into: &mut Building, name: &Spanned<String>) -> Result<usize, Wrong> {
        let lock = self.locks.number(text(name)?);
        if into.held.contains(&lock) {
            return Err(Wrong::new(
                name.span(),
                format!("`{}` is already held here, expected an unlock before", name.get_ref()),
            ));
        }
        into.held.push(lock);
        Ok(lock)
    }

    fn unlock(&mut self, into: &mut Building, name: &Spanned<String>) -> Result<usize, Wrong> {
        let lock = self.locks.number(text(name)?);
        let held = into.held.iter().position(|&held| held == lock);
        let held = held.ok_or_else(|| {
            Wrong::new(name.span(), format!("`{}` is not held here, expected a lock before", name.get_ref()))
        })?;
        into.held.remove(held);
        Ok(lock)
    }

    fn spawn(&mut self, into: &mut Building, spawn: &raw::Spawn, depth: Depth) -> Result<SpawnOp, Wrong> {
        let group = spawn.group.as_ref().map(|name| self.groups.find_one(name)).transpose()?;
        let count = spawn.count.as_ref().map_or(Ok(1), |count| in_range(count, "count", 1..SPAWN_MAX + 1))?;
        let program = self.nested(&spawn.program, depth.all + 1)?;
        into.spawned = match (into.spawned, program.longest_poll) {
            (Some(so_far), Some(this)) => Some(so_far.max(this)),
            _ => None,
        };
        Ok(SpawnOp { group, count, program: Arc::new(program) })
    }

    fn repeat(
        &mut self,
        into: &mut Building,
        repeat: &raw::Repeat,
        at: &Range<usize>,
        depth: Depth,
    ) -> Result<Stretch, Wrong> {
        let times = repeat.times.as_ref().map(|times| in_range(times, "times", 1..TIMES_MAX + 1)).transpose()?;
        let pace = pace(repeat, at)?;
        let slot = depth.loops;
        let held = into.held.clone();
        if pace.is_none() {
            into.ops.push(Op::Begin { slot, times });
        }
        let body = into.ops.len();
        let inside = Depth { loops: depth.loops + 1, all: depth.all + 1 };
        let stretch = self.block(into, &repeat.program, inside)?;
        if into.held != held {
            return Err(Wrong::new(
                at.clone(),
                "a round of this repeat leaves other locks held than it found, expected the same",
            ));
        }
        if times.is_none() {
            if !into.ops[body..].iter().any(takes_time) {
                let message = "an endless repeat that takes no time, expected a run, sleep, yield, wait or lock in it";
                return Err(Wrong::new(at.clone(), message));
            }
            // An exit inside ends it.
            into.ends = into.ops[body..].contains(&Op::Exit);
        }
        into.ops.push(match pace {
            Some((on, off)) => Op::Pace { on, off, body },
            None => Op::End { slot, body },
        });
        Ok(stretch.repeated(times))
    }
}

fn takes_time(op: &Op) -> bool {
    matches!(op, Op::Run(_) | Op::Polls { .. } | Op::Sleep(_) | Op::Yield | Op::Wait(_) | Op::Lock(_))
}

/// How long a repeat is on and off in turn, if it is.
fn pace(repeat: &raw::Repeat, at: &Range<usize>) -> Result<Option<(Duration, Duration)>, Wrong> {
    match (&repeat.on, &repeat.off, &repeat.times) {
        (None, None, _) => Ok(None),
        (Some(on), Some(off), None) => Ok(Some((positive(on, "on")?, positive(off, "off")?))),
        (Some(_), Some(_), Some(times)) => {
            Err(Wrong::new(times.span(), "`times` beside `on` and `off`, expected a repeat without end"))
        }
        _ => Err(Wrong::new(at.clone(), "one of `on` and `off`, expected both or none")),
    }
}

/// How deep a step is nested.
#[derive(Debug, Clone, Copy)]
struct Depth {
    /// Loops of its own program around it.
    loops: usize,
    /// Loops and spawns of all programs around it.
    all: usize,
}

/// A program under construction.
struct Building {
    ops: Vec<Op>,
    /// Locks held at this step, in the order they were taken.
    held: Vec<usize>,
    ends: bool,
    /// The longest poll of the programs it spawns.
    spawned: Option<Duration>,
}

impl Building {
    /// Whether step `number` of `block` can be reached.
    fn reachable(number: usize, block: &[Spanned<Step>]) -> bool {
        let endless = |step: &Step| match step {
            Step::Exit => true,
            Step::Repeat(repeat) => repeat.times.is_none(),
            _ => false,
        };
        number == 0 || !endless(block[number - 1].get_ref())
    }
}

/// The lengths of computing in a piece of program, as far as polls are concerned. Times saturate.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    /// Computing before the first point that gives way, or in all without one.
    head: Duration,
    /// Computing after the last such point.
    tail: Duration,
    /// The longest in between.
    inner: Duration,
    pauses: bool,
    endless: bool,
}

impl Stretch {
    fn run(time: Duration) -> Stretch {
        Stretch { head: time, ..Stretch::default() }
    }

    /// Polls of `each`, the last one shorter. Only a time that is always longer is sure to give way.
    fn polls(run: &Time, each: Duration) -> Stretch {
        let each = each.min(run.longest());
        if run.shortest() > each {
            Stretch { head: each, tail: each, inner: each, pauses: true, endless: false }
        } else {
            Stretch::run(each)
        }
    }

    fn pause() -> Stretch {
        Stretch { pauses: true, ..Stretch::default() }
    }

    /// A wait that is over at once doesn't give way, so it can't be counted on.
    fn may_pause() -> Stretch {
        Stretch::default()
    }

    fn then(self, next: Stretch) -> Stretch {
        let endless = self.endless || next.endless;
        match (self.pauses, next.pauses) {
            (false, false) => Stretch { head: self.head.saturating_add(next.head), endless, ..self },
            (false, true) => Stretch { head: self.head.saturating_add(next.head), endless, ..next },
            (true, false) => Stretch { tail: self.tail.saturating_add(next.head), endless, ..self },
            (true, true) => {
                let between = self.tail.saturating_add(next.head);
                let inner = self.inner.max(next.inner).max(between);
                Stretch { head: self.head, tail: next.tail, inner, pauses: true, endless }
            }
        }
    }

    /// `None` repeats for ever.
    fn repeated(self, times: Option<u32>) -> Stretch {
        match (self.pauses, times) {
            (false, None) => Stretch { endless: true, ..self },
            (false, Some(times)) => Stretch { head: self.head.saturating_mul(times), ..self },
            (true, Some(1)) => self,
            (true, _) => self.then(self),
        }
    }

    fn longest(self) -> Option<Duration> {
        (!self.endless).then(|| self.head.max(self.inner).max(self.tail))
    }
}

/// `value` as a count, if it lies in `range`.
pub(crate) fn in_range(value: &Spanned<i64>, what: &str, range: Range<i64>) -> Result<u32, Wrong> {
    let number = *value.get_ref();
    let fits = range.contains(&number).then(|| u32::try_from(number).ok()).flatten();
    fits.ok_or_else(|| {
        let message = format!("{what} = {number}, expected {} to {}", range.start, range.end - 1);
        Wrong::new(value.span(), message)
    })
}

fn positive(time: &Spanned<Offset>, what: &str) -> Result<Duration, Wrong> {
    match time.get_ref().0 {
        Duration::ZERO => Err(Wrong::new(time.span(), format!("{what} is no time at all, expected at least 1ns"))),
        time => Ok(time),
    }
}

fn text(name: &Spanned<String>) -> Result<&str, Wrong> {
    match name.get_ref().as_str() {
        "" => Err(Wrong::new(name.span(), "an empty name, expected some text")),
        name => Ok(name),
    }
}
