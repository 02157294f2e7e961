//! `evenkeel bench-sim`: how fast the simulator is, and how much memory it takes.
//!
//! On each machine one task per CPU computes 2.5 µs and sleeps 53 µs, again and again: the shortest work that the
//! experiments need, so that nearly all of the real time goes to the simulator and to the engine that it runs. Each machine
//! has a process of its own: its largest size is known then, and no run uses what another has warmed up.
//!
//! Knows nothing of scenarios.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_core::{Span, Time};
use evenkeel_sim::{Activity, Config, Simulation};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::os;
use crate::report::JsonFile;

/// What each task computes and sleeps: the loop of the newidle experiment.
const COMPUTES: Duration = Duration::from_nanos(2_500);
const SLEEPS: Duration = Duration::from_micros(53);

/// The longest time to simulate, in ms.
const MILLIS_MAX: u64 = 60_000;

/// What `evenkeel bench-sim` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchSimArgs {
    /// The machines to simulate, by name or file
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_values = ["flat-8", "flat-64", "spr-224", "flat-256", "big-1024"])]
    machines: Vec<String>,

    /// Virtual milliseconds to simulate on each
    #[arg(long, value_name = "N", default_value = "100")]
    millis: NonZeroU64,

    /// Groups that the tasks are dealt to
    #[arg(long, value_name = "N", default_value = "1")]
    groups: NonZeroU64,

    /// Also write every figure to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Simulate one machine here and tell the figures as JSON
    #[arg(long, hide = true)]
    here: bool,
}

/// What was measured on one machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Figures {
    machine: String,
    cpus: usize,
    groups: u64,
    virtual_s: f64,
    real_s: f64,
    cost_points_per_s: f64,
    events_per_s: f64,
    turns_per_s: f64,
    /// Accesses, locks and so on per poll.
    cost_points_per_poll: f64,
    polls: u64,
    /// Of the CPU time of the simulated machine.
    scheduler_pct: f64,
    lock_wait_pct: f64,
    /// At the largest, less what the process had before; `None` where the system does not tell.
    peak_mib: Option<f64>,
    /// The same for one CPU with its task.
    kib_per_cpu: Option<f64>,
}

/// Measures, and prints a table.
pub(crate) fn command(args: &BenchSimArgs) -> Result<(), Failure> {
    if args.millis.get() > MILLIS_MAX {
        return Err(Failure::Input(format!("--millis {}: expected 1 to {MILLIS_MAX}", args.millis)));
    }
    if args.here {
        let figures = measure(args)?;
        let text = serde_json::to_string(&figures).map_err(|error| Failure::Internal(error.to_string()))?;
        os::show(format_args!("{text}\n"));
        return Ok(());
    }
    // Names are looked at before anything runs for long.
    args.machines.iter().try_for_each(|name| crate::machines::named(name).map(drop))?;
    let json = args.json.as_deref().map(JsonFile::open).transpose()?;
    os::show(format_args!("{HEADER}\n"));
    let mut all = Vec::new();
    for name in &args.machines {
        let figures = in_a_process(args, name)?;
        os::show(format_args!("{}\n", row(&figures)));
        all.push(figures);
    }
    json.map_or(Ok(()), |json| json.write(&all))
}

const HEADER: &str = "machine            CPUs  groups  virtual s   real s    points/s   events/s    turns/s  points/poll  sched %  wait %  peak MiB  KiB/CPU";

fn row(figures: &Figures) -> String {
    let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    format!(
        "{:<17} {:>5} {:>7} {:>10.3} {:>8.2} {:>11.0} {:>10.0} {:>10.0} {:>12.1} {:>8.1} {:>7.2} {:>9} {:>8}",
        figures.machine,
        figures.cpus,
        figures.groups,
        figures.virtual_s,
        figures.real_s,
        figures.cost_points_per_s,
        figures.events_per_s,
        figures.turns_per_s,
        figures.cost_points_per_poll,
        figures.scheduler_pct,
        figures.lock_wait_pct,
        or_dash(figures.peak_mib),
        or_dash(figures.kib_per_cpu),
    )
}

/// Measures one machine in a process of its own.
fn in_a_process(args: &BenchSimArgs, machine: &str) -> Result<Figures, Failure> {
    let failed = |what: String| Failure::Internal(format!("--machines {machine}: {what}"));
    let program = std::env::current_exe().map_err(|error| failed(format!("can't find this program: {error}")))?;
    let output = Command::new(program)
        .args(["bench-sim", "--here", "--machines", machine])
        .args(["--millis", &args.millis.to_string(), "--groups", &args.groups.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(format!("can't start this program again: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("the process that simulated it ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("no figures came back: {error}")))
}

fn measure(args: &BenchSimArgs) -> Result<Figures, Failure> {
    let [name] = &args.machines[..] else {
        return Err(Failure::Input("--here: expected one machine".to_owned()));
    };
    let machine = crate::machines::named(name)?;
    let cpus = machine.cpus();
    let before = peak_bytes();
    let mut sim = Simulation::new(Config::new(machine)).map_err(|error| Failure::Internal(error.to_string()))?;
    let handle = sim.handle();
    let group = |number| handle.group(format!("sleepers-{number}")).build();
    let groups = (0..args.groups.get()).map(group).collect::<Result<Vec<_>, _>>();
    let groups = groups.map_err(|error| Failure::Internal(error.to_string()))?;
    sim.with(|_| {
        for group in groups.iter().cycle().take(cpus) {
            drop(group.spawn(async {
                loop {
                    evenkeel::run(COMPUTES).await;
                    evenkeel::sleep(SLEEPS).await;
                }
            }));
        }
    });
    let length = Span::from_millis(args.millis.get());
    let began = Instant::now();
    sim.run_until(Time::ZERO.after(length)).map_err(|failure| Failure::Simulation(failure.to_string()))?;
    let took = began.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
    let figures = figures(&sim, name, args, took, before);
    sim.stop().map_err(|failure| Failure::Simulation(failure.to_string()))?;
    Ok(figures)
}

fn figures(sim: &Simulation, name: &str, args: &BenchSimArgs, took: f64, before: Option<u64>) -> Figures {
    let (speed, stats, total) = (sim.speed(), sim.handle().stats(), sim.accounting().total());
    let cpus = stats.cpus.len();
    let percent = |span: Span| 100.0 * span.as_secs_f64() / total.total().as_secs_f64();
    let polls = stats.total(|cpu| cpu.polls);
    let peak = peak_bytes().zip(before).map(|(now, before)| now.saturating_sub(before) as f64 / 1024.0);
    Figures {
        machine: name.to_owned(),
        cpus,
        groups: args.groups.get(),
        virtual_s: sim.now().since(Time::ZERO).as_secs_f64(),
        real_s: took,
        cost_points_per_s: speed.cost_points as f64 / took,
        events_per_s: sim.digest().count as f64 / took,
        turns_per_s: speed.turns as f64 / took,
        cost_points_per_poll: speed.cost_points as f64 / polls.max(1) as f64,
        polls,
        scheduler_pct: percent(total.scheduler()),
        lock_wait_pct: percent(total.of(Activity::LockWait)),
        peak_mib: peak.map(|kib| kib / 1024.0),
        kib_per_cpu: peak.map(|kib| kib / cpus as f64),
    }
}

/// The most bytes of memory that this process ever had, where the system tells.
fn peak_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
