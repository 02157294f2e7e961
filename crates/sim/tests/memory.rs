//! How much memory a simulated machine takes. A test program of its own: it asks what the whole process has.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what goes wrong fails the test")]

mod common;

use common::{machine, us};
use evenkeel_core::Time;
use evenkeel_engine::api;
use evenkeel_sim::{Config, Simulation};
use std::time::Duration;

/// The most bytes that this process ever had.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// What a machine with one task per CPU, which computes and sleeps, adds per CPU.
fn bytes_per_cpu(name: &str, micros: u64) -> u64 {
    let before = peak();
    let mut sim = Simulation::new(Config::new(machine(name))).unwrap();
    let cpus = sim.accounting().cpus.len();
    sim.with(|handle| {
        for _ in 0..cpus {
            drop(handle.spawn(async {
                loop {
                    api::compute(Duration::from_nanos(2_500));
                    api::sleep(Duration::from_micros(53)).await;
                }
            }));
        }
    });
    sim.run_until(Time::ZERO.after(us(micros))).unwrap();
    sim.stop().unwrap();
    (peak() - before) / cpus as u64
}

#[test]
fn a_cpu_and_its_task_take_a_few_pages() {
    // Small machines first: a peak never comes down.
    let (spr, big) = (bytes_per_cpu("spr-224", 200), bytes_per_cpu("big-1024", 10));
    assert!(spr < 128 << 10, "{spr} bytes per CPU of 224");
    assert!(big < 128 << 10, "{big} bytes per CPU of 1,024");
    println!("{spr} bytes per CPU of 224, {big} per CPU of 1,024");
}
