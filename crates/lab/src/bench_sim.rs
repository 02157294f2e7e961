//! `evenkeel bench-sim`: how fast the simulator is, and what memory it takes.
//!
//! On each machine there is a task per CPU that computes for 2.5 us and sleeps for 53 us, again and again: little work, and
//! much for a scheduler to do. Each machine is simulated by a process of its own, whose memory nothing else has touched.
//!
//! Knows nothing of scenarios.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::machines;
use crate::report::JsonFile;
use evenkeel::{Group, Span, Time};
use evenkeel_sim::{Activity, Config, Simulation};

const COMPUTES: Duration = Duration::from_nanos(2_500);
const SLEEPS: Duration = Duration::from_micros(53);

/// Tasks that do nothing, for the memory that a task takes: enough for pages not to matter.
const IDLE_TASKS: usize = 20_000;

/// Measures how fast machines are simulated, and what memory that takes
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BenchSimArgs {
    /// The machines, separated by commas: as for `run --machine`
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "flat-8,flat-64,spr-224,flat-256,flat-1024"
    )]
    machines: Vec<String>,
    /// For how long each is simulated, in milliseconds of virtual time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,
    /// Writes all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures the one machine in this process, and prints its figures as JSON: what the command starts
    #[arg(long, hide = true)]
    alone: bool,
}

/// The figures of one machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Figures {
    machine: String,
    cpus: usize,
    virtual_s: f64,
    real_s: f64,
    cost_points_per_s: f64,
    events_per_s: f64,
    turns_per_s: f64,
    polls: u64,
    /// Of the time of all CPUs.
    scheduler_pct: f64,
    lock_wait_pct: f64,
    /// Of memory that is resident at the end, where the system tells.
    bytes_per_cpu: Option<u64>,
    bytes_per_task: Option<u64>,
}

/// Carries out the command.
pub(crate) fn command(args: &BenchSimArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let cannot = |error: std::io::Error| Failure::Internal(format!("can't print the figures: {error}"));
    if let ([machine], true) = (&args.machines[..], args.alone) {
        let figures = measure(machine, Span::from_millis(args.millis))?;
        let text = serde_json::to_string(&figures).map_err(|error| Failure::Internal(error.to_string()))?;
        return writeln!(out, "{text}").map_err(cannot);
    }
    // What is wrong is told before minutes have passed.
    args.machines.iter().try_for_each(|name| machines::named(name).map(drop))?;
    let json = args.json.as_deref().map(JsonFile::open).transpose()?;
    writeln!(out, "{HEAD}").map_err(cannot)?;
    let mut all = Vec::new();
    for machine in &args.machines {
        let figures = measure_apart(machine, args.millis)?;
        writeln!(out, "{}", row(&figures)).and_then(|()| out.flush()).map_err(cannot)?;
        all.push(figures);
    }
    json.map_or(Ok(()), |json| json.write(&all))
}

const HEAD: &str =
    "machine             CPUs   real s  M points/s  M events/s  M turns/s   sched %   wait %  KiB/CPU  B/task";

fn row(of: &Figures) -> String {
    let count =
        |bytes: Option<u64>, unit: u64| bytes.map_or_else(|| "-".to_owned(), |bytes| (bytes / unit).to_string());
    format!(
        "{:<18} {:>5} {:>8.2} {:>11.2} {:>11.2} {:>10.2} {:>9.1} {:>8.1} {:>8} {:>7}",
        of.machine,
        of.cpus,
        of.real_s,
        of.cost_points_per_s / 1e6,
        of.events_per_s / 1e6,
        of.turns_per_s / 1e6,
        of.scheduler_pct,
        of.lock_wait_pct,
        count(of.bytes_per_cpu, 1 << 10),
        count(of.bytes_per_task, 1),
    )
}

/// The figures of a machine that another process simulates.
fn measure_apart(machine: &str, millis: u64) -> Result<Figures, Failure> {
    let fail = |what: String| Failure::Internal(format!("{machine} could not be measured: {what}"));
    let program = std::env::current_exe().map_err(|error| fail(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["bench-sim", "--alone", "--machines", machine, "--millis", &millis.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| fail(error.to_string()))?;
    if !output.status.success() {
        return Err(fail(output.status.to_string()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| fail(error.to_string()))
}

fn measure(name: &str, length: Span) -> Result<Figures, Failure> {
    let machine = machines::named(name)?;
    let (name, cpus) = (machine.name.clone(), machine.cpus());
    let before = resident();
    let mut sim = Simulation::new(Config::new(machine)).map_err(|error| Failure::Internal(error.to_string()))?;
    let group = sim.handle().group("sleepers").build().map_err(|error| Failure::Internal(error.to_string()))?;
    sim.with(|_| (0..cpus).for_each(|_| spawn_sleeper(&group)));
    let began = Instant::now();
    let failed = |failure: evenkeel_sim::Failure| Failure::Simulation(failure.to_string());
    sim.run_until(Time::ZERO.after(length)).map_err(failed)?;
    let real_s = began.elapsed().as_secs_f64();
    let after = resident();
    let (speed, events, total) = (sim.speed(), sim.digest().count, sim.accounting().total());
    let percent = |span: Span| 100.0 * span.as_secs_f64() / total.total().as_secs_f64();
    let figures = Figures {
        machine: name,
        cpus,
        virtual_s: length.as_secs_f64(),
        real_s,
        cost_points_per_s: speed.cost_points as f64 / real_s,
        events_per_s: events as f64 / real_s,
        turns_per_s: speed.turns as f64 / real_s,
        polls: sim.handle().stats().total(|cpu| cpu.polls),
        scheduler_pct: percent(total.scheduler()),
        lock_wait_pct: percent(total.of(Activity::LockWait)),
        bytes_per_cpu: grown(before, after, cpus),
        bytes_per_task: idle_tasks(&mut sim, &group),
    };
    sim.stop().map_err(failed)?;
    Ok(figures)
}

fn spawn_sleeper(group: &Group) {
    drop(group.spawn(async {
        loop {
            evenkeel::run(COMPUTES).await;
            evenkeel::sleep(SLEEPS).await;
        }
    }));
}

/// What memory tasks take that have been spawned and wait.
fn idle_tasks(sim: &mut Simulation, group: &Group) -> Option<u64> {
    let before = resident();
    sim.with(|_| (0..IDLE_TASKS).for_each(|_| drop(group.spawn(std::future::pending::<()>()))));
    grown(before, resident(), IDLE_TASKS)
}

/// By how much the memory has grown for each of so many.
fn grown(before: Option<u64>, after: Option<u64>, count: usize) -> Option<u64> {
    Some(after?.saturating_sub(before?) / count as u64)
}

/// Bytes of memory that this process has.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
