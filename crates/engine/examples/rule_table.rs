//! The table of decision 0001: how far the shares of the sharing rule are from the fluid share, in virtual time.
//!
//! ```text
//! cargo run --release -p evenkeel-engine --features test-host --example rule_table
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use common::workloads::{backlog, closed_loop, interactive, on_off, zipf_weights};
use common::{Bench, at_ms, ms, us};
use evenkeel_core::Span;
use evenkeel_engine::Charging;
use evenkeel_engine::test_host::TestConfig;

const POLL: Span = us(50);

fn row(name: &str, config: TestConfig, windows: u64, build: impl FnOnce(&mut Bench)) {
    let cpus = config.machine.caches.len();
    let mut bench = Bench::new(config);
    build(&mut bench);
    bench.run(windows);
    let (short, long) = (bench.errors(1, 1), bench.errors(1, 10));
    let stats = bench.machine.handle().stats();
    let seconds = bench.machine.now().since(at_ms(0)).as_secs_f64();
    let per_second = |count: u64| count as f64 / seconds;
    let (moved, cuts) = (stats.total(|cpu| cpu.migrations), stats.total(|cpu| cpu.cuts));
    println!(
        "{name:<34} {cpus:>5} {:>7.1} {:>7.1} {:>7.1} {:>9.0} {:>9.0}",
        short.p99,
        short.max,
        long.max,
        per_second(moved),
        per_second(cuts)
    );
}

fn wait_row(name: &str, cpus: usize, build: impl FnOnce(&mut Bench) -> usize) {
    let mut bench = Bench::flat(cpus);
    let group = build(&mut bench);
    bench.run(11);
    let wait = |per_mille| bench.wait(group, per_mille).as_secs_f64() * 1e3;
    println!("{name:<34} {cpus:>5} {:>7.3} {:>7.3} {:>7.3}", wait(500), wait(990), wait(1_000));
}

fn main() {
    let flat = TestConfig::flat;
    println!(
        "{:<34} {:>5} {:>7} {:>7} {:>7} {:>9} {:>9}",
        "share error, %", "CPUs", "p99", "max", "max/1s", "moves/s", "cuts/s"
    );
    row("1:10", flat(64), 11, |bench| backlog(bench, &[100, 1_000], 128, POLL));
    for cpus in [4, 64] {
        row("1:2:4:8:16", flat(cpus), 11, |bench| backlog(bench, &[100, 200, 400, 800, 1_600], cpus, POLL));
    }
    row("100 Zipf weights, 3 tasks", flat(64), 11, |bench| backlog(bench, &zipf_weights(), 3, POLL));
    row("100 Zipf weights, 64 tasks", flat(64), 11, |bench| backlog(bench, &zipf_weights(), 64, POLL));
    let mut at_end = flat(64);
    at_end.machine.charging = Charging::AtEnd;
    row("  charged at the end of the slice", at_end, 11, |bench| backlog(bench, &zipf_weights(), 64, POLL));
    for cpus in [16, 64] {
        row("100 groups, closed loop, Zipf", flat(cpus), 21, |bench| closed_loop(bench, cpus, POLL));
    }
    for cpus in [4, 64] {
        row("on/off 10 ms", flat(cpus), 11, |bench| on_off(bench, cpus, ms(10), POLL));
    }
    row("weight changed each 50 ms", flat(64), 11, |bench| {
        backlog(bench, &[100, 1_000], 128, POLL);
        (0..20).for_each(|turn| bench.weight_at(at_ms(50 * turn), 0, if turn % 2 == 0 { 10_000 } else { 100 }));
    });
    println!("\n{:<34} {:>5} {:>7} {:>7} {:>7}", "wait, ms", "CPUs", "p50", "p99", "max");
    for cpus in [2, 4] {
        wait_row("quiet beside one hog group", cpus, |bench| {
            backlog(bench, &[100], 100 * cpus, POLL);
            let quiet = bench.group(100);
            bench.clients(quiet, cpus / 2, us(100), us(4_900), us(100));
            quiet
        });
    }
    for (cpus, hogs) in [(2, 1), (2, 4), (4, 1), (64, 4)] {
        wait_row(&format!("interactive beside {hogs} hog group(s)"), cpus, |bench| {
            interactive(bench, cpus, hogs, POLL)
        });
    }
}
