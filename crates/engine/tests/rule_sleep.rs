//! The sharing rule in virtual time: sleep earns no credit, debt stays, what is owed stays owed, and who sleeps much is
//! served soon.

mod common;

use common::fluid::Demand;
use common::workloads::{backlog, closed_loop, interactive, on_off};
use common::{Bench, at_ms, ms, us};
use evenkeel_core::Time;
use evenkeel_engine::api::yield_now;
use evenkeel_engine::test_host::TestConfig;

#[test]
fn sleeper_gains_no_credit() {
    for cpus in [1, 4] {
        let mut bench = Bench::flat(cpus);
        let (hog, sleeper) = (bench.group(100), bench.group(100));
        bench.hogs(hog, 2 * cpus, us(50));
        bench.hogs_at(at_ms(500), sleeper, 2 * cpus, us(50));
        bench.run(7);
        let first = bench.account()[5][sleeper];
        let credit = (first.got - first.due) / 1e6;
        assert!(credit <= 1.1 * cpus as f64, "{cpus} CPUs: {credit} ms more than its share in the first window");
    }
}

#[test]
fn debt_is_not_forgiven_by_sleeping() {
    let mut bench = Bench::flat(1);
    let (hog, greedy) = (bench.group(100), bench.group(100));
    // Two tasks: one always waits, so that what the group is owed is a claim.
    bench.hogs(hog, 2, us(50));
    let ledger = bench.ledger.clone();
    ledger.ask(Time::ZERO, greedy, Demand::Tasks(1));
    drop(bench.groups[greedy].spawn(async move {
        loop {
            ledger.work(greedy, ms(20));
            ledger.sleep_until(greedy, evenkeel_engine::api::now().after(ms(1))).await;
        }
    }));
    bench.run(20);
    let share = bench.cpus_of(greedy, 1, 20);
    assert!(share.got <= 0.5, "long polls and short sleeps give {share:?}");
}

#[test]
fn owed_service_survives_a_wake_elsewhere() {
    // Two tasks of `owed` wait behind polls longer than a slice, while four others wake all the time on whatever CPU.
    let mut bench = Bench::flat(2);
    let (hog, owed) = (bench.group(100), bench.group(100));
    bench.hogs(hog, 8, ms(2));
    bench.hogs(owed, 2, us(50));
    bench.clients(owed, 4, us(50), us(500), us(50));
    bench.run(21);
    let share = bench.cpus_of(owed, 1, 21);
    assert!(share.error() < 2.0, "{share:?}");
}

#[test]
fn yielder_is_charged_all_its_time() {
    let mut config = TestConfig::flat(2);
    config.poll_min = us(2);
    let mut bench = Bench::new(config);
    let (compute, yielder) = (bench.group(100), bench.group(100));
    bench.hogs(compute, 4, us(50));
    bench.ledger.ask(Time::ZERO, yielder, Demand::Tasks(4));
    for _ in 0..4 {
        drop(bench.groups[yielder].spawn(async {
            loop {
                yield_now().await;
            }
        }));
    }
    bench.run(4);
    let got = bench.cpus_of(compute, 1, 4).got;
    assert!((0.98..=1.02).contains(&got), "computing beside yielding gives {got} CPUs of 1");
}

#[test]
fn on_and_off_groups_get_their_share() {
    let errors = [1, 2, 3].map(|seed| {
        let mut config = TestConfig::flat(4);
        config.machine.seed = seed;
        config.check_every = 64;
        let mut bench = Bench::new(config);
        on_off(&mut bench, 4, ms(10), us(50));
        bench.run(11);
        bench.errors(1, 10).max
    });
    // It gains a slice per wake: some 5 % of what is due in one cycle.
    assert!(errors.iter().sum::<f64>() / 3.0 <= 2.0 * 4.6, "{errors:?}");
}

#[test]
fn closed_loops_of_uneven_demand_get_their_share() {
    let mut bench = Bench::flat(16);
    closed_loop(&mut bench, 16, us(250));
    bench.run(22);
    let (short, long) = (bench.errors(2, 1), bench.errors(2, 10));
    assert!(short.p99 <= 2.0 * 13.0 && long.max <= 2.0 * 3.9, "{short:?} {long:?}");
}

#[test]
fn an_interactive_group_does_not_wait_for_the_slices_of_hogs() {
    for (cpus, hogs) in [(2, 1), (2, 4), (4, 4), (64, 4)] {
        let mut bench = Bench::flat(cpus);
        let group = interactive(&mut bench, cpus, hogs, us(50));
        bench.run(if cpus > 4 { 2 } else { 11 });
        let wait = bench.wait(group, 990);
        assert!(wait <= us(100), "{cpus} CPUs, {hogs} hog groups: {wait:?}");
    }
}

#[test]
fn a_quiet_group_beside_one_noisy_one_is_served_at_the_next_end_of_a_poll() {
    let mut bench = Bench::flat(2);
    backlog(&mut bench, &[100], 200, us(50));
    let quiet = bench.group(100);
    bench.clients(quiet, 1, us(100), us(4_900), us(100));
    bench.run(21);
    let wait = bench.wait(quiet, 990);
    assert!(wait <= us(100), "{wait:?}");
}
