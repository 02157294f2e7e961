//! How fast the simulator is: tasks that compute 2.5 µs and sleep 53 µs, one per CPU, on machines of 8 to 1,024 CPUs.
//!
//!     cargo run --release -p evenkeel-sim --example bench_sim [virtual milliseconds [machine]]
//!
//! Memory is that of the process at its largest so far: of one machine if only one is named.

use evenkeel_core::{Span, Time};
use evenkeel_engine::api;
use evenkeel_sim::machine::Machine;
use evenkeel_sim::{Activity, Config, Simulation};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let millis = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    println!(
        "{:<8} {:>5} {:>9} {:>12} {:>12} {:>12} {:>11} {:>8} {:>7} {:>7}",
        "machine", "cpus", "real s", "points/s", "events/s", "turns/s", "polls", "sched %", "wait %", "peak MB"
    );
    if let Some(name) = std::env::args().nth(2) {
        return run(&name, Span::from_millis(millis));
    }
    for name in ["flat-4", "flat-16", "flat-64", "spr-224", "epyc-rome-256", "big-1024"] {
        run(name, Span::from_millis(millis))?;
    }
    Ok(())
}

fn run(name: &str, length: Span) -> Result<(), Box<dyn Error>> {
    let machine = Machine::named(name)?;
    let cpus = machine.cpus();
    let mut sim = Simulation::new(Config::new(machine))?;
    let group = sim.handle().group("sleepers").build()?;
    sim.with(|_| {
        for _ in 0..cpus {
            drop(group.spawn(async {
                loop {
                    api::compute(Duration::from_nanos(2_500));
                    api::sleep(Duration::from_micros(53)).await;
                }
            }));
        }
    });
    let began = Instant::now();
    sim.run_until(Time::ZERO.after(length))?;
    let took = began.elapsed().as_secs_f64();
    let (speed, events) = (sim.speed(), sim.digest().count);
    let total = sim.accounting().total();
    let percent = |span: Span| 100.0 * span.as_secs_f64() / total.total().as_secs_f64();
    println!(
        "{name:<8} {cpus:>5} {took:>9.2} {:>12.0} {:>12.0} {:>12.0} {:>11} {:>8.2} {:>7.2} {:>7}",
        speed.cost_points as f64 / took,
        events as f64 / took,
        speed.turns as f64 / took,
        sim.handle().stats().total(|cpu| cpu.polls),
        percent(total.scheduler()),
        percent(total.of(Activity::LockWait)),
        peak().unwrap_or(0) >> 20,
    );
    let mut parts: Vec<_> = Activity::all().map(|activity| (total.of(activity), activity)).collect();
    parts.sort_by_key(|(span, _)| std::cmp::Reverse(*span));
    let parts = parts.iter().take(7).map(|(span, activity)| format!("{activity} {:.1} %", percent(*span)));
    println!("         {}", parts.collect::<Vec<_>>().join(", "));
    println!("         {} KB per CPU and task", (peak().unwrap_or(0) / cpus as u64) >> 10);
    let began = Instant::now();
    sim.stop()?;
    println!("         stopped in {:.2} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// The most bytes of memory that this process ever had, where the system tells.
fn peak() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
